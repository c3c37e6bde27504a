"""Simulations, comparisons and adjustments of offline plans as people read them."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sutler.service.cli.views.layout import bar, listed, section, table_of
from sutler.service.cli.views.offline.gantt import charts_view
from sutler.service.cli.views.offline.headline import hardware_words, moment, seconds, shares_words, strategy_words
from sutler.service.cli.views.offline.plan import plan_view
from sutler.service.offline.gantt import Chart, chart_of, on_one_scale
from sutler.service.offline.outcome_schema import ComparedPlan, OfflineComparisonDocument, OfflineSimulationDocument
from sutler.service.offline.plan_schema import OfflinePlanDocument
from sutler.service.wording.words import number, percent

BAR_COLUMNS = 8  # what the figures leave of 100 columns
SAME_FRACTION = 0.0005  # chosen: below it, times differ by less than is shown of them


def simulation_view(found: OfflineSimulationDocument) -> Iterator[RenderableType]:
    """The parts to print, in order: how it went, chart, stages, models."""
    yield Text(_outcome(found), style="bold")
    lengths = (
        f"with the plan's own lengths (seed {found.seed})"
        if found.seed == found.planned_seed
        else f"with the lengths of seed {found.seed} in place of {found.planned_seed}"
    )
    slower = [
        f"{model.model} takes {model.slowdown:g} times as long" for model in found.models if model.slowdown != 1
    ]
    yield Text("\n".join([f"On {hardware_words(found.hardware)}, {lengths}", *slower]))
    finish_s = {model.model: model.finish_s for model in found.models}
    yield from section("What ran when, and where")
    yield from charts_view([chart_of(found.application, found.hardware, found.stages, finish_s)])
    yield Text(f"{shares_words(found.shares)} (planned: {percent(found.planned_shares.busy_fraction)} compute)")
    yield from section("Stages, planned and simulated", _stage_times(found))
    yield from section("Models, planned and simulated", _model_times(found))


def comparison_view(found: OfflineComparisonDocument) -> Iterator[RenderableType]:
    """The parts to print, in order: who wins, by how much, what each does when."""
    yield Text(verdict(found), style="bold green" if found.strategies[0].ratio_to_sutler == 1 else "bold")
    yield Text(f"{bound_words(found)}\nAll on {hardware_words(found.hardware)} with the lengths of seed {found.seed}")
    yield from section("Strategies (ratio: their time over sutler's)", _strategies(found))
    if any(one.over_seeds is not None for one in found.strategies):
        yield from section("The same schedules with other lengths", _seeds(found))
    yield from section("What runs when, and where")
    yield from charts_view(charts_of(found), headings=headings_of(found))
    yield from listed("What to know", found.warnings)


def adjustment_view(before: OfflinePlanDocument, made: OfflinePlanDocument) -> Iterator[RenderableType]:
    """The parts to print, in order: what adjusting saves, the speeds that were seen, the plan of the rest."""
    adjustment = made.adjustment
    assert adjustment is not None, "an adjusted plan says what it rests on"
    assert made.makespan_s is not None, "an adjusted plan has stages"
    saved_s = adjustment.unadjusted_makespan_s - made.makespan_s
    left_s = adjustment.unadjusted_makespan_s - adjustment.at_s
    saves = (
        f"Adjusting saves {seconds(saved_s)}, {percent(saved_s / left_s)} of what is left"
        if left_s > 0 and saved_s > SAME_FRACTION * left_s
        else "Adjusting saves nothing: go on as planned"
    )
    yield Text(saves, style="bold")
    yield Text(
        f"At {seconds(adjustment.at_s)}: planned to be done at {seconds(before.makespan_s)}, would be done at "
        f"{seconds(adjustment.unadjusted_makespan_s)} going on, will be done at {seconds(made.makespan_s)} adjusted"
    )
    if adjustment.speeds:
        yield from section("Speeds seen", _speeds(before, made))
    else:
        yield Text("Too little is done to see speeds: models are taken to be as fast as planned")
    yield Text()
    yield from plan_view(made)


def verdict(found: OfflineComparisonDocument) -> str:
    """One sentence: sutler's time, and by how much that beats the best rival."""
    sutler, *rivals = found.strategies
    done = f"sutler is done in {seconds(sutler.makespan_s)}"
    best = min(rivals, key=lambda one: one.makespan_s, default=None)
    if best is None:
        return done
    named = f"{strategy_words(best.strategy)} ({seconds(best.makespan_s)})"
    if abs(best.ratio_to_sutler - 1) < SAME_FRACTION:
        return f"{done}, as the best rival, {named}"
    word, times = (
        ("faster", best.ratio_to_sutler) if best.ratio_to_sutler > 1 else ("slower", 1 / best.ratio_to_sutler)
    )
    return f"{done}, {number(times, digits=3)} times {word} than the best rival, {named}"


def bound_words(found: OfflineComparisonDocument) -> str:
    """What no schedule beats, and how far sutler may be from it."""
    best, bound_s = found.strategies[0].makespan_s, found.lower_bound.seconds
    gap = f" (gap {percent((best - bound_s) / best)})" if best else ""
    return f"No schedule is faster than {seconds(bound_s)} with these lengths{gap}"


