"""What a plan is worth at the low end of every band: by hand, by brute force, and as laws.

On the hand-made market one GPU sustains h: `known` at least h / 1.2 for 1 $/h, `guessed` at least h / 2 for 0.9 $/h.
"""

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sutler.solver import Plan, Problem, solve
from sutler.solver.plan import Robustness
from sutler.solver.polytope.preparation import prepare
from sutler.solver.problem import ObjectiveKind, SolveOptions
from sutler.solver.progress import Progress
from tests.builders import (
    OBJECTIVES,
    a_problem,
    an_offer,
    estimated_seeds,
    measured,
    random_estimated_problem,
    random_problem,
)
from tests.looped import for_each
from tests.solver.banded_builders import (
    counting_on_low,
    known_or_guessed,
    measured_at_low,
    random_banded_problem,
    rate_of_one,
)
from tests.solver.brute_force import optimum
from tests.solver.planning_builders import about

seeds = st.integers(min_value=0, max_value=100_000)
law = settings(derandomize=True, max_examples=6, database=None, suppress_health_check=[HealthCheck.too_slow])
GOOD_GAP = 0.005 + 0.002  # of the search, and of the plans compared with


def robustness(plan: Plan) -> Robustness:
    assert plan.robustness is not None
    return plan.robustness


def gpus(rentals: object) -> dict[str, int]:
    found: dict[str, int] = {}
    for rental in rentals:  # type: ignore[attr-defined]
        found[rental.gpu] = found.get(rental.gpu, 0) + rental.gpus * rental.count
    return found


def sign(objective: ObjectiveKind) -> float:
    return 1.0 if objective == "max_throughput" else -1.0


def test_the_better_known_gpu_is_the_robust_alternative() -> None:
    """10 $/h buy 11 guessed, 11 h and at least 5.5 h, or 10 known, 10 h and at least 8.33 h."""
    h, plan = rate_of_one(), solve(known_or_guessed())
    assert (plan.value, gpus(plan.rentals)) == (about(11 * h), {"guessed": 11})
    found = robustness(plan)
    assert (found.low_fraction, found.value_at_low, found.verdict) == (about(0.5), about(5.5 * h), "better")
    other = found.alternative
    assert other is not None
    assert (other.value_at_low, other.value) == (about(10 / 1.2 * h), about(10 * h))
    assert (other.cost_usd_per_hour, gpus(other.rentals)) == (about(10.0), {"known": 10})
    assert (found.reason, found.load_multiple_at_low, other.load_multiple_at_low) == (None, None, None)
    assert found.bound_at_low is not None
    assert found.bound_at_low >= other.value_at_low * (1 - 1e-9)


def test_a_makespan_is_stated_in_seconds() -> None:
    """66 h of requests: 6 s on 11 guessed, up to 12 s; 6.6 s and up to 66 / 8.33 = 7.92 s on 10 known."""
    plan = solve(known_or_guessed("min_makespan", load=66.0))
    found = robustness(plan)
    assert (plan.value, found.value_at_low) == (about(6.0), about(12.0))
    assert found.alternative is not None
    assert (found.alternative.value_at_low, found.alternative.value) == (about(7.92), about(6.6))
    assert gpus(found.alternative.rentals) == {"known": 10}


@pytest.mark.parametrize(("objective", "value", "other_value"), [("min_cost", 8.1, 10.0), ("min_power", 4050, 5000)])
def test_the_cheapest_fleet_that_carries_the_load_at_low_rates(
    objective: ObjectiveKind, value: float, other_value: float
) -> None:
    """A load of 8.2 h: 9 guessed carry 9 h, but at least 4.5 h, 0.549 of it. 10 known carry at least 8.33 h for
    10 $/h; 9 known and 2 guessed 8.5 h for 10.8, and guessed alone take 17, 15.3 $/h. By watts it is the same."""
    plan = solve(known_or_guessed(objective, load=8.2, budget_usd_per_hour=None))
    found, other = robustness(plan), robustness(plan).alternative
    assert (plan.value, plan.load_multiple) == (about(value), about(9 / 8.2))
    assert (found.value_at_low, found.load_multiple_at_low) == (about(value), about(4.5 / 8.2))
    assert other is not None
    assert (other.value, other.value_at_low, gpus(other.rentals)) == (
        about(other_value),
        about(other_value),
        {"known": 10},
    )
    assert (other.load_multiple, other.load_multiple_at_low) == (about(10 / 8.2), about(10 / 1.2 / 8.2))


