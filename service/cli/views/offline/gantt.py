"""Gantt charts in the terminal: a line for each GPU, readable with colours and without.

With colours, what runs is a coloured block with its name; without, it is its letter, over and over. Loading is ░ and
idling · in both.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from rich.cells import cell_len, set_cell_size
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.style import Style
from rich.text import Text

from sutler.service.offline.gantt import Bar, Chart, Row, ticks_of

LOADING: Final = "░"
IDLE: Final = "·"
GAP: Final = "   "
MOST_ROWS: Final = 64  # chosen: eight machines of eight GPUs; more scroll away
WIDEST: Final = 100  # columns of a chart; chosen: it fits into logs and reviews
LEAST_COLUMNS: Final = 10  # chosen: less shows no order of stages
COLUMNS_PER_TICK: Final = 12  # chosen: room for a time and a gap
_PLAIN: Final = Style()
_DIM: Final = Style(dim=True)


@dataclass(frozen=True, slots=True)
class GanttText:
    """A chart as wide as the console; a renderable of rich."""

    chart: Chart

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        chart, labels = self.chart, _labels(self.chart)
        margin = max(map(cell_len, labels), default=0) + 1
        columns = max(LEAST_COLUMNS, min(WIDEST, options.max_width) - margin - 1)
        is_coloured = console.color_system is not None
        yield _stage_line(chart, margin, columns)
        shown = list(zip(labels, chart.rows, strict=True))[:MOST_ROWS]
        for label, row in shown:
            label_text = Text(no_wrap=True).append(set_cell_size(label, margin), style=_DIM)
            yield label_text.append_text(_row_text(chart, row, columns, is_coloured=is_coloured))
        if len(chart.rows) > MOST_ROWS:
            yield Text(f"... and {len(chart.rows) - MOST_ROWS} GPUs more (--plot draws all)", style=_DIM)
        yield from _axis(chart, margin, columns)


@dataclass(frozen=True, slots=True)
class Legend:
    """Which letter and colour is which model; a renderable of rich whose entries are never broken."""

    chart: Chart

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        chart, line = self.chart, Text(no_wrap=True)
        entries = [Text.assemble((f" {chart.symbol(one)} ", _filled(chart, one)), f" {one}") for one in chart.models]
        entries += [Text(f"{mark * 3} {words}") for mark, words in ((LOADING, "loading"), (IDLE, "idle"))]
        for entry in entries:
            if line and line.cell_len + len(GAP) + entry.cell_len > options.max_width:
                yield line
                line = Text(no_wrap=True)
            line = Text(GAP).join([line, entry]) if line else entry
        yield line


def charts_view(charts: Sequence[Chart], *, headings: Sequence[str] = ()) -> Iterator[RenderableType]:
    """The charts one above the other, each below its heading if there are any, with one legend."""
    for number, chart in enumerate(charts):
        if headings:
            yield Text(("\n" if number else "") + headings[number], style="bold")
        yield GanttText(chart)
    if charts:
        yield Text()
        yield Legend(charts[0])


def _labels(chart: Chart) -> list[str]:
    """`GPU 0 ┌`: hosts where there are several, and a bracket around each island."""
    has_hosts = len({row.host for row in chart.rows}) > 1
    host_width = max((len(f"host {row.host} ") for row in chart.rows), default=0) if has_hosts else 0
    gpu_width = max((len(str(row.gpu)) for row in chart.rows), default=1)
    labels, previous = [], None
    for row, mark in zip(chart.rows, _brackets(chart.rows), strict=True):
        host = f"host {row.host} " if has_hosts and row.host != previous else ""
        labels.append(f"{host:<{host_width}}GPU {row.gpu:>{gpu_width}} {mark}")
        previous = row.host
    return labels


def _brackets(rows: Sequence[Row]) -> Iterator[str]:
    for _, members in groupby(rows, key=lambda row: (row.host, row.island)):
        size = len(list(members))
        yield from "─" if size == 1 else ["┌", *"│" * (size - 2), "└"]


def _row_text(chart: Chart, row: Row, columns: int, *, is_coloured: bool) -> Text:
    line = Text(no_wrap=True)
    for bar, cells in groupby(_cells(chart, row, columns)):
        width = len(list(cells))
        if bar is None:
            line.append(IDLE * width, style=_DIM)
        elif bar.is_loading:
            line.append(LOADING * width, style=Style(color=chart.colour(bar.model)) if is_coloured else _PLAIN)
        elif is_coloured:
            words = _name(chart, bar, width) if _is_top(chart, row, bar) else ""
            line.append(set_cell_size(words, width), style=_filled(chart, bar.model))
        else:
            line.append(chart.symbol(bar.model) * width)
    return line


def _cells(chart: Chart, row: Row, columns: int) -> Iterator[Bar | None]:
    """What fills most of each column; None: nothing does."""
    width_s = (chart.end_s - chart.start_s) / columns
    bars = chart.bars_of(row)
    for column in range(columns):
        begin_s = chart.start_s + column * width_s
        shares: dict[Bar | None, float] = {None: width_s}
        for bar in bars:
            within_s = min(bar.end_s, begin_s + width_s) - max(bar.start_s, begin_s)
            if within_s > 0:
                shares[bar] = within_s
                shares[None] -= within_s
        yield max(shares, key=lambda bar: shares[bar])


def _is_top(chart: Chart, row: Row, bar: Bar) -> bool:
    """Whether this GPU is the first of its replica's, which alone shows the name."""
    others = (one for one in chart.bars if replace(one, gpu=bar.gpu) == bar)
    return row.gpu == min(one.gpu for one in others)


def _name(chart: Chart, bar: Bar, width: int) -> str:
    symbol = chart.symbol(bar.model)
    return next((text for text in (f" {symbol} {bar.model} ", f" {symbol} ") if cell_len(text) <= width), symbol)


def _filled(chart: Chart, model: str) -> Style:
    return Style(color="#ffffff", bgcolor=chart.colour(model), bold=True)


def _stage_line(chart: Chart, margin: int, columns: int) -> Text:
    marks = [(_column(chart, at_s, columns), f"│{i}") for i, at_s in enumerate(chart.stage_starts_s, start=1)]
    return Text(f"{'stage':<{margin}}{_placed(marks, columns)}", style=_DIM, no_wrap=True)


def _axis(chart: Chart, margin: int, columns: int) -> Iterator[Text]:
    ticks = ticks_of(chart.start_s, chart.end_s, most=columns // COLUMNS_PER_TICK)
    places = [(_column(chart, at_s, columns), words) for at_s, words in ticks]
    line = "".join("┴" if column in dict(places) else "─" for column in range(columns))
    yield Text(" " * margin + line, style=_DIM, no_wrap=True)
    yield Text(" " * margin + _placed(places, columns), style=_DIM, no_wrap=True)


def _column(chart: Chart, at_s: float, columns: int) -> int:
    span_s = (chart.end_s - chart.start_s) or 1.0
    return min(columns - 1, max(0, int((at_s - chart.start_s) / span_s * columns)))


def _placed(marks: Sequence[tuple[int, str]], columns: int) -> str:
    """Each text from its column on, without those that the one before leaves no room."""
    line = ""
    for column, text in marks:
        if column >= len(line) + bool(line) and column + len(text) <= columns:
            line += " " * (column - len(line)) + text
    return line
