"""What holds of every strategy on every problem: its plan verifies, and sutler is as good on the same supply.

`search.disaggregation` is auto: sutler then has what aggregated-only and disaggregated-only each have.
"""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from solver.problem import ObjectiveKind, Problem
from solver.strategies.comparing import Ran
from solver.strategies.registry import compare
from tests.builders import OBJECTIVES, appendix_c, melange, random_estimated_problem, random_problem
from tests.solver.strategies.strategy_builders import slices_case, two_models_case

MARKETS = range(10)
ESTIMATED_MARKETS = range(1, 6)


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", MARKETS)
def test_no_strategy_beats_sutler_on_a_measured_market(seed: int, objective: ObjectiveKind) -> None:
    _assert_laws(_with_roles(_with_free_shares(random_problem(seed, objective))))


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("seed", ESTIMATED_MARKETS)
def test_no_strategy_beats_sutler_on_an_estimated_market(seed: int, objective: ObjectiveKind) -> None:
    _assert_laws(_with_roles(_with_free_shares(random_estimated_problem(seed, objective))))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_no_strategy_beats_sutler_where_providers_have_limited_shares(objective: ObjectiveKind) -> None:
    problem = random_estimated_problem(2, objective)
    assert problem.limits.max_share_per_provider_fraction < 1
    ran = _assert_laws(_with_roles(problem))
    refused = {r.strategy.name for r in ran if r.planned is None}
    assert refused >= {"round-robin-assignment", "hexgen/even", "hexgen/ours", "melange", "greedy-cheapest"}


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_no_strategy_beats_sutler_on_the_cases_from_the_literature(objective: ObjectiveKind) -> None:
    budget = None if objective in ("min_cost", "min_power") else 12.0
    for problem in (slices_case(objective, budget_usd_per_hour=budget), two_models_case(objective)):
        ran = _assert_laws(_with_roles(problem))
        assert all(r.planned is not None and r.planned.plan.value is not None for r in ran), [
            (r.strategy.name, r.reason) for r in ran
        ]


def test_the_papers_binary_search_has_the_same_rivals() -> None:
    ran = _assert_laws(appendix_c("binary_search"))
    assert {one.planned.plan.solver.method for one in ran if one.planned} == {"binary_search"}


def test_every_plan_says_what_it_is_a_plan_for() -> None:
    for ran in compare(melange()):
        assert ran.planned is not None
        if not ran.strategy.own_market and ran.strategy.name != "disaggregated-only":
            assert ran.planned.problem == melange()


def _assert_laws(problem: Problem) -> Sequence[Ran]:
    ran = compare(problem)
    assert ran[0].planned is not None
    gap = problem.options.relative_gap + 1e-6
    for one in ran:
        name = one.strategy.name
        assert one.violations == (), name
        assert (one.planned is None) == (one.reason is not None), name
        if one.planned is None or one.strategy.own_market or one.planned.plan.value is None:
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
