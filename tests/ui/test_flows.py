"""What people do on the pages, by the keyboard alone; and what others try."""

from typing import Any, Final

import pytest
import requests

from tests.service.running import serving, until
from tests.ui.chromium import a_tab
from tests.ui.conftest import Scene
from tests.ui.test_every_page import sign_in
from tests.ui.test_pixels import SAVED

SCRIPT: Final = "<script>alert(1)</script>"


def test_by_the_keyboard_alone(chromium: Any, scene: Scene) -> None:
    """Sign in, filter, open a diff, acknowledge, what if, sign out; over two processes in turn."""
    with a_tab(chromium, scene.url) as tab:
        page, keys = tab.page, tab.page.keyboard
        tab.open("/ui")
        keys.type(scene.keys["plan"])  # the field has the focus
        keys.press("Enter")
        page.wait_for_selector("h1:has-text('Deployments')")
        tab.tab_to("#q")
        keys.type("code")
        page.wait_for_function("() => document.querySelectorAll('section:has(#all) tbody tr').length === 1")
        assert page.evaluate("document.activeElement.id") == "q"  # a renewal moves no focus
        tab.tab_to("tbody a")
        keys.press("Enter")
        page.wait_for_selector("h1:has-text('code')")
        tab.tab_to(".timeline a")
        keys.press("Enter")
        page.wait_for_selector("text=What it changed")
        page.go_back()
        tab.tab_to("a.button[href$='carry-out']")
        keys.press("Enter")
        page.wait_for_selector("text=carried out?")
        tab.tab_to("button.primary")
        keys.press("Enter")
        page.wait_for_selector("text=what the plan rents is what is rented")
        tab.open("/ui/what-if?deployment=chat")
        tab.tab_to("#load")
        for _ in range(4):
            keys.press("ArrowRight")
        assert float(page.input_value("#load-value")) == pytest.approx(1.2)
        tab.tab_to("#change button.primary")
        keys.press("Enter")
        page.wait_for_selector("text=as it is, planned anew")
        assert "load=1.2" in page.url
        tab.tab_to("header form button")
        keys.press("Enter")
        page.wait_for_selector("#key")
        tab.open("/ui")
        assert "/ui/sign-in" in page.url
        assert [one for one in tab.said if "Clear-Site-Data" not in one] == []


def test_a_filter_finds_offers_while_it_is_typed_and_stays_in_the_address(chromium: Any, scene: Scene) -> None:
    with a_tab(chromium, scene.open_url) as tab:
        tab.open("/ui/market")
        tab.page.fill("#q", "")
        tab.page.type("#q", "h100 vastai")
        tab.page.wait_for_function("() => location.search.includes('h100')")
        tab.page.wait_for_function(
            "() => [...document.querySelectorAll('#live section:last-of-type tbody tr')]"
            ".every((row) => row.innerText.includes('h100'))"
        )
        assert tab.page.input_value("#q") == "h100 vastai"
        tab.page.reload()
        assert tab.page.input_value("#q") == "h100 vastai"


def test_a_forged_form_of_another_site_changes_nothing(chromium: Any, scene: Scene) -> None:
    with a_tab(chromium, scene.url) as tab:
        tab.open("/ui")
        sign_in(tab, scene.keys["plan"])
        tab.page.wait_for_selector("h1:has-text('Deployments')")
        before = audit(scene)
        target = f"{scene.url}/ui/deployments/chat/replan"
        form = f'<form method="post" action="{target}"><button id="go">go</button></form>'
        tab.page.route("http://evil.example/**", lambda route: route.fulfill(body=form, content_type="text/html"))
        tab.page.goto("http://evil.example/")
        with tab.page.expect_navigation():
            tab.page.click("#go")
        assert "another site" in tab.page.content()
        assert audit(scene) == before


def audit(scene: Scene) -> Any:
    """The newest change that was made."""
    headers = {"Authorization": f"Bearer {scene.keys['admin']}"}
    found = requests.get(f"{scene.url}/v1/audit?action=deployment.replan", headers=headers, timeout=60).json()
    return found["items"][:1]


