"""Whether traffic climbs, and where that leads: against draws whose truth is known."""

from collections.abc import Callable

import numpy as np
import pytest

from sutler.service.deployments.traffic.trend import SLICES, Trend, trend_of

SLICE_S = 15.0
AHEAD_S = 150.0


def slices(rps: Callable[[float], float], *, now_s: float, seed: int, count: int = max(SLICES)) -> list[float]:
    """Requests in each, the newest first."""
    draw = np.random.default_rng(seed)
    return [float(draw.poisson(rps(now_s - (number + 0.5) * SLICE_S) * SLICE_S)) for number in range(count)]


def found(rps: Callable[[float], float], *, now_s: float, seed: int) -> Trend | None:
    requests = slices(rps, now_s=now_s, seed=seed)
    return trend_of(requests, [SLICE_S] * len(requests), SLICE_S)


def climbing(t_s: float) -> float:
    """From 20 requests/s on by 2 % every 5 s."""
    return float(20.0 * 1.02 ** (max(0.0, t_s) / 5))


@pytest.mark.slow
@pytest.mark.parametrize("rps", [2.0, 20.0, 200.0])
def test_steady_traffic_leads_nowhere(rps: float) -> None:
    assert [seed for seed in range(1000) if found(lambda t_s: rps, now_s=0.0, seed=seed)] == []


@pytest.mark.parametrize("since_s", [15.0, 30.0, 60.0, 120.0, 300.0])
def test_a_step_leads_nowhere(since_s: float) -> None:
    def rps(t_s: float) -> float:
        return 60.0 if t_s > 0 else 20.0

    assert sum(found(rps, now_s=since_s, seed=seed) is not None for seed in range(200)) <= 1


def test_a_lull_leads_nowhere() -> None:
    assert all(found(lambda t_s: climbing(-t_s), now_s=0.0, seed=seed) is None for seed in range(200))


@pytest.mark.parametrize("quantile", [0.5, 0.9])
def test_what_a_climb_comes_to_is_as_sure_as_it_is_said_to_be(quantile: float) -> None:
    trends = [found(climbing, now_s=240.0, seed=seed) for seed in range(400)]
    told = [trend.rps(AHEAD_S, quantile) for trend in trends if trend is not None]
    assert len(told) == len(trends)
    assert quantile - 0.02 <= np.mean(np.array(told) >= climbing(240.0 + AHEAD_S)) <= quantile + 0.12


def test_it_is_nearer_to_what_comes_than_the_last_value() -> None:
    comes = climbing(240.0 + AHEAD_S)
    off, off_held = [], []
    for seed in range(100):
        trend, last = found(climbing, now_s=240.0, seed=seed), slices(climbing, now_s=240.0, seed=seed)[0] / SLICE_S
        assert trend is not None
        off.append(abs(trend.rps(AHEAD_S, 0.5) - comes))
        off_held.append(abs(last - comes))
    assert np.mean(off) < np.mean(off_held) / 3


def test_a_climb_that_has_ended_is_over_within_two_minutes() -> None:
    def rps(t_s: float) -> float:
        return 10 * climbing(min(t_s, 300.0))

    over = [sum(found(rps, now_s=300.0 + s, seed=seed) is None for seed in range(100)) for s in (30.0, 120.0)]
    assert over[1] >= 95
    assert over[0] < over[1]


def test_of_slices_behind_a_gap_nothing_is_told() -> None:
    requests = slices(climbing, now_s=240.0, seed=1)
    seconds = [SLICE_S] * 3 + [0.0] + [SLICE_S] * (len(requests) - 4)
    assert trend_of(requests, seconds, SLICE_S) is None
    assert trend_of([], [], SLICE_S) is None


def test_nothing_at_all_leads_nowhere() -> None:
    assert trend_of([0.0] * 32, [SLICE_S] * 32, SLICE_S) is None
