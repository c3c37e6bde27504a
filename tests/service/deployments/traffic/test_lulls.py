"""Capacity follows growth at once, and a lull only when it has lasted."""

from copy import deepcopy
from datetime import UTC, datetime, timedelta
from math import inf

import pytest

from sutler.service.deployments.replanning.load import lasting_rps, load_factor, seen
from sutler.service.deployments.traffic.window import ModelTraffic, Observation, WorkloadShape, model_traffic
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.problem_parts import ModelDocument
from sutler.service.documents.validation import validate
from tests.service.builders import CHAT
from tests.service.deployments.traffic.builders import peak_factor

NOW = datetime(2026, 3, 2, 12, tzinfo=UTC)
SHAPES = (WorkloadShape("question", 500, 250), WorkloadShape("document", 3000, 300))
MINUTE = 60.0


def minutes(*rates_rps: float, shape: WorkloadShape = SHAPES[0]) -> list[Observation]:
    """One observation a minute, the last one ending now."""
    found = []
    for ago, rate in enumerate(reversed(rates_rps)):
        ended_at = NOW - timedelta(minutes=ago)
        bucket = (shape.input_tokens, shape.output_tokens, rate * MINUTE)
        began_at = ended_at - timedelta(minutes=1)
        found.append(Observation("chat", "", began_at, ended_at, bucket[2], (bucket,) if rate else ()))
    return found


def known(observations: list[Observation], *, lull_s: float = 1800.0) -> ModelTraffic:
    return model_traffic(
        "chat", SHAPES, observations, now=NOW, window_s=120.0, longest_s=3600.0, planned_rps=20.0, lull_s=lull_s
    )


def planned(*rates_rps: float) -> ProblemDocument:
    document = deepcopy(CHAT)
    for workload, rate in zip(document["models"][0]["workloads"], rates_rps, strict=True):
        workload["rate_rps"] = rate
    return validate(ProblemDocument, document)


def model(*rates_rps: float) -> ModelDocument:
    return planned(*rates_rps).models[0]


def test_the_peak_of_a_lull_is_its_most_loaded_part() -> None:
    found = known(minutes(*[10.0] * 10, *[40.0] * 5, *[10.0] * 15))
    assert found.rate_rps == pytest.approx(10)
    assert peak_factor(found) == pytest.approx(4)


def test_a_peak_before_the_lull_does_not_count() -> None:
    assert peak_factor(known(minutes(*[40.0] * 10, *[10.0] * 30))) == pytest.approx(1)


def test_a_short_burst_is_spread_over_its_part() -> None:
    burst = known(minutes(*[10.0] * 12, 60.0, *[10.0] * 17))
    assert peak_factor(burst) == pytest.approx(2)  # one minute of five


def test_what_has_not_been_watched_for_so_long_may_have_been_anything() -> None:
    assert peak_factor(known(minutes(*[10.0] * 10))) == inf


def test_without_patience_only_now_counts() -> None:
    assert known(minutes(*[40.0] * 10, *[10.0] * 3), lull_s=0.0).peak_work == 0.0


def test_the_work_of_a_peak_is_that_of_its_own_requests() -> None:
    """Twenty long documents/s are more work than twenty short questions/s."""
    before = minutes(*[0.0] * 15)  # placed by time: nothing in the newer half
    long_ago = [
        Observation(
            "chat",
            "",
            o.started_at - timedelta(minutes=15),
            o.ended_at - timedelta(minutes=15),
            600,
            ((3000, 300, 600),),
        )
        for o in before
    ]
    found = known([*long_ago, *minutes(*[10.0] * 15)])
    assert peak_factor(found) == pytest.approx((3000 + 4 * 300) / (500 + 4 * 250))


def test_growth_counts_at_once() -> None:
    assert load_factor(known(minutes(*[30.0] * 30)), model(20, 0.01)) == 1.0


def test_in_a_lull_the_present_mix_is_planned_for_at_the_work_before_it() -> None:
    found = known(minutes(*[16.0] * 15, *[8.0] * 15))
    problem = planned(20, 0.01)
    loaded = seen(problem, {"chat": found}, problem).models[0].workloads
    assert loaded is not None
    assert loaded[0].rate_rps == pytest.approx(16)


def test_no_more_is_planned_for_than_before() -> None:
    found = known(minutes(*[40.0] * 15, *[8.0] * 15))
    assert load_factor(found, model(20, 1e-9)) == pytest.approx(20 / 8)
    assert load_factor(known(minutes(*[8.0] * 5)), model(20, 1e-9)) == pytest.approx(20 / 8)


def test_who_asks_for_a_plan_gets_one_for_what_is_there_now() -> None:
    found = known(minutes(*[16.0] * 15, *[8.0] * 15))
    loaded = seen(planned(20, 0.01), {"chat": found}, None).models[0].workloads
    assert loaded is not None
    assert loaded[0].rate_rps == pytest.approx(8)


def test_where_only_the_mix_counts_a_lull_is_nothing() -> None:
    objective = {"objective": {"kind": "max_throughput"}, "budget_usd_per_hour": 10}
    fastest = validate(ProblemDocument, deepcopy(CHAT) | objective)
    loaded = seen(fastest, {"chat": known(minutes(*[16.0] * 15, *[8.0] * 15))}, fastest).models[0].workloads
    assert loaded is not None
    assert loaded[0].rate_rps == pytest.approx(8)


def test_a_surge_counts_once_it_fills_half_of_the_window_and_then_as_it_is_now() -> None:
    """Two minutes are the window: after one minute of the surge its mean is half of it, after that all."""

    def planned_after(minutes_of_surge: int) -> float:
        rates = [20.0] * 20 + [40.0] * minutes_of_surge
        return lasting_rps(known(minutes(*rates)), 20.0)

    assert [planned_after(minutes_of_surge) for minutes_of_surge in range(4)] == pytest.approx([20, 20, 40, 40])
    climbing = known(minutes(*[20.0] * 20, 30.0, 45.0))
    assert lasting_rps(climbing, 20.0) == pytest.approx(45)


def test_chance_is_no_surge() -> None:
    found = known(minutes(*[20.0] * 20, 21.0, 23.0))
    assert found.older_rps == found.newer_rps == found.rate_rps
