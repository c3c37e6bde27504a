"""Plans by the tree are those of HiGHS, whatever is asked of them; where it was not compiled they still are made."""

from typing import Any

import pytest

from sutler.solver import tree
from sutler.solver.problem import ObjectiveKind, Problem
from sutler.solver.tree import IS_BUILT, Outcome
from tests.looped import for_each
from tests.solver.tree.problems import FAMILIES, GAP, by_both, divisible, to_the_gap

OBJECTIVES: tuple[ObjectiveKind, ...] = ("max_throughput", "min_cost", "min_power")

pytestmark = pytest.mark.skipif(not IS_BUILT, reason="the tree was not compiled: `make install` where g++ is")


@pytest.mark.parametrize("family", FAMILIES)
@for_each("seed", [seed for seed in range(1, 25) if seed not in (15, 24)], quick=2)  # those only rate layouts
def test_values_are_the_same_with_the_tree_and_without(family: str, seed: int) -> None:
    _assert_same(divisible(FAMILIES[family](seed, OBJECTIVES[seed % len(OBJECTIVES)]), seed))


@pytest.mark.parametrize("family", FAMILIES)
@for_each("seed", range(1, 25), quick=2)
def test_values_are_the_same_where_machines_are_rented_whole(family: str, seed: int) -> None:
    _assert_same(to_the_gap(FAMILIES[family](seed, OBJECTIVES[seed % len(OBJECTIVES)])))


def _assert_same(problem: Problem) -> None:
    ours, theirs = by_both(problem)
    assert ours.status == theirs.status or (ours.status, theirs.status) == ("optimal", "feasible")  # within 2e-6
    if ours.value is None or theirs.value is None:
        assert ours.value == theirs.value
    else:
        assert ours.value == pytest.approx(theirs.value, rel=3 * GAP)


@pytest.mark.slow
def test_the_tree_is_what_searches_them(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    search = tree.search

    def counted(*given: Any, **options: Any) -> Outcome:
        calls.append(1)
        return search(*given, **options)

    monkeypatch.setattr(tree, "search", counted)
    for family in FAMILIES:
        before = len(calls)
        for seed in range(1, 5):
            by_both(divisible(FAMILIES[family](seed, "max_throughput"), seed))
        assert len(calls) > before, family
