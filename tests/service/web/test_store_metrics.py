"""What the database says about all processes: real rows in, series out."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from math import inf
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine

from sutler.service.db.api_tables import DeliveryRow, DeploymentRow, OfflinePlanRow, PlanRow, WebhookRow
from sutler.service.db.asynchronous import begun, conninfo
from sutler.service.db.queue import SOLVE, Queue
from sutler.service.db.tables import OfferRow, PollRow
from sutler.service.db.watch_tables import DecisionRow, FeedRow, WatchRow
from tests.service.web.applications import value
from tests.service.web.stored import (
    NOW,
    a_plan,
    a_poll,
    an_offer,
    counted,
    found,
    opened,
    put,
    put_fed,
    put_providers,
    put_watched,
    run,
)


@pytest.fixture(autouse=True)
def no_jobs(engine: Engine) -> Iterator[None]:
    """At the end: where a test begins, only a connection that finds the queue's tables could remove them."""
    yield
    run(engine, "DELETE FROM procrastinate_jobs")


def test_an_empty_store_has_zeros_where_there_is_nothing(engine: Engine) -> None:
    series = found(engine)
    assert value(series, "sutler_database_up") == 1
    for status in ("queued", "running", "cancelled", "failed", "optimal", "feasible", "infeasible", "unknown"):
        assert value(series, "sutler_plans", {"status": status}) == 0
    for queue in ("solves", "deliveries", "looks"):
        assert value(series, "sutler_queue_oldest_seconds", {"queue": queue}) == 0
        for status in ("todo", "doing"):
            assert value(series, "sutler_queue_depth", {"queue": queue, "status": status}) == 0
    assert value(series, "sutler_solve_seconds_count") == 0
    assert value(series, "sutler_deployments") == 0
    for status in ("calm", "kept", "waiting", "short", "manual", "blind", "none"):
        assert value(series, "sutler_deployments_watched", {"status": status}) == 0
    for state in ("ok", "failing", "none"):
        assert value(series, "sutler_feeds", {"state": state}) == 0
    for chosen in ("keep", "reroute", "relayout", "refleet"):
        assert value(series, "sutler_decisions", {"chosen": chosen}) == 0
    assert value(series, "sutler_workers") == 0


def test_plans_are_counted_by_status(engine: Engine) -> None:
    put(engine, PlanRow, a_plan("queued"), a_plan("queued"), a_plan("infeasible"))
    series = found(engine)
    assert value(series, "sutler_plans", {"status": "queued"}) == 2
    assert value(series, "sutler_plans", {"status": "infeasible"}) == 1
    assert value(series, "sutler_plans", {"status": "running"}) == 0


def test_offline_plans_are_counted_apart(engine: Engine) -> None:
    for status in ("queued", "feasible", "feasible"):
        plan_id = uuid4()
        row = {"id": plan_id, "first_id": plan_id, "revision": 1, "name": "x", "application": {}, "report": None}
        put(engine, OfflinePlanRow, {**row, "objective": "min_time", "created_by": "someone", "status": status})
    series = found(engine)
    assert value(series, "sutler_offline_plans", {"status": "feasible"}) == 2
    assert value(series, "sutler_offline_plans", {"status": "queued"}) == 1
    assert value(series, "sutler_offline_plans", {"status": "cancelled"}) == 0
    assert value(series, "sutler_plans", {"status": "queued"}) == 0


def test_solve_times_are_a_histogram_whose_bounds_belong_to_their_bucket(engine: Engine) -> None:
    times = (0.01, 0.1, 0.100001, 1.0, 299.0, 300.0, 301.0)
    put(engine, PlanRow, a_plan("failed"), *(a_plan(solve_seconds=seconds) for seconds in times))
    series = found(engine)
    for bound in (0.1, 0.25, 0.5, 1.0, 2.5, 60.0, 120.0, 300.0):
        held = sum(seconds <= bound for seconds in times)
        assert value(series, "sutler_solve_seconds_bucket", {"le": str(bound)}) == held
    assert value(series, "sutler_solve_seconds_bucket", {"le": "+Inf"}) == 7
    assert value(series, "sutler_solve_seconds_count") == 7
    assert value(series, "sutler_solve_seconds_sum") == pytest.approx(sum(times))


