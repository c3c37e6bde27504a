"""An offline plan as people read it, from its document alone: headline, chart, stages, models, rivals, money."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sutler.service.cli.views.layout import bar, listed, section, table_of
from sutler.service.cli.views.offline.gantt import charts_view
from sutler.service.cli.views.offline.headline import headline, moment, shares_words, strategy_words
from sutler.service.offline.gantt import Chart, chart_of_plan
from sutler.service.offline.plan_schema import (
    ApplicationModel,
    OfflineConflict,
    OfflinePlanDocument,
    OfflineRental,
    SimulatedStage,
    StageModel,
)
from sutler.service.offline.shares import gpu_shares
from sutler.service.wording.words import machine, number, percent, place, price, unit_words

BAR_COLUMNS = 24  # chosen: what the figures beside it leave of a narrow terminal


def plan_view(plan: OfflinePlanDocument) -> Iterator[RenderableType]:
    """The parts to print, in order: what, what must give, rent, chart, stages, models, rivals, front, warnings."""
    yield headline(plan)
    if plan.conflicts:
        yield from section("What has to give", _conflicts(plan.conflicts))
    if plan.rentals:
        yield from section("Rent", _rentals(plan.rentals))
    if plan.stages:
        chart = chart_of_plan(plan)
        yield from section("What runs when, and where")
        yield from charts_view([chart])
        yield Text(shares_words(gpu_shares(plan)))
        yield from section("Stages", stages_table(plan.stages, plan.models, chart))
    yield from section("Models", _models(plan.models))
    if plan.compared and plan.makespan_s is not None:
        yield from section("Compared with", _rivals(plan))
    if plan.frontier:
        yield from section("Dollars against time (* this plan)", _front(plan))
    yield from listed("What to know", plan.warnings)


def stages_table(stages: Sequence[SimulatedStage], models: Sequence[ApplicationModel], chart: Chart) -> Table:
    """A row for each model of each stage."""
    requests = {model.name: model.requests for model in models}
    has_hosts = len({row.host for row in chart.rows}) > 1
    table = table_of(texts=("",), numbers=("start s", "end s"), notes=("model", "replicas", "on GPUs"))
    for heading in ("loads", "done", "of"):
        table.add_column(heading, justify="right", no_wrap=True)
    if any(stage.until is not None for stage in stages):
        table.add_column("ends at", overflow="fold")
    for count, stage in enumerate(stages, start=1):
        for position, model in enumerate(stage.models):
            first = (str(count), moment(stage.start_s), moment(stage.end_s)) if not position else ("", "", "")
            until = ""
            if stage.until is not None and stage.until.model == model.model:
                until = f"{percent(stage.until.fraction)} of it"
            cells = (
                f"{chart.symbol(model.model)} {model.model}",
                f"{model.data_parallel} × TP{model.tensor_parallel}",
                gpus_words(model, has_hosts=has_hosts),
                str(sum(replica.loaded for replica in model.replicas) or "–"),
                f"{model.finished_requests:,}",
                f"{requests[model.model]:,}",
                until,
            )
            table.add_row(*first, *cells[: len(table.columns) - len(first)])
    return table


def gpus_words(model: StageModel, *, has_hosts: bool) -> str:
    """`0–3, 6`, with `host:` before those of each machine where there are several."""
    places = sorted({(place.host, place.gpu) for replica in model.replicas for place in replica.gpus})
    words = []
    for host, members in groupby(places, key=lambda place: place[0]):
        runs = ", ".join(_runs([gpu for _, gpu in members]))
        words.append(f"{host}: {runs}" if has_hosts else runs)
    return "; ".join(words)


def _runs(numbers: Sequence[int]) -> Iterator[str]:
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        found = [member for _, member in run]
        yield str(found[0]) if len(found) == 1 else f"{found[0]}–{found[-1]}"


def _models(models: Sequence[ApplicationModel]) -> Table:
    table = table_of(
        texts=("model", "is", "weights"), numbers=("requests", "tokens in", "tokens out", "mean out", "done s")
    )
    for model in models:
        counts = (f"{count:,}" for count in (model.requests, model.input_tokens, model.output_tokens))
        mean = number(model.output_tokens / model.requests, digits=3) if model.requests else "–"
        table.add_row(model.name, model.model, model.precision, *counts, mean, moment(model.finish_s))
    return table


def _rivals(plan: OfflinePlanDocument) -> Table:
    assert plan.makespan_s is not None, "there is a plan"
    found = [(plan.strategy, plan.makespan_s), *((one.strategy, one.makespan_s) for one in plan.compared)]
    top = max(taken for _, taken in found)
    table = table_of(texts=("strategy", ""), numbers=("s", "ratio"))
    for rank, (strategy, taken) in enumerate(found):
        cells = (bar(taken, top, columns=BAR_COLUMNS), number(taken), number(taken / (plan.makespan_s or 1.0)))
        table.add_row(strategy_words(strategy), *cells, style=None if rank else "bold")
    return table


def _rentals(rentals: Sequence[OfflineRental]) -> Table:
    table = table_of(
        texts=("offer", "machine", "where", "contract"), numbers=("count", "$/h each", "billed s", "USD")
    )
    for rental in rentals:
        what = (machine(rental.gpu, rental.gpus), place(rental.site, rental.provider))
        figures = (price(rental.price_usd_per_hour), number(rental.billed_s), price(rental.usd))
        table.add_row(rental.offer_id, *what, rental.contract.replace("_", " "), str(rental.count), *figures)
    if len(rentals) > 1:
        table.add_row("in all", *[""] * 6, price(sum(rental.usd for rental in rentals)), style="bold")
    return table


def _front(plan: OfflinePlanDocument) -> Table:
    top = max(choice.cost_usd for choice in plan.frontier)
    table = table_of(texts=("machines",), numbers=("GPUs", "s", "USD"))
    table.add_column("")
    for choice in sorted(plan.frontier, key=lambda choice: choice.makespan_s):
        is_own = plan.cost_usd is not None and abs(choice.cost_usd - plan.cost_usd) <= 1e-6 * max(1.0, plan.cost_usd)
        cells = (choice.machines, str(choice.gpus), number(choice.makespan_s), price(choice.cost_usd))
        mark = f"{bar(choice.cost_usd, top, columns=BAR_COLUMNS)}{' *' if is_own else ''}"
        table.add_row(*cells, mark, style="bold" if is_own else None)
    return table


def _conflicts(conflicts: Sequence[OfflineConflict]) -> Table:
    table = table_of(texts=("constraint",), numbers=("needed", "there is"))
    table.add_column("")
    for conflict in conflicts:
        unit = {"gb": "GB", "usd": "USD"}.get(conflict.unit, unit_words(conflict.unit))
        table.add_row(conflict.constraint, number(conflict.needed), number(conflict.available), unit)
    return table
