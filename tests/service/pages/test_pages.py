"""Every page for everybody who may see it: well formed, from here alone, with the figures of the API."""

import re
from pathlib import Path
from typing import Final

import pytest
import requests
from fastapi.routing import APIRoute

from sutler.service.pages.rendering import TEMPLATES, environment
from sutler.service.pages.router import PAGES as ALL
from sutler.service.wording.words import price
from tests.service.api.conftest import Guarded
from tests.service.pages.conftest import Browser, Html, SignIn
from tests.service.running import LONGEST_WAIT_S, until

PAGES: Final = (
    *(
        "/ui",
        "/ui?q=chat&show=calm",
        "/ui?q=nothing-like-it",
        "/ui/market",
        "/ui/market?q=acme&sort=-gpus&contract=on_demand",
    ),
    *("/ui/market?gpu=h100-sxm&from=200", "/ui/market?as_of=1h", "/ui/market/history?gpu=h100-sxm&since=6h"),
    *("/ui/market/history?gpu=h100-sxm&since=10s", "/ui/market/history?gpu=l40s&since=0001-06-01T00:00:00Z"),
    *("/ui/market/history", "/ui/market/clouds/file", "/ui/what-if", "/ui/what-if?deployment=chat&budget=3&load=2"),
    *("/ui/simulation", "/ui/report", "/ui/report/chat", "/ui/report/chat?revision=1", "/ui/deployments/chat"),
    *("/ui/deployments/chat/carry-out", "/ui/deployments/chat/revisions/1", "/ui/deployments/chat/problem"),
    *("/ui/deployments/chat/history?since=7d", "/ui/deployments/chat?done=replanning", "/ui/costs"),
)
WRONG: Final = {
    "/ui/nowhere": 404,
    "/ui/deployments/nobody": 404,
    "/ui/deployments/chat/revisions/99": 404,
    "/ui/deployments/chat/revisions/x": 422,
    "/ui/deployments/chat/revisions/1/files/nothing": 404,
    "/ui/deployments/UPPER": 422,
    "/ui/market?sort=beauty": 422,
    "/ui/market?gpu=nonsense": 422,
    "/ui/market?provider=nobody": 422,
    "/ui/market?as_of=tomorrow": 422,
    "/ui/market?as_of=2099-01-01T00:00:00Z": 422,
    "/ui/market/clouds/nobody": 404,
    "/ui/market/clouds/%00": 422,
    "/ui/market/history?gpu=%00": 422,
    "/ui/market/history?gpu=nonsense": 422,
    "/ui/market?q=%00": 422,
    "/ui/market/history?gpu=h100-sxm&since=never": 422,
    "/ui/what-if?deployment=nobody": 404,
    "/ui/what-if?deployment=chat&budget=-1": 422,
    "/ui/what-if?study=00000000-0000-0000-0000-000000000000": 404,
    "/ui/report/nobody": 404,
    "/ui/costs?since=never": 422,
    "/ui/what-if?deployment=%00": 422,
    "/ui/simulation?deployment=%00": 422,
    "/ui/report/chat?revision=99": 404,
}
WITH_A_FORM: Final = (
    *("/ui/deployments/chat/replan", "/ui/deployments/chat/carry-out", "/ui/what-if", "/ui/simulation"),
    "/ui/report/chat/savings",
)
ELSEWHERE: Final = re.compile(r"""(?:src|href|action|hx-get|hx-post)=["'](?:https?:)?//""")


@pytest.fixture
def browser(signed_in: SignIn) -> Browser:
    return signed_in("read")


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_well_formed_and_loads_nothing_from_elsewhere(browser: Browser, path: str) -> None:
    answer = browser.get(path)
    assert answer.status_code == 200, answer.text[:2_000]
    page = Html(answer.text)
    assert (page.wrong, page.open) == ([], [])
    assert not ELSEWHERE.search(answer.text)
    ids = [attrs["id"] for _, attrs in page.found if attrs.get("id")]
    assert len(ids) == len(set(ids))
    assert [tag for tag, _ in page.found].count("h1") == 1
    labelled = set(page.values("label", "for"))
    for tag, attrs in page.found:
        if tag in ("input", "select") and attrs.get("type") not in ("hidden", "checkbox") and "hidden" not in attrs:
            assert attrs.get("id") in labelled or attrs.get("aria-label"), attrs
    for target in [t for _, a in page.found for t in [a.get("aria-labelledby"), a.get("aria-describedby")] if t]:
        assert target in ids
    headers = answer.headers
    assert headers["Cache-Control"] == "no-store"
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert "default-src 'none'" in headers["Content-Security-Policy"]


@pytest.mark.parametrize(("path", "status"), WRONG.items())
def test_what_is_wrong_is_said_on_a_page_with_its_remedy(browser: Browser, path: str, status: int) -> None:
    answer = browser.get(path)
    assert answer.status_code == status
    assert answer.headers["Content-Type"].startswith("text/html")
    assert 'role="alert"' in answer.text
    assert answer.headers["X-Request-Id"] in answer.text
    assert Html(answer.text).wrong == []


def test_what_was_not_changed_is_not_sent_again(browser: Browser) -> None:
    asked = {"HX-Request": "true"}
    first = browser.get("/ui/deployments/chat/problem", headers=asked)
    assert first.headers["Cache-Control"] == "private, no-cache"
    again = browser.get("/ui/deployments/chat/problem", headers={**asked, "If-None-Match": first.headers["ETag"]})
    assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize("path", WITH_A_FORM)