def test_script_in_every_name_that_somebody_else_can_choose(chromium: Any, scene: Scene) -> None:
    """Of models, workloads, offers, machines, places: what a user or a cloud calls them is shown as text."""
    offer = {
        **{"provider": SCRIPT, "offer_id": f"{SCRIPT}1", "gpu": "h100-sxm", "gpus": 8, "available": 2},
        **{"price_usd_per_hour": 8.0, "contract": "on_demand", "site": SCRIPT, "region": SCRIPT, "machine_id": None},
    }
    market = {"schema": "sutler/market/v1", "taken_at": "2026-11-20T12:00:00Z", "offers": [offer]}
    workload = {"name": f"'\"{SCRIPT}", "input_tokens": 400, "output_tokens": 200, "rate_rps": 3}
    problem = {
        "objective": {"kind": "min_cost"},
        "models": [{"name": f"{SCRIPT}", "model": "llama-3.1-8b", "workloads": [workload]}],
        "market": {"offers": market},
    }
    made = requests.put(f"{scene.open_url}/v1/deployments/scripted", json={"problem": problem}, timeout=60)
    assert made.status_code in (200, 201), made.text
    ask = f"{scene.open_url}/v1/deployments/scripted/plan"
    until(lambda: requests.get(ask, params={"wait_s": 30}, timeout=60).status_code == 200)
    with a_tab(chromium, scene.open_url) as tab:
        alerts: list[str] = []
        tab.page.on("dialog", lambda dialog: alerts.append(dialog.message))
        for path in (
            *("/ui", "/ui/deployments/scripted", "/ui/deployments/scripted/revisions/1"),
            *("/ui/deployments/scripted/carry-out", "/ui/deployments/scripted/problem", "/ui/report/scripted"),
            *("/ui/what-if?deployment=scripted", "/ui/simulation?deployment=scripted", f"/ui?q={SCRIPT}"),
        ):
            tab.open(path)
            assert tab.page.locator("main script").count() == 0
        tab.open("/ui/deployments/scripted")
        assert SCRIPT in tab.page.inner_text("#live")
        assert alerts == []
        assert tab.said == []
    requests.delete(f"{scene.open_url}/v1/deployments/scripted", timeout=60)


def test_what_is_shown_stays_where_the_service_goes_away_and_goes_on_when_it_is_back(
    chromium: Any, scene: Scene
) -> None:
    port = scene.apis[0].url.rpartition(":")[2]
    with serving(scene.folder, scene.environment, "--role", "api") as lone, a_tab(chromium, lone.url) as tab:
        tab.open("/ui")
        port = lone.url.rpartition(":")[2]
        lone.process.kill()
        lone.process.wait()
        tab.page.wait_for_selector("#paused:not([hidden])")
        assert "Not renewed since" in tab.page.inner_text("#paused")
        assert tab.page.locator("tbody tr").count() >= 3
        with serving(scene.folder, scene.environment, "--role", "api", "--port", port):
            tab.page.wait_for_selector("#paused", state="hidden")


def test_somebody_can_hold_what_is_shown_and_let_it_go_on(chromium: Any, scene: Scene) -> None:
    with a_tab(chromium, scene.open_url) as tab:
        asked: list[str] = []
        tab.page.on("request", lambda request: asked.append(request.url))
        tab.page.clock.install()
        tab.open("/ui")
        hold = tab.page.locator("#hold")
        hold.press("Enter")
        assert hold.get_attribute("aria-pressed") == "true"
        tab.open("/ui/market")  # other pages hold, too
        assert hold.get_attribute("aria-pressed") == "true"
        asked.clear()
        tab.page.clock.run_for("02:00")
        assert asked == []
        hold.press("Enter")
        assert hold.get_attribute("aria-pressed") == "false"
        with tab.page.expect_request("**/ui/market"):
            tab.page.clock.run_for("02:00")


def test_a_report_has_what_is_saved_worked_out_by_itself_once(chromium: Any, scene: Scene) -> None:
    with a_tab(chromium, scene.open_url) as tab:
        posted: list[str] = []
        tab.page.on("request", lambda request: posted.append(request.url) if request.method == "POST" else None)
        report = "/ui/report/code?revision=1"  # nobody else opens it
        tab.open(report)
        tab.page.wait_for_selector(f"text={SAVED}")
        assert len(posted) == 1
        tab.open(report)
        tab.page.wait_for_selector(f"text={SAVED}")
        assert len(posted) == 1
        assert tab.said == []
