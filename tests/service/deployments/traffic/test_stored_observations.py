"""Observations in a real store, at instants that a test chooses."""

import re
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import event, insert, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.api_tables import DeploymentRow, PlanRow
from sutler.service.deployments import service as deployments
from sutler.service.deployments.traffic import repository, schemas, service, slices
from sutler.service.deployments.traffic.schemas import ModelTrafficResource, ObservationDocument
from sutler.service.deployments.traffic.window import Observation
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.validation import validate
from tests.service.builders import CHAT
from tests.service.deployments.traffic.builders import NOW, ago, an_observation
from tests.service.deployments.traffic.site import Deployed, a_window, requests_at
from tests.service.webhooks.api import Api


def add(
    deployed: Deployed, *told: Observation, digest: bytes = b"1", received_at: datetime = NOW, **latencies: float
) -> float:
    id_ = deployed.id
    return deployed.api.office.changed(
        lambda connection: repository.add(
            connection, id_, told, digest=digest, now=received_at, latencies=latencies or None
        )
    )


def observe(deployed: Deployed, body: dict[str, object], *, now: datetime = NOW) -> float:
    """As the endpoint does, with a clock of the test's own."""

    async def work(connection: AsyncConnection) -> float:
        deployment = await deployments.found(connection, deployed.name)
        found = await service.observe(connection, deployment, validate(ObservationDocument, body), now=now)
        return found.accepted_requests

    return deployed.api.office.changed(work)


def traffic(deployed: Deployed, *, now: datetime = NOW, model: str = "chat") -> ModelTrafficResource:
    async def work(connection: AsyncConnection) -> ModelTrafficResource:
        found = await service.traffic(connection, await deployments.found(connection, deployed.name), now=now)
        return next(entry for entry in found.models if entry.model == model)

    return deployed.api.office.read(work)


def recent(deployed: Deployed, since: datetime) -> list[Observation]:
    id_ = deployed.id
    return deployed.api.office.read(
        lambda connection: repository.recent(connection, id_, models=["chat"], since=since)
    )


def minutes_of(deployed: Deployed, count: int, *, until: datetime = NOW) -> None:
    for number in range(count):
        end = until - timedelta(seconds=60 * number)
        assert observe(deployed, a_window(observed_at=end.isoformat()), now=max(end, NOW)) == 1200


def test_what_is_stored_is_found_as_it_was(chat: Deployed) -> None:
    told = an_observation(2.5, size=(480.25, 210.125))
    assert add(chat, told) == 2.5
    assert recent(chat, ago(60)) == [told]


def test_the_same_of_one_source_and_beginning_is_stored_once(chat: Deployed) -> None:
    told = an_observation(100)
    assert (add(chat, told), add(chat, told)) == (100, 0)
    assert add(chat, told, digest=b"2") == 100
    assert add(chat, an_observation(100, source="other")) == 100
    assert chat.rows == 3


def test_what_ended_before_is_not_recent_but_the_newest_is(chat: Deployed) -> None:
    old, older = an_observation(1, until=ago(5000)), an_observation(2, until=ago(6000))
    add(chat, old, older)
    assert recent(chat, ago(60)) == [old]
    new = an_observation(3, until=ago(30))
    add(chat, new)
    assert recent(chat, ago(60)) == [new]
    assert len(recent(chat, ago(5500))) == 2


def test_a_source_is_asked_for_the_last_that_it_told_before(chat: Deployed) -> None:
    add(chat, an_observation(1, until=ago(100)), an_observation(1, until=ago(50)), an_observation(1, source="x"))

    def last_end(source: str, before: datetime) -> datetime | None:
        id_ = chat.id
        return chat.api.office.read(
            lambda connection: repository.last_end(connection, id_, model="chat", source=source, before=before)
        )

    assert last_end("gateway", NOW) == ago(50)
    assert last_end("gateway", ago(51)) == ago(50)
    assert last_end("gateway", ago(61)) == ago(100)
    assert last_end("gateway", ago(500)) is None
    assert last_end("x", NOW) == NOW


