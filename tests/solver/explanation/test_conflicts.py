"""What an infeasible plan says has to give: the right thing, by the right amount, and granting it is enough."""

from dataclasses import replace
from itertools import islice
from typing import Any

import pytest

from sutler.solver import solve
from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.explanation.conflicts import find_conflicts
from sutler.solver.explanation.granting import granted
from sutler.solver.plan import Conflict
from sutler.solver.problem import LatencyLimit, Limits, Objective, ObjectiveKind, Offer, Problem, Search
from sutler.solver.verify import verify
from tests.builders import (
    OBJECTIVES,
    a_gpu,
    a_model,
    a_problem,
    a_workload,
    an_offer,
    measured,
    random_problem,
)
from tests.looped import for_each
from tests.solver.explanation.remedies import infeasible_problems, judged
from tests.solver.planning_builders import about

CARDS = load_gpus()


def conflicts_of(problem: Problem) -> dict[str, Conflict]:
    plan = solve(problem)
    assert plan.status == "infeasible"
    assert plan.value is None
    assert plan.rentals == ()
    assert len({conflict.constraint for conflict in plan.conflicts}) == len(plan.conflicts)
    return {conflict.constraint: conflict for conflict in plan.conflicts}


def the_conflict(problem: Problem) -> Conflict:
    (conflict,) = conflicts_of(problem).values()
    return conflict


def has_a_plan(problem: Problem) -> bool:
    plan = solve(problem)
    return plan.status == "optimal" and verify(problem, plan) == ()


def with_all(problem: Problem) -> Problem:
    """With all that its plan asks for."""
    changed = granted(problem, conflicts_of(problem).values())
    assert changed is not None
    return changed


def one_gpu_market(**others: Any) -> Problem:
    """An a of 300 W for 2 $/h that serves 1 req/s."""
    return a_problem(
        offers=[an_offer("a", price=2.0, available=2)],
        rows=[measured("a", {"w1": 1.0})],
        gpus=[a_gpu("a", tdp_watts=300.0)],
        **others,
    )


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_a_budget_below_the_cheapest_replica_names_its_price(objective: ObjectiveKind) -> None:
    problem = one_gpu_market(objective=objective, budget_usd_per_hour=1.5)
    conflict = the_conflict(problem)
    assert (conflict.constraint, conflict.unit) == ("budget", "usd_per_hour")
    assert (conflict.needed, conflict.available) == (about(2.0), 1.5)
    assert "budget_usd_per_hour" in conflict.remedy
    assert has_a_plan(replace(problem, budget_usd_per_hour=conflict.needed))


def test_the_budget_needed_pays_for_every_workload() -> None:
    """w1 runs on a at 2 $/h or on b at 5 $/h, w2 on b alone: b for both at 5 $/h, not 2 + 5."""
    problem = a_problem(
        models=[a_model(a_workload("w1"), a_workload("w2"))],
        offers=[an_offer("a", price=2.0), an_offer("b", price=5.0)],
        rows=[measured("a", {"w1": 1.0}), measured("b", {"w1": 1.0, "w2": 1.0})],
        budget_usd_per_hour=4.0,
    )
    conflict = the_conflict(problem)
    assert conflict.needed == about(5.0)
    assert has_a_plan(replace(problem, budget_usd_per_hour=conflict.needed))


def two_models(*offers: Offer, **others: Any) -> Problem:
    """Two models that cannot share a replica, each on one a."""
    models = [a_model(name="chat"), a_model(name="code")]
    rows = [measured("a", {"w1": 1.0}, model.name) for model in models]
    return a_problem(offers=offers, models=models, rows=rows, gpus=[a_gpu("a", tdp_watts=300.0)], **others)


def test_the_budget_needed_pays_for_every_model() -> None:
    """1 $/h for the first a and 1.5 for the second."""
    offers = [an_offer("a"), an_offer("a", price=1.5, offer_id="dear")]
    problem = two_models(*offers, budget_usd_per_hour=2.0)
    conflict = the_conflict(problem)
    assert (conflict.constraint, conflict.needed) == ("budget", about(2.5))
    assert has_a_plan(replace(problem, budget_usd_per_hour=conflict.needed))