def test_gaps_are_a_histogram_of_the_plans_that_have_one(engine: Engine) -> None:
    gaps = (0.0, 0.0, 1e-5, 0.0001, 0.0002, 3.0)
    plans = [a_plan(solve_seconds=1.0, relative_gap=gap) for gap in (*gaps, None)]
    put(engine, PlanRow, *plans)
    series = found(engine)
    for bound in (0.0, 0.0001, 0.001, 1.0):
        held = sum(gap <= bound for gap in gaps)
        assert value(series, "sutler_relative_gap_bucket", {"le": str(bound)}) == held
    assert value(series, "sutler_relative_gap_count") == 6
    assert value(series, "sutler_relative_gap_sum") == pytest.approx(sum(gaps))
    assert value(series, "sutler_solve_seconds_count") == 7


def test_histograms_only_grow_as_plans_are_added(engine: Engine) -> None:
    put(engine, PlanRow, a_plan(solve_seconds=0.2, relative_gap=0.0))
    before = {(s.name, s.labels.get("le")): s.value for s in found(engine) if s.name.startswith("sutler_solve")}
    put(engine, PlanRow, a_plan(solve_seconds=20.0, relative_gap=0.5), a_plan("queued"))
    after = {(s.name, s.labels.get("le")): s.value for s in found(engine) if s.name.startswith("sutler_solve")}
    assert before.keys() == after.keys()
    assert all(after[name] >= before[name] for name in before)
    assert after != before


def test_offers_are_those_for_rent_now(engine: Engine) -> None:
    ids = put_providers(engine, "north", "south")
    north, south = ids["north"], ids["south"]
    put(
        engine,
        OfferRow,
        an_offer("a", provider_id=north, contract="on_demand"),
        an_offer("a", provider_id=north, contract="interruptible"),
        an_offer("b", provider_id=north, contract="on_demand"),
        an_offer("c", provider_id=north, contract="on_demand", is_over=True),
        an_offer("a", provider_id=south, contract="on_demand"),
    )
    series = found(engine)
    assert value(series, "sutler_offers", {"provider": "north", "contract": "on_demand"}) == 2
    assert value(series, "sutler_offers", {"provider": "north", "contract": "interruptible"}) == 1
    assert value(series, "sutler_offers", {"provider": "south", "contract": "on_demand"}) == 1


def test_the_market_is_as_old_as_its_last_usable_answer(engine: Engine) -> None:
    ids = put_providers(engine, "north", "south", "east", "west")
    put(
        engine,
        PollRow,
        a_poll("ok", provider_id=ids["north"], minutes_ago=30),
        a_poll("partial", provider_id=ids["north"], minutes_ago=10),
        a_poll("retry", provider_id=ids["north"], minutes_ago=1),
        a_poll("auth_error", provider_id=ids["south"], minutes_ago=2),
        a_poll("ok", provider_id=ids["east"], minutes_ago=-5),
    )
    series = found(engine)
    assert value(series, "sutler_market_age_seconds", {"provider": "north"}) == 600
    assert value(series, "sutler_market_age_seconds", {"provider": "south"}) == inf
    assert value(series, "sutler_market_age_seconds", {"provider": "east"}) == 0
    assert value(series, "sutler_market_age_seconds", {"provider": "west"}) == inf
    last = value(series, "sutler_last_poll_timestamp_seconds", {"provider": "north"})
    assert last == (NOW - timedelta(minutes=1)).timestamp()
    polled = {s.labels["provider"] for s in series if s.name == "sutler_last_poll_timestamp_seconds"}
    assert polled == {"north", "south", "east"}


