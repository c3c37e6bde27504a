"""Every page in every state, light and dark, wide and narrow: silent, self-contained, and open to everybody."""

import os
from pathlib import Path
from typing import Any, Final

import pytest

from tests.ui.chromium import BUILD, Watched, a_tab
from tests.ui.conftest import KeptTab, Scene

PAGES: Final = {
    "overview": "/ui",
    "overview-filtered": "/ui?q=no-such-thing",
    "deployment": "/ui/deployments/chat",
    "deployment-throughput": "/ui/deployments/code",
    "deployment-infeasible": "/ui/deployments/no-money",
    "costs": "/ui/costs?since=1d",
    "carry-out": "/ui/deployments/chat/carry-out",
    "revision": "/ui/deployments/chat/revisions/1",
    "problem": "/ui/deployments/chat/problem",
    "history": "/ui/deployments/chat/history",
    "what-if": "/ui/what-if?deployment=chat",
    "market": "/ui/market",
    "market-filtered": "/ui/market?gpu=h100-sxm&sort=-gpus",
    "market-past": "/ui/market?as_of=1h",
    "polls": "/ui/market/clouds/vastai",
    "simulation": "/ui/simulation",
    "reports": "/ui/report",
    "report": "/ui/report/chat",
}
ERRORS: Final = {"gone": ("/ui/deployments/nobody", 404), "wrong": ("/ui/market?sort=beauty", 422)}
LOOKS = [(1280, "light"), (375, "dark")]
"""Colours do not depend on the width, nor widths on colours: `CHROMIUM_LOOKS=all` tries the other two as well."""
if os.environ.get("CHROMIUM_LOOKS") == "all":
    LOOKS += [(1280, "dark"), (375, "light")]
looks = pytest.mark.parametrize(("width", "scheme"), LOOKS, ids=[f"{w}-{s}" for w, s in LOOKS])


def inspected(tab: Watched, name: str, width: int, scheme: str, *, status: int = 200) -> None:
    """Keeps a picture, then says whatever is wrong with the page."""
    folder: Path = BUILD / "screenshots"
    folder.mkdir(parents=True, exist_ok=True)
    tab.page.screenshot(path=folder / f"{name}-{width}-{scheme}.png", full_page=True)
    said = [one for one in tab.said if not (status >= 400 and f"status of {status}" in one)]
    assert said == []
    assert tab.foreign == []
    assert tab.violations(of_looks=(width, scheme) != LOOKS[0]) == []
    overflow = tab.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    assert overflow <= 1, f"{overflow} px wider than the window"


@looks
@pytest.mark.parametrize("name", PAGES)
def test_a_page(kept_tab: KeptTab, scene: Scene, name: str, width: int, scheme: str) -> None:
    with kept_tab(scene.open_url, width, scheme) as tab:
        assert tab.open(PAGES[name]).status == 200
        inspected(tab, name, width, scheme)


@looks
@pytest.mark.parametrize("name", ERRORS)
def test_an_error(kept_tab: KeptTab, scene: Scene, name: str, width: int, scheme: str) -> None:
    path, status = ERRORS[name]
    with kept_tab(scene.open_url, width, scheme) as tab:
        assert tab.open(path).status == status
        inspected(tab, name, width, scheme, status=status)


@looks
@pytest.mark.parametrize("path", ["/ui", "/ui/market", "/ui/what-if", "/ui/simulation", "/ui/report"])
def test_an_installation_without_anything(kept_tab: KeptTab, empty: str, path: str, width: int, scheme: str) -> None:
    with kept_tab(empty, width, scheme) as tab:
        assert tab.open(path).status == 200
        assert "sutler" in tab.page.inner_text("#live")  # a command that makes it non-empty
        inspected(tab, f"empty{path.replace('/', '-')}", width, scheme)


@looks
def test_the_sign_in_and_what_a_read_key_may_not(chromium: Any, scene: Scene, width: int, scheme: str) -> None:
    with a_tab(chromium, scene.url, width=width, scheme=scheme) as tab:
        tab.open("/ui/deployments/chat")
        inspected(tab, "sign-in", width, scheme)
        sign_in(tab, scene.keys["read"])
        tab.page.wait_for_selector("text=this key has scope read, this needs plan")
        tab.settle()
        assert tab.page.locator("button:disabled").count() >= 2
        inspected(tab, "forbidden", width, scheme)


def sign_in(tab: Watched, key: str) -> None:
    tab.page.fill("#key", key)
    tab.page.keyboard.press("Enter")


@looks
def test_two_hundred_deployments(kept_tab: KeptTab, crowded: Scene, width: int, scheme: str) -> None:
    with kept_tab(crowded.open_url, width, scheme) as tab:
        tab.open("/ui")
        assert tab.page.locator("tbody tr").count() >= 200
        inspected(tab, "overview-large", width, scheme)


def test_two_thousand_offers_are_looked_through_page_by_page(chromium: Any, scene: Scene) -> None:
    with a_tab(chromium, scene.open_url) as tab:
        tab.open("/ui/market")
        total = int(tab.page.inner_text("#offers-title small").split()[0])
        assert total >= 2_000
        assert tab.page.locator("#live tbody tr").count() < 5_000
        tab.page.click("text=The next 200")
        tab.page.wait_for_selector("text=201 to 400 shown")
        tab.settle()
        assert tab.said == []


def test_the_report_prints_on_one_sheet(chromium: Any, scene: Scene) -> None:
    with a_tab(chromium, scene.open_url) as tab:
        tab.open("/ui/report/chat")
        pdf = tab.page.pdf(prefer_css_page_size=True)
        assert pdf.count(b"/Type /Page") - pdf.count(b"/Type /Pages") == 1
