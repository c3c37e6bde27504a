"""`/v1/deployments/{name}/plans/{revision}/diff` of a running service."""

import json
from itertools import count
from typing import Any

import psycopg
import pytest

from sutler.service.deployments.diff.schema import DiffDocument
from tests.postgres import Server
from tests.service.builders import CHAT, changed
from tests.service.running import Running

BUSIER = changed(CHAT, ("models", 0, "workloads", 0, "rate_rps"), 45)
IMPOSSIBLE = {**CHAT, "limits": {"max_gpus": {"h100-sxm": 0, "rtx-4090": 0}}}
_numbers = count(1)


@pytest.fixture
def name(service: Running) -> str:
    """Of a deployment with two plans: a first one, and one for twice the traffic."""
    found = f"diff-{next(_numbers)}"
    service.post("/v1/deployments", {"name": found, "problem": CHAT})
    planned(service, found, 0)
    service.put(f"/v1/deployments/{found}", {"problem": BUSIER})
    planned(service, found, 1)
    return found


def planned(service: Running, name: str, after: int) -> dict[str, Any]:
    answer = service.get(f"/v1/deployments/{name}/plan", params={"after": after, "wait_s": 30})
    assert answer.status_code == 200, answer.text
    plan: dict[str, Any] = answer.json()
    return plan


def diff(service: Running, name: str, revision: int, **params: Any) -> DiffDocument:
    answer = service.get(f"/v1/deployments/{name}/plans/{revision}/diff", params=params)
    assert answer.status_code == 200, answer.text
    return DiffDocument.model_validate_json(answer.content)


def machines(items: Any) -> int:
    return sum(item.count for item in items)


def test_a_plan_is_compared_with_the_one_before_it(service: Running, name: str) -> None:
    first, second = (service.get(f"/v1/deployments/{name}/plans/{n}").json() for n in (1, 2))
    found = diff(service, name, 2)
    assert (found.from_, found.to) == (1, 2)
    assert found.usd_per_hour.before == pytest.approx(first["cost_usd_per_hour"])
    assert found.usd_per_hour.after == pytest.approx(second["cost_usd_per_hour"])
    assert machines(found.keep) + machines(found.start) == sum(rental["count"] for rental in second["rentals"])
    assert machines(found.keep) + machines(found.stop) == sum(rental["count"] for rental in first["rentals"])


def test_the_first_plan_is_compared_with_nothing(service: Running, name: str) -> None:
    found = diff(service, name, 1)
    assert (found.from_, found.keep, found.stop, found.usd_per_hour.before) == (None, (), (), 0.0)
    assert diff(service, name, 2, **{"from": 0}).keep == ()


def test_any_two_plans_can_be_compared_also_backwards(service: Running, name: str) -> None:
    there, back = diff(service, name, 2, **{"from": 1}), diff(service, name, 1, **{"from": 2})
    assert machines(there.start) == machines(back.stop)
    assert there.usd_per_hour.change == pytest.approx(-back.usd_per_hour.change)
    same = diff(service, name, 2, **{"from": 2})
    assert (same.start, same.stop, same.reroute) == ((), (), ())


def test_a_plan_that_serves_nothing_never_has_everything_stopped(service: Running) -> None:
    name = f"diff-{next(_numbers)}"
    service.post("/v1/deployments", {"name": name, "problem": IMPOSSIBLE})
    assert planned(service, name, 0)["status"] == "infeasible"
    answer = service.get(f"/v1/deployments/{name}/plans/1/diff")
    assert (answer.status_code, answer.json()["type"]) == (409, "urn:sutler:problem:conflict")
    assert "infeasible" in answer.json()["detail"]
    service.put(f"/v1/deployments/{name}", {"problem": CHAT})
    planned(service, name, 1)
    assert diff(service, name, 2).from_ is None
    assert service.get(f"/v1/deployments/{name}/plans/2/diff", params={"from": 1}).status_code == 409


def test_the_diff_that_was_issued_with_a_plan_is_the_answer_for_that_pair_alone(
    service: Running, name: str, postgres: Server
) -> None:
    computed = json.loads(diff(service, name, 2).model_dump_json(by_alias=True))
    issued = json.dumps({**computed, "reason": "as issued"})
    conninfo = postgres.url("service").replace("postgresql+psycopg://", "postgresql://")
    with psycopg.connect(conninfo) as connection:
        connection.execute(
            "UPDATE plan SET diff = %s, reason = 'more traffic' WHERE deployment_name = %s AND revision = 2",
            (issued, name),
        )
    assert diff(service, name, 2).reason == diff(service, name, 2, **{"from": 1}).reason == "as issued"
    assert diff(service, name, 2, **{"from": 0}).reason == "more traffic"


@pytest.mark.parametrize(("revision", "start"), [(3, None), (1, 3), (1, 9)])
def test_plans_that_are_not_there_are_not_found(
    service: Running, name: str, revision: int, start: int | None
) -> None:
    answer = service.get(f"/v1/deployments/{name}/plans/{revision}/diff", params={"from": start})
    assert answer.status_code == 404
    assert f"/v1/deployments/{name}/plans lists all" in answer.json()["detail"]


def test_a_revision_below_nothing_is_refused(service: Running, name: str) -> None:
    assert service.get(f"/v1/deployments/{name}/plans/1/diff", params={"from": -1}).status_code == 422