def test_polls_are_those_of_a_day(engine: Engine) -> None:
    ids = put_providers(engine, "north", "south")
    put(
        engine,
        PollRow,
        *(a_poll("ok", provider_id=ids["north"], minutes_ago=minutes) for minutes in (1, 2, 1439, 1441)),
        a_poll("quota", provider_id=ids["north"], minutes_ago=3),
        a_poll("ok", provider_id=ids["south"], minutes_ago=5),
    )
    series = found(engine)
    assert value(series, "sutler_polls", {"provider": "north", "outcome": "ok"}) == 3
    assert value(series, "sutler_polls", {"provider": "north", "outcome": "quota"}) == 1
    assert value(series, "sutler_polls", {"provider": "south", "outcome": "ok"}) == 1


def test_deployments_and_deliveries_are_counted(engine: Engine) -> None:
    put(engine, DeploymentRow, *({"id": uuid4(), "name": name, "problem": {}, "policy": {}} for name in "ab"))
    webhook = {"id": uuid4(), "url": "https://a.example", "events": [], "secret": "s", "created_by": "local"}
    put(engine, WebhookRow, webhook)
    delivery = {"webhook_id": webhook["id"], "event": "plan.issued", "body": "{}"}
    put(engine, DeliveryRow, *({**delivery, "id": uuid4(), "status": status} for status in ("failed", "failed")))
    series = found(engine)
    assert value(series, "sutler_deployments") == 2
    assert value(series, "sutler_deliveries", {"status": "failed"}) == 2
    assert value(series, "sutler_deliveries", {"status": "pending"}) == 0


def test_deployments_are_counted_by_what_the_last_look_found(engine: Engine) -> None:
    calm, blind, not_looked_at, _ = put_deployments(engine, 4)
    states = {calm: {"status": "calm"}, blind: {"status": "blind"}, not_looked_at: {}}
    put(engine, WatchRow, *({"deployment_id": id_, "state": state} for id_, state in states.items()))
    series = found(engine)
    counts = {s.labels["status"]: s.value for s in series if s.name == "sutler_deployments_watched" and s.value}
    assert counts == {"calm": 1, "blind": 1, "none": 2}


def test_what_deployments_cost_hold_and_carry_is_told_by_name(engine: Engine) -> None:
    put_watched(engine, "a", cost=12.5, holdings=[{"count": 2}, {"count": 3}], load_multiple=0.75)
    put_watched(engine, "b", cost=None, holdings=None, load_multiple=None)
    put_watched(engine, "c", cost=0.0, holdings=[], load_multiple=1.5)
    series = found(engine)
    told = {
        (s.name, s.labels["deployment"]): s.value for s in series if "deployment" in s.labels and s.value is not None
    }
    assert told == {
        ("sutler_plan_usd_per_hour", "a"): 12.5,
        ("sutler_plan_usd_per_hour", "c"): 0.0,
        ("sutler_held_machines", "a"): 5,
        ("sutler_held_machines", "c"): 0,
        ("sutler_load_carried", "a"): 0.75,
        ("sutler_load_carried", "c"): 1.5,
    }


def test_limits_are_kept_by_so_many_of_the_requests_of_five_minutes(engine: Engine) -> None:
    [deployment] = put_deployments(engine, 1)
    put_fed(
        engine,
        deployment,
        counted(30.0, ttft_p50_s=0.2, ttft_p90_s_kept_fraction=0.8),
        counted(10.0, minutes_ago=2, ttft_p90_s_kept_fraction=1.0, tpot_p90_s_kept_fraction=0.5),
        counted(0.0, minutes_ago=3, ttft_p90_s_kept_fraction=0.0),
        counted(1_000.0, minutes_ago=6, ttft_p90_s_kept_fraction=0.0),
    )
    kept = {s.labels["limit"]: s.value for s in found(engine) if s.name == "sutler_slo_attainment"}
    assert kept == {"ttft_p90_s": pytest.approx(0.85), "tpot_p90_s": pytest.approx(0.5)}


