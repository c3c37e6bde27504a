"""Gantt charts as one HTML file that needs nothing else: inline SVG, a legend, and words to read by pointing.

Flow: Chart (gantt.py) -> page_of (here) -> figures.py writes the file.
"""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Final

from sutler.service.offline.gantt import Chart, ReplicaBlock, block_words, blocks_of, ticks_of

# Lengths in pixels of the chart, chosen by eye: names and ticks have room at the font of 12 pixels.
WIDTH: Final = 1160
_LEFT: Final = 92
_RIGHT: Final = 28
_TOP: Final = 26
_BOTTOM: Final = 30
_ROW: Final = 26
_ISLAND_GAP: Final = 7
_LETTER: Final = 7.2  # of the label's font, on average
_MOST_TICKS: Final = 12
_STYLE: Final = """
:root { color-scheme: light dark; --page: #ffffff; --ink: #1d2733; --soft: #64748b; --line: #cbd5e1; --idle: #eef2f6 }
@media (prefers-color-scheme: dark) {
  :root { --page: #14191f; --ink: #e6ebf1; --soft: #94a3b8; --line: #3a4552; --idle: #222b35 }
}
body { margin: 2rem auto; max-width: 1160px; padding: 0 1rem; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif }
h1 { font-size: 1.35rem; margin: 0 0 .3rem } h2 { font-size: 1.05rem; margin: 1.6rem 0 .2rem }
p { margin: .1rem 0; color: var(--soft) }
ul { list-style: none; display: flex; flex-wrap: wrap; gap: .35rem 1.2rem; margin: 1rem 0 .6rem; padding: 0 }
li { display: flex; align-items: center; gap: .45rem }
li svg { flex: none } svg { display: block; width: 100%; height: auto } li svg { width: 22px; height: 14px }
.idle { fill: var(--idle) } .grid { stroke: var(--line) } .stage { stroke: var(--soft); stroke-dasharray: 3 3 }
.island { stroke: var(--soft); fill: none }
text { fill: var(--soft); font: 12px system-ui, -apple-system, "Segoe UI", Roboto, sans-serif }
text.name { fill: #ffffff; font-weight: 600; pointer-events: none }
.block:hover rect { stroke: var(--ink); stroke-width: 2 }
"""


def page_of(title: str, notes: Sequence[str], charts: Sequence[Chart], headings: Sequence[str] = ()) -> str:
    """The whole file; `notes` stand below the title, `headings` above the charts (none: no headings)."""
    parts = [f"<h1>{escape(title)}</h1>", *(f"<p>{escape(note)}</p>" for note in notes)]
    if charts:
        parts.append(_legend(charts[0]))
    for number, chart in enumerate(charts):
        if headings:
            parts.append(f"<h2>{escape(headings[number])}</h2>")
        parts.append(_svg(chart, number))
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{escape(title)}</title>\n'
        f"<style>{_STYLE}</style>\n</head>\n<body>\n{_patterns(charts)}{body}\n</body>\n</html>\n"
    )


def _patterns(charts: Sequence[Chart]) -> str:
    """Hatching for what loads, in the colour of each model; one set for all charts, which share their models."""
    colours = dict.fromkeys(chart.colour(model) for chart in charts for model in chart.models)
    patterns = "".join(
        f'<pattern id="{_pattern(colour)}" width="7" height="7" patternUnits="userSpaceOnUse" '
        f'patternTransform="rotate(45)"><rect width="7" height="7" fill="{colour}" fill-opacity="0.18"/>'
        f'<rect width="2.6" height="7" fill="{colour}" fill-opacity="0.75"/></pattern>'
        for colour in colours
    )
    return f'<svg width="0" height="0" style="position:absolute" aria-hidden="true"><defs>{patterns}</defs></svg>\n'


def _pattern(colour: str) -> str:
    return f"loads-{colour.removeprefix('#')}"


def _legend(chart: Chart) -> str:
    entries = [(f'fill="{chart.colour(model)}"', model) for model in chart.models]
    if chart.models:
        entries.append((f'fill="url(#{_pattern(chart.colour(chart.models[0]))})"', "loading"))
    entries.append(('class="idle"', "idle"))
    items = "".join(
        f'<li><svg viewBox="0 0 22 14"><rect width="22" height="14" rx="3" {look}/></svg>{escape(words)}</li>'
        for look, words in entries
    )
    return f"<ul>{items}</ul>"