def test_a_read_key_changes_nothing(paged: Guarded, browser: Browser, path: str) -> None:
    before = paged.ask("admin", "GET", "/v1/audit").json()["items"][0]
    answer = browser.post(path, {"form_token": browser.form_token(), "deployment": "chat", "revision": "1"})
    assert answer.status_code == 403
    assert "this needs plan" in answer.text
    assert paged.ask("admin", "GET", "/v1/audit").json()["items"][0] == before


def test_every_route_that_changes_something_is_tried_above() -> None:
    routes = [route for page in ALL for route in page.router.routes if isinstance(route, APIRoute)]
    paths = {route.path for route in routes if "POST" in (route.methods or ())}
    own = {path for path in paths if not path.startswith("/ui/sign-")}
    assert own == {path.replace("/chat/", "/{name}/") for path in WITH_A_FORM}


def test_the_figures_are_those_of_the_api(paged: Guarded, browser: Browser) -> None:
    plan = paged.ask("read", "GET", "/v1/deployments/chat/plan").json()
    overview, page = browser.get("/ui").text, browser.get("/ui/deployments/chat").text
    assert price(plan["cost_usd_per_hour"]) in overview
    assert price(plan["cost_usd_per_hour"]) in page
    for replica in plan["replicas"]:
        assert replica["id"] in page
    for rental in plan["rentals"]:
        assert rental["offer_id"] in page


def test_what_is_rented_and_what_has_to_be_done_is_to_be_kept_as_files(paged: Guarded, browser: Browser) -> None:
    plan = paged.ask("read", "GET", "/v1/deployments/chat/plan")
    files = "/ui/deployments/chat/revisions/1/files"
    assert browser.get(f"{files}/plan").content == plan.content
    assert browser.get(f"{files}/diff").json()["to"] == 1
    script = browser.get(f"{files}/vllm")
    assert "vllm serve" in script.text
    assert "attachment" in script.headers["Content-Disposition"]
    table = browser.get("/ui/market/offers.csv?gpu=h100-sxm").text.splitlines()
    assert table[0].startswith("provider,offer_id,gpu")
    assert all("h100-sxm" in line for line in table[1:])
    assert table[1:]


def test_a_plan_that_is_carried_out_is_acknowledged_where_it_is_the_one_that_was_shown(
    paged: Guarded, signed_in: SignIn
) -> None:
    browser = signed_in("plan")
    token = {"form_token": browser.form_token()}
    assert browser.post("/ui/deployments/chat/carry-out", {**token, "revision": "7"}).status_code == 409
    assert browser.post("/ui/deployments/chat/carry-out", {**token, "revision": "x"}).status_code == 422
    current = paged.ask("read", "GET", "/v1/deployments/chat/plan").json()["revision"]
    done = browser.post("/ui/deployments/chat/carry-out", {**token, "revision": str(current)})
    assert "what the plan rents is what is rented" in done.text
    assert paged.ask("read", "GET", "/v1/deployments/chat/holdings").json()["missing"] == []


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/ui/what-if", {"load": "2", "seconds": "5"}),
        ("/ui/simulation", {"load_multiple": "1", "duration_s": "20", "seed": "3"}),
    ],
)
def test_an_answer_to_another_question_than_the_address_has_is_called_that(
    signed_in: SignIn, path: str, asked: dict[str, str]
) -> None:
    browser = signed_in("plan")
    address = browser.post(path, {"form_token": browser.form_token(), "deployment": "chat", **asked}).url
    address = address.removeprefix(browser.url)

    def answer(address: str) -> str:
        text = browser.get(address).text
        return text if "hx-trigger" not in text else ""

    assert "another question" not in until(lambda: answer(address), patience_s=LONGEST_WAIT_S)
    (key, value), *_ = asked.items()
    assert "another question" in answer(address.replace(f"{key}={value}", f"{key}=1.5"))


def test_a_question_is_asked_and_answered_on_the_page(signed_in: SignIn) -> None:
    browser = signed_in("plan")
    token = {"form_token": browser.form_token(), "deployment": "chat"}
    asked = browser.post("/ui/what-if", {**token, "load": "2", "seconds": "5", "frontier": "1"})
    assert "load=2" in asked.url
    assert "study=" in asked.url
    browser.post("/ui/simulation", {**token, "duration_s": "20", "load_multiple": "1"})
    for name in ("\0", "", "../chat", "Nobody"):
        assert browser.post("/ui/what-if", {**token, "deployment": name}).status_code == 422
    wrong = browser.post("/ui/what-if", {**token, "budget": "nothing"})
    assert (wrong.status_code, "above 0" in wrong.text) == (422, True)


@pytest.mark.parametrize("path", sorted(TEMPLATES.glob("*.html")), ids=lambda path: path.name)
def test_templates_hold_nothing_that_the_policy_forbids(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for forbidden in (" style=", "<style", "hx-on", "onclick", "js:", "javascript:", "x-data", "|safe", "eval("):
        assert forbidden not in text, forbidden
    assert not re.search(r"<script(?![^>]* src=)", text)
    assert not re.search(r"hx-trigger=\"[^\"]*\[", text)
    environment().get_template(path.name)


def test_files_are_kept_for_ever_under_their_digest_and_compressed(browser: Browser) -> None:
    page = browser.html("/ui/market")
    for address in [*page.values("script", "src"), *page.values("link", "href")]:
        answer = browser.get(address)
        assert "immutable" in answer.headers["Cache-Control"]
        assert answer.headers.get("Content-Encoding") == "gzip"
        assert requests.get(f"{browser.url}{address.replace('/assets/', '/assets/0')}", timeout=60).status_code == 404