def test_feeds_are_counted_by_how_the_last_reading_went(engine: Engine) -> None:
    [deployment] = put_deployments(engine, 1)
    went = [(None, None), (NOW, None), (NOW, None), (NOW, "answers 503"), (None, "answers 503")]
    feed = {"deployment_id": deployment, "model": "chat", "kind": "vllm", "url": "http://10.0.0.5/metrics"}
    put(engine, FeedRow, *({**feed, "id": uuid4(), "read_at": at, "error": error} for at, error in went))
    series = found(engine)
    counts = {s.labels["state"]: s.value for s in series if s.name == "sutler_feeds"}
    assert counts == {"ok": 2, "failing": 2, "none": 1}


def test_decisions_are_those_of_a_day_by_what_was_chosen(engine: Engine) -> None:
    [deployment] = put_deployments(engine, 1)
    made = [("keep", 1), ("keep", 1439), ("keep", 1441), ("refleet", 5)]
    fixed = {"deployment_id": deployment, "reason": "", "drifts": [], "options": []}
    rows = ({"id": uuid4(), "at": NOW - timedelta(minutes=ago), "chosen": chosen, **fixed} for chosen, ago in made)
    put(engine, DecisionRow, *rows)
    series = found(engine)
    counts = {s.labels["chosen"]: s.value for s in series if s.name == "sutler_decisions" and s.value}
    assert counts == {"keep": 2, "refleet": 1}


def put_deployments(engine: Engine, count: int) -> list[UUID]:
    ids = [uuid4() for _ in range(count)]
    put(engine, DeploymentRow, *({"id": id_, "name": f"d-{id_}", "problem": {}, "policy": {}} for id_ in ids))
    return ids


def put_jobs(engine: Engine, *delays_s: float) -> None:
    """Deliveries through the queue's own door, and one solve."""

    async def defer() -> None:
        async with opened(engine) as store:
            queue = Queue(conninfo(store))
            async with begun(store) as connection:
                await queue.make_plan(connection, SOLVE, uuid4())
                for delay_s in delays_s:
                    await queue.deliver(connection, uuid4(), delay_s=delay_s)

    asyncio.run(defer())


def test_the_queue_s_depth_is_told_by_queue_and_status(engine: Engine) -> None:
    put_jobs(engine, 0.0, 0.0, 3600.0)
    run(engine, "UPDATE procrastinate_jobs SET status = 'doing' WHERE queue_name = 'solves'")
    series = found(engine)
    assert value(series, "sutler_queue_depth", {"queue": "deliveries", "status": "todo"}) == 3
    assert value(series, "sutler_queue_depth", {"queue": "solves", "status": "doing"}) == 1
    assert value(series, "sutler_queue_depth", {"queue": "solves", "status": "todo"}) == 0


def test_the_oldest_job_is_one_that_could_be_done(engine: Engine) -> None:
    put_jobs(engine, 0.0, 3600.0)
    run(
        engine,
        "UPDATE procrastinate_events SET at = now() - interval '90 seconds'",
        "UPDATE procrastinate_jobs SET status = 'doing' WHERE queue_name = 'solves'",
    )
    series = found(engine)
    assert 90 <= value(series, "sutler_queue_oldest_seconds", {"queue": "deliveries"}) < 3600
    assert value(series, "sutler_queue_oldest_seconds", {"queue": "solves"}) == 0


def test_a_job_that_waits_for_a_later_attempt_is_not_old(engine: Engine) -> None:
    put_jobs(engine, 3600.0)
    run(engine, "UPDATE procrastinate_events SET at = now() - interval '1 day'")
    assert value(found(engine), "sutler_queue_oldest_seconds", {"queue": "deliveries"}) == 0


def test_workers_are_those_that_give_a_sign_of_life(engine: Engine) -> None:
    run(
        engine,
        "INSERT INTO procrastinate_workers DEFAULT VALUES",
        "INSERT INTO procrastinate_workers (last_heartbeat) VALUES (now() - interval '1 hour')",
    )
    assert value(found(engine), "sutler_workers") == 1
