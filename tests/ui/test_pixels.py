"""The drawing of machines and the report, pixel by pixel: of a market that is written down, planned alike each time.

`python -m tests.ui.test_pixels` in `build/ui-env` draws them anew; the diff of the pictures is reviewed.
"""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import requests
import yaml
from PIL import Image, ImageChops

from tests.postgres import Server, a_folder, a_server
from tests.service.running import serving, settings, until
from tests.ui.chromium import BUILD, ROOT, a_tab, browsing

GOLDEN: Final = Path(__file__).parent / "golden"
TOLERANCE: Final = 0.005  # of the pixels, for another version of the browser
NOTICED: Final = 40  # of 255: what differs by less is the edge of a letter
DRAWN: Final = {
    "machines": ("/ui/deployments/split", "ul.machines"),
    "report": ("/ui/report/split", "article.report"),
}
SAVED: Final = "/best fleet of one type|No fleet of one type/"  # a report has that worked out by itself
# What differs from run to run: times, ids, and money that has been spent so far.
SETTLED: Final = r"""
    () => {
        const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
        while (walker.nextNode()) {
            const node = walker.currentNode;
            node.nodeValue = node.nodeValue
                .replace(/\d{4}-\d\d-\d\d \d\d:\d\d/g, "2026-01-01 00:00")
                .replace(/[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}/g, "00000000-0000-0000-0000-000000000000")
                .replace(/\(\d+ (s|minutes|hours|days) old\)/g, "(1 s old)")
                .replace(/[\d.,]+ \$ by /g, "0 $ by ");
        }
    }
"""


@pytest.fixture(scope="module")
def drawn_at(postgres: Server) -> Iterator[str]:
    yield from _served(postgres)


def _served(postgres: Server) -> Iterator[str]:
    """The URL of a service with the deployment."""
    postgres.run("CREATE DATABASE pixels")
    problem = yaml.safe_load((ROOT / "examples" / "disaggregated.yaml").read_text(encoding="utf-8"))
    problem["market"]["offers"]["taken_at"] = f"{problem['market']['offers']['taken_at']:%Y-%m-%dT%H:%M:%SZ}"
    with a_folder() as folder:
        environment = settings(folder, SUTLER_DATABASE_URL=postgres.url("pixels"))
        with serving(folder, environment) as running:
            made = requests.put(f"{running.url}/v1/deployments/split", json={"problem": problem}, timeout=60)
            assert made.status_code == 201, made.text
            plan = f"{running.url}/v1/deployments/split/plan"
            until(lambda: requests.get(plan, params={"wait_s": 30}, timeout=60).status_code == 200)
            yield running.url


def picture_of(browser: Any, url: str, name: str) -> bytes:
    """As it looks now."""
    path, selector = DRAWN[name]
    with a_tab(browser, url) as tab:
        tab.open(path)
        if name == "report":
            tab.page.wait_for_selector(f"text={SAVED}")
        tab.page.evaluate(SETTLED)
        found: bytes = tab.page.locator(selector).screenshot()
    return found


@pytest.mark.parametrize("name", DRAWN)
def test_it_looks_as_it_did(chromium: Any, drawn_at: str, name: str) -> None:
    now = picture_of(chromium, drawn_at, name)
    BUILD.mkdir(parents=True, exist_ok=True)
    (BUILD / f"{name}.png").write_bytes(now)
    is_now, was = (Image.open(source).convert("RGB") for source in (io.BytesIO(now), GOLDEN / f"{name}.png"))
    assert is_now.size == was.size
    difference = ImageChops.difference(is_now, was).convert("L").point(lambda value: 255 if value > NOTICED else 0)
    share = difference.histogram()[255] / (was.size[0] * was.size[1])
    assert share <= TOLERANCE, f"{100 * share:.2f} % of the pixels: see {BUILD}/{name}.png"


def main() -> None:
    """Draws them anew."""
    with a_server() as server, browsing() as browser:
        for url in _served(server):
            for name in DRAWN:
                (GOLDEN / f"{name}.png").write_bytes(picture_of(browser, url, name))


if __name__ == "__main__":
    main()
