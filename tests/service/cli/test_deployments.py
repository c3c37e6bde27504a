"""`sutler deployments` against a running service: what people and scripts see, and the exit statuses."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner, Result

from sutler.service.cli.app import app
from sutler.service.documents.examples import CHAT as ESTIMATED_CHAT
from tests.adapters.server import Reply, ScriptedServer, json_reply
from tests.service.builders import CHAT, changed
from tests.service.running import PATIENCE_S, ROOT, Running, until

BUSIER = changed(CHAT, ("models", 0, "workloads", 0, "rate_rps"), 45)
IMPOSSIBLE = {**CHAT, "limits": {"max_gpus": {"h100-sxm": 0, "rtx-4090": 0}}}
TRACE = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:15:{second:02}.6805900,{300 + 20 * second},{20 + 100 * (second % 2)}\n" for second in range(50)
)
MOMENT = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"
_numbers = count(1)


@pytest.fixture
def running(service: Running, monkeypatch: pytest.MonkeyPatch) -> Running:
    """The service, as the environment of the commands names it."""
    monkeypatch.setenv("SUTLER_URL", service.url)
    monkeypatch.setenv("SUTLER_KEY", service.key)
    return service


@pytest.fixture
def name() -> str:
    """Of a deployment that no other test has."""
    return f"cli-{next(_numbers)}"


@pytest.fixture
def planned(running: Running, name: str) -> str:
    """A deployment with its first plan."""
    running.post("/v1/deployments", {"name": name, "problem": CHAT})
    assert running.get(f"/v1/deployments/{name}/plan", params={"wait_s": 30}).status_code == 200
    return name


def sutler(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["deployments", *(str(argument) for argument in arguments)], input=stdin)


def printed(*arguments: str | Path, stdin: str | None = None, status: int = 0) -> Any:
    """The JSON on standard output."""
    result = sutler(*arguments, "--json", stdin=stdin)
    assert result.exit_code == status, result.stderr
    return json.loads(result.stdout)


def words(text: str) -> str:
    """Without the line breaks of a narrow page."""
    return " ".join(text.split())


def written(folder: Path, document: Any, name: str = "problem.yaml") -> Path:
    path = folder / name
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document), encoding="utf-8")
    return path


def watch_of(running: Running, name: str) -> Any:
    """Once it was looked at."""
    return until(lambda: running.get(f"/v1/deployments/{name}").json()["watch"])


def rented(running: Running, name: str) -> list[Any]:
    """The machines of the plan that holds, as holdings."""
    keys = ("provider", "offer_id", "gpu", "gpus", "count", "price_usd_per_hour", "contract")
    rentals = running.get(f"/v1/deployments/{name}/plan").json()["rentals"]
    return [{key: rental[key] for key in keys} for rental in rentals]


def the_next_plan(running: Running, name: str, after: int) -> Any:
    return running.get(f"/v1/deployments/{name}/plan", params={"after": after, "wait_s": 30}).json()


# --- apply ---


def test_a_problem_is_applied_under_a_name(running: Running, name: str, tmp_path: Path) -> None:
    made = sutler("apply", written(tmp_path, CHAT), "--name", name)
    assert made.exit_code == 0, made.stderr
    assert made.stdout.startswith(f"{name} made; its plan is being made")
    assert the_next_plan(running, name, 0)["revision"] == 1
    again = sutler("apply", written(tmp_path, CHAT), "--name", name)
    assert again.stdout.startswith(f"{name} is at version 1; its plan stands")


def test_a_whole_deployment_is_applied_and_changed(running: Running, name: str, tmp_path: Path) -> None:
    whole = {"name": name, "problem": CHAT, "policy": {"window_s": 60.0, "automatic": False}}
    made = printed("apply", written(tmp_path, whole))
    assert (made["name"], made["version"], made["policy"]["window_s"]) == (name, 1, 60.0)
    changed_one = printed("apply", written(tmp_path, {**whole, "problem": BUSIER}))
    assert changed_one["version"] == 2


def test_a_problem_comes_from_standard_input(running: Running, name: str) -> None:
    assert printed("apply", "-", "--name", name, stdin=json.dumps(CHAT))["name"] == name


def test_offers_and_traces_that_are_files_are_sent_along(running: Running, name: str, tmp_path: Path) -> None:
    written(tmp_path, json.dumps(CHAT["market"]["offers"]), "market.json")
    written(tmp_path, TRACE, "trace.csv")
    model = {key: value for key, value in CHAT["models"][0].items() if key != "workloads"}
    problem = {
        **ESTIMATED_CHAT,
        "models": [{**model, "trace": {"file": "trace.csv", "buckets": 4}}],
        "market": {"offers": "market.json", "filter": {"contracts": ["on_demand"]}},
    }
    found = printed("apply", written(tmp_path, problem), "--name", name)["problem"]
    assert found["market"] == {**CHAT["market"], "filter": {"contracts": ["on_demand"]}}
    [served] = found["models"]
    assert "trace" not in served
    assert len(served["workloads"]) == 4
    assert sum(bucket["rate_rps"] for bucket in served["workloads"]) == pytest.approx(50 / 49)
    assert the_next_plan(running, name, 0)["status"] == "optimal"


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({**CHAT, "modles": []}, "did you mean models?"),
        ({**CHAT, "market": {"offers": "nowhere.json"}}, "does not exist"),
        ({"problem": CHAT, "policy": {"window": 1}}, "policy.window"),
        ([1, 2], "sutler schema problem"),
        ({**CHAT, "budget_usd_per_hour": float("nan")}, "budget_usd_per_hour"),
        ({"problem": CHAT, "policy": {"window_s": float("inf")}}, "finite"),
    ],
)
def test_what_is_wrong_in_a_file_is_named(
    running: Running, name: str, tmp_path: Path, document: Any, said: str
) -> None:
    result = sutler("apply", written(tmp_path, document), "--name", name)
    assert result.exit_code == 2
    assert said in result.stderr
    assert running.get(f"/v1/deployments/{name}").status_code == 404


def test_a_problem_without_a_name_is_refused(running: Running, tmp_path: Path) -> None:
    result = sutler("apply", written(tmp_path, CHAT))
    assert (result.exit_code, "--name" in result.stderr) == (2, True)


# --- list, show, plan ---


def row(text: str, name: str) -> list[str]:
    """The cells of the line that begins with it."""
    [line] = [line for line in text.splitlines() if line.split()[:1] == [name]]
    return line.split()


def test_deployments_are_listed_with_their_plans_and_what_was_found(running: Running, planned: str) -> None:
    watch_of(running, planned)
    [item] = [item for item in printed("list")["items"] if item["name"] == planned]
    assert item["plan"] == running.get(f"/v1/deployments/{planned}").json()["plan"]
    watch = running.get(f"/v1/deployments/{planned}").json()["watch"]
    said = ("status", "detail", "feed", "load_multiple", "drifts", "looked_at", "carry_out")
    assert item["watch"] == {name: watch[name] for name in said}
    assert (item["pending"], item["models"]) == (None, ["chat"])
    assert item["relative_gap"] < 1e-3
    _, revision, status, cost, feed, *issued = row(sutler("list").stdout, planned)
    assert (revision, feed, issued[-1]) == ("1", "none", "ago")
    assert status in {"calm", "waiting"}  # for the end of the cool-down
    assert float(cost) == pytest.approx(item["plan"]["cost_usd_per_hour"], abs=0.005)


def test_a_deployment_without_a_plan_is_listed_too(running: Running, name: str) -> None:
    running.post("/v1/deployments", {"name": name, "problem": {**CHAT, "market": {"filter": {"regions": ["MOON"]}}}})
    [item] = [item for item in printed("list")["items"] if item["name"] == name]
    assert (item["plan"], item["watch"]) == (None, None)
    assert row(sutler("list").stdout, name) == [name, "–", "no", "plan", "yet", "–", "–", "–"]


def test_a_deployment_is_shown_with_its_plan(running: Running, planned: str) -> None:
    assert printed("show", planned) == running.get(f"/v1/deployments/{planned}").json()
    shown = sutler("show", planned).stdout
    assert "revision 1 (optimal, " in shown
    assert " holds, issued " in shown
    assert "version 1, plans are issued without being asked for" in shown


def test_a_plan_that_nobody_has_carried_out_is_said_not_to_run(running: Running, planned: str) -> None:
    assert watch_of(running, planned)["carry_out"]["state"] == "unreported"
    printed("holdings", planned, "-", stdin="[]")
    found = watch_of(running, planned)["carry_out"]
    machines = sum(holding["count"] for holding in rented(running, planned))
    assert (found["revision"], found["state"], found["planned_machines"]) == (1, "unmet", machines)
    assert (found["missing_machines"], found["held_machines_not_planned"]) == (machines, 0)
    shown = words(sutler("show", planned).stdout)
    assert f"- revision 1 is not carried out: {machines} of {machines} machine" in shown
    assert f"`sutler deployments holdings {planned}` says which" in shown


def test_a_plan_that_is_overdue_calls_for_attention(running: Running, name: str) -> None:
    running.post("/v1/deployments", {"name": name, "problem": CHAT, "policy": {"carry_out_s": 0}})
    the_next_plan(running, name, 0)
    printed("holdings", name, "-", stdin="[]")
    assert watch_of(running, name)["carry_out"]["state"] == "overdue"
    assert "ATTENTION: revision 1 is still not carried out" in words(sutler("show", name).stdout)


def test_a_plan_that_is_carried_out_is_said_to_be(running: Running, planned: str) -> None:
    extra = {"provider": "own", "offer_id": "rack", "gpu": "rtx-4090", "gpus": 1, "price_usd_per_hour": 0}
    printed("holdings", planned, "-", stdin=json.dumps([*rented(running, planned), extra]))
    found = watch_of(running, planned)["carry_out"]
    assert (found["state"], found["missing_machines"], found["held_machines_not_planned"]) == ("met", 0, 1)
    shown = words(sutler("show", planned).stdout)
    assert "- it is carried out: " in shown
    assert "- 1 machine is held that it does not rent" in shown


def test_a_deployment_that_is_only_watched_says_which_command_issues_a_plan(running: Running, name: str) -> None:
    policy = {"automatic": False, "cooldown_s": 0, "window_s": 60}
    running.post("/v1/deployments", {"name": name, "problem": CHAT, "policy": policy})
    the_next_plan(running, name, 0)
    sutler("observe", name, "-", stdin=a_window(datetime.now(UTC), 2640))
    until(lambda: watch_of(running, name)["status"] == "manual")
    shown = " ".join(sutler("show", name).stdout.split())
    assert "policy.automatic is off: POST /replan (`sutler deployments replan`) issues it" in shown


def test_the_plan_calls_its_replicas_as_the_diff_does(running: Running, planned: str) -> None:
    [*replicas] = running.get(f"/v1/deployments/{planned}/plan").json()["replicas"]
    run = sutler("plan", planned).stdout.split("\nRun\n")[1]
    assert replicas[0]["id"] in run.splitlines()[2].split()[0]


def test_the_plan_is_printed_as_the_service_has_it(running: Running, planned: str) -> None:
    plan = running.get(f"/v1/deployments/{planned}/plan").json()
    assert printed("plan", planned) == printed("plan", planned, "--revision", "1") == plan
    assert plan["rentals"][0]["offer_id"] in sutler("plan", planned).stdout


def test_an_infeasible_plan_is_printed_with_status_3(running: Running, name: str) -> None:
    running.post("/v1/deployments", {"name": name, "problem": IMPOSSIBLE})
    plan = printed("plan", name, "--wait-s", "30", status=3)
    assert plan["status"] == "infeasible"
    assert "What has to give" in sutler("plan", name).stdout


def test_a_deployment_without_a_plan_is_status_5(running: Running, name: str) -> None:
    running.post("/v1/deployments", {"name": name, "problem": {**CHAT, "market": {"filter": {"regions": ["MOON"]}}}})
    until(lambda: running.get(f"/v1/deployments/{name}").json()["last_failure"])
    result = sutler("plan", name)
    assert (result.exit_code, result.stdout) == (5, "")
    assert "has no plan" in result.stderr
    assert "the last attempt came to nothing" in sutler("show", name).stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ("show",),
        ("plan",),
        ("diff",),
        ("holdings",),
        ("ack",),
        ("replan",),
        ("wake",),
        ("watch",),
        ("watch", "--after", "3"),
        ("traffic",),
        ("feeds",),
        ("decisions",),
        ("delete", "--yes"),
    ],
)
def test_a_deployment_that_is_not_there_is_status_2(running: Running, arguments: tuple[str, ...]) -> None:
    command, *options = arguments
    result = sutler(command, "nobody", *options)
    assert result.exit_code == 2
    assert "there is no deployment 'nobody'" in result.stderr


# --- diff, replan, watch ---


def test_the_diff_says_what_to_do_in_order(running: Running, planned: str) -> None:
    running.put(f"/v1/deployments/{planned}", {"problem": BUSIER})
    the_next_plan(running, planned, 1)
    found = printed("diff", planned)
    assert (found["schema"], found["from"], found["to"]) == ("sutler/diff/v1", 1, 2)
    assert printed("diff", planned, "--from", "0", "--to", "1")["from"] is None
    lines = sutler("diff", planned).stdout
    assert "From revision 1 to revision 2" in lines
    assert lines.index("1. Start and check") < lines.index("2. Re-route")
    assert sutler("diff", planned, "--to", "9").exit_code == 2


def test_a_replan_is_waited_for(running: Running, planned: str) -> None:
    assert printed("replan", planned, "--wait")["revision"] == 2
    job = printed("replan", planned)
    assert job["schema"] == "sutler/plan-job/v1"
    assert the_next_plan(running, planned, 2)["revision"] == 3


def test_models_that_may_sleep_are_woken(running: Running, planned: str) -> None:
    assert "no model of" in sutler("wake", planned).stderr
    load = {**CHAT, "objective": {"kind": "min_cost"}}
    running.put(f"/v1/deployments/{planned}", {"problem": load, "policy": {"sleep": {}}})
    assert printed("wake", planned, "--model", "chat")["models"] == ["chat"]
    assert sutler("wake", planned).stdout == f"{planned}: chat to be served.\n"
    assert sutler("wake", planned, "--model", "chad").exit_code == 2


def test_a_replan_without_a_market_is_status_4(running: Running, name: str) -> None:
    running.post("/v1/deployments", {"name": name, "problem": {**CHAT, "market": {"filter": {"regions": ["MOON"]}}}})
    until(lambda: running.get(f"/v1/deployments/{name}").json()["last_failure"])
    result = sutler("replan", name, "--wait")
    assert result.exit_code == 4
    assert "filter" in result.stderr


def test_who_watches_gets_a_line_for_the_next_plan(running: Running, planned: str) -> None:
    found: list[Result] = []
    watching = threading.Thread(target=lambda: found.append(sutler("watch", planned, "--once")))
    watching.start()
    running.put(f"/v1/deployments/{planned}", {"problem": BUSIER})
    watching.join(40)
    [result] = found
    assert result.exit_code == 0, result.stderr
    assert re.fullmatch(rf"{MOMENT} {planned} revision 2: .*\n", result.stdout)


def test_who_waits_for_a_revision_that_is_far_off_is_told_the_newest(running: Running, planned: str) -> None:
    command = [
        sys.executable,
        "-m",
        "sutler",
        "deployments",
        "watch",
        planned,
        "--after",
        "7",
        "--once",
    ]
    process = subprocess.Popen(
        command, cwd=ROOT, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        said = process.stderr.readline()
        running.put(f"/v1/deployments/{planned}", {"problem": BUSIER})
        out, _ = process.communicate(timeout=40)
    finally:
        process.kill()
        process.communicate()
    assert re.match(rf"{MOMENT} {planned} there is no revision 7 yet, the newest is 1: waiting for the one", said)
    assert f" {planned} revision 2: " in out


def test_plans_that_were_missed_are_told_one_by_one(running: Running, planned: str) -> None:
    running.put(f"/v1/deployments/{planned}", {"problem": BUSIER})
    the_next_plan(running, planned, 1)
    first = json.loads(sutler("watch", planned, "--after", "0", "--once", "--json").stdout)
    assert (first["from"], first["to"]) == (None, 1)
    second = json.loads(sutler("watch", planned, "--after", "1", "--once", "--json").stdout)
    assert (second["from"], second["to"]) == (1, 2)


def test_ctrl_c_ends_the_watch_with_130(running: Running, planned: str) -> None:
    command = [sys.executable, "-m", "sutler", "deployments", "watch", planned, "--after", "0"]
    process = subprocess.Popen(
        command, cwd=ROOT, env=dict(os.environ), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        assert process.stdout is not None
        first = process.stdout.readline().decode()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
        process.communicate()
    assert re.match(rf"{MOMENT} {planned} revision 1: ", first), (first, err)
    assert (process.returncode, out, err) == (130, b"", b"interrupted\n")


# --- holdings, ack ---


def test_holdings_are_reported_shown_and_acknowledged(running: Running, planned: str, tmp_path: Path) -> None:
    assert "nobody has said yet what is rented" in sutler("holdings", planned).stdout
    held = [{"provider": "acme", "offer_id": "x", "gpu": "rtx-4090", "gpus": 1, "price_usd_per_hour": 0.3}]
    found = printed("holdings", planned, written(tmp_path, held, "held.yaml"))
    assert [holding["offer_id"] for holding in found["unplanned"]] == ["x"]
    shown = sutler("holdings", planned).stdout
    assert "Missing: the plan (revision 1) rents it" in shown
    assert "Unplanned: the plan (revision 1) does not rent it" in shown
    acknowledged = sutler("ack", planned)
    assert f"{planned}: revision 1 is carried out; stored as rented: " in acknowledged.stdout
    assert "No longer held" in acknowledged.stdout
    assert printed("holdings", planned)["missing"] == []


def test_nothing_rented_is_a_report_too(running: Running, planned: str) -> None:
    assert printed("holdings", planned, "-", stdin="[]")["reported"] is True
    assert f"{planned}: nothing is rented" in sutler("holdings", planned).stdout


def test_wrong_holdings_are_named(running: Running, planned: str) -> None:
    result = sutler("holdings", planned, "-", stdin='[{"provider": "acme"}]')
    assert result.exit_code == 2
    assert "error: [0].offer_id: is missing" in result.stderr


def test_a_plan_that_is_not_the_current_one_is_not_acknowledged(running: Running, planned: str) -> None:
    result = sutler("ack", planned, "--revision", "7")
    assert result.exit_code == 2
    assert "the current plan" in result.stderr


def test_a_machine_that_was_held_keeps_its_price_when_the_plan_is_acknowledged(
    running: Running, planned: str
) -> None:
    cheaper, *others = rented(running, planned)
    printed("holdings", planned, "-", stdin=json.dumps([{**cheaper, "price_usd_per_hour": 0.01}]))
    found = printed("ack", planned, "--revision", "1")["holdings"]
    assert [holding["price_usd_per_hour"] for holding in found] == [
        0.01,
        *(holding["price_usd_per_hour"] for holding in others),
    ]


# --- observe, traffic, feeds ---


def a_window(ended: datetime, requests: int) -> str:
    bucket = {"input_tokens": 500, "output_tokens": 250, "requests": requests}
    return json.dumps({"model": "chat", "observed_at": ended.isoformat(), "window_s": 60, "buckets": [bucket]})


def test_what_was_counted_is_said_and_what_was_sent_before_too(running: Running, planned: str) -> None:
    window = a_window(datetime.now(UTC), 1320)
    first, again = (sutler("observe", planned, "-", stdin=window).stdout for _ in range(2))
    assert first.splitlines()[0] == f"{planned}: 1,320 requests counted (1 report)"
    assert again.splitlines()[0] == f"{planned}: nothing counted, it was sent before (1 report)"
    assert re.fullmatch(r"chat: 22\.00 requests/s over \d+ .* \(planned 22\.00\)", first.splitlines()[1])


def test_the_traffic_is_shown_beside_the_planned(running: Running, planned: str) -> None:
    assert row(sutler("traffic", planned).stdout, "chat") == ["chat", "never", "–", "22.00", "–", "–", "never"]
    sutler("observe", planned, "-", stdin=a_window(datetime.now(UTC), 1320))
    assert printed("traffic", planned)["models"][0]["state"] == "live"
    text = sutler("traffic", planned).stdout
    assert row(text, "chat")[:5] == ["chat", "live", "22.00", "22.00", "1,320"]
    assert row(text, "question")[:4] == ["question", "22.00", "20.00", "1,320"]
    assert row(text, "document")[:4] == ["document", "0", "2.000", "0"]


def test_thin_traffic_is_shown_with_how_much_of_it_was_seen(running: Running, planned: str) -> None:
    watch_of(running, planned)
    one = {"at": datetime.now(UTC).isoformat(), "input_tokens": 500, "output_tokens": 250}
    assert "chat: thin" in sutler("observe", planned, "-", stdin=json.dumps({**one, "model": "chat"})).stdout
    until(lambda: watch_of(running, planned)["feed"] == "thin")
    assert "too thin to tell whether it has changed: 1 of 100 requests so far" in words(
        sutler("show", planned).stdout
    )


def test_feeds_are_set_shown_and_taken_away(running: Running, planned: str, tmp_path: Path) -> None:
    assert f"`sutler deployments feeds {planned} --file FILE`" in words(sutler("feeds", planned).stdout)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{nobody.getsockname()[1]}"
    feed = {"model": "chat", "kind": "vllm", "urls": [url], "every_s": 5}
    found = printed("feeds", planned, "--file", written(tmp_path, {"feeds": [feed]}))
    assert [feed["urls"] for feed in found["feeds"]] == [[f"{url}/metrics"]]
    until(lambda: printed("feeds", planned)["feeds"][0]["error"])
    shown = sutler("feeds", planned).stdout
    assert "fails, 1 time" in " ".join(row(shown, "chat"))
    assert "Could not be read" in shown
    assert printed("feeds", planned, "--file", "-", stdin="[]")["feeds"] == []


def test_a_wrong_feed_is_named(running: Running, planned: str) -> None:
    result = sutler("feeds", planned, "--file", "-", stdin='[{"model": "cat", "kind": "vllm", "urls": ["http://x"]}]')
    assert result.exit_code == 2
    assert "feeds[0].model" in result.stderr


def test_traffic_is_sent_as_that_of_the_only_model(
    monkeypatch: pytest.MonkeyPatch, running: Running, planned: str
) -> None:
    """Asked of a stand-in that shows what arrives; the deployment is the service's."""
    deployment = running.get(f"/v1/deployments/{planned}").json()
    with ScriptedServer([json_reply(deployment), json_reply({"taken": 50}, 202)]) as server:
        monkeypatch.setenv("SUTLER_URL", server.base_url)
        assert printed("observe", planned, "-", stdin=TRACE) == [{"taken": 50}]
    _, sent = server.requests
    assert (sent.method, sent.path) == ("POST", f"/v1/deployments/{planned}/observations")
    assert (sent.data["model"], len(sent.data["requests"])) == ("chat", 50)


