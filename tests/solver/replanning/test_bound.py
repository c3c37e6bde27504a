"""What is proven of changes that are not sought: none nets more than the promised limit."""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sutler.solver import solve
from sutler.solver.problem import Limits, ObjectiveKind
from sutler.solver.replanning import Switching
from tests.builders import a_model, a_problem, a_workload, an_offer, measured
from tests.solver.replanning.builders import a_look, considered, machines_of, with_demand
from tests.solver.throughput.builders import a_dense_spec

OBJECTIVES: tuple[ObjectiveKind, ...] = ("max_throughput", "min_makespan", "min_cost", "min_power")
USD = 1e-6


@pytest.mark.slow
@given(st.integers(min_value=0, max_value=70), st.sampled_from(OBJECTIVES))
@settings(derandomize=True, max_examples=15, database=None, suppress_health_check=list(HealthCheck))
def test_the_proven_limit_of_what_a_change_can_net_is_never_exceeded(seed: int, objective: ObjectiveKind) -> None:
    look = a_look(seed, objective)
    assume(look is not None)
    assert look is not None
    most = look.found.most_net_usd
    for option in look.found.options[1:]:
        assert option.net_usd <= most + USD * max(1.0, abs(most)), option.kind


@pytest.mark.parametrize(("seed", "objective"), [(66, "max_throughput"), (42, "min_power")])
def test_the_limit_holds_where_the_cheapest_change_is_to_stop_machines(seed: int, objective: ObjectiveKind) -> None:
    look = a_look(seed, objective)
    assert look is not None
    assert look.found.options[1:]
    assert look.found.most_net_usd > 0
    assert max(option.net_usd for option in look.found.options) <= look.found.most_net_usd * (1 + USD)


@pytest.mark.parametrize("horizon_s", [600.0, 3600.0])
def test_stopping_a_machine_waits_for_none_that_starts(horizon_s: float) -> None:
    """Half the load is left for two machines of 1 $/h: one drains for a minute, however long others take to start."""
    problem = a_problem(
        objective="min_cost",
        models=[a_model(a_workload(demand=4.0))],
        offers=[an_offer("a", available=2)],
        rows=[measured("a", {"w1": 2.0})],
    )
    switching = Switching(startup_s=600.0, drain_s=60.0, horizon_s=horizon_s)
    plan = solve(problem)
    found = considered(with_demand(problem, 0.5), plan, market=[an_offer("a", price=5.0)], switching=switching)
    assert found.most_net_usd == pytest.approx((horizon_s - 60.0) / 3600.0)
    best = max(found.options, key=lambda option: option.net_usd)
    assert (machines_of(best.plan), best.change.stopped) == ({"a-1": 1}, 1)
    assert best.net_usd == pytest.approx((horizon_s - 60.0) / 3600.0)


def test_a_host_with_a_fast_line_may_start_sooner_than_others() -> None:
    """17.6 GB at 17.6 GB/s: 61 s of 2 + 4 $/h to save 2 $, where 880 s would leave a quarter of that."""
    spec = a_dense_spec(total_params=8e9, active_params=8e9)
    problem = a_problem(
        objective="min_cost",
        models=[a_model(a_workload(demand=2.0), spec=spec)],
        offers=[an_offer("a", price=4.0)],
        rows=[measured("a", {"w1": 2.0})],
    )
    market = [an_offer("a", price=2.0, offer_id="fast", inet_down_gb_per_s=17.6)]
    switching = Switching(startup_s=60.0, download_gb_per_s=0.02)
    found = considered(problem, solve(problem), market=market, switching=switching)
    assert found.options[-1].net_usd == pytest.approx(2.0 - 6 * 61 / 3600)
    assert found.most_net_usd == pytest.approx(2.0 - 6 * 61 / 3600)


def test_the_same_capacity_for_less_counts_where_capacity_is_what_is_bought() -> None:
    """One machine of 2 rps is all that 4 $/h buy; another one for 3 $/h saves 1 $."""
    problem = a_problem(offers=[an_offer("a", price=4.0)], rows=[measured("a", {"w1": 2.0})], budget_usd_per_hour=4.0)
    market = [an_offer("a", price=3.0, offer_id="cheaper")]
    plan = solve(problem)
    limited = replace(problem, limits=replace(problem.limits, max_gpus={"a": 1}))
    found = considered(limited, plan, market=market, switching=Switching(usd_per_rps=2.0))
    assert found.options[-1].net_usd == pytest.approx(1.0)
    assert found.most_net_usd == pytest.approx(1.0, rel=0.01)


def test_a_routing_that_breaks_a_limit_by_now_is_mended_without_other_machines() -> None:
    """At most 60 % may go to one provider; w1, which p alone is fast at, is 80 % of the requests by now."""
    limited = Limits(max_share_per_provider_fraction=0.6)
    problem = a_problem(
        models=[a_model(a_workload("w1"), a_workload("w2"))],
        offers=[an_offer("a", provider="p", offer_id="p"), an_offer("b", provider="q", offer_id="q")],
        rows=[measured("a", {"w1": 9.0, "w2": 1.0}), measured("b", {"w1": 0.5, "w2": 9.0})],
        limits=limited,
    )
    plan = solve(problem)
    found = considered(with_demand(problem, 4.0, of="w1"), plan)
    option = found.option("reroute")
    assert not found.keep.is_valid
    assert option is not None
    assert option.is_valid
    assert option.capacity_rps < found.keep.capacity_rps
