"""Shadow prices against the difference that one more unit makes, and alternatives against their promise."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sutler.solver import solve
from sutler.solver.explanation.binding import binding
from sutler.solver.methods import exact
from sutler.solver.plan import Binding, Plan
from sutler.solver.polytope.objectives import FIRST_PHASE_GAP_SHARE, first_goal
from sutler.solver.polytope.relaxation import solve_relaxation
from sutler.solver.polytope.rows import Polytope
from sutler.solver.problem import Limits, ObjectiveKind, Problem
from tests.builders import (
    OBJECTIVES,
    a_gpu,
    a_model,
    a_problem,
    a_workload,
    an_offer,
    appendix_c,
    measured,
    melange,
    random_problem,
)
from tests.looped import for_each
from tests.solver.planning_builders import WholeProgram, about, polytope_of

# One unit more or less where the optimum is a straight line around it.
STEP = 1e-3


def prices(plan: Plan) -> dict[str, tuple[float, str]]:
    return {binding.constraint: (binding.shadow_price, binding.unit) for binding in plan.binding}


def a_and_b(**others: Any) -> Problem:
    """Any number of a (2 $/h, 1 req/s, 300 W) and one b (3 $/h, 2 req/s, 500 W): b first, then a."""
    others.setdefault("budget_usd_per_hour", 8.0)
    return a_problem(
        offers=[an_offer("a", price=2.0, available=9), an_offer("b", price=3.0)],
        rows=[measured("a", {"w1": 1.0}), measured("b", {"w1": 2.0})],
        gpus=[a_gpu("a", tdp_watts=300.0), a_gpu("b", tdp_watts=500.0)],
        **others,
    )


def test_one_more_dollar_buys_half_a_replica_and_one_more_b_saves_a_dollar() -> None:
    """8 $/h: one b and two and a half a. A further $/h is half an a, 0.5 req/s; a further b brings 2 req/s for
    3 $/h, which cost 1.5 req/s of a."""
    found = prices(solve(a_and_b()))
    assert found["budget"] == (about(0.5), "rps per usd_per_hour")
    (supply,) = (name for name in found if name.startswith("supply/b@"))
    assert found[supply] == (about(0.5), "rps per gpu")
    assert set(found) == {"budget", supply}


def test_the_shadow_price_of_a_machine_is_stated_per_gpu() -> None:
    """The same with machines of two: one more machine of b brings 4 req/s for 6 $/h instead of 3, 0.5 per GPU."""
    problem = a_problem(
        offers=[an_offer("a", 2, price=4.0, available=9), an_offer("b", 2, price=6.0)],
        rows=[measured("a", {"w1": 1.0}), measured("b", {"w1": 2.0})],
        budget_usd_per_hour=17.0,
    )
    found = prices(solve(problem))
    assert found["budget"] == (about(0.5), "rps per usd_per_hour")
    (supply,) = (name for name in found if name.startswith("supply/b@"))
    assert supply.endswith("/2")
    assert found[supply] == (about(0.5), "rps per gpu")


def test_a_makespan_falls_with_the_square_of_the_throughput() -> None:
    """90 requests at 4.5 req/s take 20 s; 0.5 req/s more would make it 20 x 0.5 / 4.5 = 2.22 s less per $/h."""
    found = prices(solve(a_and_b(objective="min_makespan", models=[a_model(a_workload(demand=90.0))])))
    assert found["budget"] == (about(-20 * 0.5 / 4.5), "s per usd_per_hour")


def test_the_watts_limit_has_a_price_where_it_binds() -> None:
    """1600 W: b and 1100 W of a, though money would pay for more: 1 req/s for 300 W."""
    found = prices(solve(a_and_b(budget_usd_per_hour=100.0, limits=Limits(max_power_watts=1600.0))))
    assert found["limit/max_power_watts"] == (about(1 / 300), "rps per watt")
    assert "budget" not in found


def test_one_more_request_costs_what_the_next_gpu_costs() -> None:
    """Least cost of 4.5 req/s: b and 2.5 a, 8 $/h in fractions; a further req/s is another a at 2 $/h."""
    problem = a_and_b(objective="min_cost", models=[a_model(a_workload(demand=4.5))], budget_usd_per_hour=None)
    found = prices(solve(problem))
    assert found["demand/chat/w1"] == (about(2.0), "usd_per_hour per rps")
    (supply,) = (name for name in found if name.startswith("supply/b@"))
    assert found[supply] == (about(-1.0), "usd_per_hour per gpu")


def test_one_more_request_draws_what_the_next_gpu_draws() -> None:
    """Least power: b at 250 W per req/s first, then a at 300."""
    problem = a_and_b(objective="min_power", models=[a_model(a_workload(demand=4.5))], budget_usd_per_hour=None)
    assert prices(solve(problem))["demand/chat/w1"] == (about(300.0), "watts per rps")


def test_an_unused_budget_has_no_price() -> None:
    """All that is for rent costs 21 $/h."""
    assert "budget" not in prices(solve(a_and_b(budget_usd_per_hour=50.0)))


def explained(problem: Problem) -> tuple[Polytope, dict[str, Binding]]:
    polytope = polytope_of(problem)
    relaxation = solve_relaxation(polytope, first_goal(polytope))
    if not np.isfinite(relaxation.objective) or (problem.objective.maximises_rate and relaxation.lam <= 0):
        return polytope, {}
    return polytope, {found.constraint: found for found in binding(polytope, relaxation)}


def value_with(polytope: Polytope, resource: str, change: float) -> float:
    """The relaxation's optimum in the objective's unit when a limit changes."""
    problem = polytope.problem
    limit = polytope.limit[polytope.resources.index(resource)]
    least = WholeProgram(polytope, first_goal(polytope)).optimum_with(resource, limit + change)
    if not problem.objective.maximises_rate:
        return least
    return -least if problem.objective.kind == "max_throughput" else problem.total_demand / -least


@pytest.mark.parametrize("objective", OBJECTIVES)
@for_each("seed", range(0, 90, 4))
def test_the_shadow_price_of_a_limit_lies_between_one_step_down_and_one_step_up(
    seed: int, objective: ObjectiveKind
) -> None:
    """The optimum is concave (or convex) in each limit, so its slope to the left and to the right of the limit
    enclose every valid price."""
    polytope, found = explained(random_problem(seed, objective, most_gpus=14))
    for name, entry in found.items():
        if name not in polytope.resources or name.startswith("supply/"):
            continue
        here = value_with(polytope, name, 0.0)
        up = (value_with(polytope, name, STEP) - here) / STEP
        down = (here - value_with(polytope, name, -STEP)) / STEP
        low, high = min(up, down), max(up, down)
        slack = 1e-2 * abs(entry.shadow_price)
        assert low - slack <= entry.shadow_price <= high + slack


@for_each("seed", range(0, 90, 4))
def test_the_shadow_price_of_rented_out_gpus_lies_between_one_step_down_and_one_step_up(seed: int) -> None:
    """Machines of one class and pool: more of them, counted in GPUs."""
    polytope, found = explained(random_problem(seed, most_gpus=14))
    for k, one in enumerate(polytope.supply.classes):
        name = f"supply/{polytope.supply.pools[one.pool].name}/{one.gpus}"
        if name not in found or sum(c.pool == one.pool and c.gpus == one.gpus for c in polytope.supply.classes) > 1:
            continue

        def rps(change: float, machines: int = k, size: int = one.gpus) -> float:
            program = WholeProgram(polytope, first_goal(polytope))
            program.rent_upper[machines] += change / size
            return -program.optimum()

        up, down = (rps(STEP) - rps(0.0)) / STEP, (rps(0.0) - rps(-STEP)) / STEP
        assert up * (1 - 1e-2) - 1e-6 <= found[name].shadow_price <= down * (1 + 1e-2) + 1e-6


@pytest.mark.parametrize("objective", OBJECTIVES)
@for_each("seed", range(0, 60, 5))
def test_more_of_anything_never_hurts(seed: int, objective: ObjectiveKind) -> None:
    """Limits: more throughput, less time, cost or power. Demand: more cost and power."""
    _, found = explained(random_problem(seed, objective, most_gpus=14))
    for entry in found.values():
        helps = entry.shadow_price > 0
        assert helps == (objective == "max_throughput" or entry.constraint.startswith("demand/"))


def test_appendix_c_says_what_a_third_t1_of_its_money_would_bring() -> None:
    """Another $/h buys a quarter of t1: 0.25 req/s of w1, so T falls by 28.43 x 0.25 / 3.4 = 2.09 s."""
    found = prices(solve(appendix_c()))
    assert found["budget"] == (about(-(96.6667 / 3.4) * 0.25 / 3.4, rel=1e-4), "s per usd_per_hour")


def test_every_alternative_does_without_the_gpu_that_it_names() -> None:
    """Best are b and two a, 4 req/s for 7 $/h; without b four a for 8 $/h, without a the one b, 2 req/s for 3."""
    plan = solve(a_and_b())
    assert (plan.value, plan.cost_usd_per_hour) == (about(4.0), about(7.0))
    found = {alternative.without: alternative for alternative in plan.alternatives}
    assert set(found) == {rental.gpu for rental in plan.rentals}
    without_b, without_a = found["b"], found["a"]
    assert (without_b.value, without_b.cost_usd_per_hour) == (about(4.0), about(8.0))
    assert (without_a.value, without_a.cost_usd_per_hour) == (about(2.0), about(3.0))
    assert [(rental.gpu, rental.count) for rental in without_a.rentals] == [("b", 1)]


def test_an_alternative_that_does_not_exist_says_so() -> None:
    plan = solve(a_problem(offers=[an_offer("a")], rows=[measured("a", {"w1": 1.0})]))
    (alternative,) = plan.alternatives
    assert (alternative.without, alternative.value, alternative.rentals) == ("a", None, ())


@pytest.mark.parametrize(("asked", "sought"), [(0.001, 0.005), (0.2, 0.2)])
def test_alternatives_are_sought_no_closer_than_the_plan(
    asked: float, sought: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a percent is enough for alternatives, and so is what is enough for the plan."""
    gaps: list[float] = []

    def spied(*arguments: Any, relative_gap: float, **others: Any) -> Any:
        gaps.append(relative_gap)
        return minimise(*arguments, relative_gap=relative_gap, **others)

    minimise = exact.minimise
    monkeypatch.setattr(exact, "minimise", spied)
    problem = melange()
    plan = solve(replace(problem, options=replace(problem.options, relative_gap=asked)))
    of_the_plan, *beside = gaps
    assert of_the_plan == about(FIRST_PHASE_GAP_SHARE * asked)
    assert beside == [sought] * len(plan.alternatives) != []


