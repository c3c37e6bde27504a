"""What is older than its project's operator said goes; what something refers to stays; without a word, all does."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, insert, select, text

from sutler.service.auth.projects import LEAST_KEPT, RetentionKind
from sutler.service.db.api_tables import (
    AuditRow,
    CostRow,
    DeploymentRow,
    OfflinePlanRow,
    PlanRow,
    ProjectRow,
    RetentionRow,
    StudyRow,
)
from sutler.service.db.asynchronous import begun
from sutler.service.db.projects import of_project
from sutler.service.db.watch_tables import DecisionRow, ObservationRow
from sutler.service.deployments.traffic import repository as traffic
from sutler.service.workers import housekeeping, retention
from tests.service.web.stored import NOW, a_plan, opened, put

OLD: Final = NOW - timedelta(days=100)
DAYS_90: Final = 90 * 86_400


def keep(engine: Engine, *kinds: RetentionKind, project: str = "default", kept_s: int = DAYS_90) -> None:
    put(engine, RetentionRow, *({"project": project, "kind": kind, "kept_s": kept_s} for kind in kinds))


def deleted(engine: Engine, *, workers: int = 1) -> Mapping[tuple[str, str], int]:
    """What as many workers at once have deleted."""

    async def run() -> Mapping[tuple[str, str], int]:
        async with opened(engine) as store:
            gone = await asyncio.gather(*(retention.delete_old(store, NOW) for _ in range(workers)))
        return sum(gone, Counter())

    return asyncio.run(run())


def ids(engine: Engine, row: Any) -> set[Any]:
    with engine.connect() as connection:
        return {*connection.scalars(select(row.id))}


def old(**others: Any) -> dict[str, Any]:
    return a_plan(**{"created_at": OLD, **others})


def a_study(kind: str, asked: dict[str, Any], **others: Any) -> dict[str, Any]:
    return {**old(status="done"), "problem": None, "kind": kind, "asked": asked, "digest": b"", **others}


def put_studies(engine: Engine, *studies: dict[str, Any]) -> None:
    put(engine, StudyRow, *({name: v for name, v in one.items() if name != "problem"} for one in studies))


def put_deployment(engine: Engine, *statuses: str, held: int | None) -> tuple[UUID, list[UUID]]:
    """A deployment with old plans, revision by revision, of which that of `held` holds."""
    deployment: dict[str, Any] = {"id": uuid4(), "name": "chat", "problem": {}, "policy": {}}
    plans = [
        old(
            status=status,
            deployment_name="chat",
            revision=number,
            created_at=OLD + timedelta(hours=number),
        )
        for number, status in enumerate(statuses, start=1)
    ]
    holds = None if held is None else plans[held - 1]["id"]
    put(engine, DeploymentRow, {**deployment, "plan_id": holds, "revision": len(statuses)})
    if plans:
        put(engine, PlanRow, *({**plan, "deployment_id": deployment["id"]} for plan in plans))
    return deployment["id"], [plan["id"] for plan in plans]


def test_without_a_word_of_the_operator_nothing_goes(engine: Engine) -> None:
    put(engine, PlanRow, old(), old(status="failed"))
    put(engine, AuditRow, {"at": OLD, "actor": "me", "action": "a", "target": "t"})
    assert not deleted(engine)
    assert len(ids(engine, PlanRow)) == 2


def test_plans_that_are_old_enough_go_and_are_counted(engine: Engine) -> None:
    young, failed = a_plan(created_at=NOW - timedelta(days=89)), old(status="failed")
    put(engine, PlanRow, old(), old(status="infeasible"), young, failed, old(status="running"))
    keep(engine, "plans")
    assert deleted(engine) == {("default", "plans"): 2}
    assert {young["id"], failed["id"]} < ids(engine, PlanRow)
    keep(engine, "jobs")
    assert deleted(engine) == {("default", "jobs"): 1}
    assert failed["id"] not in ids(engine, PlanRow)
    with engine.connect() as connection:
        found = connection.execute(select(RetentionRow.kind, RetentionRow.deleted)).all()
    assert dict(found) == {"plans": 2, "jobs": 1}


def test_a_project_s_word_is_about_its_own(engine: Engine) -> None:
    put(engine, ProjectRow, {"name": "a"}, {"name": "b"})
    put(of_project(engine, "a"), PlanRow, old())
    put(of_project(engine, "b"), PlanRow, kept := old())
    keep(engine, "plans", project="a")
    assert deleted(engine) == {("a", "plans"): 1}
    assert ids(engine, PlanRow) == {kept["id"]}


@pytest.mark.parametrize(
    "said", ["UPDATE retention SET kept_s = 10 * kept_s", "DELETE FROM retention"], ids=["longer", "as by default"]
)
def test_what_the_operator_says_holds_from_the_next_batch_on(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    put(engine, AuditRow, *({"at": OLD, "actor": "me", "action": "a", "target": "t"},) * (retention.AT_ONCE + 1))
    keep(engine, "audit")
    batch = retention._deleted

    async def interrupted(*given: Any) -> int:
        number = await batch(*given)
        with engine.begin() as connection:
            connection.execute(text(said))
        return number

    monkeypatch.setattr(retention, "_deleted", interrupted)
    assert deleted(engine) == {("default", "audit"): retention.AT_ONCE}
    assert len(ids(engine, AuditRow)) == 1


def test_what_a_deployment_stands_on_stays(engine: Engine) -> None:
    """The plan that holds, the last before it that served, and all since."""
    _, plans = put_deployment(engine, "optimal", "optimal", "infeasible", "feasible", "infeasible", held=4)
    keep(engine, "plans")
    assert deleted(engine) == {("default", "plans"): 1}
    assert ids(engine, PlanRow) == {*plans[1:]}


def test_a_deployment_without_a_plan_keeps_its_last_attempt(engine: Engine) -> None:
    deployment, _ = put_deployment(engine, held=None)
    attempts = [old(deployment_id=deployment, status="failed", created_at=OLD + timedelta(days=n)) for n in range(3)]
    put(engine, PlanRow, *attempts)
    keep(engine, "plans", "jobs")
    assert deleted(engine) == {("default", "jobs"): 2}
    assert ids(engine, PlanRow) == {attempts[2]["id"]}


def test_the_plans_of_a_deployment_that_was_deleted_go_and_what_they_cost_stays(engine: Engine) -> None:
    deployment, plans = put_deployment(engine, "optimal", held=1)
    cost = {"deployment_id": deployment, "deployment_name": "chat", "plan_id": plans[0], "began_at": OLD}
    put(engine, CostRow, {**cost, "ended_at": NOW, "usd_per_hour": 2.0})
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM deployment"))
    keep(engine, "plans")
    assert deleted(engine) == {("default", "plans"): 1}
    with engine.connect() as connection:
        assert connection.scalar(select(CostRow.plan_id)) == plans[0]


def test_a_plan_stays_as_long_as_a_simulation_of_it(engine: Engine) -> None:
    put(engine, PlanRow, plan := old(), other := old())
    young = a_study("simulation", {"plan": {"id": str(plan["id"])}}, created_at=NOW)
    put_studies(engine, young, a_study("simulation", {"plan": {"id": str(other["id"])}}), a_study("what-if", {}))
    keep(engine, "plans")
    assert deleted(engine) == {("default", "plans"): 2}
    assert (ids(engine, StudyRow), ids(engine, PlanRow)) == ({young["id"]}, {plan["id"], other["id"]})
    assert deleted(engine) == {("default", "plans"): 1}
    assert ids(engine, PlanRow) == {plan["id"]}


def test_the_plans_of_an_application_go_from_the_last(engine: Engine) -> None:
    first, second = uuid4(), uuid4()
    usual = {"name": "rag", "application": {}, "status": "optimal", "objective": "min_cost", "created_by": "me"}
    for revision, (own, parent) in enumerate(((first, None), (second, first), (uuid4(), second)), start=1):
        values = {"id": own, "first_id": first, "parent_id": parent, "revision": revision, "created_at": OLD}
        put(engine, OfflinePlanRow, {**usual, **values})
    keep(engine, "plans")
    assert deleted(engine) == {("default", "plans"): 3}


def test_the_decision_for_the_plan_that_holds_stands(engine: Engine) -> None:
    deployment, _ = put_deployment(engine, "optimal", "optimal", held=2)
    usual = {"deployment_id": deployment, "chosen": "keep", "reason": "", "drifts": [], "options": [], "at": OLD}
    rows = [{**usual, "id": uuid4(), "revision": revision} for revision in (None, 1, 2)]
    put(engine, DecisionRow, *rows)
    keep(engine, "decisions")
    assert deleted(engine) == {("default", "decisions"): 2}
    assert ids(engine, DecisionRow) == {rows[2]["id"]}


def test_observations_and_decisions_go_as_ever_unless_the_operator_keeps_them_longer(engine: Engine) -> None:
    deployment, _ = put_deployment(engine, held=None)
    seen = {"deployment_id": deployment, "model": "m", "started_at": OLD, "ended_at": OLD, "requests": 1.0}
    put(engine, ObservationRow, {**seen, "digest": b"", "buckets": [], "received_at": OLD})
    decided = {"deployment_id": deployment, "chosen": "keep", "reason": "", "drifts": [], "options": []}
    put(engine, DecisionRow, {**decided, "id": uuid4(), "at": OLD})
    keep(engine, "observations", "decisions", kept_s=101 * 86_400)

    async def tidied() -> None:
        async with opened(engine) as store, begun(store) as connection:
            await housekeeping.tidy(connection, NOW)

    asyncio.run(tidied())
    assert not deleted(engine)
    assert (len(ids(engine, ObservationRow)), len(ids(engine, DecisionRow))) == (1, 1)
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM retention"))
    asyncio.run(tidied())
    assert (ids(engine, ObservationRow), ids(engine, DecisionRow)) == (set(), set())


def test_observations_are_kept_for_as_long_as_they_are_looked_back_over() -> None:
    assert LEAST_KEPT["observations"] == traffic.KEPT


def test_several_workers_delete_each_row_once(engine: Engine) -> None:
    with engine.begin() as connection:
        rows = [{"at": OLD, "actor": "me", "action": "a", "target": f"t/{number}"} for number in range(3_000)]
        connection.execute(insert(AuditRow), rows)
    keep(engine, "audit")
    assert deleted(engine, workers=4) == {("default", "audit"): 3_000}
    with engine.connect() as connection:
        assert connection.scalar(select(RetentionRow.deleted)) == 3_000


def test_what_was_deleted_is_told(engine: Engine, caplog: pytest.LogCaptureFixture) -> None:
    put(engine, PlanRow, old())
    keep(engine, "plans")
    caplog.set_level("INFO", logger="sutler.worker")
    deleted(engine)
    assert "retention: 1 plans of project default were old enough to be deleted" in caplog.messages
