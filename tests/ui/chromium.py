"""Chromium, and a page of it that notices whatever should not happen."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from sutler.service.pages.fetch import DECLARED, install
from sutler.service.pages.fetch import HERE as LIBRARIES

ROOT: Final = Path(__file__).parents[2]
BUILD: Final = ROOT / "build" / "ui"
CHROMIUM: Final = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
ARGUMENTS: Final = ["--no-sandbox", "--font-render-hinting=none"]
PATIENCE_MS: Final = 180_000.0  # only what fails waits so long: solves may have a busy machine beside them
RULES: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
OF_LOOKS: Final = ["color-contrast", "target-size", "scrollable-region-focusable"]


@dataclass
class Watched:
    """A tab, and what it said, asked of others, or failed at."""

    page: Any
    origin: str
    said: list[str] = field(default_factory=list)
    foreign: list[str] = field(default_factory=list)

    def open(self, path: str) -> Any:
        """Goes there, and waits until what the page loads by itself is there."""
        answer = self.page.goto(f"{self.origin}{path}", timeout=PATIENCE_MS)
        self.settle()
        return answer

    def settle(self) -> None:
        self.page.wait_for_function(
            "() => document.readyState === 'complete' && !document.querySelector('.skeleton') &&"
            " [...document.querySelectorAll('[data-option]')].every((box) => box.drawn)",
            timeout=PATIENCE_MS,
        )

    def violations(self, *, of_looks: bool = False) -> list[str]:
        """What axe-core finds, a line each; `of_looks`: only what colours and widths bring about."""
        self.page.evaluate(axe())
        rules = OF_LOOKS if of_looks else RULES
        found = self.page.evaluate("(rules) => axe.run(document, {runOnly: rules})", rules)
        return [
            f"{one['id']}: {node['html'][:150]} ({node.get('failureSummary', '')[:200]})"
            for one in found["violations"]
            for node in one["nodes"]
        ]

    def tab_to(self, selector: str, *, most: int = 300) -> None:
        """Moves the focus by the keyboard alone until it is on what the selector means."""
        for _ in range(most):
            if self.page.evaluate("(wanted) => document.activeElement?.matches(wanted)", selector):
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"{selector} cannot be reached by the keyboard")


@cache
def axe() -> str:
    """The source of axe-core, fetched by the lock file of the pages' libraries."""
    script = BUILD / "npm" / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists():
        (BUILD / "npm").mkdir(parents=True, exist_ok=True)
        for name in DECLARED:
            shutil.copy(LIBRARIES / name, BUILD / "npm")
        install(BUILD / "npm")
    return script.read_text(encoding="utf-8")


@contextmanager
def browsing() -> Iterator[Any]:
    """A headless Chromium."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def a_tab(
    browser: Any, origin: str, *, width: int = 1280, height: int = 900, scheme: str = "light"
) -> Iterator[Watched]:
    """A tab with cookies of its own."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    watched = Watched(page, origin)
    host = urlsplit(origin).netloc
    page.on("console", lambda message: watched.said.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: watched.said.append(f"error: {error}"))
    page.on(
        "request",
        lambda request: (
            watched.foreign.append(request.url)
            if not request.url.startswith("data:") and urlsplit(request.url).netloc != host
            else None
        ),
    )
    try:
        yield watched
    finally:
        context.close()
