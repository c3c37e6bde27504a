"""Figures of a comparison: what is drawn, and what is refused before anything runs."""

import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from sutler.service.cli.terminal.output import check_plot
from sutler.service.comparing.compared import comparison_of
from sutler.service.comparing.figures import drawn
from sutler.service.comparing.sweeping import Sweep, frontier_of
from sutler.service.documents.comparison import ComparisonDocument
from sutler.service.documents.errors import DocumentError
from tests.service.builders import NOW
from tests.service.comparing.builders import a_comparison, a_strategy, a_translation, ran, sutler

PNG = b"\x89PNG"


def compared() -> ComparisonDocument:
    return a_comparison(
        ran(a_strategy("h100"), 3.0), ran(a_strategy("none"), None), ran(a_strategy("rich", own_market=True), 5.0)
    )


def swept(*values: float | None) -> ComparisonDocument:
    results = tuple(ran(a_strategy(str(index)), value) for index, value in enumerate(values))
    frontier = frontier_of(a_translation().problem, Sweep("budget_usd_per_hour", (1.0, 2.0)), lambda _: results)
    return comparison_of((ran(sutler(), 4.0), *results), a_translation(), created_at=NOW, frontier=frontier)


@pytest.mark.parametrize("comparison", [compared(), a_comparison(ran(sutler(), None)), swept(1.0, None), swept(None)])
def test_a_figure_is_drawn_of_whatever_there_is(comparison: ComparisonDocument) -> None:
    assert drawn(comparison, Path("x.PNG")).startswith(PNG)
    assert ElementTree.fromstring(drawn(comparison, Path("x.svg"))).tag.endswith("svg")


def test_axes_and_bars_say_what_they_are() -> None:
    bars = drawn(compared(), Path("x.svg")).decode()
    assert all(words in bars for words in ("throughput, requests/s", "sutler", "h100", "3 (sutler: × 1.33)"))
    assert "hatched: on supply that the market does not have" in bars
    curves = drawn(swept(1.0, 2.0), Path("x.svg")).decode()
    assert all(words in curves for words in ("throughput, requests/s", "budget, $/h"))


def test_the_same_comparison_gives_the_same_file() -> None:
    comparison = compared()
    assert drawn(comparison, Path("x.svg")) == drawn(comparison, Path("x.svg"))


@pytest.mark.parametrize("name", ["plot", "plot.pdf", "plot.png.gz", ".png"])
def test_the_name_says_what_to_draw(name: str) -> None:
    with pytest.raises(DocumentError, match=r"--plot: .*: name a file that ends in \.png or \.svg"):
        check_plot(Path(name), (".png", ".svg"))


def test_without_matplotlib_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(DocumentError, match=r"needs matplotlib: pip install 'sutler\[plots\]'"):
        check_plot(Path("x.png"), (".png", ".svg"))