def test_a_market_too_small_for_every_model_names_the_supply() -> None:
    problem = two_models(an_offer("a"))
    conflict = the_conflict(problem)
    assert conflict.constraint.startswith("supply/a@")
    assert (conflict.needed, conflict.available, conflict.unit) == (about(2.0), 1.0, "gpu")
    assert has_a_plan(replace(problem, offers=(an_offer("a", available=2),)))


@pytest.mark.parametrize(
    ("limits", "name", "needed", "available", "unit", "granted"),
    [
        (Limits(max_gpus={"a": 1}), "max_gpus/a", 2.0, 1.0, "gpu", Limits(max_gpus={"a": 2})),
        (
            Limits(max_gpus_per_provider={"cloud": 1}),
            "max_gpus_per_provider/cloud",
            2.0,
            1.0,
            "gpu",
            Limits(max_gpus_per_provider={"cloud": 2}),
        ),
        (Limits(max_power_watts=500.0), "max_power_watts", 600.0, 500.0, "watt", Limits(max_power_watts=600.0)),
    ],
    ids=["gpus", "gpus of a provider", "watts"],
)
def test_a_limit_below_the_smallest_fleet_is_named(
    limits: Limits, name: str, needed: float, available: float, unit: str, granted: Limits
) -> None:
    """Two models need two a of 300 W."""
    problem = two_models(an_offer("a", available=5), limits=limits)
    conflict = the_conflict(problem)
    assert (conflict.constraint, conflict.unit) == (f"limit/{name}", unit)
    assert (conflict.needed, conflict.available) == (about(needed), available)
    assert name.partition("/")[0] in conflict.remedy
    assert has_a_plan(replace(problem, limits=granted))


def test_everything_that_has_to_give_is_named_at_once() -> None:
    """Two a at 2 $/h and 300 W each against 3 $/h and 500 W."""
    problem = two_models(
        an_offer("a", price=2.0, available=5), budget_usd_per_hour=3.0, limits=Limits(max_power_watts=500.0)
    )
    conflicts = conflicts_of(problem)
    assert set(conflicts) == {"budget", "limit/max_power_watts"}
    granted = replace(
        problem,
        budget_usd_per_hour=conflicts["budget"].needed,
        limits=Limits(max_power_watts=conflicts["limit/max_power_watts"].needed),
    )
    assert has_a_plan(granted)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_where_gpus_may_be_capped_less_power_is_asked_for(objective: ObjectiveKind) -> None:
    """One card of 700 W serves everything at half of that; money is short, watts are not at 400."""
    problem = a_problem(
        objective=objective,
        models=[a_model(a_workload(input_tokens=1000.0, output_tokens=100.0), spec=load_models()["llama-3.1-8b"])],
        offers=[an_offer("h100-sxm", price=2.0)],
        gpus=[CARDS["h100-sxm"]],
        measured_only=False,
        search=Search(power_caps_fraction=(0.5,)),
        limits=Limits(max_power_watts=300.0),
    )
    conflict = the_conflict(problem)
    assert (conflict.constraint, conflict.needed) == ("limit/max_power_watts", about(350.0))
    assert has_a_plan(replace(problem, limits=Limits(max_power_watts=350.0)))
    poor = replace(problem, limits=Limits(max_power_watts=400.0), budget_usd_per_hour=1.0)
    assert set(conflicts_of(poor)) == {"budget"}


