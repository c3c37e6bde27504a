"""What was over time, from rows whose numbers are worked by hand."""

import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from random import Random
from typing import Any, Final
from uuid import UUID, uuid4

import pytest
from sqlalchemy import event, insert
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.api_tables import CostRow, DeploymentRow, PlanRow
from sutler.service.db.watch_tables import ObservationRow, TrafficQuarterRow
from sutler.service.deployments import costs as notes
from sutler.service.deployments import repository
from sutler.service.deployments.history import service as history
from sutler.service.deployments.history.schemas import CostsResource, ModelTrafficPoint
from sutler.service.deployments.traffic.season import QUARTER
from tests.looped import for_each
from tests.service.webhooks.api import Api

NOON: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR: Final = timedelta(hours=1)
Lasting = tuple[float, float | None, float]
RATES: Final = {"question": 20.0, "document": 2.0}


def put(api: Api, row: Any, *values: dict[str, Any]) -> None:
    async def work(connection: AsyncConnection) -> None:
        await connection.execute(insert(row), list(values))

    api.office.changed(work)


def models(*names: str, **rates: float | None) -> dict[str, Any]:
    """A problem; rates of None are not said."""
    workloads = [
        {"name": workload, "input_tokens": 500, "output_tokens": 250} | ({} if rate is None else {"rate_rps": rate})
        for workload, rate in (rates or RATES).items()
    ]
    return {
        "models": [{"name": name, "model": "llama-3.1-8b", "workloads": workloads} for name in names or ("chat",)]
    }


def deployed(api: Api, name: str, *plans: tuple[float, float, str], problem: dict[str, Any] | None = None) -> UUID:
    """Its plans: hours after noon, USD per hour, status."""
    id_, problem = uuid4(), problem or models()
    put(api, DeploymentRow, {"id": id_, "name": name, "problem": problem, "policy": {}})
    rows = [
        {"id": uuid4(), "status": status, "objective": "min_cost", "created_by": "x", "problem": problem}
        | {"deployment_id": id_, "deployment_name": name, "revision": number, "reason": f"{usd}"}
        | {"finished_at": NOON + hour * HOUR, "cost_usd_per_hour": usd}
        for number, (hour, usd, status) in enumerate(plans, 1)
    ]
    if rows:
        put(api, PlanRow, *rows)
    return id_


def planned(api: Api, name: str, *spells: Lasting) -> None:
    """With a plan each: hours after noon from when until when, None while it still holds, and USD per hour."""
    id_ = deployed(api, name, *((begin, usd, "optimal") for begin, _, usd in spells))
    ids = api.office.rows("SELECT id FROM plan WHERE deployment_id = :id ORDER BY revision", id=id_)
    put(api, CostRow, *(cost(name, *spell, plan_id=row.id) for row, spell in zip(ids, spells, strict=True)))


def reported(api: Api, name: str, *spells: Lasting) -> None:
    put(api, CostRow, *(cost(name, *spell) for spell in spells))


def cost(name: str, begin: float, end: float | None, usd: float, plan_id: UUID | None = None) -> dict[str, Any]:
    ended_at = None if end is None else NOON + end * HOUR
    times = {"began_at": NOON + begin * HOUR, "ended_at": ended_at}
    return {"deployment_name": name, "plan_id": plan_id, "usd_per_hour": usd, **times}


def costs(api: Api, since: float, until: float, points: int, name: str | None = None) -> CostsResource:
    ends = {"since": NOON + since * HOUR, "until": NOON + until * HOUR}
    return api.office.read(lambda connection: history.costs(connection, **ends, points=points, name=name))


def over_hours(found: CostsResource) -> list[tuple[float, float | None, int, int]]:
    return [
        (one.planned_usd_per_hour, one.held_usd_per_hour, one.deployments, one.reported_deployments)
        for one in found.items
    ]