def test_traffic_that_cannot_be_read_is_not_sent(running: Running, planned: str, tmp_path: Path) -> None:
    result = sutler("observe", planned, written(tmp_path, "TIMESTAMP,ContextTokens,GeneratedTokens\nx,1,1\n"))
    assert (result.exit_code, "line 2" in result.stderr) == (2, True)


# --- decisions, delete ---


def test_decisions_are_listed_with_what_came_of_them(running: Running, planned: str) -> None:
    nothing = sutler("decisions", planned)
    assert (nothing.exit_code, nothing.stdout) == (0, "")
    assert "Nothing was decided" in nothing.stderr
    printed("replan", planned, "--wait")
    [item] = printed("decisions", planned)["items"]
    [decided] = [line for line in sutler("decisions", planned).stdout.splitlines() if re.match(MOMENT, line)]
    assert decided.split()[1:6] == ["1", "→", "2", "asked", item["chosen"]]
    assert len(printed("decisions", planned, "--limit", "1")["items"]) == 1


@pytest.mark.parametrize("answer", ["n\n", ""])
def test_a_deployment_is_not_deleted_without_a_yes(running: Running, planned: str, answer: str) -> None:
    result = sutler("delete", planned, stdin=answer)
    assert (result.exit_code, "--yes" in result.stderr) == (2, True)
    assert running.get(f"/v1/deployments/{planned}").status_code == 200