@pytest.mark.parametrize(("objective", "headroom"), [("min_cost", 0.0), ("min_cost", 0.5), ("min_power", 0.25)])
def test_a_demand_beyond_the_market_says_how_much_can_be_carried(objective: ObjectiveKind, headroom: float) -> None:
    """Two a carry 2 req/s at a mix of 2 to 1; 3 (1 + headroom) req/s are asked for."""
    problem = a_problem(
        objective=objective,
        headroom_fraction=headroom,
        models=[a_model(a_workload("w1", demand=2.0), a_workload("w2", demand=1.0))],
        offers=[an_offer("a", available=2)],
        rows=[measured("a", {"w1": 1.0, "w2": 1.0})],
    )
    conflicts = conflicts_of(problem)
    assert set(conflicts) == {"demand/chat/w1", "demand/chat/w2"}
    first, second = conflicts["demand/chat/w1"], conflicts["demand/chat/w2"]
    assert (first.needed, first.available, first.unit) == (2 * (1 + headroom), about(4 / 3, rel=1e-3), "rps")
    assert (second.needed, second.available) == (1 + headroom, about(2 / 3, rel=1e-3))
    lowered = [
        a_workload("w1", demand=first.available / (1 + headroom) * 0.999),
        a_workload("w2", demand=second.available / (1 + headroom) * 0.999),
    ]
    assert has_a_plan(replace(problem, models=(a_model(*lowered),)))


def test_a_budget_that_runs_every_model_but_not_all_of_the_demand_is_what_all_of_it_costs() -> None:
    """3 $/h rent one a of 1 req/s; 1.5 req/s would take two for 4 $/h."""
    problem = one_gpu_market(objective="min_cost", models=[a_model(a_workload(demand=1.5))], budget_usd_per_hour=3.0)
    conflict = the_conflict(problem)
    assert (conflict.constraint, conflict.needed, conflict.available) == ("budget", about(4.0), about(3.0))
    assert has_a_plan(replace(problem, budget_usd_per_hour=4.0))
    assert has_a_plan(replace(problem, models=(a_model(a_workload(demand=1.0)),)))


def test_a_workload_without_a_measured_rate_is_named() -> None:
    problem = a_problem(
        models=[a_model(a_workload("w1"), a_workload("w2"))],
        offers=[an_offer("a")],
        rows=[measured("a", {"w1": 1.0})],
    )
    conflict = the_conflict(problem)
    assert (conflict.constraint, conflict.available) == ("demand/chat/w2", 0.0)
    assert "throughput.table" in conflict.remedy
    assert has_a_plan(replace(problem, measured=(measured("a", {"w1": 1.0, "w2": 1.0}),)))


def test_a_measured_pipeline_of_two_types_without_a_network_is_named() -> None:
    rows = [measured(["a", "b"], {"w1": 1.0})]
    apart = [an_offer("a"), an_offer("b")]
    assert the_conflict(a_problem(offers=apart, rows=rows)).constraint == "demand/chat/w1"
    together = [replace(offer, site="s", inter_machine_gb_per_s=12.5) for offer in apart]
    assert has_a_plan(a_problem(offers=together, rows=rows))


def estimated(name: str, *offers: Offer, **others: Any) -> Problem:
    return a_problem(
        offers=offers,
        models=[a_model(a_workload(), spec=load_models()[name], **others)],
        gpus=[CARDS[offer.gpu] for offer in offers],
        measured_only=False,
    )


@pytest.mark.parametrize(
    "limit", [LatencyLimit("ttft", 90, 0.002), LatencyLimit("tpot", 50, 0.002), LatencyLimit("e2e", 99, 0.02)]
)
def test_a_latency_limit_that_nothing_meets_names_one_that_something_does(limit: LatencyLimit) -> None:
    problem = estimated("llama-3.1-8b", an_offer("h100-sxm", price=2.0), slo=(limit,))
    conflict = the_conflict(problem)
    assert conflict.constraint == f"limit/slo/chat/{limit.metric}_p{limit.percentile}_s"
    assert (conflict.available, conflict.unit) == (limit.seconds, "s")
    assert conflict.needed > limit.seconds
    looser = replace(limit, seconds=conflict.needed)
    assert has_a_plan(replace(problem, models=(replace(problem.models[0], slo=(looser,)),)))