def test_costs_are_those_of_the_plans_that_held_and_of_what_was_reported(api: Api) -> None:
    planned(api, "chat", (0, 2, 4.0), (2, None, 6.0))
    planned(api, "docs", (1, None, 10.0))
    reported(api, "chat", (1, None, 3.0))
    reported(api, "docs", (3, None, 11.0))
    found = costs(api, -1, 4, 6)
    assert over_hours(found) == [
        (0.0, None, 0, 0),
        (4.0, None, 1, 0),
        (14.0, 3.0, 2, 1),
        (16.0, 3.0, 2, 1),
        (16.0, 14.0, 2, 2),
        (16.0, 14.0, 2, 2),
    ]
    assert (found.planned_usd, found.held_usd) == (4 + 14 + 16 + 16, 3 + 3 + 14)
    steps = [(step.deployment, step.revision, step.usd_per_hour, step.reason) for step in found.steps]
    assert steps == [("chat", 1, 4.0, "4.0"), ("docs", 1, 10.0, "10.0"), ("chat", 2, 6.0, "6.0")]
    assert over_hours(costs(api, 2.5, 4, 2, "docs")) == [(10.0, None, 1, 0), (10.0, 11.0, 1, 1)]
    assert costs(api, 2.5, 4, 2, "chat").steps == []
    nobodys = costs(api, 2.5, 4, 2, "nobody")
    assert over_hours(nobodys) == [(0.0, None, 0, 0)] * 2
    assert (nobodys.planned_usd, nobodys.held_usd) == (0.0, None)


def test_what_ended_costs_no_more_and_what_is_nothing_leaves_nothing(api: Api) -> None:
    planned(api, "a", (0, 2, 0.1))
    planned(api, "b", (0, 2, 0.2))
    planned(api, "c", (0, 2, 0.3))
    assert [usd for usd, *_ in over_hours(costs(api, 0, 4, 5))] == [pytest.approx(0.6), pytest.approx(0.6), 0, 0, 0]


@for_each("seed", range(20))
def test_costs_are_the_sum_of_their_spells_at_every_point(api: Api, seed: int) -> None:
    draw = Random(seed)
    every: list[Lasting] = []
    for name in "abcdef"[: draw.randint(0, 6)]:
        edges = sorted(draw.sample(range(-40, 80), draw.randint(2, 6)))
        spells: list[tuple[float, float | None, float]] = [
            (a / 4, b / 4, draw.uniform(0, 9)) for a, b in pairwise(edges)
        ]
        if draw.random() < 0.5:
            spells[-1] = (spells[-1][0], None, spells[-1][2])
        reported(api, name, *spells)
        every += spells
    since, until, points = draw.randint(-9, 5), draw.randint(6, 30), draw.randint(2, 40)
    found = costs(api, since, until, points)
    for i, (_, usd, _, count) in enumerate(over_hours(found)):
        hour = (found.items[i].at - NOON) / HOUR
        holding = [one[2] for one in every if one[0] <= hour and (one[1] is None or hour < one[1])]
        assert count == len(holding)
        assert usd == (pytest.approx(sum(holding)) if holding else None)
    paid = [usd * max(0, min(until, until if b is None else b) - max(since, a)) for a, b, usd in every]
    assert (found.held_usd or 0.0) == pytest.approx(sum(paid))
    api.office.execute("DELETE FROM cost")


