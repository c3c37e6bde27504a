"""How quick the pages are: `make pages-bench` writes results/pages.md.

A played market of over 2,000 offers, deployments on it and 200 copies of one, two API processes; a worker that solves
all the time. Chromium says when it painted first and how long its main thread was busy; requests are timed from
another process; 50 open tabs renew themselves beside callers who ask for the current plan.
"""

import statistics
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import requests

from benchmarks.machine import describe_machine
from benchmarks.program import parser_of
from benchmarks.scratch import tell
from sutler.service.pages import assets
from tests.postgres import a_server
from tests.ui.chromium import a_tab, browsing
from tests.ui.conftest import Scene, a_scene, crowd

PAGES: Final = {
    "overview, 200 deployments": "/ui",
    "deployment": "/ui/deployments/chat",
    "market, 2,000 offers": "/ui/market",
    "what if": "/ui/what-if?deployment=chat",
    "report": "/ui/report/chat",
}
LOADS: Final = 7
REQUESTS: Final = 60
TABS: Final = 50
CALLS_PER_S: Final = 100.0
CALLED_S: Final = 20.0
SCROLL: Final = """
    async () => {
        const frames = [];
        let last = performance.now();
        for (let step = 0; step < 120; step++) {
            await new Promise(requestAnimationFrame);
            const now = performance.now();
            frames.push(now - last);
            last = now;
            scrollBy(0, 80);
        }
        return frames.slice(5);
    }
"""
PAINTED: Final = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? -1"


def quantile(values: Sequence[float], fraction: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, round(fraction * (len(ordered) - 1)))]