@pytest.mark.slow
def test_of_many_workloads_that_nothing_serves_the_longest_are_explained() -> None:
    """Else each of a thousand would be a dozen searches; granting what the longest need serves the others, too."""
    lengths = [(100.0 * number, 50.0) for number in range(1, 21)]
    workloads = [a_workload(f"w{n}", input_tokens=i, output_tokens=o) for n, (i, o) in enumerate(lengths)]
    model = a_model(*workloads, spec=load_models()["llama-3.1-8b"], slo=[LatencyLimit("ttft", 90, 0.001)])
    problem = a_problem(models=[model], offers=[an_offer("h100-sxm")], gpus=[CARDS["h100-sxm"]], measured_only=False)
    conflict = the_conflict(problem)
    assert "serves demand/chat/w19 " in conflict.remedy
    assert "14 other workloads" in conflict.remedy
    granted = replace(model, slo=(LatencyLimit("ttft", 90, conflict.needed),))
    assert has_a_plan(replace(problem, models=(granted,)))


def test_of_two_latency_limits_the_impossible_one_is_named() -> None:
    slo = (LatencyLimit("ttft", 90, 5.0), LatencyLimit("tpot", 90, 1e-4))
    conflict = the_conflict(estimated("llama-3.1-8b", an_offer("h100-sxm", price=2.0), slo=slo))
    assert conflict.constraint == "limit/slo/chat/tpot_p90_s"


def test_weights_that_fit_nowhere_name_the_memory() -> None:
    """70.6e9 parameters at two bytes are 141 GB; one card here has 24."""
    conflict = the_conflict(estimated("llama-3-70b", an_offer("rtx-4090")))
    assert conflict.constraint == "demand/chat/w1"
    assert conflict.unit == "GB of GPU memory in one machine"
    assert (conflict.needed, conflict.available) == (about(141.1, rel=0.01), 24.0)
    assert has_a_plan(estimated("llama-3-70b", an_offer("rtx-4090", 8, price=3.0)))


def test_a_checkpoint_that_fits_no_disk_names_the_disk() -> None:
    """141 GB and a tenth more, on machines of 100 GB."""
    problem = estimated("llama-3-70b", an_offer("h100-sxm", 8, price=16.0, disk_gb=100.0))
    conflict = the_conflict(problem)
    assert (conflict.unit, conflict.available) == ("GB of disk", 100.0)
    assert conflict.needed == about(141.1 * 1.1, rel=0.01)
    granted = replace(problem.offers[0], disk_gb=conflict.needed)
    assert has_a_plan(replace(problem, offers=(granted,)))


def test_a_request_whose_cache_fits_nowhere_names_its_tokens() -> None:
    """llama-3.1-8b keeps 131 kB a token: 60,000 tokens are 7.9 GB, which a card of 24 GB lacks beside 16 GB."""
    problem = estimated("llama-3.1-8b", an_offer("rtx-4090"))
    long = replace(problem, models=(replace(problem.models[0], workloads=(a_workload(input_tokens=60e3),)),))
    conflict = the_conflict(long)
    assert (conflict.unit, conflict.needed) == ("tokens per request", about(60_200.0))
    assert 0 < conflict.available < conflict.needed
    assert has_a_plan(with_all(long))
    barely = replace(conflict, available=conflict.available * 1.015)
    assert not has_a_plan(granted(long, [barely]) or long)


def test_a_share_that_a_single_provider_cannot_keep_is_named() -> None:
    problem = one_gpu_market(limits=Limits(max_share_per_provider_fraction=0.5))
    conflict = the_conflict(problem)
    assert conflict.constraint == "limit/max_share_per_provider_fraction"
    assert (conflict.needed, conflict.available) == (1.0, 0.5)
    assert has_a_plan(replace(problem, limits=Limits(max_share_per_provider_fraction=conflict.needed)))


