"""What Gantt charts show: bars from stages, and the same bars in the terminal, in HTML and in a PNG."""

import sys
from dataclasses import replace
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from sutler.service.cli.terminal.output import check_plot
from sutler.service.cli.views.offline.gantt import GanttText, charts_view
from sutler.service.documents.errors import DocumentError
from sutler.service.offline.figures import Drawing, drawn
from sutler.service.offline.gantt import Bar, Chart, blocks_of, chart_of, on_one_scale, ticks_of
from sutler.service.offline.gantt_html import page_of
from tests.service.offline.plan_builders import (
    FINISH_S,
    a_replica,
    a_stage,
    a_stage_model,
    two_pairs,
    two_stages,
)


def a_chart(**finish_s: float) -> Chart:
    return chart_of("three models", two_pairs(), two_stages(), {**FINISH_S, **finish_s})


def shown(chart: Chart, *, width: int = 60, colours: bool = False) -> list[str]:
    out = Console(width=width, color_system="truecolor" if colours else None, force_terminal=colours)
    with out.capture() as captured:
        out.print(GanttText(chart))
    return captured.get().splitlines()


def spans(chart: Chart, gpu: int) -> list[tuple[str, float, float, bool]]:
    return [(bar.model, bar.start_s, bar.end_s, bar.is_loading) for bar in chart.bars if bar.gpu == gpu]


def test_a_gpu_loads_runs_and_idles_as_the_stages_say() -> None:
    chart = a_chart()
    assert spans(chart, 0) == [
        ("one", 0.0, 10.0, True),
        ("one", 10.0, 40.0, False),
        ("three", 40.0, 50.0, True),
        ("three", 50.0, 90.0, False),
    ]
    assert spans(chart, 1) == [("three", 40.0, 50.0, True), ("three", 50.0, 90.0, False)]


def test_a_model_that_goes_on_in_the_next_stage_is_one_bar() -> None:
    assert spans(a_chart(), 2) == [("two", 0.0, 20.0, True), ("two", 20.0, 100.0, False)]


def test_a_model_that_is_loaded_again_is_drawn_so() -> None:
    stages = (
        a_stage(0.0, 50.0, a_stage_model("one", a_replica(0, 0, ready_s=10.0))),
        a_stage(50.0, 90.0, a_stage_model("one", a_replica(0, 0, ready_s=60.0))),
    )
    chart = chart_of("again", two_pairs(), stages, {"one": 90.0})
    assert [(start, end, loads) for _, start, end, loads in spans(chart, 0)] == [
        (0.0, 10.0, True),
        (10.0, 50.0, False),
        (50.0, 60.0, True),
        (60.0, 90.0, False),
    ]


def test_loading_goes_on_beyond_the_end_of_a_stage() -> None:
    stages = (
        a_stage(0.0, 50.0, a_stage_model("one", a_replica(0, 0, ready_s=70.0))),
        a_stage(50.0, 90.0, a_stage_model("one", a_replica(0, 0, ready_s=70.0, loaded=False))),
    )
    chart = chart_of("long load", two_pairs(), stages, {"one": 90.0})
    assert spans(chart, 0) == [("one", 0.0, 70.0, True), ("one", 70.0, 90.0, False)]


def test_gpus_of_one_replica_are_one_block_and_replicas_are_not() -> None:
    blocks = [(block.first, block.last, block.bar.model) for block in blocks_of(a_chart()) if block.bar.is_loading]
    assert sorted(blocks) == [(0, 0, "one"), (0, 1, "three"), (2, 3, "two")]
    two_replicas = a_stage_model("one", a_replica(0, 0, ready_s=10.0), a_replica(1, 1, ready_s=10.0))
    apart = chart_of("apart", two_pairs(), [a_stage(0.0, 40.0, two_replicas)], {"one": 40.0})
    assert {(block.first, block.last) for block in blocks_of(apart)} == {(0, 0), (1, 1)}


@pytest.mark.parametrize(
    ("stage", "complaint"),
    [
        (a_stage(0.0, 9.0, a_stage_model("four", a_replica(0, 0, ready_s=1.0))), "is no model of this plan"),
        (a_stage(0.0, 9.0, a_stage_model("one", a_replica(0, 7, ready_s=1.0))), "is not among the plan's hardware"),
        (a_stage(0.0, 9.0, a_stage_model("one", a_replica(0, 0, ready_s=1.0, host=3))), "host 3, GPU 0"),
    ],
)
def test_stages_that_name_what_is_not_there_are_refused(stage: Any, complaint: str) -> None:
    with pytest.raises(DocumentError, match=complaint):
        chart_of("wrong", two_pairs(), [stage], FINISH_S)


def test_charts_on_one_scale_end_together() -> None:
    first, second = on_one_scale([a_chart(), replace(a_chart(), end_s=250.0)])
    assert (first.end_s, second.end_s) == (250.0, 250.0)
    assert first.bars == a_chart().bars


