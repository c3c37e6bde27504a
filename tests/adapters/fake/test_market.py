"""The living market: reproducible, consistent with itself, and alive."""

from statistics import mean, median

import pytest

from sutler.adapters.fake.errors import FakeSetupError
from sutler.adapters.fake.gpus import GPUS
from sutler.adapters.fake.market import Market
from tests.adapters.fake.builders import DAY_S, HOUR_S, NIGHT_S
from tests.looped import for_each

INSTANTS = [NIGHT_S + hours * HOUR_S for hours in range(0, 72, 7)]


def free_by_kind(market: Market, t_s: float) -> dict[str, int]:
    free: dict[str, int] = {}
    for counts in market.counts(t_s).values():
        for slug, count in counts.items():
            kind = GPUS[slug].kind
            free[kind] = free.get(kind, 0) + count.free_gpus
    return free


def test_the_same_seed_gives_the_same_market_at_any_instant_in_any_order() -> None:
    one, other = Market(seed=7, machines=200), Market(seed=7, machines=200)
    forwards = [one.states("vastai", t_s) for t_s in INSTANTS]
    backwards = [other.states("vastai", t_s) for t_s in reversed(INSTANTS)]
    assert forwards == backwards[::-1]


def test_another_seed_is_another_market() -> None:
    assert Market(seed=1).states("vastai", NIGHT_S) != Market(seed=2).states("vastai", NIGHT_S)


@pytest.mark.slow
def test_a_larger_market_keeps_every_cloud_in_business() -> None:
    for machines in (50, 300, 3000):
        market = Market(seed=3, machines=machines)
        assert all(market.of(provider) for provider in market.counts(NIGHT_S))
        assert len(market.machines) == machines


@pytest.mark.parametrize("machines", [-1, 0, 49, 20_001])
def test_a_number_of_machines_that_makes_no_market_is_refused(machines: int) -> None:
    with pytest.raises(FakeSetupError, match=f"machines: {machines} must be from 50 to 20000"):
        Market(machines=machines)


@pytest.mark.parametrize("t_s", INSTANTS)
def test_what_is_free_is_part_of_the_machine(t_s: float) -> None:
    market = Market(seed=5, machines=400)
    for provider in market.counts(t_s):
        for state in market.states(provider, t_s):
            assert set(state.free) <= set(range(state.machine.gpus))
            assert list(state.free) == sorted(set(state.free))


@pytest.mark.parametrize("t_s", INSTANTS)
def test_prices_stay_near_what_the_type_is_worth(t_s: float) -> None:
    market = Market(seed=5, machines=400)
    for provider in market.counts(t_s):
        for state in market.states(provider, t_s):
            factor = state.usd_per_gpu_hour / state.machine.gpu.usd_per_gpu_hour
            assert 0.4 < factor < 2.5
            assert 0.2 < state.bid_usd_per_gpu_hour / state.usd_per_gpu_hour <= 0.9


def test_a_price_wanders_and_comes_back() -> None:
    market = Market(seed=4, machines=50)
    machine = market.of("vastai")[0]
    states = [market.state(machine, NIGHT_S + hours * HOUR_S) for hours in range(0, 24 * 60, 6)]
    prices = [state.usd_per_gpu_hour for state in states if state is not None]
    assert len(set(prices)) > 50
    assert max(prices) > 1.1 * min(prices)
    assert 0.8 < mean(prices[: len(prices) // 2]) / mean(prices[len(prices) // 2 :]) < 1.25


def test_little_changes_in_a_minute_and_much_in_half_a_day() -> None:
    market = Market(seed=1, machines=400)
    now, soon, later = (
        {(s.machine.number, s.free, s.usd_per_gpu_hour) for s in market.states("vastai", NIGHT_S + wait_s)}
        for wait_s in (0.0, 60.0, 12 * HOUR_S)
    )
    assert len(now - soon) < 0.1 * len(now)
    assert len(now - later) > 0.5 * len(now)


@pytest.mark.slow
@for_each("seed", [1, 2])
def test_data_centre_gpus_are_scarce_by_day_and_plentiful_by_night(seed: int) -> None:
    market = Market(seed=seed, machines=600)
    by_day = [free_by_kind(market, DAY_S + day * 24 * HOUR_S) for day in range(3)]
    by_night = [free_by_kind(market, NIGHT_S + day * 24 * HOUR_S) for day in range(3)]
    day, night = (mean(free["data_centre"] for free in frees) for frees in (by_day, by_night))
    assert night > 2 * day


def test_scarce_types_run_out_at_times_and_return() -> None:
    """The paper reports 0 to 32 A40s at one cloud within a day."""
    market = Market(seed=1, machines=300)
    a40s = [machine for machine in market.of("vastai") if machine.gpu.slug == "a40"]
    free = []
    for hours in range(0, 24 * 7, 2):
        states = [market.state(machine, NIGHT_S + hours * HOUR_S) for machine in a40s]
        free.append(sum(len(state.free) for state in states if state is not None))
    assert max(free) > 15
    assert min(free) < 0.4 * median(free)


def test_dear_hours_follow_scarce_hours() -> None:
    market = Market(seed=2, machines=600)

    def price(t_s: float) -> float:
        states = [state for state in market.states("vastai", t_s) if state.machine.gpu.kind == "data_centre"]
        return mean(state.usd_per_gpu_hour / state.machine.gpu.usd_per_gpu_hour for state in states)

    days = range(5)
    by_day = mean(price(DAY_S + (4 + 24 * day) * HOUR_S) for day in days)
    by_night = mean(price(NIGHT_S + (4 + 24 * day) * HOUR_S) for day in days)
    assert by_day > by_night


def test_machines_come_and_go() -> None:
    market = Market(seed=1, machines=300)
    now, later = ({s.machine.number for s in market.states("vastai", NIGHT_S + d * 86_400)} for d in (0, 30))
    assert now - later
    assert later - now


def test_a_market_of_more_churn_changes_sooner_and_another_number_is_refused() -> None:
    def changed(churn: float) -> int:
        market = Market(seed=1, churn=churn)
        states = [{s.machine.number: s.free for s in market.states("vastai", NIGHT_S + wait)} for wait in (0, 600)]
        return sum(states[0].get(number) != free for number, free in states[1].items())

    assert changed(0.1) < changed(1.0) < changed(10.0)
    with pytest.raises(FakeSetupError, match=r"churn: 0 must be from 0\.01 to 100"):
        Market(churn=0)