def test_the_newest_latencies_are_shown(chat: Deployed) -> None:
    add(chat, an_observation(9, until=ago(30)), ttft_p50_s=0.4)
    add(chat, an_observation(9, until=ago(10)), ttft_p50_s=0.2, tpot_p90_s=0.03)
    add(chat, an_observation(9))
    assert traffic(chat).latencies == {"ttft_p50_s": 0.2, "tpot_p90_s": 0.03}


def test_latencies_of_long_ago_are_not_shown(chat: Deployed) -> None:
    add(chat, an_observation(9, until=ago(86_400)), ttft_p50_s=0.4)
    add(chat, an_observation(9))
    assert traffic(chat).latencies == {}


def test_what_was_received_long_ago_is_forgotten(chat: Deployed) -> None:
    add(chat, an_observation(1, until=ago(120)), received_at=ago(100))
    add(chat, an_observation(2, until=ago(110)), received_at=ago(10))
    chat.api.office.changed(lambda connection: repository.forget_old(connection, ago(50)))
    assert [o.requests for o in recent(chat, ago(5000))] == [2]


def test_a_source_is_not_looked_back_at_for_longer_than_a_gap_may_be(chat: Deployed) -> None:
    longest = timedelta(seconds=schemas.LONGEST_WINDOW_S) + slices.LONGEST_GAP
    assert longest < repository.LOOKED_BACK
    add(chat, an_observation(1, length_s=10, until=NOW - repository.LOOKED_BACK))
    id_ = chat.id
    found = chat.api.office.read(lambda c: repository.last_end(c, id_, model="chat", source="gateway", before=NOW))
    assert found is None


def test_each_question_to_the_observations_has_an_index(chat: Deployed) -> None:
    add(chat, an_observation(1), ttft_p50_s=0.2)
    id_ = chat.id
    of_model = "ix_observation_deployment_id_model_ended_at"
    assert indexes(chat, lambda c: repository.recent(c, id_, models=["chat"], since=ago(60))) == {of_model}
    assert indexes(chat, lambda c: repository.newest_latencies(c, id_, models=["chat"], since=ago(60))) == {of_model}
    found = indexes(chat, lambda c: repository.forget_old(c, ago(60)))  # and those of what projects keep
    assert {name for name in found if name.startswith("ix_observation")} == {"ix_observation_received_at"}


def indexes(deployed: Deployed, work: Callable[[AsyncConnection], Awaitable[object]]) -> set[str]:
    """By which the database would find what is asked for, rather than by reading it all."""

    async def explained(connection: AsyncConnection) -> set[str]:
        asked: list[tuple[str, Any]] = []
        event.listen(connection.sync_connection, "before_cursor_execute", lambda *a: asked.append((a[2], a[3])))
        await connection.execute(text("SET LOCAL enable_seqscan = off"))
        await work(connection)
        statement, parameters = asked[-1]
        rows = await connection.exec_driver_sql(f"EXPLAIN {statement}", parameters)
        plan = "\n".join(row[0] for row in rows)
        assert "Seq Scan" not in plan, plan
        return set(re.findall(r"(?:using|Index Scan on) (\w+)", plan))

    return deployed.api.office.read(explained)


def planned_for(deployed: Deployed, **rates: float) -> None:
    """A plan holds that was made for these rates of its workloads."""
    [model] = CHAT["models"]
    named = {workload["name"]: workload for workload in model["workloads"]}
    workloads = [{**named["question"], "name": name, "rate_rps": rate} for name, rate in rates.items()]
    plan_id, deployment_id = uuid4(), deployed.id
    problem = {**CHAT, "models": [{**model, "workloads": workloads}]}

    async def hold(connection: AsyncConnection) -> None:
        usual = {"deployment_id": deployment_id, "objective": "min_cost", "created_by": "x", "status": "optimal"}
        await connection.execute(insert(PlanRow).values(id=plan_id, problem=problem, **usual))
        await connection.execute(
            update(DeploymentRow).where(DeploymentRow.id == deployment_id).values(plan_id=plan_id)
        )

    deployed.api.office.changed(hold)


def test_planned_is_what_the_plan_that_holds_was_made_for(chat: Deployed) -> None:
    planned_for(chat, question=11, document=0.5)
    found = traffic(chat)
    assert found.planned_rps == 11.5
    assert {w.workload: w.planned_rps for w in found.workloads} == {"question": 11, "document": 0.5}
    assert {w.workload: w.input_tokens for w in found.workloads} == {"question": 500, "document": 3000}  # as stated