def ms(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms"


@contextmanager
def solving(scene: Scene) -> Iterator[None]:
    """Plans are asked for one after another, as long as this lasts."""
    done = threading.Event()
    problem = requests.get(f"{scene.open_url}/v1/deployments/chat", timeout=60).json()["problem"]

    def ask() -> None:
        number = 0
        while not done.is_set():
            number += 1
            load = {**problem, "budget_usd_per_hour": 100 + number}
            requests.post(f"{scene.open_url}/v1/plans", json=load, timeout=120)

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def painted(browser: Any, scene: Scene) -> Iterator[str]:
    """First paint, the main thread until all is there, and elements, of each page."""
    yield "| page | first paint, cold | warm | all there, warm | main thread, warm | elements |"
    yield "|---|---|---|---|---|---|"
    for name, path in PAGES.items():
        cold, warm, whole, busy, elements = [], [], [], [], 0
        for _ in range(LOADS):
            with a_tab(browser, scene.open_url) as tab:
                tab.open(path)
                cold.append(tab.page.evaluate(PAINTED) / 1000)
                session = tab.page.context.new_cdp_session(tab.page)
                session.send("Performance.enable")
                before = metric(session, "TaskDuration")
                began_s = time.perf_counter()
                tab.open(path)
                whole.append(time.perf_counter() - began_s)
                warm.append(tab.page.evaluate(PAINTED) / 1000)
                busy.append(metric(session, "TaskDuration") - before)
                elements = tab.page.evaluate("document.querySelectorAll('*').length")
        middle = statistics.median
        yield (
            f"| {name} | {ms(middle(cold))} | {ms(middle(warm))} | {ms(middle(whole))} | {ms(middle(busy))} | "
            f"{elements:,} |"
        )


def metric(session: Any, name: str) -> float:
    found = session.send("Performance.getMetrics")["metrics"]
    return float(next(one["value"] for one in found if one["name"] == name))


def answered(scene: Scene) -> Iterator[str]:
    """How long the service takes for a page, for its renewal, and for one that has not changed."""
    yield "| page | p50 | p95 | renewed, p95 | unchanged, p95 | kB |"
    yield "|---|---|---|---|---|---|"
    with requests.Session() as session:
        for name, path in PAGES.items():
            url = f"{scene.open_url}{path}"
            size = len(session.get(url, timeout=60).content)
            renewal = {"HX-Request": "true"}
            etag = session.get(url, headers=renewal, timeout=60).headers["ETag"]
            whole, renewed = timed(session, url, {}), timed(session, url, renewal)
            unchanged = timed(session, url, {**renewal, "If-None-Match": etag})
            yield (
                f"| {name} | {ms(statistics.median(whole))} | {ms(quantile(whole, 0.95))} | "
                f"{ms(quantile(renewed, 0.95))} | {ms(quantile(unchanged, 0.95))} | {size / 1e3:.0f} |"
            )


def timed(session: requests.Session, url: str, headers: dict[str, str]) -> list[float]:
    """Seconds of many requests, one after another."""
    found = []
    for _ in range(REQUESTS):
        began_s = time.perf_counter()
        session.get(url, headers=headers, timeout=60).raise_for_status()
        found.append(time.perf_counter() - began_s)
    return found


def scrolled(browser: Any, scene: Scene) -> Iterator[str]:
    """Frames while the offers scroll by, and how soon a filter has changed the rows."""
    with a_tab(browser, scene.open_url) as tab:
        tab.open("/ui/market")
        frames = tab.page.evaluate(SCROLL)
        yield f"- scrolling 200 of 2,000 offers: frames of {quantile(frames, 0.95):.0f} ms at the 95th percentile"
        waits = []
        for word in ("h100", "a100", "l40s", "rtx"):
            tab.page.fill("#q", word)
            began_s = time.perf_counter()
            tab.page.wait_for_function(f"() => location.search.includes('q={word}')")
            waits.append(time.perf_counter() - began_s)
        yield f"- from the last letter of a filter to its rows: {ms(statistics.median(waits))} (it waits 250 ms)"


def called(scene: Scene, *, tabs: int) -> list[float]:
    """Seconds that callers wait for the current plan, while so many tabs are open: each renews itself every 10 s."""
    done = threading.Event()

    def renew(number: int) -> None:
        with requests.Session() as session:
            done.wait(number * 10 / tabs)
            while not done.is_set():
                session.get(f"{scene.open_url}/ui/deployments/chat", headers={"HX-Request": "true"}, timeout=60)
                done.wait(10)

    threads = [threading.Thread(target=renew, args=(number,)) for number in range(tabs)]
    for thread in threads:
        thread.start()
    found = []
    with requests.Session() as session:
        end_s = time.perf_counter() + CALLED_S
        while time.perf_counter() < end_s:
            began_s = time.perf_counter()
            session.get(f"{scene.open_url}/v1/deployments/chat/plan", timeout=60).raise_for_status()
            found.append(time.perf_counter() - began_s)
            time.sleep(max(0.0, 1 / CALLS_PER_S - found[-1]))
    done.set()
    for thread in threads:
        thread.join()
    return found


def sent() -> str:
    """What a first visit loads besides the page."""
    sizes = {name: len(assets.asset(name).compressed) / 1e3 for name in assets.FILES}
    listed = ", ".join(f"{name} {size:.0f} kB" for name, size in sizes.items())
    return f"Sent once, compressed: {listed}; ECharts is loaded where there is a chart."


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, and writes the page."""
    options = parser_of("pages", __doc__).parse_args(arguments)
    machine = describe_machine()
    lines = ["# Pages", "", str(__doc__).partition("\n\n")[2].strip(), ""]
    lines += [f"{machine['cpu']}, {machine['cores']} cores, {machine['date']}. {sent()}", ""]
    with a_server() as server, a_scene(server) as scene, browsing() as browser:
        crowd(scene)
        alone = called(scene, tabs=0)
        with_tabs = called(scene, tabs=TABS)
        with solving(scene):
            for title, part in (
                ("In the browser, while the worker solves", painted(browser, scene)),
                ("The service's part, while the worker solves", answered(scene)),
                ("Offers, while the worker solves", scrolled(browser, scene)),
            ):
                tell(title)
                lines += [f"## {title}", "", *part, ""]
        lines += ["## Tabs beside callers", ""]
        lines += ["| callers of the current plan, 100/s | p50 | p99 |", "|---|---|---|"]
        for name, found in (("no tab is open", alone), (f"{TABS} tabs are open", with_tabs)):
            lines += [
                f"| {name} | {1000 * statistics.median(found):.1f} ms | {1000 * quantile(found, 0.99):.1f} ms |"
            ]
    text = "\n".join(lines) + "\n"
    Path(options.out).mkdir(parents=True, exist_ok=True)
    (options.out / "pages.md").write_text(text, encoding="utf-8")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