@pytest.mark.parametrize(
    ("start_s", "end_s", "words"),
    [
        (0.0, 100.0, ["0 s", "20 s", "40 s", "60 s", "80 s", "100 s"]),
        (120.0, 190.0, ["140 s", "160 s", "180 s"]),
        (0.0, 0.5, ["0 s", "0.1 s", "0.2 s", "0.3 s", "0.4 s", "0.5 s"]),
        (0.0, 9000.0, ["0 min", "50 min", "100 min", "150 min"]),
        (0.0, 90_000.0, ["0 h", "5 h", "10 h", "15 h", "20 h", "25 h"]),
        (0.0, 0.0, ["0 s"]),
    ],
)
def test_ticks_are_round(start_s: float, end_s: float, words: list[str]) -> None:
    assert [tick for _, tick in ticks_of(start_s, end_s, most=6)] == words


def test_the_chart_in_the_terminal_reads_without_colours() -> None:
    """100 s on 51 columns: a column is about 2 s."""
    lines = shown(a_chart())
    assert all(len(line) <= 60 for line in lines)
    assert lines[0].split() == ["stage", "│1", "│2"]
    first, second, third, fourth = (line.partition(" ")[2] for line in lines[1:5])
    assert first.startswith("0 ┌ ░░░░░AAAAAAAAAAAAAAA░░░░░░CCC")
    assert first.endswith("CCC·····")
    assert second.startswith("1 └ ····················░░░░░░CCC")
    assert third.replace("┌", "").split()[1:] == fourth.replace("└", "").split()[1:]
    assert "░░░░░░░░░░BBBB" in third
    assert "0 s" in lines[6]
    assert "\x1b" not in "".join(lines)


def test_colours_name_each_replica_once() -> None:
    lines = shown(a_chart(), colours=True)
    assert sum(" B two " in line for line in lines) == 1
    assert sum(" C three " in line for line in lines) == 1
    assert "48;2;" in lines[1]


def test_a_legend_follows_the_charts() -> None:
    console = Console(width=60, color_system=None)
    with console.capture() as captured:
        for part in charts_view([a_chart(), a_chart()], headings=["this", "that"]):
            console.print(part)
    text = captured.get()
    assert text.index("this") < text.index("that") < text.index(" A  one")
    assert text.count(" A  one") == 1
    assert "░░░ loading   ··· idle" in text


def test_many_gpus_are_cut_off_with_a_word() -> None:
    island = two_pairs().islands[0].model_copy(update={"gpus": tuple(range(100))})
    hardware = two_pairs().model_copy(update={"islands": (island,)})
    chart = chart_of("wide", hardware, [], {"one": None})
    assert "... and 36 GPUs more" in "\n".join(shown(chart))


class _Tags(HTMLParser):
    """Counts tags, and collects the attributes that load something."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.loads: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.loads += [name for name, _ in attrs if name in ("src", "href", "xlink:href")]


def test_the_page_stands_by_itself() -> None:
    parser = _Tags()
    page = page_of("Three models", ["a note"], [a_chart(), a_chart()], ["this", "that"])
    parser.feed(page)
    assert parser.loads == []
    assert "script" not in parser.tags
    assert "http" not in page
    assert parser.tags.count("h2") == 2
    assert "one, replica 0 (TP1) on GPU 0: runs from 10.0 s to 40.0 s (30.0 s)" in page
    assert "two, replica 0 (TP2) on GPUs 2, 3: loads from 0.0 s to 20.0 s (20.0 s)" in page


def test_names_are_text_in_the_page_and_never_markup() -> None:
    name = "<script>alert('x')</script>&"
    stage = a_stage(0.0, 9.0, a_stage_model(name, a_replica(0, 0, ready_s=1.0)))
    page = page_of(name, [name], [chart_of(name, two_pairs(), [stage], {name: 9.0})], [name])
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_a_png_is_drawn_and_dollars_are_no_mathematics() -> None:
    from matplotlib.image import imread

    drawing = Drawing("costs $2 or $3", ("a_b$",), (a_chart(),))
    picture = imread(BytesIO(drawn(drawing, Path("plan.png"))))
    assert picture.shape[0] > 200
    colours = {tuple(round(255 * float(value)) for value in pixel[:3]) for row in picture[::4] for pixel in row[::4]}
    chart = a_chart()
    for model in chart.models:
        assert tuple(int(chart.colour(model)[i : i + 2], 16) for i in (1, 3, 5)) in colours


def test_a_plot_needs_a_name_that_says_what_to_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(DocumentError, match=r"ends in \.png or \.html"):
        check_plot(Path("plan.gif"), (".png", ".html"), plain=".html")
    with pytest.raises(DocumentError, match=r"needs matplotlib.*\.html"):
        check_plot(Path("plan.png"), (".png", ".html"), plain=".html")
    check_plot(Path("plan.HTML"), (".png", ".html"), plain=".html")


def test_more_models_than_letters_still_have_one_each() -> None:
    names = {f"m{number}": None for number in range(70)}
    chart = chart_of("many", two_pairs(), [], names)
    assert [len(chart.symbol(name)) for name in names] == [1] * 70


def test_bars_are_in_the_order_of_time() -> None:
    bars = a_chart().bars_of(a_chart().rows[0])
    assert [bar.start_s for bar in bars] == sorted(bar.start_s for bar in bars)
    assert all(isinstance(bar, Bar) for bar in bars)
