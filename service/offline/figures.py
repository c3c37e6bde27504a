"""Gantt charts as files: PNG by matplotlib (the optional extra `plots`, imported when something is drawn), or HTML.

Flow: Chart (gantt.py) -> drawn (here) -> bytes of a file.
"""

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sutler.service.offline.gantt import Chart, ReplicaBlock, blocks_of, ticks_of
from sutler.service.offline.gantt_html import page_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Sizes of the picture, chosen by eye: names have room at the font of 8 points.
_INCH_PER_ROW: Final = 0.27
_WIDTH_INCH: Final = 12.0
_POINTS_PER_LETTER: Final = 5.6
_MOST_TICKS: Final = 10
_INK: Final = "#1d2733"
_SOFT: Final = "#64748b"
_IDLE: Final = "#eef2f6"
_MOST_LEGEND_COLUMNS: Final = 8


@dataclass(frozen=True, slots=True)
class Drawing:
    """What a file shows: charts one above the other, each below its heading (none: no headings)."""

    title: str
    notes: tuple[str, ...]
    charts: tuple[Chart, ...]
    headings: tuple[str, ...] = ()


def drawn(drawing: Drawing, file: Path) -> bytes:
    """The content of a file of that name: HTML, or PNG."""
    if file.suffix.lower() == ".html":
        return page_of(drawing.title, drawing.notes, drawing.charts, drawing.headings).encode()
    content = BytesIO()
    _figure(drawing).savefig(content, format="png", dpi=130)
    return content.getvalue()


def _figure(drawing: Drawing) -> "Figure":
    from matplotlib.figure import Figure

    charts = drawing.charts
    heights = [len(chart.rows) * _INCH_PER_ROW + 0.75 for chart in charts]
    figure = Figure(figsize=(_WIDTH_INCH, sum(heights) + 1.1 + 0.2 * len(drawing.notes)), layout="constrained")
    title = "\n".join((_plain(drawing.title), *map(_plain, drawing.notes)))
    figure.suptitle(title, size=11, color=_INK, ha="left", x=0.01)
    grid = figure.subplots(len(charts), 1, squeeze=False, height_ratios=heights, sharex=True)
    for number, chart in enumerate(charts):
        axes = grid[number][0]
        if drawing.headings:
            axes.set_title(_plain(drawing.headings[number]), size=10, color=_INK, loc="left", pad=16)
        _draw(axes, chart)
    _legend(figure, charts[0])
    return figure


def _draw(axes: "Axes", chart: Chart) -> None:
    from matplotlib.patches import Rectangle

    for number in range(len(chart.rows)):
        axes.add_patch(
            Rectangle((chart.start_s, number + 0.05), chart.end_s - chart.start_s, 0.9, color=_IDLE, lw=0, zorder=0)
        )
    for block in blocks_of(chart):
        _draw_block(axes, chart, block)
    for at_s in chart.stage_starts_s:
        axes.axvline(at_s, color=_SOFT, lw=0.7, ls=(0, (3, 3)), zorder=4)
    _number_stages(axes, chart)
    ticks = ticks_of(chart.start_s, chart.end_s, most=_MOST_TICKS)
    axes.set_xlim(chart.start_s, chart.end_s)
    axes.set_ylim(len(chart.rows), 0)
    axes.set_xticks([at_s for at_s, _ in ticks], [words for _, words in ticks])
    axes.set_yticks([number + 0.5 for number in range(len(chart.rows))], chart.row_names)
    axes.tick_params(length=0, labelsize=8, labelcolor=_SOFT, labelbottom=True)
    axes.grid(axis="x", color="#cbd5e1", lw=0.6)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_visible(False)
    for number in range(1, len(chart.rows)):
        if chart.rows[number].island != chart.rows[number - 1].island:
            axes.axhline(number, color=_SOFT, lw=0.8, zorder=1)


def _draw_block(axes: "Axes", chart: Chart, block: ReplicaBlock) -> None:
    from matplotlib.patches import Rectangle

    bar, rows = block.bar, block.last - block.first + 1
    colour, width_s = chart.colour(bar.model), bar.end_s - bar.start_s
    look: dict[str, Any] = (
        {"facecolor": f"{colour}30", "edgecolor": colour, "hatch": "/////", "lw": 0.0}
        if bar.is_loading
        else {"facecolor": colour, "edgecolor": "white", "lw": 0.8}
    )
    axes.add_patch(Rectangle((bar.start_s, block.first + 0.05), width_s, rows - 0.1, zorder=2, **look))
    if bar.is_loading:
        return
    room = width_s / chart.span_s * (_WIDTH_INCH - 1.2) * 72
    words = chart.name_within(bar.model, (room - 4) / _POINTS_PER_LETTER)
    middle = (bar.start_s + width_s / 2, block.first + rows / 2)
    axes.annotate(_plain(words), middle, ha="center", va="center", size=8, color="white", weight="bold", zorder=5)


def _number_stages(axes: "Axes", chart: Chart) -> None:
    free_s = chart.start_s
    for at_s, words in chart.stage_words():
        if at_s >= free_s:
            axes.annotate(words, (at_s, 0), (2, 3), textcoords="offset points", size=7, color=_SOFT)
            free_s = at_s + chart.span_s * (0.01 + 0.007 * len(words))


def _legend(figure: "Figure", chart: Chart) -> None:
    from matplotlib.patches import Patch

    entries = [Patch(color=chart.colour(model), label=_plain(model)) for model in chart.models]
    first = chart.colour(chart.models[0]) if chart.models else _SOFT
    entries.append(Patch(facecolor=f"{first}30", edgecolor=first, hatch="/////", lw=0, label="loading"))
    entries.append(Patch(color=_IDLE, label="idle"))
    columns = min(_MOST_LEGEND_COLUMNS, len(entries))
    figure.legend(handles=entries, loc="outside lower left", ncols=columns, fontsize=8, frameon=False)


def _plain(text: str) -> str:
    """Escapes what matplotlib reads as mathematics."""
    return text.replace("$", r"\$")