def test_melange_without_its_h100_costs_more() -> None:
    """Demand 14, 10, 10 and 6 req/s. Five A100 carry it: 14/18 + 10/7 + 10/9 + 6/3.5 = 5.03 is more than five, but
    with 4090s beside them there is a fleet for less than six."""
    plan = solve(melange())
    found = {alternative.without: alternative for alternative in plan.alternatives}
    assert set(found) == {"rtx4090", "a100", "h100"}
    for alternative in found.values():
        assert alternative.value is not None
        assert 5.58 <= alternative.value <= 1.25 * 5.58
    assert (found["h100"].value or 0.0) <= 6 * 1.19 + 1e-9


@pytest.mark.parametrize("objective", OBJECTIVES)
@for_each("seed", range(0, 40, 5))
def test_no_alternative_is_better_than_what_the_plan_proves(seed: int, objective: ObjectiveKind) -> None:
    problem = random_problem(seed, objective)
    plan = solve(problem)
    for alternative in plan.alternatives:
        assert alternative.without not in {rental.gpu for rental in alternative.rentals}
        if alternative.value is None:
            continue
        assert plan.bound is not None
        sign = 1.0 if objective == "max_throughput" else -1.0
        assert sign * alternative.value <= sign * plan.bound * (1 + sign * 1e-6)


def test_alternatives_are_left_out_on_request() -> None:
    problem = a_and_b()
    assert solve(replace(problem, options=replace(problem.options, alternatives=False))).alternatives == ()


def test_prices_are_of_the_first_objective_alone() -> None:
    """min_cost ends with a second phase that maximises throughput; its budget row says nothing of costs."""
    problem = a_and_b(objective="min_cost", models=[a_model(a_workload(demand=2.5))])
    found = prices(solve(problem))
    assert found["demand/chat/w1"] == (about(2.0), "usd_per_hour per rps")
    assert {unit.partition(" per ")[0] for _, unit in found.values()} == {"usd_per_hour"}


def test_a_plan_says_for_which_gpu_types_it_has_no_alternative() -> None:
    """Seven GPU types of equal price and rate are all rented; six alternatives are sought."""
    gpus = "abcdefg"
    offers = [an_offer(gpu) for gpu in gpus]
    rows = [measured(gpu, {"w1": 1.0}) for gpu in gpus]
    plan = solve(a_problem(offers=offers, rows=rows))
    assert len(plan.alternatives) == 6
    assert [warning for warning in plan.warnings if "no alternative was found without" in warning]
