"""Traffic that comes by chance, at the rate that was planned: hardly ever a drift; a true change is seen at once."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from sutler.service.deployments.replanning.drift import traffic_drifts
from sutler.service.deployments.traffic.window import Observation
from sutler.service.documents.problem import ProblemDocument
from tests.service.deployments.replanning.builders import SIZES, START, a_policy, a_problem, known_of

SLICE_S = 15.0
WINDOWS = 2000


def by_chance(draw: np.random.Generator, length_s: float, **rates_rps: float) -> Iterator[Observation]:
    """Requests of a Poisson process of each kind, told every quarter of a minute."""
    for number in range(round(length_s / SLICE_S)):
        end = START - timedelta(seconds=number * SLICE_S)
        counts = {name: float(draw.poisson(rate * SLICE_S)) for name, rate in rates_rps.items()}
        buckets = tuple((*SIZES[name], count) for name, count in counts.items() if count)
        total = sum(counts.values())
        yield Observation("chat", "gateway", end - timedelta(seconds=SLICE_S), end, total, buckets)


def alarms(planned: ProblemDocument, windows: int, length_s: float, policy: Any, **rates_rps: float) -> int:
    """Of so many looks, those that find anything moved."""
    draw, found = np.random.default_rng(20260), 0
    for _ in range(windows):
        known = known_of(list(by_chance(draw, length_s, **rates_rps)), policy=policy, planned=planned)
        assert known["chat"].state == "live"
        found += any(traffic_drifts(planned, known, policy))
    return found


@pytest.mark.parametrize(
    ("questions_rps", "documents_rps", "rate_drift_fraction"),
    [
        (20.0, 2.0, 0.2),
        pytest.param(2.0, 1.5, 0.2, marks=pytest.mark.slow),
        pytest.param(0.8, 0.1, 0.2, marks=pytest.mark.slow),
        (2.0, 0.2, 0.1),
    ],
)
def test_chance_at_the_planned_rate_is_no_drift_in_ninety_nine_of_a_hundred_looks(
    questions_rps: float, documents_rps: float, rate_drift_fraction: float
) -> None:
    """Whatever the rate, and however small the change that is asked for."""
    policy = a_policy(shrink_after_s=0.0, rate_drift_fraction=rate_drift_fraction)
    planned = a_problem(questions_rps, documents_rps)
    found = alarms(planned, WINDOWS, 120.0, policy, question=questions_rps, document=documents_rps)
    assert found < 0.01 * WINDOWS


def test_little_traffic_is_watched_for_longer_until_it_is_known() -> None:
    """Of a request in three seconds, two minutes tell nothing."""
    policy = a_policy(shrink_after_s=0.0)
    found = alarms(a_problem(0.25, 0.08), 300, 3600.0, policy, question=0.25, document=0.08)
    assert found < 0.01 * 300


def test_half_as_much_again_is_seen_in_every_window() -> None:
    policy = a_policy(shrink_after_s=0.0)
    assert alarms(a_problem(), 200, 120.0, policy, question=30.0, document=3.0) == 200


def test_chance_over_a_lull_of_an_hour_is_hardly_ever_a_drift_either() -> None:
    policy = a_policy(shrink_after_s=3600.0)
    assert alarms(a_problem(), 60, 3600.0, policy, question=20.0, document=2.0) == 0