def test_what_changes_at_once_leaves_neither_gap_nor_overlap(api: Api) -> None:
    """Plans that hold, one that serves nothing, reports, the end: as the service notes them."""
    id_ = deployed(api, "chat", (0, 4.0, "optimal"), (1, 6.0, "optimal"), (2, 0.0, "infeasible"))
    plans = [row.id for row in api.office.rows("SELECT id FROM plan WHERE deployment_id = :id ORDER BY 1", id=id_)]

    async def changes(connection: AsyncConnection) -> None:
        deployment = await repository.find(connection, "chat", lock=True)
        assert deployment is not None
        await notes.plan_holds(connection, deployment, plans[0], 4.0)
        await notes.reported(connection, deployment, 4.5)
        await notes.plan_holds(connection, deployment, plans[1], 6.0)
        await notes.plan_holds(connection, deployment, plans[2], None)
        await notes.reported(connection, deployment, 1.5)
        await notes.ends(connection, deployment)

    api.office.changed(changes)
    found = api.office.rows("SELECT plan_id, usd_per_hour, began_at, ended_at FROM cost ORDER BY id")
    by_plans = [row for row in found if row.plan_id]
    by_reports = [row for row in found if not row.plan_id]
    assert [(row.plan_id, row.usd_per_hour) for row in by_plans] == [(plans[0], 4.0), (plans[1], 6.0)]
    assert [row.usd_per_hour for row in by_reports] == [4.5, 1.5]
    for a, b in (by_plans, by_reports):
        assert a.began_at < a.ended_at == b.began_at < b.ended_at
    assert by_plans[1].ended_at < by_reports[1].began_at


def test_as_many_deployments_as_there_are_need_no_more_questions(api: Api) -> None:
    planned(api, "d-0", (0, None, 1.0))
    one = statements(api, lambda c: history.costs(c, since=NOON, until=NOON + HOUR, points=2))
    for number in range(1, 20):
        planned(api, f"d-{number}", (0, None, 1.0))
    many = statements(api, lambda c: history.costs(c, since=NOON, until=NOON + HOUR, points=1000))
    assert one == many == 3


def statements(api: Api, work: Callable[[AsyncConnection], Awaitable[object]]) -> int:
    asked: list[object] = []

    async def counted(connection: AsyncConnection) -> None:
        event.listen(connection.sync_connection, "before_cursor_execute", lambda *a: asked.append(a[2]))
        await work(connection)

    api.office.read(counted)
    return len(asked)


def points(
    api: Api, name: str = "chat", *, since: datetime = NOON, until: datetime = NOON + HOUR, most: int = 1000
) -> dict[str, list[ModelTrafficPoint]]:
    async def read(connection: AsyncConnection) -> dict[str, list[ModelTrafficPoint]]:
        deployment = await repository.find(connection, name)
        assert deployment is not None
        ends = {"since": since, "until": until}
        found = await history.traffic_history(connection, deployment, **ends, points=most, now=NOON + HOUR)
        return {one.model: one.items for one in found.models}

    return api.office.read(read)


def quarters(api: Api, id_: UUID, *rows: tuple[int, str, float, float], model: str = "chat") -> None:
    """Number of the quarter after noon, source, requests, seconds that were told of."""
    put(
        api,
        TrafficQuarterRow,
        *(
            {"deployment_id": id_, "model": model, "began_at": NOON + number * QUARTER, "source": source}
            | {"requests": requests, "told_s": told_s}
            for number, source, requests, told_s in rows
        ),
    )


def test_what_was_seen_adds_up_over_sources_and_has_gaps(api: Api) -> None:
    id_ = deployed(api, "chat")
    whole = [(0, "a", 1800.0, 900.0), (0, "b", 900.0, 900.0)]  # 2/s and 1/s
    sliding = [(1, "a", 7200.0, 3600.0)]  # four times over
    part = [(3, "a", 60.0, 60.0)]  # 1/s in the minute that was told of
    quarters(api, id_, *whole, *sliding, *part)
    assert [one.seen_rps for one in points(api)["chat"]] == [3.0, 2.0, None, 1.0]
    assert [one.seen_rps for one in points(api, most=2)["chat"]] == [2.5, 1.0]
    assert [one.planned_rps for one in points(api)["chat"]] == [None] * 4


def test_sources_that_took_turns_are_not_added_up(api: Api) -> None:
    id_ = deployed(api, "chat")
    quarters(api, id_, (0, "old", 900.0, 450.0), (0, "new", 900.0, 450.0), (1, "none", 0.0, 900.0))
    assert [one.seen_rps for one in points(api)["chat"]] == [2.0, 0.0, None, None]


