"""Plans that survive losses: by hand, against a plain MILP with a routing per loss, and against all packings."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations_with_replacement, product
from random import Random
from typing import Any

import numpy as np
import pytest

from sutler.solver import solve
from sutler.solver.explanation.granting import granted
from sutler.solver.plan import Loss, Plan
from sutler.solver.problem import Limits, LossKind, ObjectiveKind, Offer, Problem, Resilience
from sutler.solver.strategies.registry import compare
from sutler.solver.verify import verify
from tests.builders import a_model, a_problem, a_workload, an_offer, measured, random_problem
from tests.looped import for_each
from tests.solver.brute_force import optimum
from tests.solver.planning_builders import about
from tests.solver.scenarios import least_value

GAP = 1e-4
KINDS: tuple[LossKind, ...] = ("provider", "place", "interruptible")
RATES = {"a": 5.0, "b": 3.0}


def surviving(problem: Problem, *survive: LossKind, load_fraction: float = 0.8) -> Problem:
    options = replace(problem.options, relative_gap=GAP, alternatives=False)
    return replace(problem, options=options, resilience=Resilience(survive, load_fraction))


def two_providers(**others: Any) -> Problem:
    """a serves 5 requests/s for 2 $/h at p and for 3 $/h at q."""
    offers = [
        an_offer("a", price=2.0, available=6, provider="p", offer_id="p"),
        an_offer("a", price=3.0, available=6, provider="q", offer_id="q"),
    ]
    return a_problem(offers=offers, rows=[measured("a", {"w1": 5.0})], **others)


def loss(plan: Plan, kind: LossKind, name: str | None = None) -> Loss:
    return next(one for one in plan.losses if one.kind == kind and name in (None, one.name))


def test_what_is_left_carries_the_share_and_costs_the_least() -> None:
    """10 requests/s need two of a. With 80 % of them to be carried without p, two have to be at q, and the other way
    round: 2 * 2 + 2 * 3 = 10 $/h in place of 4."""
    problem = two_providers(objective="min_cost", models=[a_model(a_workload(demand=10.0))])
    plan = solve(surviving(problem, "provider"))
    assert (plan.status, plan.value) == ("optimal", about(10.0))
    assert {(r.provider, r.count) for r in plan.rentals} == {("p", 2), ("q", 2)}
    assert loss(plan, "provider", "p").carried_fraction == about(1.0)
    assert {share.replica for share in loss(plan, "provider", "p").routing[0].shares} == {
        r.id for r in plan.replicas if plan.rentals[r.stages[0].rental].provider == "q"
    }


def test_half_of_the_load_takes_less_of_a_reserve() -> None:
    """5 of 10 requests/s are one a at either: one at p and one at q carry all, for 5 $/h."""
    problem = two_providers(objective="min_cost", models=[a_model(a_workload(demand=10.0))])
    assert solve(surviving(problem, "provider", load_fraction=0.5)).value == about(5.0)


def test_throughput_counts_as_far_as_it_is_carried_after_the_loss() -> None:
    """10 $/h buy two at each: 20 requests/s before, 10 after. At 80 % only 12.5 may be routed."""
    plan = solve(surviving(two_providers(budget_usd_per_hour=10.0), "provider"))
    assert (plan.status, plan.value) == ("optimal", about(12.5))


def test_headroom_is_not_carried_after_a_loss() -> None:
    """With headroom 100 % four of a carry 20; after the loss of p 8 of the 10 are enough, which two at q carry."""
    problem = two_providers(objective="min_cost", headroom_fraction=1.0, models=[a_model(a_workload(demand=10.0))])
    plan = solve(surviving(problem, "provider"))
    assert plan.value == about(2 * 2.0 + 2 * 3.0)


def test_every_plan_states_its_worst_losses_and_a_price_of_survival_is_right() -> None:
    problem = two_providers(objective="min_cost", models=[a_model(a_workload(demand=10.0))])
    plain = solve(problem)
    assert loss(plain, "provider").carried_fraction == 0.0
    assert loss(plain, "machine").carried_fraction == about(0.5)
    assert not any(one.routing for one in plain.losses)
    plan = solve(replace(problem, resilience=Resilience(("provider",), 0.8)))
    (free,) = [other for other in plan.alternatives if other.without == "resilience"]
    assert (free.value, free.rentals) == (plain.value, plain.rentals)


def test_a_reserve_may_idle() -> None:
    """Interruptible a are so cheap that they serve all; the reserve on demand serves nothing until they are gone."""
    offers = [
        an_offer("a", price=0.1, available=9, contract="interruptible", offer_id="spot"),
        an_offer("b", price=2.0, available=9, offer_id="sure"),
    ]
    rows = [measured("a", {"w1": 5.0, "w2": 5.0}), measured("b", {"w1": 4.0})]
    problem = a_problem(
        offers=offers,
        rows=rows,
        objective="min_cost",
        models=[a_model(a_workload("w1", demand=4.0))],
    )
    plan = solve(surviving(problem, "interruptible", load_fraction=1.0))
    assert plan.value == about(2.0)  # the reserve carries all, so that nothing else is needed
    apart = replace(problem, limits=Limits(max_share_per_contract_fraction={"on_demand": 0.01}))
    plan = solve(surviving(apart, "interruptible", load_fraction=1.0))
    assert plan.value == about(2.1)
    idle = [replica for replica in plan.replicas if replica.utilisation_fraction < 0.02]
    assert [plan.rentals[replica.stages[0].rental].offer_id for replica in idle] == ["sure"]
    assert loss(plan, "interruptible").carried_fraction == about(1.0)


def test_a_share_of_a_contract_holds_and_the_dearer_one_takes_the_rest() -> None:
    """Half of 20 requests/s on demand: two at 3 $/h, two interruptible at 1 $/h."""
    offers = [
        an_offer("a", price=1.0, available=9, contract="interruptible", offer_id="spot"),
        an_offer("a", price=3.0, available=9, offer_id="sure"),
    ]
    problem = a_problem(
        offers=offers,
        rows=[measured("a", {"w1": 5.0})],
        objective="min_cost",
        models=[a_model(a_workload(demand=20.0))],
        limits=Limits(max_share_per_contract_fraction={"interruptible": 0.5}),
    )
    plan = solve(problem)
    assert (plan.status, plan.value) == ("optimal", about(8.0))
    assert solve(replace(problem, limits=Limits())).value == about(4.0)


def test_a_model_has_its_least_number_of_replicas() -> None:
    problem = two_providers(objective="min_cost", models=[replace(a_model(a_workload(demand=1.0)), min_replicas=3)])
    plan = solve(problem)
    assert (plan.value, len(plan.replicas)) == (about(6.0), 3)
    assert verify(replace(problem, models=(replace(problem.models[0], min_replicas=4),)), plan) != ()


def spot_and_sure(least: int, *, sure: int = 9) -> Problem:
    """Two replicas carry the load; interruptible a cost 1, the same on demand 3 $/h."""
    model = replace(a_model(a_workload("w1", demand=10.0)), min_on_demand_replicas=least)
    offers = [
        an_offer("a", price=1.0, available=9, contract="interruptible", offer_id="spot"),
        an_offer("a", price=3.0, available=sure, offer_id="sure"),
    ]
    return a_problem(offers=offers, rows=[measured("a", {"w1": 5.0})], objective="min_cost", models=[model])


@pytest.mark.parametrize(("least", "usd"), [(0, 2.0), (1, 4.0), (2, 6.0), (3, 9.0)])
def test_a_floor_of_replicas_stands_on_machines_that_nobody_takes_away(least: int, usd: float) -> None:
    problem = spot_and_sure(least)
    plan = solve(problem)
    assert (plan.status, plan.value) == ("optimal", about(usd))
    sure = sum(rental.count for rental in plan.rentals if rental.offer_id == "sure")
    assert sure == least
    higher = replace(problem, models=(replace(problem.models[0], min_on_demand_replicas=least + 1),))
    assert verify(higher, plan) == (
        f"replicas: {least} of 'chat', expected at least min_on_demand_replicas {least + 1}",
    )


def test_a_floor_that_there_is_no_room_for_is_named() -> None:
    (conflict,) = solve(spot_and_sure(3, sure=2)).conflicts
    assert (conflict.constraint, conflict.needed, conflict.available) == (
        "limit/min_on_demand_replicas/chat",
        3.0,
        0.0,
    )
    assert "not interruptible" in conflict.remedy


def on_hosts(most: int | None, *, elsewhere: bool = True) -> Problem:
    """Three of a at host h for 1, 1 and 1.5 $/h, one at k for 2, and one whose host nobody states for 3."""
    placed_at = [(1.0, "h"), (1.0, "h"), (1.5, "h"), (2.0, "k"), (3.0, None), (3.0, None)]
    offers = [an_offer("a", price=usd, offer_id=f"o{i}", host_id=host) for i, (usd, host) in enumerate(placed_at)]
    return a_problem(
        offers=offers if elsewhere else offers[:4],
        rows=[measured("a", {"w1": 5.0})],
        objective="min_cost",
        models=[a_model(a_workload("w1", demand=13.0))],
        limits=Limits(max_machines_per_host=most),
    )


@pytest.mark.parametrize(("most", "usd"), [(None, 3.5), (3, 3.5), (2, 4.0), (1, 6.0)])
def test_no_host_has_more_machines_than_it_may(most: int | None, usd: float) -> None:
    plan = solve(on_hosts(most))
    assert (plan.status, plan.value) == ("optimal", about(usd))
    assert ("limit/max_machines_per_host/cloud/h" in {one.constraint for one in plan.binding}) == (usd > 3.5)
    at_h = sum(rental.count for rental in plan.rentals if rental.offer_id in ("o0", "o1", "o2"))
    less = replace(on_hosts(most), limits=Limits(max_machines_per_host=at_h - 1 or None))
    said = f"rentals: {at_h} machines on host 'cloud/h', expected at most max_machines_per_host {at_h - 1}"
    assert verify(less, plan) == ((said,) if at_h > 1 else ())


def test_a_limit_on_hosts_that_leaves_too_few_is_named_and_what_is_asked_for_is_enough() -> None:
    problem = on_hosts(1, elsewhere=False)
    plan = solve(problem)
    (conflict,) = plan.conflicts
    stated = (conflict.constraint, conflict.needed, conflict.available, conflict.unit)
    assert stated == ("limit/max_machines_per_host/cloud/h", 2.0, 1.0, "machine")
    changed = granted(problem, plan.conflicts)
    assert changed is not None
    assert solve(changed).status == "optimal"


@pytest.mark.parametrize("objective", ["max_throughput", "min_cost"])
@for_each("seed", range(20), quick=1)
def test_plans_spread_over_hosts_are_the_best_there_are(seed: int, objective: ObjectiveKind) -> None:
    problem, draw = random_problem(seed, objective), Random(seed)
    offers = tuple(
        offer if offer.machine_id else replace(offer, host_id=draw.choice(["h", "k", None]))
        for offer in problem.offers
    )
    problem = replace(
        problem, offers=offers, limits=replace(problem.limits, max_machines_per_host=draw.choice([1, 2]))
    )
    problem = replace(problem, options=replace(problem.options, relative_gap=GAP, alternatives=False))
    plan, best = solve(problem), optimum(problem)
    assert plan.status == ("infeasible" if best.value is None else "optimal")
    assert plan.value == (None if best.value is None else pytest.approx(best.value, rel=2 * GAP))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("objective", ["max_throughput", "min_cost"])
@for_each("seed", range(10), quick=2)
def test_value_and_bound_are_those_of_a_plain_program_with_a_routing_per_loss(
    seed: int, kind: LossKind, objective: ObjectiveKind
) -> None:
    problem = surviving(placed(random_problem(seed, objective, most_gpus=12), seed), kind, load_fraction=0.6)
    expected, plan = least_value(problem), solve(problem)
    if not np.isfinite(expected) or abs(expected) < GAP:
        assert plan.status == "infeasible"
        assert plan.conflicts
        return
    assert plan.status == "optimal"
    value, bound = in_program_units(problem, plan)
    assert value == pytest.approx(expected, rel=2 * GAP)
    assert bound <= expected + 2 * GAP * abs(expected)
    assert all(one.carried_fraction >= 0.6 - 1e-6 for one in plan.losses if one.kind == kind)


def placed(problem: Problem, seed: int) -> Problem:
    """Offers in one of two regions, some interruptible, with demands that can often be carried twice."""
    draw = Random(seed)
    offers = tuple(
        replace(
            offer,
            region=draw.choice(["r", "s"]),
            provider=draw.choice(["p", "q"]) if offer.machine_id is None and offer.site is None else offer.provider,
            contract=draw.choice(["on_demand", "interruptible"]) if offer.machine_id is None else offer.contract,
        )
        for offer in problem.offers
    )
    models = tuple(
        replace(model, workloads=tuple(replace(w, demand=w.demand * 0.4) for w in model.workloads))
        for model in problem.models
    )
    return replace(problem, offers=offers, models=models)


def in_program_units(problem: Problem, plan: Plan) -> tuple[float, float]:
    """Value and bound as the minimised goal has them."""
    assert plan.value is not None
    assert plan.bound is not None
    sign = -1.0 if problem.objective.maximises_rate else 1.0
    return sign * plan.value, sign * plan.bound


@pytest.mark.parametrize("objective", ["max_throughput", "min_cost"])
@for_each("seed", range(10), quick=2)
def test_the_loss_of_a_machine_against_every_packing(seed: int, objective: ObjectiveKind) -> None:
    draw = Random(seed)
    machines = [
        an_offer(draw.choice("ab"), draw.choice([1, 2, 4]), price=draw.choice([1.0, 1.5, 2.5, 4.0]), offer_id=f"m{i}")
        for i in range(draw.randint(3, 5))
    ]
    fraction = draw.choice([0.4, 0.6, 0.8])
    rows = [measured("a", {"w1": 2.0}), measured("a:2", {"w1": 5.0}), measured("b", {"w1": 3.0})]
    problem = a_problem(
        offers=machines,
        rows=rows,
        objective=objective,
        models=[a_model(a_workload(demand=4.0))],
        budget_usd_per_hour=draw.choice([6.0, 9.0]),
    )
    plan = solve(surviving(problem, "machine", load_fraction=fraction))
    best = best_of_all_packings(problem, machines, fraction)
    if best is None:
        assert plan.status == "infeasible"
        return
    sign = 1.0 if objective == "max_throughput" else -1.0
    assert plan.value is not None
    assert plan.bound is not None
    assert sign * plan.value <= sign * best + 1e-6
    assert sign * plan.bound >= sign * best - 1e-6
    assert plan.value == pytest.approx(best, rel=1e-3)


def best_of_all_packings(problem: Problem, machines: list[Offer], fraction: float) -> float | None:
    """The most requests/s, or the least cost for 4 of them, over everything that each machine may run."""
    best: float | None = None
    for contents in product(*(list(fillings(machine)) for machine in machines)):
        cost = sum(m.price_usd_per_hour for m, rate in zip(machines, contents, strict=True) if rate)
        if cost > (problem.budget_usd_per_hour or np.inf) + 1e-9 or not any(contents):
            continue
        left = sum(contents) - max(contents)
        if problem.objective.kind == "max_throughput":
            value = min(sum(contents), left / fraction)
            if value > 0 and (best is None or value > best):
                best = value
        elif sum(contents) >= 4.0 and left >= fraction * 4.0 - 1e-9 and (best is None or cost < best):
            best = cost
    return best


def fillings(machine: Offer) -> Iterator[float]:
    """Requests/s that a machine may serve: b one by one, a alone or in pairs."""
    if machine.gpu == "b":
        yield from {3.0 * count for count in range(machine.gpus + 1)}
        return
    found = {0.0}
    for pieces in range(1, machine.gpus + 1):
        for sizes in combinations_with_replacement((1, 2), pieces):
            if sum(sizes) <= machine.gpus:
                found.add(sum({1: 2.0, 2: 5.0}[size] for size in sizes))
    yield from found


def test_models_are_spread_so_that_no_machine_has_all_of_one() -> None:
    """Two models on two machines of two: one replica of each on both."""
    models = [a_model(a_workload("w1", demand=1.0), name="x"), a_model(a_workload("w1", demand=1.0), name="y")]
    rows = [measured("a", {"w1": 1.0}, model="x"), measured("a", {"w1": 1.0}, model="y")]
    problem = a_problem(
        offers=[an_offer("a", 2, price=2.0, available=2)], rows=rows, models=models, objective="min_cost"
    )
    plan = solve(surviving(problem, "machine", load_fraction=1.0))
    assert (plan.status, plan.value) == ("optimal", about(4.0))
    assert all(one.carried_fraction == about(1.0) for one in plan.losses if one.kind == "machine")
    on_machine = {number: {r.model for r in plan.replicas if r.stages[0].machine == number} for number in range(2)}
    assert on_machine == {0: {"x", "y"}, 1: {"x", "y"}}


def test_slices_that_state_one_machine_fall_together() -> None:
    offers = [
        an_offer("a", 1, price=1.0, offer_id=f"s{i}", machine_id="77", machine_gpus=2, gpu_ids=(i,)) for i in range(2)
    ] + [an_offer("a", 1, price=1.5, offer_id="other", available=2)]
    problem = a_problem(
        offers=offers,
        rows=[measured("a", {"w1": 5.0})],
        objective="min_cost",
        models=[a_model(a_workload(demand=8.0))],
    )
    plan = solve(surviving(problem, "machine", load_fraction=0.6))
    assert plan.value == about(2.5)
    assert {r.offer_id for r in plan.rentals} == {"s0", "other"} or {r.offer_id for r in plan.rentals} == {
        "s1",
        "other",
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda plan: replace(plan, losses=plan.losses[1:]), "losses: provider"),
        (lambda plan: replace(plan, losses=(replace(plan.losses[0], replicas=()), *plan.losses[1:])), "replicas"),
        (lambda plan: replace(plan, losses=(replace(plan.losses[0], routing=()), *plan.losses[1:])), "routing"),
        (
            lambda plan: replace(plan, losses=(replace(plan.losses[0], carried_fraction=0.5), *plan.losses[1:])),
            "carried_fraction",
        ),
        (lambda plan: replace(plan, losses=()), "losses: provider"),
    ],
)
def test_the_verifier_rejects_what_is_not_so(change: Any, said: str) -> None:
    problem = surviving(two_providers(objective="min_cost", models=[a_model(a_workload(demand=10.0))]), "provider")
    plan = solve(problem)
    assert verify(problem, plan) == ()
    assert plan.losses[0].kind == "provider"
    assert any(said in sentence for sentence in verify(problem, change(plan)))


def test_a_routing_that_overloads_what_is_left_is_rejected() -> None:
    problem = surviving(two_providers(objective="min_cost", models=[a_model(a_workload(demand=10.0))]), "provider")
    plan = solve(problem)
    first = next(one for one in plan.losses if one.kind == "provider")
    (route,) = first.routing
    skewed = tuple(replace(share, fraction=x) for share, x in zip(route.shares, (0.9, 0.1), strict=True))
    changed = replace(first, routing=(replace(route, shares=skewed),))
    losses = tuple(changed if one is first else one for one in plan.losses)
    assert any("has a load of" in sentence for sentence in verify(problem, replace(plan, losses=losses)))


@pytest.mark.parametrize("fraction", [0.3, 0.9])
def test_where_nothing_survives_the_conflict_says_how_much_does(fraction: float) -> None:
    """Six of a at p, one at q: without p no more than 5 of 20 requests/s are carried."""
    problem = two_providers(objective="min_cost", models=[a_model(a_workload(demand=20.0))])
    problem = replace(problem, offers=(problem.offers[0], replace(problem.offers[1], available=1)))
    plan = solve(surviving(problem, "provider", load_fraction=fraction))
    assert plan.status == "infeasible"
    [conflict] = plan.conflicts
    assert (conflict.constraint, conflict.needed) == ("resilience/load_fraction", about(fraction))
    assert conflict.available == pytest.approx(0.25, abs=fraction / 100)
    assert solve(surviving(problem, "provider", load_fraction=conflict.available)).status == "optimal"


def test_a_budget_that_is_too_small_for_a_reserve_is_what_is_asked_for() -> None:
    problem = two_providers(objective="min_cost", models=[a_model(a_workload(demand=10.0))], budget_usd_per_hour=5.0)
    plan = solve(surviving(problem, "provider"))
    assert [(c.constraint, c.needed) for c in plan.conflicts] == [("budget", about(10.0))]


def test_a_share_that_no_plan_keeps_to_is_named() -> None:
    offers = [an_offer("a", available=4, contract="interruptible")]
    problem = a_problem(
        offers=offers,
        rows=[measured("a", {"w1": 5.0})],
        objective="min_cost",
        models=[a_model(a_workload(demand=5.0))],
        limits=Limits(max_share_per_contract_fraction={"interruptible": 0.5}),
    )
    plan = solve(problem)
    [conflict] = plan.conflicts
    assert conflict.constraint == "limit/max_share_per_contract_fraction/interruptible"
    assert conflict.needed == pytest.approx(1.0, abs=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["provider", "machine"])
def test_rivals_survive_too_or_say_that_they_keep_no_reserve(kind: LossKind) -> None:
    problem = surviving(two_providers(objective="min_cost", models=[a_model(a_workload(demand=10.0))]), kind)
    ran = compare(problem)
    best = next(one.planned for one in ran if one.strategy.name == "sutler")
    assert best is not None
    planned = [one for one in ran if one.planned is not None and one.planned.plan.value is not None]
    for one in planned:
        assert one.planned is not None
        assert verify(one.planned.problem, one.planned.plan) == ()
        assert (one.planned.plan.value or 0.0) >= (best.plan.value or 0.0) * (1 - GAP)
    refused = {one.strategy.name for one in ran if one.planned is None}
    assert {"round-robin-assignment", "melange", "greedy-cheapest"} <= refused
    assert {"sutler", "homogeneous/a"} <= {one.strategy.name for one in planned}