def _svg(chart: Chart, number: int) -> str:
    tops = list(_tops(chart))
    height = (tops[-1] + _ROW if tops else _TOP) + _BOTTOM
    parts = [*_ground(chart, tops), *_islands(chart, tops)]
    parts += [_block(chart, block, tops) for block in blocks_of(chart)]
    parts += _stages(chart, height)
    label = escape(chart.title, quote=True)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{label}" id="chart-{number}">'
        f"<title>{label}</title>{''.join(parts)}</svg>"
    )


def _tops(chart: Chart) -> Iterator[int]:
    top, island = _TOP, None
    for row in chart.rows:
        if island is not None and row.island != island:
            top += _ISLAND_GAP
        yield top
        top, island = top + _ROW, row.island


def _x(chart: Chart, at_s: float) -> float:
    return round(_LEFT + (at_s - chart.start_s) / chart.span_s * (WIDTH - _LEFT - _RIGHT), 2)


def _ground(chart: Chart, tops: Sequence[int]) -> Iterator[str]:
    """Idle GPUs, their names, the axis of time."""
    for name, top in zip(chart.row_names, tops, strict=True):
        yield f'<text x="{_LEFT - 16}" y="{top + 17}" text-anchor="end">{name}</text>'
        size = f'width="{WIDTH - _LEFT - _RIGHT}" height="{_ROW - 2}" rx="2"'
        yield f'<rect class="idle" x="{_LEFT}" y="{top + 1}" {size}/>'
    bottom = (tops[-1] + _ROW if tops else _TOP) + 4
    for at_s, words in ticks_of(chart.start_s, chart.end_s, most=_MOST_TICKS):
        x = _x(chart, at_s)
        yield f'<line class="grid" x1="{x}" x2="{x}" y1="{_TOP}" y2="{bottom}"/>'
        yield f'<text x="{x}" y="{bottom + 16}" text-anchor="middle">{words}</text>'


def _islands(chart: Chart, tops: Sequence[int]) -> Iterator[str]:
    """A bracket beside the GPUs that share fast links."""
    for island in dict.fromkeys(row.island for row in chart.rows):
        numbers = [number for number, row in enumerate(chart.rows) if row.island == island]
        if len(numbers) > 1:
            first, last = tops[numbers[0]] + 5, tops[numbers[-1]] + _ROW - 5
            yield f'<path class="island" d="M{_LEFT - 6} {first}h-5V{last}h5"/>'


def _block(chart: Chart, block: ReplicaBlock, tops: Sequence[int]) -> str:
    bar = block.bar
    left, right = _x(chart, bar.start_s), _x(chart, bar.end_s)
    top, bottom = tops[block.first] + 1, tops[block.last] + _ROW - 1
    colour = chart.colour(bar.model)
    fill = f"url(#{_pattern(colour)})" if bar.is_loading else colour
    width = round(max(right - left, 0.8), 2)
    rect = f'<rect x="{left}" y="{top}" width="{width}" height="{bottom - top}" rx="2" fill="{fill}"/>'
    name = chart.name_within(bar.model, (width - 6) / _LETTER)
    text = ""
    if name and not bar.is_loading:
        x, y = round(left + width / 2, 2), (top + bottom) / 2 + 4.5
        text = f'<text class="name" x="{x}" y="{y}" text-anchor="middle">{escape(name)}</text>'
    return f'<g class="block"><title>{escape(block_words(chart, block))}</title>{rect}{text}</g>'


def _stages(chart: Chart, height: int) -> Iterator[str]:
    """A dashed line where a stage begins, and its number where there is room."""
    free = 0.0
    for at_s, words in chart.stage_words():
        x = _x(chart, at_s)
        yield f'<line class="stage" x1="{x}" x2="{x}" y1="{_TOP - 6}" y2="{height - _BOTTOM}"/>'
        if x >= free:
            yield f'<text x="{x + 3}" y="{_TOP - 10}">{words}</text>'
            free = x + 8 + _LETTER * len(words)