def test_no_offer_that_the_budget_could_ever_pay_for_still_ends_in_a_conflict() -> None:
    problem = two_models(an_offer("a", 4, price=400.0), budget_usd_per_hour=1.0)
    assert "budget" in conflicts_of(problem)


def test_a_share_is_asked_for_no_higher_than_the_supply_of_the_others_makes_it() -> None:
    """4 req/s: p has three GPUs of 1 req/s each and q one, so that p takes three quarters."""
    offers = [an_offer("a", available=3, provider="p"), an_offer("a", provider="q", offer_id="other")]
    problem = one_gpu_market(
        objective="min_cost",
        models=[a_model(a_workload(demand=4.0))],
        limits=Limits(max_share_per_provider_fraction=0.6),
    )
    problem = replace(problem, offers=tuple(offers))
    conflict = the_conflict(problem)
    assert conflict.constraint == "limit/max_share_per_provider_fraction"
    assert 0.75 <= conflict.needed < 0.76
    assert has_a_plan(with_all(problem))


def test_where_a_share_is_what_is_in_the_way_no_money_is_asked_for() -> None:
    """q would cost 20 $/h for half of 2 req/s; 6 $/h pay for all of it at p."""
    offers = [
        an_offer("a", available=2, price=2.0, provider="p"),
        an_offer("a", available=2, price=20.0, provider="q", offer_id="dear"),
    ]
    problem = one_gpu_market(
        objective="min_cost",
        models=[a_model(a_workload(demand=2.0))],
        limits=Limits(max_share_per_provider_fraction=0.5),
        budget_usd_per_hour=6.0,
    )
    problem = replace(problem, offers=tuple(offers))
    assert the_conflict(problem).constraint == "limit/max_share_per_provider_fraction"
    assert has_a_plan(with_all(problem))


def test_of_two_ways_out_the_nearer_is_named() -> None:
    """2 req/s: a second a for 2 $/h more than the budget of 3, or one more b than allowed, which is twice as many."""
    problem = a_problem(
        objective="min_cost",
        models=[a_model(a_workload(demand=2.0))],
        offers=[an_offer("a", price=2.0, available=2), an_offer("b", price=0.5, available=2)],
        rows=[measured("a", {"w1": 1.0}), measured("b", {"w1": 1.0})],
        limits=Limits(max_gpus={"b": 0}),
        budget_usd_per_hour=3.0,
    )
    conflict = the_conflict(problem)
    assert (conflict.constraint, conflict.needed) == ("budget", about(4.0))


def test_a_load_that_just_lacks_headroom_is_told_how_much_there_is_room_for() -> None:
    problem = one_gpu_market(
        objective="min_cost",
        headroom_fraction=0.5,
        models=[a_model(a_workload(demand=1.6))],
        budget_usd_per_hour=100.0,
    )
    conflict = the_conflict(problem)
    assert (conflict.constraint, conflict.needed, conflict.available) == ("headroom", 0.5, about(0.25, rel=1e-3))
    assert has_a_plan(with_all(problem))


def test_a_market_that_cannot_carry_the_load_is_not_answered_with_money() -> None:
    """Two GPUs at 2 $/h carry 2 of 3 req/s; the budget pays for one."""
    problem = one_gpu_market(objective="min_cost", models=[a_model(a_workload(demand=3.0))], budget_usd_per_hour=3.0)
    conflict = the_conflict(problem)
    assert (conflict.constraint, conflict.available) == ("demand/chat/w1", about(1.0, rel=1e-3))
    assert "budget" not in conflict.remedy
    assert has_a_plan(with_all(problem))


def test_replicas_that_are_used_too_little_are_to_be_used_more() -> None:
    problem = one_gpu_market(
        objective="min_cost",
        models=[a_model(a_workload(demand=1.5))],
        limits=Limits(max_utilisation_fraction=0.5),
    )
    conflict = the_conflict(problem)
    assert conflict.constraint == "limit/max_utilisation_fraction"
    assert 0.75 <= conflict.needed < 0.76
    assert has_a_plan(with_all(problem))


