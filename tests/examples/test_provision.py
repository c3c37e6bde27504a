"""The provisioning script, run as its users run it: a process of its own that calls a real hook."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import environ
from pathlib import Path
from typing import Any

import pytest

from sutler.service.documents.plan import PlanDocument, SpareDocument
from sutler.service.translation.mapping import mapped
from tests.examples.stand_in import Answer, StandIn, a_problem
from tests.service.deployments.diff.fleets import (
    On,
    a_fleet,
    a_machine,
    a_replica,
    a_route,
    an_infeasible_fleet,
    one_replica_each,
)

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPT = EXAMPLES / "provision.py"
# Notes what it is asked to do; fails on the actions named in the file `refuse`, and finds the offers in `gone` gone.
HOOK = """\
import json, pathlib, sys
folder = pathlib.Path(__file__).parent
action, key = sys.argv[1:]
with (folder / "calls.jsonl").open("a") as calls:
    print(json.dumps(json.load(sys.stdin)), file=calls)
gone = folder / "gone"
if action == "rent" and gone.exists() and key.split("/")[1] in gone.read_text().split():
    sys.exit(3)
refused = folder / "refuse"
sys.exit(refused.exists() and action in refused.read_text().split())
"""


class Desk:
    """A folder from which the script is run, with a hook."""

    def __init__(self, folder: Path, service: StandIn) -> None:
        self.folder, self.service = folder, service
        (folder / "hook.py").write_text(HOOK)
        self.with_hook = ("--hook", f"{sys.executable} {folder / 'hook.py'}")

    def command(self, *options: str) -> list[str]:
        return [sys.executable, str(SCRIPT), "chat", *options]

    def environment(self, more: Mapping[str, str]) -> dict[str, str]:
        inherited = {name: value for name, value in environ.items() if not name.startswith("SUTLER_")}
        return {**inherited, "SUTLER_URL": self.service.url, "SUTLER_KEY": self.service.key, **more}

    def run(
        self, *options: str, expected: int = 0, environment: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            self.command("--once", *options),
            cwd=self.folder,
            env=self.environment(environment or {}),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == expected, done.stdout + done.stderr
        assert "Traceback" not in done.stderr
        return done

    def carry_out(self, plan: PlanDocument, *options: str, expected: int = 0) -> list[str]:
        """The actions that a new plan led to, in order."""
        self.service.publish("chat", plan)
        earlier = len(self.calls())
        self.run(*self.with_hook, *options, expected=expected)
        return [call["action"] for call in self.calls()[earlier:]]

    def calls(self) -> list[dict[str, Any]]:
        noted = self.folder / "calls.jsonl"
        return [json.loads(line) for line in noted.read_text().splitlines()] if noted.exists() else []

    def refuse(self, *actions: str) -> None:
        (self.folder / "refuse").write_text(" ".join(actions))


@pytest.fixture
def desk(tmp_path: Path, service: StandIn) -> Desk:
    return Desk(tmp_path, service)


def a_problem_file(folder: Path, **others: Any) -> Path:
    path = folder / "problem.json"
    path.write_text(json.dumps({"objective": {"kind": "max_throughput"}, **others}))
    return path


def test_the_first_run_rents_starts_and_routes(desk: Desk) -> None:
    assert desk.carry_out(one_replica_each(2)) == ["rent", "rent", "start", "start", "route"]


def test_the_same_plan_again_calls_for_nothing(desk: Desk) -> None:
    plan = one_replica_each(2)
    desk.carry_out(plan)
    assert desk.carry_out(plan) == []


def test_replicas_whose_gpus_are_needed_stop_one_after_the_other_and_after_new_machines_serve(desk: Desk) -> None:
    """The new layout on the kept machine comes in two turns; its third replica, on a new machine, is there before."""
    kept = a_machine()
    pairs = tuple(a_replica(f"chat-{n}", On(gpus=2, first=2 * n)) for n in range(2))
    desk.carry_out(a_fleet(kept, replicas=pairs))
    code = tuple(a_replica(f"code-{n}", On(gpus=2, first=2 * n), model="code") for n in range(2))
    more = a_replica("code-2", On(1), model="code")
    done = desk.carry_out(a_fleet(kept, a_machine("new"), replicas=(*code, more), revision=2))
    assert done == ["rent", "start", "stop", "start", "stop", "start", "route", "unroute"]


def test_requests_are_moved_before_a_replica_stops_and_its_machine_is_given_back(desk: Desk) -> None:
    desk.carry_out(one_replica_each(2))
    assert desk.carry_out(one_replica_each(1, revision=2)) == ["route", "stop", "release"]
    assert desk.calls()[-1]["key"] == "vastai/123/on_demand/4xh100-sxm/2"


def test_a_replica_makes_room_for_another_on_its_machine(desk: Desk) -> None:
    desk.carry_out(a_fleet())
    other = a_fleet(replicas=(a_replica("code-0", model="code"),), revision=2)
    assert desk.carry_out(other) == ["stop", "start", "route", "unroute"]


def test_other_engine_settings_restart_the_replica(desk: Desk) -> None:
    desk.carry_out(a_fleet())
    other = a_replica("chat-0", engine_args={"model": "m"})
    assert desk.carry_out(a_fleet(replicas=(other,), revision=2)) == ["restart"]


def test_a_machine_that_needs_more_disk_is_resized(desk: Desk) -> None:
    desk.carry_out(a_fleet())
    assert desk.carry_out(a_fleet(a_machine(storage_gb=200.0), revision=2)) == ["resize"]


def test_a_price_that_moves_by_a_cent_calls_for_nothing(desk: Desk) -> None:
    desk.carry_out(a_fleet())
    assert desk.carry_out(a_fleet(a_machine(price_usd_per_hour=9.06), revision=2)) == []


def test_the_hook_is_told_what_to_act_on(desk: Desk) -> None:
    plan = a_fleet()
    desk.carry_out(plan)
    rent, start, route = desk.calls()
    assert rent["after"]["offer_id"] == "123"
    assert (rent["before"], rent["usd_per_hour"]) == (None, 9.05)
    assert (rent["deployment"], rent["plan_id"], rent["revision"]) == ("chat", str(plan.id), 1)
    assert start["after"]["stages"][0]["rental"] == rent["key"]
    assert route["after"]["fractions"] == {start["key"]: 1.0}


def test_without_a_hook_it_shows_what_it_would_do_and_notes_nothing(desk: Desk) -> None:
    desk.service.publish("chat", a_fleet())
    first, second = desk.run().stdout, desk.run().stdout
    assert first == second
    assert "rent     vastai/123/on_demand/4xh100-sxm/1  9.050 $/h" in first
    assert not list(desk.folder.glob("*.state.json"))


def test_after_a_failed_hook_the_next_run_goes_on_from_there(desk: Desk) -> None:
    desk.refuse("start")
    assert desk.carry_out(one_replica_each(2), expected=1) == ["rent", "rent", "start"]
    desk.refuse()
    assert desk.carry_out(one_replica_each(2)) == ["start", "start", "route"]


def with_spares() -> PlanDocument:
    first = a_machine(spares=tuple(a_spare(name) for name in ("124", "125")))
    return a_fleet(first, a_machine("200"), replicas=(a_replica("chat-0"), a_replica("chat-1", On(1))))


def a_spare(offer_id: str) -> SpareDocument:
    return mapped(SpareDocument, a_machine(offer_id, price_usd_per_hour=9.5))


def rented(desk: Desk) -> list[str]:
    return [call["after"]["offer_id"] for call in desk.calls() if call["action"] == "rent"]


def test_a_machine_that_is_gone_gives_its_place_to_the_next_spare(desk: Desk) -> None:
    (desk.folder / "gone").write_text("123 124")
    actions = desk.carry_out(with_spares())
    assert actions == ["rent", "rent", "rent", "rent", "start", "start", "route"]
    assert rented(desk) == ["123", "124", "125", "200"]
    start = next(call for call in desk.calls() if call["action"] == "start")
    assert start["after"]["stages"][0]["rental"] == "vastai/125/on_demand/4xh100-sxm/1"
    assert desk.calls()[2]["usd_per_hour"] == 9.5


def test_a_spare_that_was_rented_stays_though_the_run_was_cut_short(desk: Desk) -> None:
    (desk.folder / "gone").write_text("123")
    desk.refuse("start")
    plan = with_spares()
    desk.carry_out(plan, expected=1)
    desk.refuse()
    (desk.folder / "gone").unlink()
    assert desk.carry_out(plan) == ["start", "start", "route"]
    assert rented(desk) == ["123", "124", "200"]


def test_without_any_spare_left_the_run_fails_and_says_so(desk: Desk) -> None:
    (desk.folder / "gone").write_text("123 124 125")
    desk.service.publish("chat", with_spares())
    done = desk.run(*desk.with_hook, expected=1)
    assert "it is gone, and so are its spares" in done.stderr


def test_an_infeasible_plan_changes_nothing_and_says_what_to_do(desk: Desk) -> None:
    desk.carry_out(a_fleet())
    desk.service.publish("chat", an_infeasible_fleet())
    done = desk.run(*desk.with_hook, expected=3)
    assert "raise budget_usd_per_hour to at least 9.05" in done.stderr
    assert len(desk.calls()) == 3


def test_a_deployment_that_was_made_anew_is_followed_though_its_revisions_start_again(desk: Desk) -> None:
    desk.carry_out(one_replica_each(2, revision=9))
    assert desk.carry_out(one_replica_each(1)) == ["route", "stop", "release"]


def test_a_problem_file_makes_the_deployment(desk: Desk) -> None:
    desk.service.answers.append(Answer(503))
    path = a_problem_file(desk.folder)
    done = desk.run("--problem", str(path), "--patience-s", "1", expected=4)
    assert "the first plan is being made" in done.stderr
    assert desk.service.deployments["chat"].problem == json.loads(path.read_text())


def test_a_market_that_the_problem_names_is_sent_with_it(desk: Desk) -> None:
    desk.service.publish("chat", a_fleet())
    desk.run("--problem", str(EXAMPLES / "paper_case.yaml"))
    market = desk.service.deployments["chat"].problem["market"]
    assert market["offers"] == json.loads((EXAMPLES / "paper_market.json").read_text())


def test_a_wrong_problem_is_shown_field_by_field(desk: Desk) -> None:
    path = a_problem_file(desk.folder, budget_usd_per_hour=-1)
    done = desk.run("--problem", str(path), expected=2)
    assert "problem.budget_usd_per_hour: -1: must be at least 0" in done.stderr


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_problem_file_that_is_none_is_refused(desk: Desk, text: str) -> None:
    path = desk.folder / "broken.json"
    path.write_text(text)
    assert "broken.json" in desk.run("--problem", str(path), expected=2).stderr


def test_a_changed_problem_is_waited_for(desk: Desk) -> None:
    """The old plan holds until the new one is there: carrying it out once more would be of no use."""
    desk.run("--problem", str(a_problem_file(desk.folder)), "--patience-s", "0.1", expected=4)
    desk.carry_out(one_replica_each(1))
    with running(desk, "--once", "--problem", str(a_problem_file(desk.folder, budget_usd_per_hour=40))) as run:
        wait_for_request(desk.service, "GET /v1/deployments/chat/plan?wait_s=30&after=1")
        desk.service.publish("chat", one_replica_each(2, revision=2))
        assert run.wait(timeout=30) == 0
    assert [call["action"] for call in desk.calls()][3:] == ["rent", "start", "route"]


def test_it_follows_the_plans_as_they_come(desk: Desk) -> None:
    desk.service.publish("chat", one_replica_each(1))
    with running(desk):
        wait_for_request(desk.service, "GET /v1/deployments/chat/plan?wait_s=30")
        desk.service.publish("chat", one_replica_each(2, revision=2))
        wait_for_request(desk.service, "GET /v1/deployments/chat/plan?wait_s=30", times=2)
    assert [call["action"] for call in desk.calls()] == ["rent", "start", "route", "rent", "start", "route"]


def test_it_asks_again_when_the_service_is_away_for_a_moment(desk: Desk) -> None:
    desk.service.answers.append(a_problem(503, "restarting", Retry_After="0"))
    desk.service.answers.append(a_problem(429, "too many requests", Retry_After="0.1"))
    desk.service.answers.append(Answer(502, b"<html>"))
    assert desk.carry_out(a_fleet()) == ["rent", "start", "route"]


def test_a_wait_that_is_longer_than_its_patience_ends_it(desk: Desk) -> None:
    desk.service.answers.append(a_problem(429, "the key's limit is used up", Retry_After="3600"))
    done = desk.run("--patience-s", "5", expected=4)
    assert "the key's limit is used up" in done.stderr
    assert len(desk.service.asked) == 1


def test_a_wait_may_be_given_as_a_date(desk: Desk) -> None:
    desk.service.answers.append(a_problem(503, "closed", Retry_After="Fri, 31 Dec 2199 23:59:59 GMT"))
    desk.run("--patience-s", "5", expected=4)
    assert len(desk.service.asked) == 1


def test_nobody_at_the_address_is_no_answer(desk: Desk) -> None:
    done = desk.run("--patience-s", "0", expected=4, environment={"SUTLER_URL": "http://127.0.0.1:1"})
    assert "http://127.0.0.1:1 cannot be reached" in done.stderr


def test_something_else_at_the_address_is_refused(desk: Desk) -> None:
    desk.service.answers.append(Answer(200, b"<html>hello"))
    assert "is it a sutler service?" in desk.run(expected=2).stderr


def test_an_unknown_deployment_is_refused(desk: Desk) -> None:
    assert "Told so (404)" in desk.run(expected=2).stderr


def test_a_wrong_key_is_refused_and_not_shown(desk: Desk) -> None:
    desk.service.publish("chat", a_fleet())
    done = desk.run(expected=2, environment={"SUTLER_KEY": "secret-of-another"})
    assert "a key is needed" in done.stderr
    assert "secret-of-another" not in done.stderr + done.stdout


def test_a_key_that_cannot_be_sent_is_refused_and_not_shown(desk: Desk) -> None:
    done = desk.run(expected=2, environment={"SUTLER_KEY": "secret\nof another"})
    assert "secret" not in done.stderr + done.stdout


def test_the_key_can_be_in_a_file(desk: Desk) -> None:
    desk.service.publish("chat", a_fleet())
    (desk.folder / "key").write_text(f"{desk.service.key}\n")
    desk.run("--key-file", str(desk.folder / "key"), environment={"SUTLER_KEY": ""})


def test_a_netrc_does_not_take_the_place_of_the_key(desk: Desk) -> None:
    desk.service.publish("chat", a_fleet())
    netrc = desk.folder / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password else\n")
    desk.run(environment={"NETRC": str(netrc)})


def test_a_state_file_of_something_else_is_refused_and_kept(desk: Desk) -> None:
    desk.service.publish("chat", a_fleet())
    other = desk.folder / "other.json"
    other.write_text("{}")
    assert "no state file of this script" in desk.run(*desk.with_hook, "--state", str(other), expected=2).stderr
    assert other.read_text() == "{}"


def test_a_second_run_at_the_same_time_leaves_the_work_to_the_first(desk: Desk) -> None:
    desk.service.publish("chat", a_fleet())
    with running(desk):
        wait_for_request(desk.service, "GET /v1/deployments/chat/plan?wait_s=30")
        assert "another run is at work" in desk.run(*desk.with_hook).stderr
    assert len(desk.calls()) == 3


def test_the_key_of_a_route_survives_odd_names(desk: Desk) -> None:
    route = a_route({"chat-0": 1.0}, workload="long/short 100%")
    desk.carry_out(a_fleet(routing=(route,)))
    assert desk.calls()[-1]["key"] == "chat/long%2Fshort%20100%25"


def test_two_replicas_on_half_a_machine_each_are_two(desk: Desk) -> None:
    halves = (a_replica("chat-0", On(gpus=2)), a_replica("chat-1", On(gpus=2, first=2)))
    desk.carry_out(a_fleet(replicas=halves))
    started = [call["key"] for call in desk.calls() if call["action"] == "start"]
    assert [key[-2:] for key in started] == ["/1", "/2"]


@contextmanager
def running(desk: Desk, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """The script with its hook, until the block is left."""
    run = subprocess.Popen(
        desk.command(*desk.with_hook, *options),
        cwd=desk.folder,
        env=desk.environment({}),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield run
    finally:
        run.terminate()
        run.wait(timeout=10)


def wait_for_request(service: StandIn, target: str, *, times: int = 1) -> None:
    """Until the service was asked this often."""
    with service.heard:
        assert service.heard.wait_for(lambda: service.asked.count(target) >= times, timeout=30), service.asked