def test_the_quarter_that_has_just_begun_is_of_the_time_until_now(api: Api) -> None:
    id_ = deployed(api, "chat")
    quarters(api, id_, (3, "a", 300.0, 300.0), (4, "a", 9.0, 1.0))
    found = points(api, since=NOON + 3 * QUARTER, until=NOON + HOUR + timedelta(seconds=30))["chat"]
    assert [one.seen_rps for one in found] == [1.0, None]


def test_what_was_planned_is_what_the_plan_that_held_was_for(api: Api) -> None:
    deployed(api, "chat", (-2, 1.0, "optimal"), (0.5, 1.0, "feasible"), (0.6, 1.0, "infeasible"), problem=models())
    api.office.execute("UPDATE plan SET problem = :it WHERE revision = 2", it=problem_text(question=30.0))
    assert [one.planned_rps for one in points(api)["chat"]] == [22.0, 22.0, 30.0, 30.0]
    for problem in (problem_text(question=None), '{"models": [{"name": "chat", "workloads": null}]}'):
        api.office.execute("UPDATE plan SET problem = :it WHERE revision = 2", it=problem)
        assert [one.planned_rps for one in points(api)["chat"]] == [22.0, 22.0, None, None]


def problem_text(**rates: float | None) -> str:
    return json.dumps(models(**rates))


def test_latencies_are_weighed_by_requests_and_quantiles_are_at_most_the_largest(api: Api) -> None:
    id_ = deployed(api, "chat")

    def counted(minute: float, requests: float, **latencies: float) -> dict[str, Any]:
        ended_at = NOON + timedelta(minutes=minute)
        times = {"started_at": ended_at - timedelta(seconds=15), "ended_at": ended_at}
        row = {"deployment_id": id_, "model": "chat", "source": f"{minute}", "digest": b"d", "buckets": []}
        return {**row, **times, "requests": requests, "latencies": latencies}

    put(
        api,
        ObservationRow,
        counted(5, 300, ttft_p90_s=0.4, ttft_p90_s_kept_fraction=1.0),
        counted(10, 100, ttft_p90_s=0.8, ttft_p90_s_kept_fraction=0.6),
        counted(15, 0, ttft_p90_s=9.0, ttft_p90_s_kept_fraction=0.0),
        counted(15, 100, ttft_p90_s_kept_fraction=0.9) | {"source": "ends with the first quarter"},
        counted(16, 10),
        counted(45.001, 1, tpot_p50_s=0.02),
    )
    first, second, third, fourth = points(api)["chat"]
    assert first.latencies == {"ttft_p90_s": 0.8, "ttft_p90_s_kept_fraction": pytest.approx(450 / 500)}
    assert (second.latencies, third.latencies, fourth.latencies) == ({}, {}, {"tpot_p50_s": 0.02})


def test_all_models_are_asked_for_at_once(api: Api) -> None:
    deployed(api, "one", (0, 1.0, "optimal"), problem=models("a"))
    deployed(api, "five", (0, 1.0, "optimal"), problem=models("a", "b", "c", "d", "e"))
    assert list(points(api, "five")) == ["a", "b", "c", "d", "e"]

    def asked(name: str) -> Callable[[AsyncConnection], Awaitable[object]]:
        async def work(connection: AsyncConnection) -> None:
            deployment = await repository.find(connection, name)
            assert deployment is not None
            until = NOON + HOUR
            await history.traffic_history(connection, deployment, since=NOON, until=until, points=9, now=until)

        return work

    assert statements(api, asked("one")) == statements(api, asked("five")) == 4


@pytest.mark.parametrize("since", ["0001-01-01T00:00:00Z", "1900-01-01T00:07:00+01:00", "100w"])
def test_however_long_ago_there_are_so_many_points_at_most(api: Api, since: str) -> None:
    deployed(api, "chat", (0, 1.0, "optimal"))
    costs, traffic = (
        api.ask_at("GET", f"/deployments/chat/{path}", params={"since": since, "points": 5}).json()
        for path in ("costs", "traffic/history")
    )
    assert len(costs["items"]) == 5
    assert 3 <= len(traffic["models"][0]["items"]) <= 5
