"""Lines of deployments: they say what the deployments say, and many are asked for at once."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import event, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.api_tables import DeploymentRow
from sutler.service.db.watch_tables import WatchRow
from sutler.service.deployments import repository
from sutler.service.documents.plan import PlanDocument
from sutler.service.plans import repository as plans
from tests.service.deployments.replanning.builders import a_plan, a_problem
from tests.service.webhooks.api import Api

STATE = {
    "status": "kept",
    "detail": "no change is worth it",
    "feed": "live",
    "holdings": "reported",
    "load_multiple": 1.1,
    "drifts": [{"kind": "rate", "detail": "chat: 25 requests/s, not 22", "value": 0.14, "threshold": 0.1}],
}


@pytest.fixture(scope="module")
def plan() -> PlanDocument:
    """Of two machines at $2."""
    return a_plan()


def stands(api: Api, name: str, plan: PlanDocument, holdings: list[dict[str, Any]] | None) -> None:
    """A deployment whose plan was issued just now, and which was looked at."""
    problem, now = a_problem().model_dump(mode="json", by_alias=True, exclude_unset=True), datetime.now(UTC)
    mine, id_ = plan.model_copy(update={"id": uuid4()}), uuid4()

    async def put(connection: AsyncConnection) -> None:
        row = {"id": id_, "name": name, "problem": problem, "policy": {"carry_out_s": 600}, "plan_id": mine.id}
        await connection.execute(insert(DeploymentRow).values(revision=1, **row))
        of: dict[str, Any] = {"deployment_id": id_, "deployment_name": name, "reason": "", "diff": None}
        await plans.add_finished(connection, mine, problem=problem, created_by="x", now=now, **of)
        watch = {"state": STATE, "looked_at": now, "holdings": holdings}
        await connection.execute(insert(WatchRow).values(deployment_id=id_, **watch))

    api.office.changed(put)


def held(plan: PlanDocument, count: int) -> list[dict[str, Any]]:
    """So many of the machines that the plan rents."""
    names = ("provider", "offer_id", "contract", "gpu", "gpus", "price_usd_per_hour")
    [rental] = plan.rentals
    return [{**{name: getattr(rental, name) for name in names}, "count": count}]


def lines(api: Api) -> Iterator[dict[str, Any]]:
    yield from api.ask_at("GET", "/deployments", params={"limit": 200}).json()["items"]


def test_a_line_says_what_its_deployment_says(api: Api, plan: PlanDocument) -> None:
    [rental] = plan.rentals
    stands(api, "half-carried-out", plan, held(plan, rental.count - 1))
    [line] = lines(api)
    whole = api.ask_at("GET", "/deployments/half-carried-out").json()
    assert line["watch"] == {name: whole["watch"][name] for name in line["watch"]}
    told = line["watch"]["carry_out"]
    assert (told["state"], told["planned_machines"], told["missing_machines"]) == ("unmet", rental.count, 1)
    assert line["watch"]["drifts"] == STATE["drifts"]
    assert (line["models"], line["objective"], line["pending"]) == (["chat"], "min_cost", None)
    assert line["relative_gap"] == plan.objective.relative_gap
    assert line["held_usd_per_hour"] == pytest.approx(2.0 * (rental.count - 1))


@pytest.mark.parametrize(("missing", "state"), [(None, "unreported"), (1, "unmet"), (0, "met")])
def test_what_plans_rent_is_remembered_and_the_same(
    api: Api, plan: PlanDocument, missing: int | None, state: str
) -> None:
    stands(api, "one", plan, None if missing is None else held(plan, plan.rentals[0].count - missing))
    before = list(lines(api))
    assert list(lines(api)) == before
    assert before[0]["watch"]["carry_out"]["state"] == state


def test_a_deployment_without_a_plan_or_a_look_has_a_line(api: Api) -> None:
    made = api.ask_at("POST", "/deployments", json={"name": "new", "problem": a_problem().model_dump(mode="json")})
    assert made.status_code == 201, made.text
    [line] = lines(api)
    assert (line["plan"], line["watch"], line["pending"], line["held_usd_per_hour"]) == (None, None, "queued", None)


def test_fifty_lines_are_as_many_questions_as_one(api: Api, plan: PlanDocument) -> None:
    stands(api, "d-00", plan, held(plan, 1))
    asked: list[str] = []

    def note(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        asked.append(statement)

    async def page(connection: AsyncConnection) -> None:
        event.listen(connection.sync_connection, "before_cursor_execute", note)
        assert await repository.page(connection, limit=200)

    api.office.read(page)
    assert len(asked) == 2  # the second is about plans that nobody has asked for before
    for number in range(1, 50):
        stands(api, f"d-{number:02}", plan, held(plan, 1))
    assert len(list(lines(api))) == 50
    api.office.read(page)
    assert len(asked) == 3
