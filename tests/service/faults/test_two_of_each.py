"""Two APIs, two workers and two schedulers on one database: they behave as one."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any, Final
from uuid import uuid4

import pytest
from requests import Response

from tests.adapters.server import Reply, ScriptedServer
from tests.postgres import Server
from tests.service.builders import CHAT, a_slow_problem, changed
from tests.service.faults.scenes import Scene, a_scene, results
from tests.service.running import Running, answers, made_key, until

RATE: Final = ("models", 0, "workloads", 0, "rate_rps")
INTERVAL_S: Final = 5.0  # the shortest that this cloud bears
CHANGES: Final = 90


@dataclass
class Cluster:
    """Either API is as good as the other."""

    scene: Scene
    one: Running
    other: Running

    @property
    def both(self) -> tuple[Running, Running]:
        return self.one, self.other


@pytest.fixture(scope="module")
def cluster(postgres: Server) -> Iterator[Cluster]:
    others = {
        "SUTLER_POLL_INTERVAL_S": f"{INTERVAL_S:g}",
        "SUTLER_CHANGES_PER_MINUTE": str(CHANGES),
        "SUTLER_OUTGOING_NETWORKS": "127.0.0.0/8",
    }
    with a_scene(postgres, **others) as scene:
        key = made_key(scene.environment, "admin")
        one, other = apis = [scene.api("--require-key") for _ in range(2)]
        for api in apis:
            api.session.headers["Authorization"] = f"Bearer {key}"
        for role in ("worker", "scheduler") * 2:
            scene.starts("--role", role)
        until(lambda: all(answers(api) for api in apis))
        yield Cluster(scene, one, other)


def test_a_deployment_that_is_made_at_both_at_once_is_made_once(cluster: Cluster) -> None:
    body, key = {"name": "named", "problem": CHAT}, {"Idempotency-Key": str(uuid4())}
    first, second = results(*[lambda api=api: api.post("/v1/deployments", body, headers=key) for api in cluster.both])
    assert (first.status_code, second.status_code) == (201, 201)
    assert first.content == second.content


def test_replans_at_both_are_one_plan(cluster: Cluster) -> None:
    slow = {"name": "slow", "problem": a_slow_problem(time_limit_s=60)}
    made = cluster.one.post("/v1/deployments", slow).json()
    replans = results(*[lambda api=api: api.post("/v1/deployments/slow/replan") for api in cluster.both * 2])
    assert {answer.json()["id"] for answer in replans} == {made["pending"]["id"]}
    assert cluster.other.delete("/v1/deployments/slow").status_code == 204
    assert cluster.one.get(made["pending"]["url"]).json()["status"] == "cancelled"


def test_changes_at_both_are_made_one_after_the_other(cluster: Cluster) -> None:
    """One version each; of those that were planned, one revision each; the last change holds."""
    assert cluster.one.put("/v1/deployments/changed", {"problem": CHAT}).status_code == 201

    def change(api: Running, rate: int) -> Response:
        return api.put("/v1/deployments/changed", {"problem": changed(CHAT, RATE, rate)})

    works = [lambda rate=rate: change(cluster.both[rate % 2], rate) for rate in range(30, 36)]
    changes = results(*works)
    assert sorted(answer.json()["version"] for answer in changes) == list(range(2, 8))
    until(lambda: cluster.one.get("/v1/deployments/changed").json()["pending"] is None)
    last = max(changes, key=lambda answer: int(answer.json()["version"])).json()
    for api in cluster.both:
        shown = api.get("/v1/deployments/changed").json()
        assert (shown["version"], shown["problem"]) == (7, last["problem"])
    planned = cluster.one.get(f"/v1/plans/{shown['plan']['id']}/problem").json()
    assert planned == last["problem"]
    history = cluster.other.get("/v1/deployments/changed/plans").json()["items"]
    revisions = [plan["revision"] for plan in history if plan["revision"] is not None]
    assert revisions == list(range(len(revisions), 0, -1))
    assert {plan["status"] for plan in history if plan["revision"] is None} <= {"cancelled"}


def test_a_lost_delivery_is_put_back(cluster: Cluster) -> None:
    """Its first attempt fails; the job for the second one is lost."""
    with ScriptedServer([Reply(500), Reply(204)]) as receiver:
        hook = {"url": f"{receiver.base_url}/hook", "events": ["deployment.attention"]}  # of which there is none here
        url = f"/v1/webhooks/{cluster.one.post('/v1/webhooks', hook).json()['id']}"
        assert cluster.one.post(f"{url}/test").ok
        until(lambda: len(receiver.requests) == 1)
        until(
            lambda: cluster.scene.rows(
                "DELETE FROM procrastinate_jobs WHERE task_name = 'deliver_webhook' AND status = 'todo' RETURNING id"
            )
        )
        until(lambda: cluster.other.get(f"{url}/deliveries").json()["items"][0]["status"] == "delivered")
        first, second = receiver.requests
        assert first.headers["webhook-id"] == second.headers["webhook-id"]
        assert cluster.one.delete(url).status_code == 204


def test_no_cloud_is_polled_by_both_schedulers(cluster: Cluster) -> None:
    polls = until(lambda: _several(cluster.scene.rows("SELECT at FROM poll ORDER BY at")))
    assert all((later - sooner).total_seconds() > 0.9 * INTERVAL_S for sooner, later in pairwise(polls))


def _several(rows: list[tuple[Any, ...]]) -> list[datetime] | None:
    return [at for (at,) in rows] if len(rows) > 1 else None


def test_a_key_that_is_revoked_on_the_command_line_is_refused_by_both(cluster: Cluster) -> None:
    key = made_key(cluster.scene.environment, "read")
    mine = {"headers": {"Authorization": f"Bearer {key}"}}
    assert [api.get("/v1/plans", **mine).status_code for api in cluster.both] == [200, 200]
    command = [sys.executable, "-m", "sutler", "keys", "revoke", key.split("_")[1]]
    subprocess.run(command, env=cluster.scene.environment, cwd=cluster.scene.folder, check=True, capture_output=True)
    assert [api.get("/v1/plans", **mine).status_code for api in cluster.both] == [401, 401]


def test_changes_at_both_count_against_one_limit(cluster: Cluster) -> None:
    assert cluster.one.put("/v1/deployments/limited", {"problem": CHAT}).status_code == 201
    key = made_key(cluster.scene.environment, "plan")
    mine = {"headers": {"Authorization": f"Bearer {key}"}}
    taken = refused = 0
    while not refused:
        for api in cluster.both:
            answer = api.post("/v1/deployments/limited/replan", **mine)
            taken, refused = taken + (answer.status_code == 202), refused + (answer.status_code == 429)
    actor = f"key/{key.split('_')[1]}"
    ((minutes,),) = cluster.scene.rows("SELECT count(*) FROM key_use WHERE actor = %s", actor)
    assert taken <= CHANGES * minutes
    assert minutes > 1 or taken == CHANGES
