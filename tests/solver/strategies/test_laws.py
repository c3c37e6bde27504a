"""What holds of every strategy on every problem: its plan verifies, and sutler is as good on the same supply.

`search.disaggregation` is auto: sutler then has what aggregated-only and disaggregated-only each have.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pytest

from sutler.solver.problem import ObjectiveKind, Problem
from sutler.solver.strategies.comparing import Ran
from sutler.solver.strategies.registry import compare
from tests.builders import OBJECTIVES, appendix_c, melange, random_estimated_problem, random_problem
from tests.looped import for_each
from tests.solver.strategies.strategy_builders import (
    random_networked_case,
    random_roles_case,
    slices_case,
    two_models_case,
)

MARKETS = range(2)
NETWORKED_MARKETS = range(1, 2)
TWO_WAYS: tuple[ObjectiveKind, ...] = ("max_throughput", "min_cost")  # a budget, a demand: what takes longest
OTHER_WAYS: tuple[ObjectiveKind, ...] = ("min_makespan", "min_power")

POINTS: Final = 3e-3  # operating points are sought on grids


@pytest.mark.parametrize("objective", OBJECTIVES)
@for_each("seed", MARKETS, quick=1)
def test_no_strategy_beats_sutler_on_a_measured_market(seed: int, objective: ObjectiveKind) -> None:
    _assert_laws(_with_roles(_with_free_shares(random_problem(seed, objective))))


@pytest.mark.slow
@pytest.mark.parametrize("objective", OTHER_WAYS)
def test_no_strategy_beats_sutler_on_an_estimated_market(objective: ObjectiveKind) -> None:
    _assert_laws(_with_roles(_with_free_shares(random_estimated_problem(1, objective))), slack=POINTS)


@pytest.mark.slow
@pytest.mark.parametrize("objective", TWO_WAYS)
def test_no_strategy_beats_sutler_where_providers_have_limited_shares(objective: ObjectiveKind) -> None:
    problem = random_estimated_problem(2, objective)
    assert problem.limits.max_share_per_provider_fraction < 1
    ran = _assert_laws(_with_roles(problem))
    refused = {r.strategy.name for r in ran if r.planned is None}
    rules = {"round-robin-assignment", "hexgen/even", "hexgen/ours", "melange", "greedy-cheapest"}
    assert refused >= rules | {"cauchy/mce-lp", "cauchy/mc-lp", "cauchy/co-lp"}


@pytest.mark.slow
@pytest.mark.parametrize("objective", TWO_WAYS)
def test_no_strategy_beats_sutler_on_the_cases_from_the_literature(objective: ObjectiveKind) -> None:
    budget = 12.0 if objective == "max_throughput" else None
    for problem in (slices_case(objective, budget_usd_per_hour=budget), two_models_case(objective)):
        ran = _assert_laws(_with_roles(problem))
        without = {r.strategy.name for r in ran if r.planned is None or r.planned.plan.value is None}
        assert "spot-hedge" in without  # nothing here is interruptible
        assert {name for name in without if not name.startswith(("splitwise", "disaggregated", "spot"))} == set()


@pytest.mark.slow
@pytest.mark.parametrize("objective", TWO_WAYS)
@for_each("seed", NETWORKED_MARKETS)
def test_no_combos_or_pools_beat_sutler_on_networks(seed: int, objective: ObjectiveKind) -> None:
    problem = random_roles_case(seed, objective)
    apart = replace(problem, search=replace(problem.search, disaggregation="only"))
    for case in (_with_roles(problem), apart, _with_roles(random_networked_case(seed, objective))):
        ran = _assert_laws(case, ["cauchy", "splitwise"])
        assert all(not one.beyond for one in ran)


@pytest.mark.slow
def test_the_papers_binary_search_has_the_same_rivals() -> None:
    ran = _assert_laws(appendix_c("binary_search"))
    assert {one.planned.plan.solver.method for one in ran if one.planned} == {"binary_search"}


@pytest.mark.slow
def test_every_plan_says_what_it_is_a_plan_for() -> None:
    for ran in compare(melange()):
        if ran.planned and not ran.strategy.own_market and not ran.beyond:
            assert ran.planned.problem == melange()


def _assert_laws(problem: Problem, names: Sequence[str] | None = None, *, slack: float = 1e-6) -> Sequence[Ran]:
    """`slack`: by which a rival may be better, beyond the gap."""
    ran = compare(problem, names=names)
    assert ran[0].planned is not None
    gap = problem.options.relative_gap + slack
    for one in ran:
        name = one.strategy.name
        assert one.violations == (), name
        assert (one.planned is None) == (one.reason is not None), name
        if one.planned is None or one.strategy.own_market or one.beyond or one.planned.plan.value is None:
            continue
        assert one.ratio is not None, f"{name} has a plan where sutler has none"
        assert one.ratio >= 1 - gap, name
        assert one.planned.problem.offers == problem.offers, name
    return ran


def _with_roles(problem: Problem) -> Problem:
    return replace(problem, search=replace(problem.search, disaggregation="auto"))


def _with_free_shares(problem: Problem) -> Problem:
    """Without the one limit that rules of routing do not know."""
    return replace(problem, limits=replace(problem.limits, max_share_per_provider_fraction=1.0))