def test_a_plan_for_other_workloads_says_nothing_of_these(chat: Deployed) -> None:
    planned_for(chat, question=11, other=3)
    assert {w.workload: w.planned_rps for w in traffic(chat).workloads} == {"question": 20, "document": 2}


def test_a_plan_for_little_makes_few_requests_too_few_to_tell(chat: Deployed) -> None:
    """A gateway that tells of three requests: of 22/s that are planned that is a lull, of 0.01/s it is nothing."""
    observe(chat, a_window(3, observed_at=NOW.isoformat()))
    assert traffic(chat).state == "live"
    planned_for(chat, question=0.005, document=0.005)
    assert traffic(chat).state == "thin"


def test_traffic_goes_from_live_to_silent_and_back(chat: Deployed) -> None:
    minutes_of(chat, 3)
    states = [traffic(chat, now=NOW + timedelta(seconds=s)).state for s in (0, 300, 360, 361, 86_400)]
    assert states == ["live", "live", "live", "silent", "silent"]
    minutes_of(chat, 3, until=NOW + timedelta(seconds=86_400))
    assert traffic(chat, now=NOW + timedelta(seconds=86_400)).state == "live"


def test_a_model_that_falls_silent_beside_one_that_does_not_stays_silent(api: Api) -> None:
    """Hours later too: it was seen once, which is not the same as never."""
    code = {**CHAT["models"][0], "name": "code"}
    both = Deployed.of(api, problem={**CHAT, "models": [*CHAT["models"], code]})
    minutes_of(both, 2)
    later = NOW + timedelta(hours=12)
    add(both, Observation("code", "", later - timedelta(seconds=60), later, 1200, ((480, 210, 1200),)))
    assert (traffic(both, now=later, model="code").state, traffic(both, now=later).state) == ("live", "silent")


def test_a_clock_that_was_set_back_leaves_what_came_in_between(chat: Deployed) -> None:
    """What the service received before lies an hour ahead of it now."""
    minutes_of(chat, 3, until=NOW + timedelta(hours=1))
    assert traffic(chat).state == "never"
    minutes_of(chat, 3)
    assert (traffic(chat).state, traffic(chat).last_at) == ("live", NOW)


@pytest.mark.parametrize("body", [a_window(observed_at=ago(-61).isoformat()), requests_at(ago(-61).isoformat())])
def test_what_lies_more_than_a_minute_ahead_is_refused(chat: Deployed, body: dict[str, object]) -> None:
    with pytest.raises(DocumentError, match=r"2026-11-20T12:01:01.*set the clock of the sender"):
        observe(chat, body)


@pytest.mark.parametrize("body", [a_window(observed_at=ago(-60).isoformat()), requests_at(ago(86_400).isoformat())])
def test_the_limits_are_what_they_say(chat: Deployed, body: dict[str, object]) -> None:
    assert observe(chat, body) > 0


@pytest.mark.slow
def test_requests_that_come_one_by_one_have_their_rate(chat: Deployed) -> None:
    for number in reversed(range(240)):
        assert observe(chat, requests_at(ago(0.5 * number).isoformat())) == 1
    found = traffic(chat)
    assert found.state == "live"
    assert found.rate_rps == pytest.approx(2, rel=0.02)


def test_a_pause_of_who_sends_requests_as_they_come_is_a_lull(chat: Deployed) -> None:
    observe(chat, requests_at(*(ago(60 + 0.25 * number).isoformat() for number in range(240))))
    assert traffic(chat).rate_rps == pytest.approx(4, rel=0.05)
    observe(chat, requests_at(ago(0).isoformat()))
    assert traffic(chat).rate_rps == pytest.approx(2, rel=0.05)


def test_a_pause_of_who_sends_windows_is_a_gap(chat: Deployed) -> None:
    observe(chat, a_window(observed_at=ago(60).isoformat(), window_s=30))
    observe(chat, a_window(observed_at=ago(0).isoformat(), window_s=30))
    assert traffic(chat).rate_rps == pytest.approx(40)
