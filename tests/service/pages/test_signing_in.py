"""Sessions of people: begun with a key, found by every process, ended at once; forms of others are refused."""

import re
import subprocess
import sys
from functools import partial
from typing import Final

import pytest
import requests

from sutler.service.auth.sessions import MOST_SESSIONS
from sutler.service.pages.signing_in import HOME, _own
from tests.postgres import Server, a_folder
from tests.service.api.conftest import Guarded
from tests.service.pages.conftest import Browser, SignIn
from tests.service.running import made_key, serving, settings, until

COOKIE: Final = "sutler-session"


def test_who_has_not_signed_in_is_led_there_and_back(paged: Guarded) -> None:
    browser = Browser(paged.running.url, requests.Session())
    first = browser.get("/ui/deployments/chat", allow_redirects=False)
    assert (first.status_code, first.headers["Location"]) == (303, "/ui/sign-in?next=/ui/deployments/chat")
    assert "WWW-Authenticate" not in first.headers
    done = browser.post("/ui/sign-in", {"key": paged.keys["read"], "next": "/ui/deployments/chat"})
    assert done.url.endswith("/ui/deployments/chat")
    assert done.status_code == 200


def test_a_renewal_without_a_session_leads_the_whole_page_to_the_sign_in(paged: Guarded) -> None:
    answer = Browser(paged.running.url, requests.Session()).get("/ui", headers={"HX-Request": "true"})
    assert answer.headers["HX-Redirect"] == "/ui/sign-in?next=/ui"
    assert answer.text == ""


@pytest.mark.parametrize("key", ["", "nonsense", "sutler_abcdefghijkl_" + "x" * 43, "<script>alert(1)</script>"])
def test_a_wrong_key_begins_nothing_and_is_not_repeated(paged: Guarded, key: str) -> None:
    browser = Browser(paged.running.url, requests.Session())
    answer = browser.post("/ui/sign-in", {"key": key})
    assert answer.status_code in (401, 429)
    assert COOKIE not in browser.session.cookies
    assert not key or key not in answer.text


def test_many_wrong_keys_are_slowed_down_and_a_good_one_is_let_in_all_the_same(paged: Guarded) -> None:
    browser = Browser(paged.running.url, requests.Session())
    statuses = {browser.post("/ui/sign-in", {"key": f"wrong-{i}"}).status_code for i in range(15)}
    assert 429 in statuses
    assert browser.post("/ui/sign-in", {"key": paged.keys["read"]}).status_code == 200


def test_each_sign_in_is_a_new_session_whatever_the_browser_showed(paged: Guarded, signed_in: SignIn) -> None:
    """Nobody can have others sign in under a session that they know."""
    browser = signed_in("read")
    before = browser.session.cookies[COOKIE]
    browser.post("/ui/sign-in", {"key": paged.keys["plan"]})
    assert browser.session.cookies[COOKIE] != before
    fixed = {"Cookie": f"{COOKIE}=known-to-somebody-else"}
    stranger = Browser(paged.running.url, requests.Session())
    done = stranger.post("/ui/sign-in", {"key": paged.keys["read"]}, headers=fixed, allow_redirects=False)
    assert "known-to-somebody-else" not in done.headers["Set-Cookie"]
    assert stranger.session.get(f"{stranger.url}/ui", headers=fixed, allow_redirects=False).status_code == 303


def test_the_cookie_is_for_this_host_and_for_no_script(paged: Guarded) -> None:
    browser = Browser(paged.running.url, requests.Session())
    answer = browser.post("/ui/sign-in", {"key": paged.keys["read"]}, allow_redirects=False)
    given = answer.headers["Set-Cookie"]
    assert {"HttpOnly", "Path=/", "SameSite=lax"} <= {part.strip() for part in given.split(";")}
    elsewhere = browser.post(
        "/ui/sign-in", {"key": paged.keys["read"]}, headers={"Host": "sutler.example"}, allow_redirects=False
    )
    assert elsewhere.headers["Set-Cookie"].startswith("__Host-sutler-session=")
    assert "Secure" in elsewhere.headers["Set-Cookie"]


def test_a_browser_that_keeps_nothing_is_told_why(paged: Guarded) -> None:
    answer = requests.get(f"{paged.running.url}/ui/signed-in?next=/ui", timeout=60)
    assert "has not kept the session" in answer.text


def test_a_session_opens_nothing_under_v1(paged: Guarded, signed_in: SignIn) -> None:
    assert signed_in("admin").get("/v1/deployments").status_code == 401


def test_signing_out_ends_the_session_and_forged_ones_end_none(paged: Guarded, signed_in: SignIn) -> None:
    browser = signed_in("read")
    token = browser.session.cookies[COOKIE]
    assert browser.post("/ui/sign-out", {"form_token": "guessed"}).status_code == 403
    assert browser.get("/ui", allow_redirects=False).status_code == 200
    done = browser.post("/ui/sign-out", {"form_token": browser.form_token()}, allow_redirects=False)
    assert (done.status_code, done.headers["Clear-Site-Data"]) == (303, '"cache"')
    again = Browser(paged.running.url, requests.Session())
    again.session.cookies.set(COOKIE, token)
    assert again.get("/ui", allow_redirects=False).status_code == 303


