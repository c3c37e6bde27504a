"""Whenever the time is up: there is a plan that holds, or it is said that none is known; nothing false is claimed."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pytest

from sutler.solver import Plan, Problem, solve
from sutler.solver.problem import ObjectiveKind
from sutler.solver.replanning.considering import consider
from sutler.solver.strategies.comparing import NotApplicableError, StrategyPlan
from sutler.solver.strategies.registry import strategies_of
from sutler.solver.verify import verify
from tests.builders import appendix_c, random_estimated_problem, random_problem
from tests.solver.banded_builders import known_or_guessed, random_banded_problem
from tests.solver.replanning.builders import FREE, a_running_fleet, consideration, with_demand
from tests.solver.strategies.strategy_builders import random_roles_case, slices_case

pytestmark = pytest.mark.slow

MOMENTS = 8  # of one solve


@dataclass
class Leaping:
    """A clock that stands still until it has been read so many times, and then is far beyond any limit."""

    leaps_after: float = float("inf")
    read: int = 0

    def __call__(self) -> float:
        self.read += 1
        return 0.0 if self.read <= self.leaps_after else 1e9


def moments(run: Callable[[Leaping], object]) -> Iterator[Leaping]:
    """Clocks that leap at moments all over what `run` does, the first and the last look included."""
    whole = Leaping()
    run(whole)
    for number in range(MOMENTS):
        yield Leaping(round(1 + number * (whole.read - 1) / (MOMENTS - 1)))


PROBLEMS: dict[str, Callable[[], Problem]] = {
    "exact": appendix_c,
    "binary search": lambda: appendix_c("binary_search"),
    "robust": lambda: random_banded_problem(3, "min_cost"),
    "given up": lambda: replace(
        known_or_guessed(), objective=replace(known_or_guessed().objective, give_up_fraction=0.1)
    ),
    "estimated": lambda: random_estimated_problem(11, "min_cost"),
    "min power": lambda: random_problem(7, "min_power", most_gpus=16),
    "roles": lambda: random_roles_case(2, "max_throughput"),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_plan_holds_whenever_the_time_is_up(name: str) -> None:
    problem = PROBLEMS[name]()
    best = solve(problem)
    for clock in moments(lambda clock: solve(problem, clock=clock)):
        plan = solve(problem, clock=clock)
        at = f"after {clock.leaps_after} looks at the clock"
        assert verify(problem, plan) == (), at
        assert plan.status in (best.status, "feasible", "unknown"), at
        assert not is_beyond(plan, best, problem), at


def is_beyond(plan: Plan, best: Plan, problem: Problem) -> bool:
    """Whether it claims to be better than the best, or proves that the best cannot be."""
    if plan.value is None or best.value is None or plan.bound is None or best.bound is None:
        return False
    sign = -1.0 if problem.objective.kind == "max_throughput" else 1.0
    room = 1e-6 * abs(best.value)
    return sign * plan.value < sign * best.bound - room or sign * plan.bound > sign * best.value + room


@pytest.mark.parametrize("name", [one.name for one in strategies_of(slices_case("min_cost"))])
def test_a_strategys_plan_holds_whenever_the_time_is_up(name: str) -> None:
    problem = slices_case("min_cost")
    strategy = next(one for one in strategies_of(problem) if one.name == name)

    def planned(clock: Leaping) -> StrategyPlan | None:
        try:
            return strategy.plan(problem, lambda: problem.options.time_limit_s - clock())
        except NotApplicableError:
            return None

    for clock in moments(planned):
        found = planned(clock)
        assert found is None or verify(found.problem, found.plan) == (), clock.leaps_after


@pytest.mark.parametrize("objective", ["min_cost", "max_throughput"])
def test_what_runs_can_be_kept_whenever_the_time_is_up(objective: ObjectiveKind) -> None:
    fleet = a_running_fleet(2, objective)
    assert fleet is not None
    problem, plan = fleet
    asked = consideration(with_demand(problem, 1.3), plan, None, None, FREE)
    for clock in moments(lambda clock: consider(asked, clock=clock)):
        found = consider(asked, clock=clock)
        at = f"after {clock.leaps_after} looks at the clock"
        assert found.options[0].kind == "keep", at
        for option in found.options[1:]:
            assert option.plan is not None, at
            assert verify(asked.problem, option.plan, is_standing=True) == (), at
