"""Strategies with rules of their own, on cases that can be worked out by hand."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from sutler.solver import planner
from sutler.solver.plan import Plan
from sutler.solver.polytope.rows import Polytope
from sutler.solver.problem import ObjectiveKind, Problem, Resilience, Search
from sutler.solver.progress import SecondsLeft
from sutler.solver.strategies import greedy, hexgen, melange, round_robin, spot_hedge, uniform_deployment
from sutler.solver.strategies.comparing import NotApplicableError, StrategyPlan
from sutler.solver.strategies.registry import compare
from sutler.solver.verify import verify
from tests.builders import (
    a_model,
    a_problem,
    a_workload,
    an_offer,
    appendix_c,
    measured,
)
from tests.solver.planning_builders import about, rented_gpus, replicas_by_layout
from tests.solver.strategies.strategy_builders import no_time, plenty_of_time, slices_case

BLIND = (round_robin.plan, hexgen.plan_even, hexgen.plan_ours, melange.plan, greedy.plan)
RULES = (*BLIND, uniform_deployment.plan)


def two_specialists(objective: ObjectiveKind = "max_throughput", **others: object) -> Problem:
    """One card each of a, 3/s of w1 and 1/s of w2, and b, the other way round; as many requests of w1 as of w2.

    The best plan sends each kind to its specialist: 3 + 3 = 6 requests/s.
    """
    return a_problem(
        objective=objective,
        models=[a_model(a_workload("w1", demand=1.0), a_workload("w2", demand=1.0))],
        offers=[an_offer("a", available=1), an_offer("b", available=1)],
        rows=[measured("a", {"w1": 3.0, "w2": 1.0}), measured("b", {"w1": 1.0, "w2": 3.0})],
        **others,  # type: ignore[arg-type]
    )


def test_round_robin_gives_specialists_half_of_everything() -> None:
    # Each card gets a quarter of lam as w1 and a quarter as w2: lam (1/4/3 + 1/4/1) = 1, lam = 3.
    plan = _verified(round_robin.plan(two_specialists(), plenty_of_time))
    assert plan.value == about(3.0)
    assert {share.fraction for route in plan.routing for share in route.shares} == {0.5}
    assert plan.bound == about(6.0)
    assert plan.status == "feasible"


def test_round_robin_spares_replicas_that_cannot_serve_a_workload() -> None:
    # b serves w2 alone, so that a gets all of w1 and half of w2: lam (1/2/2 + 1/4/2) = 1, lam = 8/3.
    problem = replace(two_specialists(), measured=(measured("a", {"w1": 2.0, "w2": 2.0}), measured("b", {"w2": 2.0})))
    assert _verified(round_robin.plan(problem, plenty_of_time)).value == about(8 / 3)


def test_round_robin_buys_more_until_the_load_is_carried() -> None:
    # 3 + 3 requests/s: sutler's a and b for 2 $/h carry half of that when everything is spread evenly. n of each
    # carry 3 n, so two of each are needed (any four cards carry 6: on each lam/8 of w1 and of w2 take lam/6).
    problem = two_specialists("min_cost")
    problem = replace(
        problem,
        models=(a_model(a_workload("w1", demand=3.0), a_workload("w2", demand=3.0)),),
        offers=tuple(replace(offer, available=9) for offer in problem.offers),
    )
    plan = _verified(round_robin.plan(problem, plenty_of_time))
    assert plan.value == about(4.0)
    assert plan.load_multiple is not None
    assert plan.load_multiple >= 1 - 1e-9


def test_hexgen_sees_requests_of_one_kind() -> None:
    # A mean request takes (1/3 + 1/1) / 2 = 2/3 s on either card: 1.5 requests/s each, half of everything each.
    plan = _verified(hexgen.plan_ours(two_specialists(), plenty_of_time))
    assert plan.value == about(3.0)
    assert _verified(hexgen.plan_even(two_specialists(), plenty_of_time)).value == about(3.0)


def test_hexgen_deploys_given_gpus_for_the_mean_request() -> None:
    # Appendix C on sutler's t1 and two t2: of the mix t1 serves 1/(0.8/1 + 0.2/1.2) = 1.03448/s, a pair of t2
    # 1/(0.8/2.4 + 0.2/1.5) = 2.14286/s, two alone 1.8/s. Routed by capacity the pair and t1 take 100 requests in
    # 100 / 3.17734 s.
    mix_t1, mix_pair = 1 / (0.8 + 0.2 / 1.2), 1 / (0.8 / 2.4 + 0.2 / 1.5)
    plan = _verified(hexgen.plan_ours(appendix_c(), plenty_of_time))
    assert plan.value == about(100 / (mix_t1 + mix_pair))
    assert replicas_by_layout(plan) == {"t1:1": 1, "t2:2": 1}
    # On one of each t3 adds 1/(0.8/0.3 + 0.2/0.5) and t2 alone 0.9.
    even = _verified(hexgen.plan_even(appendix_c(), plenty_of_time))
    assert even.value == about(100 / (mix_t1 + 0.9 + 1 / (0.8 / 0.3 + 0.2 / 0.5)))


def test_hexgen_deploys_nothing_that_fails_some_requests() -> None:
    # b does not serve w1: a alone serves the mix, 1/(0.5/3 + 0.5/1) requests/s.
    problem = replace(two_specialists(), measured=(measured("a", {"w1": 3.0, "w2": 1.0}), measured("b", {"w2": 3.0})))
    plan = _verified(hexgen.plan_even(problem, plenty_of_time))
    assert plan.value == about(1.5)
    assert rented_gpus(plan) == {"a": 1}


@pytest.mark.slow
def test_hexgen_for_the_least_cost_gets_gpus_until_it_carries_the_load() -> None:
    # 3 + 3 requests/s at 1.5/s of the mix a card: four cards.
    problem = two_specialists("min_cost")
    problem = replace(
        problem,
        models=(a_model(a_workload("w1", demand=3.0), a_workload("w2", demand=3.0)),),
        offers=tuple(replace(offer, available=9) for offer in problem.offers),
    )
    assert _verified(hexgen.plan_ours(problem, plenty_of_time)).value == about(4.0)
    assert rented_gpus(_verified(hexgen.plan_even(problem, plenty_of_time))) == {"a": 2, "b": 2}


def test_melange_packs_whole_slices() -> None:
    # The planning model's example: with slices of a quarter of each workload the best is 5.72 $/h, where fractions
    # give 5.58 $/h (Mélange's own release ends at 5.75).
    four = _verified(melange.plan(slices_case("min_cost"), plenty_of_time, slice_factor=4))
    assert four.value == about(5.72)
    many = _verified(melange.plan(slices_case("min_cost"), plenty_of_time, slice_factor=200))
    assert many.value == about(5.58)


def test_melange_cannot_split_a_slice() -> None:
    # 8 slices of 0.25 requests/s where a serves 1/s and b 0.45/s: a holds 4 slices, b one (0.5 would be 1.1 of it).
    # Two a at 1 $/h carry it all, as do a and four b at 0.2 $/h for 1.8 $/h, where fractions need a and three b.
    problem = a_problem(
        objective="min_cost",
        models=[a_model(a_workload("w1", demand=2.0))],
        offers=[an_offer("a", price=1.0, available=9), an_offer("b", price=0.2, available=3)],
        rows=[measured("a", {"w1": 1.0}), measured("b", {"w1": 0.45})],
    )
    # b: at most three, 1.35/s together, which is 5 slices of 0.25 and 0.1 to spare: a for the other three, 1.6 $/h.
    assert _verified(melange.plan(problem, plenty_of_time)).value == about(1.6)
    # In two slices of 1 request/s b needs 3 for one: 0.6 + 1 $/h; in one slice two a are the only way.
    assert _verified(melange.plan(problem, plenty_of_time, slice_factor=1)).value == about(2.0)


def test_melange_finds_the_largest_load_for_its_budget() -> None:
    # One a at 1 $/h takes k of 8 slices, one b at 0.5 $/h the rest: lam k/8 <= 2 and lam (8 - k)/8 <= 1. Best k = 5:
    # lam = min(16/5, 8/3) = 8/3, where fractions carry 3.
    problem = a_problem(
        offers=[an_offer("a", price=1.0), an_offer("b", price=0.5)],
        rows=[measured("a", {"w1": 2.0}), measured("b", {"w1": 1.0})],
        budget_usd_per_hour=1.5,
    )
    assert _verified(melange.plan(problem, plenty_of_time)).value == about(8 / 3, rel=1e-3)


def test_melange_profiles_one_machine_without_pipeline_for_each_type() -> None:
    # Per GPU the pair serves 1.5/s, the four 1.2/s and the pipeline 2/s: pairs it is, two of them on 4 GPUs.
    problem = a_problem(
        offers=[an_offer("a", 4, price=4.0)],
        rows=[measured("a:2", {"w1": 3.0}), measured("a:4", {"w1": 4.8}), measured(["a", "a"], {"w1": 4.0})],
    )
    plan = _verified(melange.plan(problem, plenty_of_time))
    assert replicas_by_layout(plan) == {"a:2": 2}
    assert plan.value == about(6.0, rel=1e-3)


def test_greedy_takes_the_best_value_first_and_keeps_it() -> None:
    # $ per request/s: a 1/2, b 2.2/4. For 5 requests/s three a cost 3 $/h and a with b 3.2 $/h; with only one a for
    # rent, greedy has a and b (3.2 $/h), as the best plan; at 4 requests/s b alone would have done for 2.2 $/h.
    problem = a_problem(
        objective="min_cost",
        models=[a_model(a_workload("w1", demand=4.0))],
        offers=[an_offer("a", price=1.0, available=1), an_offer("b", price=2.2, available=5)],
        rows=[measured("a", {"w1": 2.0}), measured("b", {"w1": 4.0})],
    )
    plan = _verified(greedy.plan(problem, plenty_of_time))
    assert rented_gpus(plan) == {"a": 1, "b": 1}
    assert plan.value == about(3.2)


def test_greedy_spends_the_budget_as_far_as_something_fits() -> None:
    # 5 $/h: two a at 2 $/h and 3/s, then only b at 1 $/h and 1/s fits.
    problem = a_problem(
        offers=[an_offer("a", price=2.0, available=9), an_offer("b", price=1.0, available=9)],
        rows=[measured("a", {"w1": 3.0}), measured("b", {"w1": 1.0})],
        budget_usd_per_hour=5.0,
    )
    plan = _verified(greedy.plan(problem, plenty_of_time))
    assert rented_gpus(plan) == {"a": 2, "b": 1}
    assert plan.value == about(7.0)


def test_greedy_fills_a_rented_machine_before_it_rents_another() -> None:
    # Pairs of a at 4 $/h and 6/s on machines of 8 at 16 $/h: for 20/s four pairs on one machine.
    problem = a_problem(
        objective="min_cost",
        models=[a_model(a_workload("w1", demand=20.0))],
        offers=[an_offer("a", 8, price=16.0, available=3)],
        rows=[measured("a:2", {"w1": 6.0})],
    )
    plan = _verified(greedy.plan(problem, plenty_of_time))
    assert replicas_by_layout(plan) == {"a:2": 4}
    assert plan.value == about(16.0)


def test_greedy_grows_the_model_that_lags_behind() -> None:
    # chat 4/s and code 2/s of a card, as many requests of each: for every chat two code, 4/s + 4/s on three cards.
    problem = a_problem(
        models=[a_model(a_workload("w1"), name="chat"), a_model(a_workload("w1"), name="code")],
        offers=[an_offer("a", available=3)],
        rows=[measured("a", {"w1": 4.0}, "chat"), measured("a", {"w1": 2.0}, "code")],
    )
    plan = _verified(greedy.plan(problem, plenty_of_time))
    assert plan.value == about(8.0)
    assert sorted(replica.model for replica in plan.replicas) == ["chat", "code", "code"]


def test_greedy_counts_watts_where_power_is_the_objective() -> None:
    # a: 400 W for 2/s, b: 400 W for 3/s at ten times the price.
    problem = a_problem(
        objective="min_power",
        models=[a_model(a_workload("w1", demand=6.0))],
        offers=[an_offer("a", price=1.0, available=9), an_offer("b", price=10.0, available=9)],
        rows=[measured("a", {"w1": 2.0}), measured("b", {"w1": 3.0})],
    )
    assert _verified(greedy.plan(problem, plenty_of_time)).value == about(800.0)


def spot_in_places(available: int, *, objective: ObjectiveKind = "min_cost") -> Problem:
    """Three places with interruptible cards of 5 requests/s at 1, 1.1 and 1.2 $/h, and the same on demand for 3."""
    places = [
        an_offer("a", price=price, available=available, contract="interruptible", region=region, offer_id=region)
        for region, price in (("east", 1.0), ("north", 1.1), ("west", 1.2))
    ]
    return a_problem(
        objective=objective,
        models=[a_model(a_workload("w", demand=20.0))],
        offers=[*places, an_offer("a", price=3.0, available=9, offer_id="sure")],
        rows=[measured("a", {"w": 5.0})],
        budget_usd_per_hour=None if objective == "min_cost" else 9.0,
    )


@pytest.mark.parametrize(
    ("available", "rented"),
    [
        (9, {"east": 2, "north": 2, "west": 2}),
        (1, {"east": 1, "north": 1, "west": 1, "sure": 3}),
    ],
)
def test_spot_hedge_has_two_replicas_to_spare_over_all_places_and_fills_up_on_demand(
    available: int, rented: dict[str, int]
) -> None:
    plan = _verified(spot_hedge.plan(spot_in_places(available), plenty_of_time))
    assert {rental.offer_id: rental.count for rental in plan.rentals} == rented


def test_spot_hedge_needs_a_load_and_interruptible_machines() -> None:
    with pytest.raises(NotApplicableError, match="use min_cost"):
        spot_hedge.plan(spot_in_places(9, objective="max_throughput"), plenty_of_time)
    sure = spot_in_places(9).offers[-1:]
    with pytest.raises(NotApplicableError, match="interruptible"):
        spot_hedge.plan(replace(spot_in_places(9), offers=sure), plenty_of_time)


def test_spot_hedge_is_told_apart_from_a_plan_that_has_to_survive() -> None:
    problem = replace(spot_in_places(9), resilience=Resilience(("place",), 0.9))
    ours, hedge = compare(problem, names=["spot-hedge"])
    assert (ours.beyond, hedge.beyond) == ((), ("resilience.survive: []",))


def test_uniform_deployment_has_one_degree_and_no_pipelines() -> None:
    # Appendix C without pairs: one t1 and two t2 for 8 $/h, w2 on t1 first: 20/1.2 s, then everybody w1:
    # 80 = 1.8 T + (T - 20/1.2). Pairs alone take 46.67 s.
    plan = _verified(uniform_deployment.plan(appendix_c(), plenty_of_time))
    assert plan.value == about((80 + 20 / 1.2) / 2.8)
    assert plan.status == "optimal"


@pytest.mark.parametrize("most_combinations", [64, 1])
def test_every_model_has_a_degree_of_its_own(most_combinations: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # On 4 GPUs chat is best as a pair, code alone: 3 requests/s on one pair and 3/s each on the two left. So it is
    # when each has all four for itself: 6/s on pairs against 4/s, 12/s alone against 10/s.
    monkeypatch.setattr(uniform_deployment, "_MOST_COMBINATIONS", most_combinations)
    problem = a_problem(
        models=[
            a_model(a_workload("w1", demand=1.0), name="chat"),
            a_model(a_workload("w1", demand=2.0), name="code"),
        ],
        offers=[an_offer("a", 4, price=4.0)],
        rows=[
            measured("a", {"w1": 1.0}, "chat"),
            measured("a:2", {"w1": 3.0}, "chat"),
            measured("a", {"w1": 3.0}, "code"),
            measured("a:2", {"w1": 5.0}, "code"),
            measured(["a:2", "a:2"], {"w1": 99.0}, "code"),
        ],
    )
    plan = _verified(uniform_deployment.plan(problem, plenty_of_time))
    assert plan.value == about(9.0)
    assert replicas_by_layout(plan) == {"a:2": 1, "a:1": 2}


def test_a_model_that_only_runs_as_a_pipeline_is_infeasible_under_uniform_deployment() -> None:
    problem = a_problem(offers=[an_offer("a", 2)], rows=[measured(["a", "a"], {"w1": 1.0})])
    plan = _verified(uniform_deployment.plan(problem, plenty_of_time))
    assert plan.status == "infeasible"
    assert [c.constraint for c in plan.conflicts] == ["strategy/uniform-deployment"]


@pytest.mark.parametrize("rule", BLIND)
def test_rules_of_routing_know_no_shares_of_providers(rule: "_Rule") -> None:
    problem = two_specialists()
    limits = replace(problem.limits, max_share_per_provider_fraction=0.5)
    with pytest.raises(NotApplicableError, match="max_share_per_provider_fraction"):
        rule(replace(problem, limits=limits), plenty_of_time)


@pytest.mark.parametrize("rule", BLIND)
def test_rules_know_no_replicas_for_prefill_alone(rule: "_Rule") -> None:
    with pytest.raises(NotApplicableError, match=r"search\.disaggregation"):
        rule(two_specialists(search=Search(disaggregation="only")), plenty_of_time)


@pytest.mark.parametrize("rule", RULES)
def test_a_problem_without_a_plan_has_none_by_any_rule_and_says_why(rule: "_Rule") -> None:
    plan = _verified(rule(two_specialists(budget_usd_per_hour=0.5), plenty_of_time))
    assert plan.status == "infeasible"
    assert plan.conflicts[0].constraint == "budget"


@pytest.mark.parametrize("objective", ["min_cost", "min_power"])
@pytest.mark.parametrize("rule", [round_robin.plan, hexgen.plan_even, hexgen.plan_ours, greedy.plan])
def test_a_load_that_only_the_best_routing_carries_is_infeasible(rule: "_Rule", objective: ObjectiveKind) -> None:
    # The two specialists carry 3 + 3 requests/s, and 1.5 + 1.5 when each gets half of everything.
    problem = two_specialists(objective)
    problem = replace(problem, models=(a_model(a_workload("w1", demand=3.0), a_workload("w2", demand=3.0)),))
    plan = _verified(rule(problem, plenty_of_time))
    assert plan.status == "infeasible"
    assert [(c.needed, round(c.available, 6)) for c in plan.conflicts] == [(1.0, 0.5)]


@pytest.mark.parametrize("rule", RULES)
def test_without_time_the_answer_is_unknown(rule: "_Rule") -> None:
    plan = rule(appendix_c(), no_time).plan
    assert plan.status in ("unknown", "feasible")
    assert plan.solver.limit is not None


@pytest.mark.parametrize("rule", [round_robin.plan, hexgen.plan_ours])
def test_a_search_for_a_fleet_that_the_time_limit_ended_is_reported(
    rule: "_Rule", monkeypatch: pytest.MonkeyPatch
) -> None:
    search = planner.search

    def interrupted(run: planner.SolveRun, polytope: Polytope) -> object:
        run.end_early()
        return search(run, polytope)

    monkeypatch.setattr(planner, "search", interrupted)
    assert rule(two_specialists("min_cost"), plenty_of_time).plan.solver.limit == "time limit of 30 s"


_Rule = Callable[[Problem, SecondsLeft], StrategyPlan]


def _verified(planned: StrategyPlan) -> Plan:
    assert verify(planned.problem, planned.plan) == ()
    return planned.plan
