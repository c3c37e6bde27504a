"""How an engine fared between two readings: what of it says how fast it is, and what says nothing."""

from dataclasses import astuple, replace
from datetime import timedelta
from typing import Any

import pytest

from sutler.service.deployments.traffic.counters import (
    LEAST_IN_FLIGHT,
    WARM_S,
    Counters,
    Increase,
    Operating,
    Reading,
    Total,
    increase,
)
from sutler.service.deployments.traffic.exposition import SGLANG, VLLM, EngineMetrics, counters_of
from tests.service.deployments.traffic.builders import NOW, SIZE, ago, counted, histogram_lines, metrics_text
from tests.service.deployments.traffic.builders import a_histogram as histogram

OLD_S = ago(3600).timestamp()
BEFORE = counted(
    *[SIZE] * 10, began_s=OLD_S, e2e=Total(10, 50.0), queue=Total(10, 5.0), cache_asked=5000.0, cache_found=0.0
)
AFTER = counted(
    *[SIZE] * 40,
    began_s=OLD_S,
    e2e=Total(40, 230.0),
    queue=Total(40, 35.0),
    cache_asked=20000.0,
    cache_found=6000.0,
)


def came(after: Counters = AFTER, before: Counters = BEFORE) -> Increase:
    found = increase(Reading(ago(15), before), NOW, after, longest=timedelta(minutes=10))
    assert found is not None
    return found


def test_time_in_the_engine_is_without_the_wait_and_in_flight_is_by_littles_law() -> None:
    """30 requests in 15 s took 180 s together, of which they waited for 30."""
    found = came().operating()
    assert isinstance(found, Operating)
    assert astuple(found) == pytest.approx((30.0, 5.0, 10.0, 0.4))


@pytest.mark.parametrize(
    ("why", "after", "before"),
    [
        ("it began anew", {"began_s": ago(10).timestamp()}, {}),
        ("it is still warming up", {"began_s": ago(WARM_S).timestamp()}, {"began_s": ago(WARM_S).timestamp()}),
        ("it serves several models", {"served": 2}, {}),
        ("it does not tell how long requests took", {"e2e": None}, {}),
        ("it told that for the first time", {}, {"e2e": None}),
        ("it is all but idle", {"e2e": Total(11, 50.0 + LEAST_IN_FLIGHT * 14), "queue": Total(11, 5.0)}, {}),
        ("some wait, and nobody knows for how long", {"queue": None, "waiting": 3.0}, {}),
        ("whether any wait is not told", {"queue": None, "waiting": None}, {}),
        ("its waits are longer than its requests", {"queue": Total(40, 1000.0)}, {}),
    ],
)
def test_nothing_is_said_where(why: str, after: dict[str, Any], before: dict[str, Any]) -> None:
    found = came(replace(AFTER, **after), replace(BEFORE, **before))
    assert found.operating() is None, why


def test_without_a_count_of_waits_none_must_wait() -> None:
    found = came(replace(AFTER, queue=None, waiting=0.0)).operating()
    assert found is not None
    assert found.residence_s == pytest.approx(6.0)


def test_readings_of_before_this_was_counted_go_on() -> None:
    assert came(AFTER, counted(*[SIZE] * 10, began_s=OLD_S)).operating() is None


@pytest.mark.parametrize("engine", [VLLM, SGLANG])
def test_what_engines_write_of_it_is_read(engine: EngineMetrics) -> None:
    labels = 'model_name="m"'
    sizes = histogram([500.0] * 4)
    lines = [
        *histogram_lines(engine.prompt, sizes, labels),
        *histogram_lines(engine.generation, sizes, labels),
        *histogram_lines(engine.e2e, histogram([2.0, 4.0], bounds=(1.0, 10.0)), labels),
        *histogram_lines(engine.queue, histogram([1.0], bounds=(1.0, 10.0)), labels),
        f"{engine.waiting}{{{labels}}} 2.0",
        f"{engine.cache_asked}{{{labels}}} 2000.0",
        f"{engine.cache_found}{{{labels}}} 500.0",
    ]
    found = counters_of("\n".join([*lines, ""]).encode(), engine)
    assert (found.e2e, found.queue, found.waiting) == (Total(2, 6.0), Total(1, 1.0), 2.0)
    assert (found.cache_asked, found.cache_found, found.served) == (2000.0, 500.0, 1)


def test_two_models_of_one_process_are_counted() -> None:
    second = metrics_text(counted(SIZE), labels='engine="0",model_name="another"')
    assert counters_of(metrics_text(counted(SIZE)) + second).served == 2


def test_sglang_is_told_how_to_count() -> None:
    with pytest.raises(Exception, match="--collect-tokens-histogram"):
        counters_of(b"sglang:num_requests_total 3.0\n", SGLANG)