@pytest.mark.parametrize(("options", "answer"), [((), "y\n"), (("--yes",), None), (("--yes", "--json"), None)])
def test_a_deployment_is_deleted(
    running: Running, planned: str, options: tuple[str, ...], answer: str | None
) -> None:
    result = sutler("delete", planned, *options, stdin=answer)
    assert result.exit_code == 0, result.stderr
    assert planned in result.stdout
    assert running.get(f"/v1/deployments/{planned}").status_code == 404


# --- who asks, and whom ---


def test_an_answer_of_another_version_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedServer([json_reply({"items": [{"name": "old"}], "next": None})]) as server:
        monkeypatch.setenv("SUTLER_URL", server.base_url)
        result = sutler("list")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "has to run the version of this program" in result.stderr


def test_without_a_service_it_says_how_to_start_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUTLER_URL", "http://127.0.0.1:9")
    result = sutler("list")
    assert result.exit_code == 1
    assert "start it with `sutler serve`, or set SUTLER_URL" in result.stderr


def test_without_a_key_it_says_where_to_put_one(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SUTLER_KEY")
    result = sutler("list")
    assert (result.exit_code, "SUTLER_KEY" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    "url", ["ftp://x", "http://", "http://u:secret@x", "http://x?a=secret", "secret", "http://["]
)
def test_a_url_that_is_none_is_refused_and_not_repeated(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("SUTLER_URL", url)
    result = sutler("list")
    assert (result.exit_code, "SUTLER_URL" in result.stderr) == (2, True)
    assert "secret" not in result.stderr


def test_a_key_that_is_none_is_refused_and_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUTLER_KEY", "can\nary")
    result = sutler("list")
    assert (result.exit_code, "SUTLER_KEY" in result.stderr, "ary" in result.stderr) == (2, True, False)


@pytest.mark.parametrize("reply", [Reply(502, b"<html>"), Reply(200, b"not JSON"), Reply(302)])
def test_something_else_that_answers_there_is_no_success(monkeypatch: pytest.MonkeyPatch, reply: Reply) -> None:
    with ScriptedServer([reply]) as server:
        monkeypatch.setenv("SUTLER_URL", server.base_url)
        result = sutler("list")
    assert result.exit_code == 1
    assert "is this a service of sutler?" in result.stderr
    assert "Traceback" not in result.stderr


def test_the_key_goes_along_and_no_netrc_takes_its_place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = written(tmp_path, "machine 127.0.0.1 login someone password else", "netrc")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("SUTLER_KEY", "canary-key")
    with ScriptedServer([json_reply({"items": [], "next": None})]) as server:
        monkeypatch.setenv("SUTLER_URL", f"{server.base_url}/")
        assert sutler("list").exit_code == 0
    [request] = server.requests
    assert request.headers["authorization"] == "Bearer canary-key"
    assert request.path == "/v1/deployments"
