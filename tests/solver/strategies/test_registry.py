"""Which strategies there are for a problem, and the comparison of them."""

from collections.abc import Sequence

import pytest

from sutler.solver.errors import PlanViolationError, UnknownNameError
from sutler.solver.problem import Problem, Search
from sutler.solver.progress import SecondsLeft
from sutler.solver.strategies import greedy
from sutler.solver.strategies.comparing import Ran, StrategyPlan, settings_beyond
from sutler.solver.strategies.registry import compare, strategies_of
from tests.builders import a_problem, an_offer, appendix_c, measured, melange
from tests.solver.planning_builders import about
from tests.solver.strategies.strategy_builders import two_models_case


def test_strategies_are_named_after_the_market() -> None:
    names = [strategy.name for strategy in strategies_of(appendix_c())]
    assert names[0] == "sutler"
    assert {f"homogeneous{kind}/{gpu}" for kind in ("", "-unlimited") for gpu in ("t1", "t2", "t3")} <= set(names)
    assert len(set(names)) == len(names)
    assert [s.name for s in strategies_of(appendix_c()) if s.own_market] == [
        f"homogeneous-unlimited/{gpu}" for gpu in ("t1", "t2", "t3")
    ]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], ["sutler"]),
        (["melange"], ["sutler", "melange"]),
        (["greedy-cheapest", "melange"], ["sutler", "melange", "greedy-cheapest"]),
        (["hexgen"], ["sutler", "hexgen/even", "hexgen/ours"]),
        (["greedy"], ["sutler", "greedy-cheapest"]),
        (["uniform-*"], ["sutler", "uniform-composition", "uniform-deployment"]),
        (["homogeneous/t*"], ["sutler", "homogeneous/t1", "homogeneous/t2", "homogeneous/t3"]),
        (["ablation"], ["sutler", "uniform-composition", "uniform-deployment", "round-robin-assignment"]),
        (["homogeneous/t1", "homogeneous/t?"], ["sutler", "homogeneous/t1", "homogeneous/t2", "homogeneous/t3"]),
    ],
)
def test_names_may_be_strategies_families_and_patterns(names: Sequence[str], expected: Sequence[str]) -> None:
    assert [ran.strategy.name for ran in compare(appendix_c(), names=names)] == expected


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="homogeneous/t9") as error:
        compare(appendix_c(), names=["homogeneous/t9"])
    assert "homogeneous/t1, " in error.value.remedy
    assert "ablation" in error.value.remedy


def test_ratios_say_how_much_better_sutler_is_whatever_is_asked() -> None:
    less_is_better = compare(appendix_c(), names=["homogeneous/t1"])
    assert less_is_better[0].ratio == 1.0
    assert less_is_better[1].ratio == about((80 + 20 / 1.2) / 2 / ((80 + 20 / 1.2) / 3.4))
    problem = a_problem(
        offers=[an_offer("a", available=2), an_offer("b")],
        rows=[measured("a", {"w1": 1.0}), measured("b", {"w1": 3.0})],
    )
    assert compare(problem, names=["homogeneous/a"])[1].ratio == about(5 / 2)


def test_free_fleets_are_as_good_as_each_other() -> None:
    free = a_problem(
        objective="min_cost", offers=[an_offer("a", price=0.0, available=2)], rows=[measured("a", {"w1": 1.0})]
    )
    assert {ran.ratio for ran in compare(free) if ran.planned and ran.planned.plan.value is not None} == {1.0}


@pytest.mark.parametrize(
    ("own", "callers", "settings"),
    [
        (Search(), Search(), ()),
        (Search(disaggregation="off"), Search(disaggregation="auto"), ()),
        (Search(disaggregation="only"), Search(disaggregation="auto"), ()),
        (Search(disaggregation="auto"), Search(disaggregation="off"), ("search.disaggregation: auto",)),
        (Search(disaggregation="off"), Search(disaggregation="only"), ("search.disaggregation: auto",)),
        (Search(power_caps_fraction=(0.5,)), Search(power_caps_fraction=(0.4, 0.5)), ()),
        (
            Search(power_caps_fraction=(0.5,)),
            Search(power_caps_fraction=(0.7,)),
            ("search.power_caps_fraction: [0.5, 0.7]",),
        ),
    ],
)
def test_settings_that_the_caller_lacks_are_those_that_allow_more(
    own: Search, callers: Search, settings: Sequence[str]
) -> None:
    assert settings_beyond(own, callers) == settings


@pytest.mark.slow
def test_what_may_do_more_than_sutler_is_told_by_its_problem() -> None:
    ran = {one.strategy.name: one.beyond for one in compare(two_models_case("min_cost"))}
    freer = {name for name, beyond in ran.items() if beyond}
    assert freer == {
        name for name in ran if name.startswith(("cauchy/", "splitwise/", "disaggregated", "hexgen/"))
    } - {
        "splitwise/hhcap"  # not applicable
    }
    assert {beyond for name, beyond in ran.items() if name.startswith("hexgen/")} == {("engine: any-layout",)}


def test_what_does_not_apply_says_why() -> None:
    problem = a_problem(offers=[an_offer("a")], rows=[measured("a", {"w1": 1.0})])
    ran = compare(problem, names=["homogeneous-unlimited"])[1]
    assert ran.planned is None
    assert ran.ratio is None
    assert ran.reason is not None
    assert "budget_usd_per_hour" in ran.reason


def test_what_has_no_plan_has_no_ratio() -> None:
    ran = compare(appendix_c(), names=["homogeneous/t1"])
    assert ran[1].ratio is not None
    small = a_problem(
        offers=[an_offer("a"), an_offer("b")], rows=[measured("a", {"w1": 1.0})], budget_usd_per_hour=1.0
    )
    ran = compare(small, names=["homogeneous/b"])
    assert ran[1].planned is not None
    assert ran[1].planned.plan.status == "infeasible"
    assert ran[1].ratio is None


def test_each_result_is_told_when_it_is_there_with_its_seconds() -> None:
    told: list[Ran] = []
    clock = iter(range(10**6))
    ran = compare(
        melange(), names=["melange"], clock=lambda: float(next(clock)), time_limit_s=1e5, on_ran=told.append
    )
    assert tuple(told) == ran
    assert all(one.seconds >= 1 for one in ran)


def test_the_time_limit_is_each_strategys_own() -> None:
    ran = compare(melange(), names=["homogeneous", "ablation", "aggregated", "greedy"], time_limit_s=1e-9)
    assert {one.planned.plan.status for one in ran if one.planned} <= {"unknown", "feasible", "optimal"}
    assert all(one.violations == () for one in ran)


def test_a_plan_that_is_wrong_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(problem: Problem, seconds_left: SecondsLeft) -> StrategyPlan:
        raise PlanViolationError(("cost_usd_per_hour: 1, expected 2",))

    monkeypatch.setattr(greedy, "plan", broken)
    ran = compare(melange(), names=["greedy"])[1]
    assert ran.planned is None
    assert ran.reason is not None
    assert ran.violations == ("cost_usd_per_hour: 1, expected 2",)
