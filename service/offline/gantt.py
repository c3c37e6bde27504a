"""What a Gantt chart of an application draws, whatever it is drawn with: rows of GPUs, and blocks of time on them.

Flow: stages and hardware of a plan or comparison -> chart_of (here) -> cli/views/offline/gantt.py (terminal),
gantt_html.py, figures.py (PNG). As SamuLLM's Figure 9: GPUs from top to bottom, time from left to right, a colour for
each model.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from sutler.service.documents.errors import DocumentError
from sutler.service.offline.plan_schema import OfflinePlanDocument, PlannedHardware, SimulatedStage

SYMBOLS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
# Neighbours differ in hue and in lightness; all are dark enough for white text and for a white page.
COLOURS: Final = (
    "#2f6db5",
    "#d9731a",
    "#2e8b57",
    "#b5365a",
    "#7a56b3",
    "#1795a3",
    "#9a6b1f",
    "#c94fa0",
    "#5f8a1c",
    "#4a5a78",
    "#c0392b",
    "#00695c",
)
# Least span of an axis that is written in a unit, the unit in seconds, its name; tables are in seconds, so these are
# only where seconds would be hard to read.
_UNITS: Final = ((36_000.0, 3600.0, "h"), (7_200.0, 60.0, "min"), (0.0, 1.0, "s"))
# Moments that differ by less are one: simulated times are sums of many steps.
SAME_S: Final = 1e-6
LEAST_SPAN_S: Final = 1e-3  # chosen: an axis of no length would have no ticks


@dataclass(frozen=True, slots=True)
class Row:
    """One GPU; rows with the same (host, island) share fast links."""

    host: int
    gpu: int
    island: int


@dataclass(frozen=True, slots=True)
class Bar:
    """What one GPU does from `start_s` to `end_s`: it loads a replica's model, or the replica runs on it."""

    host: int
    gpu: int
    start_s: float
    end_s: float
    model: str
    replica: int
    tensor_parallel: int
    is_loading: bool


@dataclass(frozen=True, slots=True)
class ReplicaBlock:
    """Equal bars of one replica on GPUs of one host that lie below one another: rows `first` to `last`."""

    first: int
    last: int
    bar: Bar


@dataclass(frozen=True, slots=True)
class Chart:
    """`models`: in the order of the application, which gives them their letters and colours; `stage_starts_s`: one
    for each stage; all times count from the start of the application."""

    title: str
    rows: tuple[Row, ...]
    bars: tuple[Bar, ...]
    models: tuple[str, ...]
    stage_starts_s: tuple[float, ...]
    start_s: float
    end_s: float

    def symbol(self, model: str) -> str:
        """One letter or figure; they repeat after 62 models."""
        return SYMBOLS[self.models.index(model) % len(SYMBOLS)]

    def colour(self, model: str) -> str:
        """#rrggbb; they repeat after a dozen models."""
        return COLOURS[self.models.index(model) % len(COLOURS)]

    @property
    def span_s(self) -> float:
        """Seconds from start to end; 1 where there is nothing, so that shares of it are defined."""
        return (self.end_s - self.start_s) or 1.0

    @property
    def row_names(self) -> list[str]:
        """What stands beside the rows: GPUs, and their hosts where there are several."""
        has_hosts = len({row.host for row in self.rows}) > 1
        return [f"host {row.host} · {row.gpu}" if has_hosts else f"GPU {row.gpu}" for row in self.rows]

    def name_within(self, model: str, letters: float) -> str:
        """The longest name of a model that has room for so many letters; empty where none has."""
        return next((name for name in (model, self.symbol(model)) if len(name) <= letters), "")

    def stage_words(self) -> Iterator[tuple[float, str]]:
        """When each stage begins, and what is written there."""
        for number, at_s in enumerate(self.stage_starts_s, start=1):
            yield at_s, f"stage {number}" if number == 1 else str(number)

    def bars_of(self, row: Row) -> tuple[Bar, ...]:
        """Returns the bars of one GPU, by time."""
        return tuple(bar for bar in self.bars if (bar.host, bar.gpu) == (row.host, row.gpu))


def chart_of_plan(plan: OfflinePlanDocument) -> Chart:
    """The chart of a plan. Raises DocumentError for one without stages, or whose stages name what is not there."""
    if plan.hardware is None or not plan.stages or plan.makespan_s is None:
        raise DocumentError.of("stages", f"the plan is {plan.status} and runs nothing: there is nothing to draw")
    finish_s = {model.name: model.finish_s for model in plan.models}
    title = f"{plan.application.name}: {plan.strategy or 'plan'}"
    return chart_of(title, plan.hardware, plan.stages, finish_s)


def chart_of(
    title: str,
    hardware: PlannedHardware,
    stages: Sequence[SimulatedStage],
    finish_s: Mapping[str, float | None],
) -> Chart:
    """The chart of stages as they ran; `finish_s`: when each model's last request is done, by its name, in the order
    of the application. Raises DocumentError for stages that name a model or a GPU that is not there."""
    rows = tuple(
        Row(island.host, gpu, number)
        for number, island in sorted(enumerate(hardware.islands), key=lambda pair: (pair[1].host, pair[0]))
        for gpu in island.gpus
    )
    _check(stages, rows, finish_s)
    end_s = max((stage.end_s for stage in stages), default=0.0)
    return Chart(
        title=title,
        rows=rows,
        bars=tuple(_merged(bar for stage in stages for bar in _bars(stage, finish_s))),
        models=tuple(finish_s),
        stage_starts_s=tuple(stage.start_s for stage in stages),
        start_s=min((stage.start_s for stage in stages), default=0.0),
        end_s=end_s,
    )


