"""Cauchy's three allocators on combos that can be counted by hand."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from sutler.solver.plan import Plan
from sutler.solver.problem import MeasuredRate, ObjectiveKind, Offer, Problem, Search
from sutler.solver.strategies import cauchy
from sutler.solver.strategies.cauchy import Rule
from sutler.solver.strategies.combos import COUNTS
from sutler.solver.strategies.comparing import NotApplicableError
from sutler.solver.verify import verify
from tests.builders import a_model, a_problem, a_workload, an_offer, measured
from tests.solver.planning_builders import about, rented_gpus
from tests.solver.strategies.strategy_builders import in_roles, no_time, plenty_of_time

RULES: tuple[Rule, ...] = ("mce-lp", "mc-lp", "co-lp")


def on_network(gpu: str, price: float, site: str = "s", available: int = 9) -> Offer:
    return an_offer(gpu, price=price, available=available, site=site, inter_machine_gb_per_s=12.5)


def a_case(
    offers: Sequence[Offer], rows: Sequence[MeasuredRate], objective: ObjectiveKind = "min_cost", demand: float = 1.0
) -> Problem:
    workload = a_workload("w1", demand=demand, input_tokens=100.0, output_tokens=100.0)
    return a_problem(objective=objective, models=[a_model(workload)], offers=offers, rows=rows)


def working_example(demand: float = 0.8) -> Problem:
    """Section 3.3.2: a pair of A800 carries 0.82 requests/s for 1.09 $/h, a pair of H20 1.23 for 1.50 $/h.

    Apart from each other, so that these are the only combos. With 200 tokens a request, by eq. 14,
    A800: 0.82 * 200 * 3600 / 0.545 = 1.08 M tokens/$, H20: 1.23 * 200 * 3600 / 0.75 = 1.18 M tokens/$.
    """
    return a_case(
        [on_network("a800", 0.545, "s"), on_network("h20", 0.75, "t")],
        [*in_roles("a800", 0.82, 0.82), *in_roles("h20", 1.23, 1.23)],
        demand=demand,
    )


@pytest.mark.parametrize(
    ("rule", "usd_per_hour", "gpus"),
    [
        ("mce-lp", 1.50, {"h20": 2}),  # 1.18 M tokens/$ beat 1.08 M
        ("mc-lp", 1.09, {"a800": 2}),
        ("co-lp", 1.09, {"a800": 2}),  # P / C: 1.09 / 1.08 = 1.01 beats 1.50 / 1.18 = 1.27
    ],
)
def test_the_papers_residual_goodput(rule: Rule, usd_per_hour: float, gpus: dict[str, int]) -> None:
    plan = _verified(rule, working_example())
    assert plan.value == about(usd_per_hour)
    assert rented_gpus(plan) == gpus
    assert {transfer.fraction for transfer in plan.kv_transfers} == {1.0}


def test_price_over_efficiency_is_not_price() -> None:
    # 1.6 requests/s: two pairs of A800 carry 1.64 for 2.18 $/h and 2 * 1.01 of P / C. One and a half pairs of H20,
    # as 1:2 or 2:1, carry no more than one, 1.23; two for 3.00 $/h. A pair of each: 2.05 for 2.59 $/h.
    # At 0.6 $/h a GPU, 1.2 $/h a pair, H20 are 1.48 M tokens/$: P / C is 1.2 / 1.48 = 0.81 against 1.01.
    assert _verified("mc-lp", working_example(1.6)).value == about(2.18)
    cheap = working_example()
    cheap = replace(cheap, offers=(cheap.offers[0], replace(cheap.offers[1], price_usd_per_hour=0.6)))
    assert _verified("mc-lp", cheap).value == about(1.09)
    assert _verified("co-lp", cheap).value == about(1.20)


def test_a_combo_is_as_good_as_its_slower_side() -> None:
    # A prefill replica makes 6 caches/s, a decode replica takes 2: 1:3 is balanced. For 5/s it takes 1:3, four GPUs;
    # for 7/s two combos, the fewest GPUs 1:3 and 1:1; sutler's free pools need 2 and 4 there as well.
    rows = in_roles("a", 6.0, 2.0)
    assert _verified("mc-lp", a_case([on_network("a", 1.0)], rows, demand=5.0)).value == about(4.0)
    assert _verified("mc-lp", a_case([on_network("a", 1.0)], rows, demand=7.0)).value == about(6.0)


def test_there_are_no_more_than_two_prefill_and_six_decode_replicas_in_a_combo() -> None:
    # Decode is 20 times as slow: every combo has 6 decode replicas at most and one prefill replica. 12 requests/s at
    # 1/s a decode replica: two combos, 14 GPUs, where pools need one prefill replica for all.
    assert max(i for i, _ in COUNTS) == 2
    assert max(j for _, j in COUNTS) == 6
    problem = a_case([on_network("a", 1.0, available=20)], in_roles("a", 20.0, 1.0), demand=12.0)
    assert _verified("mc-lp", problem).value == about(14.0)


def test_requests_go_to_combos_in_proportion_to_goodput() -> None:
    # Both pairs are needed for 2 requests/s: 0.82 / 2.05 and 1.23 / 2.05 of it.
    problem = working_example(2.0)
    problem = replace(problem, offers=tuple(replace(offer, available=2) for offer in problem.offers))
    for rule in RULES:
        plan = _verified(rule, problem)
        assert sorted(share.fraction for share in plan.routing[0].shares) == [about(0.4), about(0.6)]
        assert plan.load_multiple == about(2.05 / 2)


def test_combos_of_one_network_hand_over_within_themselves_and_not_across() -> None:
    # a prefills on one network, b decodes on the other: nothing can be handed over.
    rows = [row for row in in_roles("a", 1.0, 1.0) if row.role == "prefill"]
    rows += [row for row in in_roles("b", 1.0, 1.0) if row.role == "decode"]
    problem = a_case([on_network("a", 1.0, "s"), on_network("b", 1.0, "t")], rows)
    assert cauchy.plan("mc-lp", problem, plenty_of_time).plan.status == "infeasible"
    together = replace(problem, offers=tuple(replace(offer, site="s") for offer in problem.offers))
    assert _verified("mc-lp", together).value == about(2.0)


def test_aggregated_replicas_are_combos_too_unless_roles_have_to_be_apart() -> None:
    # Aggregated a serves 1/s alone; apart two GPUs serve 1/s.
    rows = [measured("a", {"w1": 1.0}), *in_roles("a", 1.0, 1.0)]
    problem = a_case([on_network("a", 1.0)], rows)
    for rule in RULES:
        assert _verified(rule, problem).value == about(1.0)
        apart = replace(problem, search=Search(disaggregation="only"))
        assert _verified(rule, apart).value == about(2.0)


def test_every_workload_has_combos_of_its_own() -> None:
    # Half of a replica each: sutler serves both on one for 1 $/h.
    problem = a_problem(
        objective="min_cost",
        models=[a_model(a_workload("w1", demand=0.5), a_workload("w2", demand=0.5))],
        offers=[an_offer("a", price=1.0, available=4)],
        rows=[measured("a", {"w1": 1.0, "w2": 1.0})],
    )
    for rule in RULES:
        plan = _verified(rule, problem)
        assert plan.value == about(2.0)
        assert sorted(replica.utilisation_fraction for replica in plan.replicas) == [about(0.5), about(0.5)]


def test_the_best_degree_of_a_type_is_the_fastest_per_gpu() -> None:
    # 3/s on a pair is 1.5/s a GPU, alone 1/s: for 1 request/s Cauchy takes the pair.
    problem = a_case([an_offer("a", 4, price=4.0, divisible=True)], [measured("a", {"w1": 1.0})])
    problem = replace(problem, measured=(*problem.measured, measured("a:2", {"w1": 3.0})))
    assert _verified("mc-lp", problem).value == about(2.0)


@pytest.mark.parametrize("rule", RULES)
def test_a_budget_buys_the_combos_that_carry_the_most(rule: Rule) -> None:
    # 3.7 $/h: two pairs of A800 and one of H20 carry 2.87 for 3.68 $/h; one and one carry 2.05, two H20 2.46,
    # three A800 2.46. Of a makespan: 0.8 / 2.87 s.
    rich = replace(working_example(), budget_usd_per_hour=3.7)
    most = replace(rich, objective=replace(rich.objective, kind="max_throughput"))
    assert _verified(rule, most).value == about(2.87)
    soonest = replace(rich, objective=replace(rich.objective, kind="min_makespan"))
    assert _verified(rule, soonest).value == about(0.8 / 2.87)


def test_watts_take_the_place_of_prices_where_power_is_the_objective() -> None:
    # Pairs of 400 W GPUs, whatever they cost: H20 serve more per watt, and either one pair does.
    problem = working_example()
    problem = replace(problem, objective=replace(problem.objective, kind="min_power"))
    for rule in RULES:
        assert _verified(rule, problem).value == about(800.0)
    assert rented_gpus(_verified("co-lp", problem)) == {"h20": 2}


def test_of_two_directions_the_less_efficient_one_is_dropped() -> None:
    # a prefills and b decodes twice as fast as the other way round; only the first is a combo of both. With one b and
    # two a for rent, either way round could be had; a:b carries 2 requests/s, b:a only 1.
    rows = [*in_roles("a", 2.0, 1.0), *in_roles("b", 1.0, 2.0)]
    problem = a_case([on_network("a", 1.0, available=2), on_network("b", 1.0, available=1)], rows, demand=2.0)
    plan = _verified("mc-lp", problem)
    assert {r.role: r.stages[0].gpu for r in plan.replicas} == {"prefill": "a", "decode": "b"}


@pytest.mark.parametrize("rule", RULES)
def test_free_gpus_have_a_cost_efficiency(rule: Rule) -> None:
    problem = a_case([an_offer("a", price=0.0, available=2)], [measured("a", {"w1": 1.0})])
    assert _verified(rule, problem).value == 0.0


@pytest.mark.parametrize("rule", RULES)
def test_without_combos_for_the_load_it_is_infeasible_and_says_why(rule: Rule) -> None:
    # Each workload needs a GPU of its own, and there is one.
    problem = a_problem(
        objective="min_cost",
        models=[a_model(a_workload("w1", demand=0.5), a_workload("w2", demand=0.5))],
        offers=[an_offer("a")],
        rows=[measured("a", {"w1": 1.0, "w2": 1.0})],
    )
    plan = _verified(rule, problem)
    assert plan.status == "infeasible"
    assert [conflict.constraint for conflict in plan.conflicts] == [f"strategy/cauchy/{rule}"]


@pytest.mark.parametrize("rule", RULES)
def test_without_time_it_is_unknown(rule: Rule) -> None:
    plan = cauchy.plan(rule, working_example(), no_time).plan
    assert plan.status in ("unknown", "feasible")
    assert plan.solver.limit is not None


def test_limited_shares_of_providers_are_not_known_to_it() -> None:
    problem = working_example()
    limits = replace(problem.limits, max_share_per_provider_fraction=0.5)
    with pytest.raises(NotApplicableError, match="max_share_per_provider_fraction"):
        cauchy.plan("mc-lp", replace(problem, limits=limits), plenty_of_time)


def _verified(rule: Rule, problem: Problem) -> Plan:
    planned = cauchy.plan(rule, problem, plenty_of_time)
    assert verify(planned.problem, planned.plan) == ()
    return planned.plan
