"""A service that asks for keys, with a deployment that has a plan; browsers of people who have signed in."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from html.parser import HTMLParser
from itertools import count
from typing import Any, Final

import pytest
import requests

from tests.postgres import Server
from tests.service.api.conftest import Guarded, guarding
from tests.service.running import LONGEST_WAIT_S, until

CHAT: Final[dict[str, Any]] = {
    "objective": {"kind": "min_cost"},
    "models": [
        {
            "name": "chat",
            "model": "llama-3.1-8b",
            "slo": {"ttft_p90_s": 2.0, "tpot_p90_s": 0.05},
            "workloads": [{"name": "question", "input_tokens": 400, "output_tokens": 200, "rate_rps": 2.0}],
        }
    ],
    "solver": {"time_limit_s": 10},
}
_numbers = count(1)
NO_VALUE: Final = frozenset(
    {"area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "source", "track", "wbr"}
    | {"rect", "line", "path"}
)


class Html(HTMLParser):
    """What stands in a page: its elements, and whether each was closed in its place."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.wrong: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        if tag not in NO_VALUE:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.wrong.append(f"</{tag}> at {self.getpos()}")

    def values(self, tag: str, attribute: str) -> list[str]:
        return [attrs[attribute] or "" for name, attrs in self.found if name == tag and attribute in attrs]


@dataclass
class Browser:
    """Somebody who looks at pages, without running their script."""

    url: str
    session: requests.Session

    def get(self, path: str, **options: Any) -> requests.Response:
        return self.session.get(f"{self.url}{path}", **{"timeout": 60, **options})

    def post(self, path: str, fields: dict[str, str], **options: Any) -> requests.Response:
        """As a browser sends a form of this service's own page, unless `headers` say otherwise."""
        headers = {"Sec-Fetch-Site": "same-origin", **options.pop("headers", {})}
        return self.session.post(f"{self.url}{path}", data=fields, headers=headers, **{"timeout": 60, **options})

    def html(self, path: str) -> Html:
        return Html(self.get(path).text)

    def form_token(self) -> str:
        """As forms of this session carry it."""
        page = self.html("/ui/what-if")
        return next(a["value"] or "" for tag, a in page.found if tag == "input" and a.get("name") == "form_token")


SignIn = Callable[[str], Browser]


@pytest.fixture(scope="package")
def paged_database() -> str:
    """A name that no other database of this process has: the package may be entered twice."""
    return f"paged_{next(_numbers)}"


@pytest.fixture(scope="package")
def paged(postgres: Server, paged_database: str) -> Iterator[Guarded]:
    with guarding(postgres, paged_database) as guarded:
        answer = guarded.ask("plan", "PUT", "/v1/deployments/chat", json={"problem": CHAT})
        assert answer.status_code == 201, answer.text
        wait = {"wait_s": LONGEST_WAIT_S}
        until(lambda: guarded.ask("read", "GET", "/v1/deployments/chat/plan", params=wait).status_code == 200)
        yield guarded


@pytest.fixture
def signed_in(paged: Guarded) -> SignIn:
    """Signs in with the key of a scope."""

    def signed(scope: str) -> Browser:
        browser = Browser(paged.running.url, requests.Session())
        done = browser.post("/ui/sign-in", {"key": paged.keys[scope], "next": "/ui"})
        assert done.status_code == 200, done.text
        return browser

    return signed