def on_one_scale(charts: Iterable[Chart]) -> tuple[Chart, ...]:
    """The same charts with one axis of time, so that they compare when one stands above the other."""
    given = tuple(charts)
    start_s = min((chart.start_s for chart in given), default=0.0)
    end_s = max((chart.end_s for chart in given), default=0.0)
    return tuple(replace(chart, start_s=start_s, end_s=end_s) for chart in given)


def blocks_of(chart: Chart) -> tuple[ReplicaBlock, ...]:
    """The bars, with those of a tensor-parallel replica in one piece where its GPUs lie below one another."""
    number_of = {(row.host, row.gpu): number for number, row in enumerate(chart.rows)}
    alike: dict[Bar, dict[int, Bar]] = defaultdict(dict)
    for bar in chart.bars:
        alike[replace(bar, host=0, gpu=0)][number_of[bar.host, bar.gpu]] = bar
    return tuple(
        ReplicaBlock(first, last, bars[first])
        for bars in alike.values()
        for first, last in _runs(sorted(bars), chart)
    )


def block_words(chart: Chart, block: ReplicaBlock) -> str:
    """What a block is, for whoever points at it: model, replica, GPUs, from when to when."""
    bar, on = block.bar, chart.rows[block.first : block.last + 1]
    gpus = f"GPU {on[0].gpu}" if len(on) == 1 else f"GPUs {', '.join(str(row.gpu) for row in on)}"
    where = f"host {bar.host}, {gpus}" if len({row.host for row in chart.rows}) > 1 else gpus
    what = "loads" if bar.is_loading else "runs"
    return (
        f"{bar.model}, replica {bar.replica} (TP{bar.tensor_parallel}) on {where}: {what} from {bar.start_s:,.1f} s "
        f"to {bar.end_s:,.1f} s ({bar.end_s - bar.start_s:,.1f} s)"
    )


def ticks_of(start_s: float, end_s: float, *, most: int) -> tuple[tuple[float, str], ...]:
    """Round moments from start to end with their words, at most so many; seconds, minutes or hours by the length."""
    span_s = max(end_s - start_s, LEAST_SPAN_S)
    unit_s, unit = next((unit_s, unit) for least_s, unit_s, unit in _UNITS if span_s >= least_s)
    least = span_s / unit_s / max(1, most)
    size = 10.0 ** min(exponent for exponent in range(-9, 12) if 10.0**exponent >= least)
    step = next((size * share for share in (0.2, 0.5) if size * share >= least), size)
    first = int(start_s / unit_s / step) + (start_s > 0)
    moments = []
    while first * step * unit_s <= end_s + SAME_S:
        moments.append((first * step * unit_s, f"{first * step:.10g} {unit}"))
        first += 1
    return tuple(moments)


def _check(stages: Sequence[SimulatedStage], rows: Iterable[Row], names: Iterable[str]) -> None:
    known, gpus = set(names), {(row.host, row.gpu) for row in rows}
    for i, stage in enumerate(stages):
        for j, model in enumerate(stage.models):
            at = f"stages[{i}].models[{j}]"
            if model.model not in known:
                remedy = f"is no model of this plan: use {', '.join(sorted(known))}"
                raise DocumentError.of(f"{at}.model", remedy, value=model.model)
            for place in (place for replica in model.replicas for place in replica.gpus):
                if (place.host, place.gpu) not in gpus:
                    shown = f"host {place.host}, GPU {place.gpu}"
                    raise DocumentError.of(f"{at}.replicas", "is not among the plan's hardware", value=shown)


def _bars(stage: SimulatedStage, finish_s: Mapping[str, float | None]) -> Iterator[Bar]:
    """Yields the bars of a stage: loading until a replica is ready, then running until model or stage are done."""
    for model in stage.models:
        done_s = finish_s[model.model]
        end_s = stage.end_s if done_s is None else min(stage.end_s, max(done_s, stage.start_s))
        for replica in model.replicas:
            ready_s = min(max(replica.ready_s, stage.start_s), end_s)
            for place in replica.gpus:
                for begin_s, until_s, is_loading in ((stage.start_s, ready_s, True), (ready_s, end_s, False)):
                    if until_s - begin_s > SAME_S:
                        yield Bar(
                            place.host,
                            place.gpu,
                            begin_s,
                            until_s,
                            model.model,
                            replica.number,
                            model.tensor_parallel,
                            is_loading,
                        )


def _merged(bars: Iterable[Bar]) -> list[Bar]:
    """What goes on from one stage to the next in one piece; ordered by GPU, then by time."""
    merged: list[Bar] = []
    for bar in sorted(bars, key=lambda bar: (bar.host, bar.gpu, bar.start_s)):
        if merged and _goes_on(merged[-1], bar):
            merged[-1] = replace(merged[-1], end_s=bar.end_s)
        else:
            merged.append(bar)
    return merged


def _goes_on(before: Bar, after: Bar) -> bool:
    if abs(after.start_s - before.end_s) > SAME_S:
        return False
    return replace(before, start_s=0.0, end_s=0.0) == replace(after, start_s=0.0, end_s=0.0)


def _runs(numbers: Sequence[int], chart: Chart) -> Iterator[tuple[int, int]]:
    """First and last of each run of rows that follow one another on one host."""
    first = numbers[0]
    for before, after in pairwise(numbers):
        if after != before + 1 or chart.rows[after].host != chart.rows[before].host:
            yield first, before
            first = after
    yield first, numbers[-1]
