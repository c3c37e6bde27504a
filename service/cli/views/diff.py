"""What a new plan changes, as people read it: in the order in which to do it, and in one line."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sutler.service.cli.views.layout import listed, section, table_of
from sutler.service.deployments.diff.schema import (
    START,
    STOP,
    CapacityStep,
    DiffDocument,
    MachineChange,
    StoppedMachines,
)
from sutler.service.deployments.diff.words import named
from sutler.service.wording.words import contract_words, machine, moment, percent, price

WHOLE: Final = 1 - 1e-6  # shares that miss less of it come from rounding in the solver
MINUS: Final = "\N{MINUS SIGN}"


def diff_view(diff: DiffDocument) -> Iterator[RenderableType]:
    """What to do, in the order in which to do it."""
    cost = diff.usd_per_hour
    came_from = "nothing" if diff.from_ is None else f"revision {diff.from_}"
    yield Text(f"From {came_from} to revision {diff.to}: {diff.reason}", style="bold")
    yield Text(f"{price(cost.before)} $/h before, {price(cost.after)} $/h after ({signed(cost.change)} $/h)")
    if diff.capacity and diff.from_ is not None:
        yield Text(_least_carried(diff.capacity))
    if diff.keep:
        yield from section("Keep", _machines(diff.keep))
    if diff.start:
        yield from section("1. Start and check", _machines(diff.start))
    routes = (f"{route.model}, {route.workload}: {route.reason}" for route in diff.reroute)
    yield from listed("2. Re-route", (*routes, *_restarts(diff)))
    if held := [item for item in diff.stop if item.held]:
        yield from section("3. Stop", _machines(held))
    if gone := list(_gone_for_good(diff)):
        yield from section("Gone, and not needed any more: nothing to do", _machines(gone))


def _least_carried(steps: Sequence[CapacityStep]) -> str:
    """The worst of all steps."""
    worst = min(steps, key=lambda step: step.carried_fraction)
    if worst.carried_fraction >= WHOLE:
        return "All of the new plan's load is carried at every step."
    when = {START: "while the new machines start", STOP: "once the rest has stopped"}.get(
        worst.phase, f"during the restart of {named(worst.restart)}" if worst.restart else "while requests move"
    )
    return f"At worst {percent(worst.carried_fraction)} of the new plan's load is carried: {when}."


def _restarts(diff: DiffDocument) -> Iterator[str]:
    """In their order; of a diff of before that was stated, by machine."""
    turns = [step for step in diff.capacity if step.restart]
    for number, step in enumerate(turns):
        then = "then " if number else ""
        carried = f"{percent(step.carried_fraction)} of the load is carried meanwhile"
        yield f"{then}start anew: {named(step.restart)}; {carried}"
    if not diff.capacity:
        for item in diff.keep:
            if item.restart:
                yield f"start anew on {item.provider} {item.offer_id}: {', '.join(item.restart)}"


def _gone_for_good(diff: DiffDocument) -> Iterator[StoppedMachines]:
    """What is not held and not started anew either: machines that are started are not to be read of twice."""
    started = Counter({item.key: item.count for item in diff.start})
    for item in diff.stop:
        count = item.count - started[item.key]
        if not item.held and count > 0:
            yield item.model_copy(update={"count": count, "usd_per_hour": item.usd_per_hour * count / item.count})


def _machines(items: Iterable[MachineChange]) -> Table:
    table = table_of(texts=("offer", "machine", "contract"), numbers=("count", "$/h"), notes=("why",))
    for item in items:
        offer = f"{item.provider} {item.offer_id}"
        contract = contract_words(item.contract)
        figures = (str(item.count), price(item.usd_per_hour))
        table.add_row(offer, machine(item.gpu, item.gpus), contract, *figures, item.reason)
    return table


def diff_words(diff: DiffDocument) -> str:
    """`keep 3, start 1, re-route 2, stop 1`; what there is none of is left out, and so is what is gone already."""
    counts = {
        "keep": _count(diff.keep),
        "start": _count(diff.start),
        "restart": len({name for item in diff.keep for name in item.restart}),
        "re-route": len(diff.reroute),
        "stop": _count([item for item in diff.stop if item.held]),
    }
    return ", ".join(f"{word} {count}" for word, count in counts.items() if count) or "nothing to do"


def _count(items: Sequence[MachineChange]) -> int:
    return sum(item.count for item in items)


def revision_line(name: str, diff: DiffDocument, issued_at: datetime) -> str:
    """One line for a log: when it came, which revision, what it costs, what it changes and why."""
    cost = diff.usd_per_hour
    figures = f"{price(cost.after)} $/h ({signed(cost.change)}), {diff_words(diff)}"
    return f"{moment(issued_at)} {name} revision {diff.to}: {figures}; {diff.reason}"


def signed(usd: float) -> str:
    """`+1.200`, `−0.350`, `±0`."""
    if not usd:
        return "±0"
    return f"{'+' if usd > 0 else MINUS}{price(abs(usd))}"