def test_where_nothing_carries_the_load_it_says_how_much_is_carried() -> None:
    """9.2 $/h: 5 known and 4 guessed, 5 / 1.2 + 4 / 2 = 6.17 h of 8.2 h."""
    found = robustness(solve(known_or_guessed("min_cost", load=8.2, known=5, budget_usd_per_hour=9.2)))
    assert (found.verdict, found.alternative) == ("cannot_carry", None)
    assert found.most_load_multiple_at_low == about(37 / 6 / 8.2)
    assert found.reason is not None
    assert "carries 1 times the load there; the most found is 0.752 times" in found.reason


def test_a_plan_that_carries_its_load_at_low_rates_needs_no_alternative() -> None:
    """With a band of 1.2 the one that is rented for 0.8 h carries at least 0.833 h."""
    problem = known_or_guessed("min_cost", load=0.8, bands={"known": 1.2, "guessed": 1.2})
    found = robustness(solve(problem))
    assert (found.verdict, found.alternative, found.load_multiple_at_low) == ("none_better", None, about(1 / 0.96))


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["max_throughput", "min_makespan"])
@for_each("seed", range(4, 20, 8))
def test_with_equal_bands_nothing_is_more_robust(seed: int, objective: ObjectiveKind) -> None:
    problem = replace(random_estimated_problem(seed, objective), measured=(), estimates="roofline")
    problem = replace(problem, search=replace(problem.search, expert_parallel=False))  # its bands are wider
    shipped = known_or_guessed().calibration
    assert shipped is not None
    priors = replace(shipped.priors, expert_band=1.5, pipeline_band=1.5, weight_only_band=1.5)
    classes = tuple(replace(one, band=1.5) for one in shipped.gpu_classes)
    plan = solve(replace(problem, calibration=replace(shipped, gpu_classes=classes, priors=priors)))
    if plan.value is None:
        assert plan.robustness is None
        return
    found = robustness(plan)
    assert (found.verdict, found.alternative, found.low_fraction) == ("none_better", None, about(1 / 1.5))
    assert found.value_at_low == about(plan.value * 1.5 ** -sign(objective))


@pytest.mark.parametrize("objective", OBJECTIVES)
@for_each("seed", range(0, 40, 8))
def test_measured_rates_have_no_low_end(seed: int, objective: ObjectiveKind) -> None:
    plan = solve(random_problem(seed, objective))
    if plan.value is None:
        assert plan.robustness is None
        return
    found = robustness(plan)
    assert (found.value_at_low, found.low_fraction, found.verdict) == (plan.value, 1.0, "none_better")
    assert (found.load_multiple_at_low, found.alternative) == (plan.load_multiple and about(plan.load_multiple), None)


@pytest.mark.parametrize("objective", OBJECTIVES)
@for_each("seed", range(9), quick=1)
def test_on_tiny_markets_the_alternative_is_the_true_optimum_at_low_rates(
    seed: int, objective: ObjectiveKind
) -> None:
    problem = random_banded_problem(seed, objective)
    plan, best = solve(problem), optimum(measured_at_low(problem))
    if plan.value is None:
        assert best.value is None
        return
    found = robustness(plan)
    if found.verdict == "cannot_carry":
        assert best.value is None
    else:
        assert best.value is not None
        reached = found.value_at_low if found.alternative is None else found.alternative.value_at_low
        assert reached == pytest.approx(best.value, rel=0.005)


