"""Of docs/papers.md: Cauchy."""

from collections.abc import Sequence
from typing import Final

from benchmarks.accuracy.markdown import prose, table
from benchmarks.papers.cauchy import (
    EXAMPLE_GPUS,
    EXAMPLE_RPS,
    INTER_MACHINE_GB_PER_S,
    PRICES_USD_PER_HOUR,
    TIMES,
    TRAFFIC,
    Dataset,
    tokens_per_usd,
)
from benchmarks.papers.cells import Cell, Outcome
from benchmarks.papers.claims import CAUCHY_CLAIMS, CauchyClaim
from benchmarks.papers.reasons import CAUCHY_WHY
from benchmarks.papers.summaries import Outcomes, value
from sutler.solver.units import TOKENS_PER_MILLION

TITLE: Final = "## Prefill and decode on GPUs of their own (Cauchy)\n\n"


def cauchy_section(cells: Sequence[Cell], outcomes: Outcomes) -> str:
    own = [cell for cell in cells if cell.part == "cauchy"]
    body = [row for cell in own for name in cell.strategies if (row := _row(cell, outcomes.get((cell.name, name))))]
    if not body:
        return TITLE + "Not run yet.\n"
    header = ("requests", "req/s", "strategy", "rented", "GPUs for prefill / decode", "$/h", "10⁶ tokens/$")
    parts = (_setting(), _claims(own, outcomes), table(header, body, words=5), _example(own, outcomes), CAUCHY_WHY)
    return TITLE + "\n".join(part.rstrip() + "\n" for part in parts)


def _setting() -> str:
    rates = ", ".join(f"{name} {traffic.rate_rps:g}" for name, traffic in TRAFFIC.items())
    return prose(f"""8 H800, 8 A800 and 8 H20 in servers of two GPUs, the prices of its Table 1, Llama-3.1-8B,
    requests of the mean lengths of its three datasets at its rates ({rates} requests/s), its limits for 90 % of them.
    How fast its network is it does not say; we take {8 * INTER_MACHINE_GB_PER_S:g} Gb/s. The paper's rates make
    fleets of a few GPUs under our estimates, in which rounding to whole GPUs decides; so {TIMES[-1]} times those
    rates stand beside them. CAUCHY* is its planner without roles, for which aggregated-only stands. More tokens per
    dollar, in percent; a dash: one of the two has no plan.""")


def _claims(cells: Sequence[Cell], outcomes: Outcomes) -> str:
    asked = [(times, name) for times in TIMES for name in TRAFFIC]
    header = ("more tokens per dollar, %", "paper", *(f"{name}, {times} ×" for times, name in asked))
    body = [
        (claim.title, claim.paper, *(_gain(_cell(cells, name, times), outcomes, claim) for times, name in asked))
        for claim in CAUCHY_CLAIMS
    ]
    return table(header, body, words=1)


def _cell(cells: Sequence[Cell], dataset: Dataset, times: int) -> Cell:
    wanted = (dataset, times * TRAFFIC[dataset].rate_rps)
    return next(cell for cell in cells if (cell.get("dataset"), cell.get("rate")) == wanted)


def _gain(cell: Cell, outcomes: Outcomes, claim: CauchyClaim) -> str:
    """Of the same requests/s: the inverse of the costs."""
    ours, theirs = (value(outcomes, cell, name) for name in (claim.strategy, claim.over))
    return f"{100 * (theirs / ours - 1):.1f}" if ours and theirs else "–"


def _example(cells: Sequence[Cell], outcomes: Outcomes) -> str:
    own = next(cell for cell in cells if cell.get("rate") == EXAMPLE_RPS)
    ours = value(outcomes, own, "sutler")
    papers = sum(count * PRICES_USD_PER_HOUR[gpu] for gpu, count in EXAMPLE_GPUS.items())
    rented = ", ".join(f"{count} {gpu}" for gpu, count in EXAMPLE_GPUS.items())
    found = "no plan" if ours is None else f"{ours:.2f} $/h"
    return prose(f"""The working example (section 3.3.3) asks for {EXAMPLE_RPS:g} requests/s of short inputs with long
    outputs. The paper answers with two combos of an H800 and an A800, one of an A800 and an H20 and one of two A800:
    {rented}, which is {papers:.2f} $/h. Sutler's answer by our estimates: {found}.""")


def _row(cell: Cell, outcome: Outcome | None) -> tuple[object, ...] | None:
    if outcome is None:
        return None
    dataset, rate = cell.get("dataset"), cell.get("rate")
    if outcome.value is None:
        return (dataset, rate, outcome.strategy, outcome.reason or outcome.status, "–", "–", "–")
    found: Dataset = next(known for known in TRAFFIC if known == dataset)
    worth = tokens_per_usd(found, float(rate), outcome.value) / TOKENS_PER_MILLION
    rented = ", ".join(f"{count} {gpu}" for gpu, count in outcome.gpus.items())
    roles = f"{outcome.prefill_gpus} / {outcome.decode_gpus}" if outcome.decode_gpus else "–"
    return (dataset, rate, outcome.strategy, rented, roles, f"{outcome.value:.2f}", f"{worth:.2f}")