def charts_of(found: OfflineComparisonDocument) -> tuple[Chart, ...]:
    """A chart for each strategy, on one axis of time."""
    return on_one_scale(
        chart_of(f"{found.application}: {strategy_words(one.strategy)}", found.hardware, one.stages, one.finish_s)
        for one in found.strategies
    )


def headings_of(found: OfflineComparisonDocument) -> tuple[str, ...]:
    """What stands above each chart."""
    return tuple(_heading(one) for one in found.strategies)


def _heading(one: ComparedPlan) -> str:
    ratio = "" if one.strategy == "sutler" else f", {number(one.ratio_to_sutler, digits=3)} × sutler's"
    return f"{strategy_words(one.strategy)}: {seconds(one.makespan_s)}{ratio}"


def _outcome(found: OfflineSimulationDocument) -> str:
    done = f"Done in {seconds(found.makespan_s)} where {seconds(found.planned_makespan_s)} were planned"
    change = found.makespan_s / found.planned_makespan_s - 1 if found.planned_makespan_s else 0.0
    if abs(change) < SAME_FRACTION:
        return f"{done}: as planned"
    return f"{done}: {percent(abs(change))} {'more' if change > 0 else 'less'}"


def _stage_times(found: OfflineSimulationDocument) -> Table:
    numbers = ("planned from", "to", "simulated from", "to", "longer by")
    table = table_of(texts=("",), numbers=numbers, notes=("runs",))
    for position, times in enumerate(found.times):
        both = (times.planned_start_s, times.planned_end_s, times.start_s, times.end_s)
        known = [at_s for at_s in both if at_s is not None]
        longer = f"{known[3] - known[2] - known[1] + known[0]:+,.1f}" if len(known) == 4 else "–"
        models = found.stages[position].models if position < len(found.stages) else ()
        runs = ", ".join(f"{one.model} {one.data_parallel} × TP{one.tensor_parallel}" for one in models)
        table.add_row(str(position + 1), *map(moment, both), longer, runs)
    return table


def _model_times(found: OfflineSimulationDocument) -> Table:
    table = table_of(
        texts=("model",), numbers=("requests", "planned out", "tokens out", "planned done s", "done s", "later by")
    )
    for model in found.models:
        table.add_row(
            model.model,
            *(f"{count:,}" for count in (model.requests, model.planned_output_tokens, model.output_tokens)),
            *map(moment, (model.planned_finish_s, model.finish_s)),
            f"{model.finish_s - model.planned_finish_s:+,.1f}",
        )
    return table


def _strategies(found: OfflineComparisonDocument) -> Table:
    top = max(one.makespan_s for one in found.strategies)
    numbers = ("s", "ratio", "compute", "load", "wait", "stages", "loads", "search s")
    table = table_of(texts=("strategy", ""), numbers=numbers)
    for column in table.columns[:2]:
        column.no_wrap = True
    for one in found.strategies:
        shares = one.shares
        table.add_row(
            strategy_words(one.strategy),
            bar(one.makespan_s, top, columns=BAR_COLUMNS),
            number(one.makespan_s),
            number(one.ratio_to_sutler, digits=3),
            *(percent(share) for share in (shares.busy_fraction, shares.loading_fraction, shares.idle_fraction)),
            str(len(one.stages)),
            str(one.loads),
            f"{one.seconds:.2f}",
            style="bold" if one.strategy == "sutler" else None,
        )
    return table


def _seeds(found: OfflineComparisonDocument) -> Table:
    table = table_of(texts=("strategy",), numbers=("draws", "least s", "mean s", "most s", "ratio", "over its plan"))
    for one in found.strategies:
        if one.over_seeds is not None:
            times = one.over_seeds.makespan_s
            mean_s = sum(times) / len(times)
            table.add_row(
                strategy_words(one.strategy),
                str(len(times)),
                *map(number, (min(times), mean_s, max(times))),
                number(one.over_seeds.ratio_to_sutler, digits=3),
                f"{100 * (mean_s / one.makespan_s - 1):+.1f} %" if one.makespan_s else "–",
            )
    return table


def _speeds(before: OfflinePlanDocument, made: OfflinePlanDocument) -> Table:
    assert made.adjustment is not None, "an adjusted plan says what it rests on"
    finished = {model.model: model.finished_requests for model in made.adjustment.progress.models}
    requests = {model.name: model.requests for model in before.models}
    table = table_of(texts=("model",), numbers=("done", "of", "steps take"))
    table.add_column("")
    for seen in made.adjustment.speeds:
        done = f"{finished[seen.model]:,}" if seen.model in finished else "–"
        words = (
            "as planned" if abs(seen.slowdown - 1) < SAME_FRACTION else ("slower" if seen.slowdown > 1 else "faster")
        )
        table.add_row(seen.model, done, f"{requests[seen.model]:,}", f"{seen.slowdown:.2f} ×", words)
    return table