def test_what_comes_after_a_latency_limit_is_said_at_once() -> None:
    problem = estimated("llama-3.1-8b", an_offer("h100-sxm", price=2.0), slo=(LatencyLimit("tpot", 50, 0.002),))
    problem = replace(problem, budget_usd_per_hour=1.0)
    assert set(conflicts_of(problem)) == {"budget", "limit/slo/chat/tpot_p50_s"}
    assert has_a_plan(with_all(problem))


@pytest.mark.slow
def test_of_two_limits_that_are_too_short_each_is_loosened_by_what_it_takes() -> None:
    slo = (LatencyLimit("ttft", 90, 0.005), LatencyLimit("tpot", 90, 1e-4))
    problem = estimated("llama-3.1-8b", an_offer("h100-sxm", price=2.0), slo=slo)
    conflicts = conflicts_of(problem)
    assert len(conflicts) == 2
    assert has_a_plan(with_all(problem))
    for one in conflicts.values():
        less = [replace(c, needed=c.needed * 0.985) if c == one else c for c in conflicts.values()]
        assert not has_a_plan(granted(problem, less) or problem)


def test_what_is_no_number_of_the_problem_cannot_be_granted() -> None:
    problem = estimated("llama-3-70b", an_offer("rtx-4090"))
    assert granted(problem, conflicts_of(problem).values()) is None


def test_values_have_as_many_digits_as_people_read_and_are_still_enough() -> None:
    problem = a_problem(
        objective="min_cost",
        models=[a_model(a_workload(demand=3.0))],
        offers=[an_offer("a", price=1.23456, available=3)],
        rows=[measured("a", {"w1": 1.0})],
        budget_usd_per_hour=1.0,
    )
    assert the_conflict(problem).needed == 3.704
    assert has_a_plan(with_all(problem))


def test_where_time_runs_out_the_answer_still_has_an_entry() -> None:
    problem = one_gpu_market(budget_usd_per_hour=1.5)
    assert find_conflicts(problem, lambda: 0.0)


@pytest.mark.parametrize(
    ("rates", "seed", "count"),
    [
        ("measured", 1000, 3),
        ("measured", 3000, 4),
        *(pytest.param(*long, marks=pytest.mark.slow) for long in (("measured", 0, 3), ("estimated", 40, 2))),
    ],
)
def test_granting_what_is_asked_for_is_enough_and_less_is_not(rates: str, seed: int, count: int) -> None:
    """`python -m benchmarks.remedies` judges hundreds."""
    problems = infeasible_problems(seed, estimated=rates == "estimated")
    verdicts = [judged(problem) for problem in islice(problems, count)]
    for verdict in verdicts:
        assert verdict.conflicts
        assert all(c.needed > c.available and c.remedy for c in verdict.conflicts)
    changed = [verdict for verdict in verdicts if verdict.changed]
    assert len(changed) >= count / 2
    assert all(verdict.enough for verdict in changed)
    assert sum(verdict.least for verdict in changed) >= 0.9 * len(changed)


@pytest.mark.slow
@for_each("seed", range(1, 60, 6))
def test_a_budget_is_asked_for_to_the_cent(seed: int) -> None:
    """One cent less than what the conflict asks for still has no plan."""
    problem = replace(random_problem(seed), limits=Limits(), objective=Objective("max_throughput"))
    poor = replace(problem, budget_usd_per_hour=0.01)
    plan = solve(poor)
    names = {conflict.constraint: conflict for conflict in plan.conflicts}
    if set(names) != {"budget"}:
        assert plan.status == "infeasible"
        assert solve(replace(problem, budget_usd_per_hour=None)).status == "infeasible"
        return
    needed = names["budget"].needed
    assert solve(replace(problem, budget_usd_per_hour=needed)).status == "optimal"
    assert solve(replace(problem, budget_usd_per_hour=needed - 0.01)).status == "infeasible"