def test_signing_in_and_out_is_in_the_audit_log_and_the_key_nowhere(paged: Guarded, signed_in: SignIn) -> None:
    signed_in("plan")
    entries = paged.ask("admin", "GET", "/v1/audit", params={"action": "session.begin"}).json()["items"]
    assert any(entry["actor"].startswith("key/") and entry["target"] == entry["actor"] for entry in entries)
    assert paged.keys["plan"] not in str(entries) + paged.running.said()


@pytest.mark.parametrize("scope", ["read", "plan"])
def test_a_form_is_taken_from_its_own_page_and_from_nowhere_else(
    paged: Guarded, signed_in: SignIn, scope: str
) -> None:
    browser, path = signed_in(scope), "/ui/deployments/chat/replan"
    good = {"form_token": browser.form_token()}
    other = {"form_token": signed_in(scope).form_token()}
    refused = [
        browser.post(path, {"form_token": ""}),
        browser.post(path, other),
        browser.post(path, good, headers={"Sec-Fetch-Site": "cross-site"}),
        browser.post(path, good, headers={"Sec-Fetch-Site": "same-site"}),
        browser.post(path, good, headers={"Sec-Fetch-Site": "none"}),
        browser.session.post(
            f"{browser.url}{path}", data=good, headers={"Origin": "https://evil.example"}, timeout=60
        ),
        browser.session.post(f"{browser.url}{path}", data=good, timeout=60),
        browser.session.post(
            f"{browser.url}{path}", json=good, headers={"Sec-Fetch-Site": "same-origin"}, timeout=60
        ),
    ]
    assert [answer.status_code for answer in refused] == [403] * 7 + [415 if scope == "plan" else 403]
    own = browser.session.post(f"{browser.url}{path}", data=good, headers={"Origin": browser.url}, timeout=60)
    assert own.status_code == (200 if scope == "plan" else 403)


def test_a_form_whose_session_has_ended_leads_to_the_sign_in_and_not_to_a_form(paged: Guarded) -> None:
    stranger = Browser(paged.running.url, requests.Session())
    for path in ("/ui/deployments/chat/replan", "/ui/sign-out"):
        answer = stranger.post(path, {"form_token": "x"}, allow_redirects=False)
        assert answer.headers["Location"] == "/ui/sign-in?next=/ui"


def test_a_cookie_that_another_host_can_have_planted_counts_on_this_machine_alone(
    paged: Guarded, signed_in: SignIn
) -> None:
    token = signed_in("read").session.cookies[COOKIE]
    planted = {"Host": "sutler.example", "Cookie": f"{COOKIE}={token}"}
    own = {"Host": "sutler.example", "Cookie": f"__Host-{COOKIE}={token}"}
    statuses = [
        requests.get(f"{paged.running.url}/ui", headers=headers, allow_redirects=False, timeout=60).status_code
        for headers in (planted, own)
    ]
    assert statuses == [303, 200]


@pytest.mark.slow
def test_a_key_has_so_many_sessions_and_the_oldest_end(paged: Guarded, signed_in: SignIn) -> None:
    first = signed_in("read")
    newest = [signed_in("read") for _ in range(MOST_SESSIONS)][-1]
    assert newest.get("/ui", allow_redirects=False).status_code == 200
    until(partial(ended, first))


def ended(browser: Browser) -> bool:
    return browser.get("/ui", allow_redirects=False).status_code == 303


@pytest.mark.slow
def test_a_revoked_key_ends_its_sessions_and_processes_know_each_others(
    postgres: Server, paged: Guarded, paged_database: str
) -> None:
    with a_folder() as folder:
        environment = settings(folder, SUTLER_DATABASE_URL=postgres.url(paged_database))
        key = made_key(environment, "read")
        with serving(folder, environment, "--role", "api", "--require-key") as second:
            browser = Browser(paged.running.url, requests.Session())
            browser.post("/ui/sign-in", {"key": key})
            there = Browser(second.url, browser.session)
            assert there.get("/ui", allow_redirects=False).status_code == 200
            key_id = key.split("_")[1]
            subprocess.run(
                [sys.executable, "-m", "sutler", "keys", "revoke", key_id], env=environment, cwd=folder, check=True
            )
            for one in (browser, there):
                until(partial(ended, one))


@pytest.mark.parametrize(
    "path",
    [
        *("//evil.example", "https://evil.example/ui", "/ui/../v1", "javascript:alert(1)", "\\\\evil.example", ""),
        *("/uix", "/ui\r\nSet-Cookie: a=b", "//[", "/\\evil.example"),
    ],
)
def test_nobody_is_led_elsewhere(path: str) -> None:
    assert _own(path) in (HOME, path)
    assert re.match(r"/ui(/|\?|$)", _own(path))


def test_a_page_of_ours_is_led_to() -> None:
    assert _own("/ui/market?gpu=h100-sxm&sort=-gpus") == "/ui/market?gpu=h100-sxm&sort=-gpus"