@pytest.mark.slow
@given(estimated_seeds, st.sampled_from(OBJECTIVES))
@law
def test_low_rates_never_help_and_the_alternative_never_hurts(seed: int, objective: ObjectiveKind) -> None:
    plan = solve(random_estimated_problem(seed, objective))
    if plan.value is None:
        assert plan.robustness is None
        return
    found = robustness(plan)
    assert 0 < found.low_fraction <= 1
    assert sign(objective) * found.value_at_low <= sign(objective) * plan.value
    assert (found.load_multiple_at_low or 0.0) <= (plan.load_multiple or 0.0)
    assert (found.alternative is not None) == (found.verdict == "better")
    other = found.alternative
    if other is None:
        return
    if other.load_multiple_at_low is None:
        assert sign(objective) * other.value_at_low > sign(objective) * found.value_at_low
        assert sign(objective) * other.value_at_low <= sign(objective) * other.value
    else:
        assert other.load_multiple_at_low > (found.load_multiple_at_low or 0.0)
        assert other.load_multiple_at_low <= (other.load_multiple or 0.0)
    assert other.cost_usd_per_hour == about(sum(r.price_usd_per_hour * r.count for r in other.rentals))


@pytest.mark.slow
@given(estimated_seeds, st.sampled_from(OBJECTIVES))
@law
def test_nothing_is_better_at_low_rates_than_the_best_plan_made_for_them(seed: int, objective: ObjectiveKind) -> None:
    problem = random_estimated_problem(seed, objective)
    plan, made_for_low = solve(problem), solve(counting_on_low(problem))
    found = plan.robustness
    if found is None or found.verdict == "unknown":
        return
    assert (made_for_low.value is None) == (found.verdict == "cannot_carry")
    if made_for_low.value is None or (objective in ("min_cost", "min_power") and found.alternative is None):
        return
    reached = found.value_at_low if found.alternative is None else found.alternative.value_at_low
    if found.reason is None or found.verdict == "none_better":
        assert reached == pytest.approx(made_for_low.value, rel=GOOD_GAP)
    if found.bound_at_low is not None:
        assert sign(objective) * found.bound_at_low >= sign(objective) * made_for_low.value - 1e-6


def test_without_time_the_alternative_is_unknown_and_the_plan_the_same() -> None:
    """The clock leaps once the plan is verified."""
    now = [0.0]

    def leap(progress: Progress) -> None:
        if progress.phase == "verify":
            now[0] = 1000.0

    plan = solve(known_or_guessed(), clock=lambda: now[0], on_progress=leap)
    found, unhurried = robustness(plan), solve(known_or_guessed())
    assert (plan.status, plan.value, plan.rentals) == ("optimal", unhurried.value, unhurried.rentals)
    assert (found.verdict, found.alternative) == ("unknown", None)
    assert found.value_at_low == robustness(unhurried).value_at_low
    assert found.reason == "the time limit of 30 s came before another plan was sought there"


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_the_same_problem_has_the_same_robustness(objective: ObjectiveKind) -> None:
    problem = random_banded_problem(3, objective)
    assert robustness(solve(problem)) == robustness(solve(problem))


@pytest.mark.parametrize("options", [SolveOptions(alternatives=False), SolveOptions(robustness=False)])
def test_it_is_left_out_on_request(options: SolveOptions) -> None:
    plan = solve(replace(known_or_guessed(), options=options))
    assert (plan.robustness, bool(plan.alternatives)) == (None, options.alternatives)


def test_the_binary_search_has_it_too() -> None:
    plan = solve(replace(known_or_guessed(), options=SolveOptions(method="binary_search")))
    assert (robustness(plan).verdict, robustness(plan).low_fraction) == ("better", about(0.5))


def test_nothing_is_said_of_what_cannot_be() -> None:
    infeasible: Problem = a_problem(objective="min_cost", offers=[an_offer("a")], rows=[measured("a", {"w1": 0.5})])
    assert solve(infeasible).robustness is None


def test_a_polytope_counts_on_the_low_rates_and_back() -> None:
    polytope = prepare(known_or_guessed()).scaled(3.0)
    low = polytope.at("low")
    assert (low.rate < polytope.rate).all()
    assert (low.at("nominal").rate == polytope.rate).all()
    dropped = low.candidates.tensor_parallel[:, 0] > 1
    assert (low.without(dropped).rate == low.rate[~dropped]).all()
