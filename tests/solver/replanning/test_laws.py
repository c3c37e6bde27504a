"""Laws of replanning that hold for every market: checked on random ones, on which a plan runs and things change."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from sutler.solver import solve
from sutler.solver.plan import Plan
from sutler.solver.problem import Limits, ObjectiveKind
from sutler.solver.replanning import (
    HoldingKey,
    StepLimits,
    Switching,
    consider,
    holding_key,
    holdings_of,
    standing_of,
)
from sutler.solver.verify import verify
from tests.builders import random_problem
from tests.looped import for_each
from tests.solver.replanning.builders import (
    FREE,
    ROLES_FROM,
    Look,
    a_look,
    a_running_fleet,
    consideration,
    considered,
    left_for_rent,
    machines_of,
    places_of,
    some_switching,
    without,
)

OBJECTIVES: tuple[ObjectiveKind, ...] = ("max_throughput", "min_makespan", "min_cost", "min_power")
PRICED: tuple[ObjectiveKind, ...] = ("min_cost", "min_power")
USD = 1e-6
SEARCH_GAP = 0.006  # what the solver's own gaps leave: 0.1 % of the first phase, 0.5 % of the finish
TWO_GAPS = 0.004

seeds = st.integers(min_value=0, max_value=24) | st.integers(min_value=ROLES_FROM, max_value=ROLES_FROM + 24)
objectives = st.sampled_from(OBJECTIVES)
law = settings(derandomize=True, max_examples=6, database=None, suppress_health_check=list(HealthCheck))


def looked(seed: int, objective: ObjectiveKind, *, is_free: bool = False) -> Look:
    look = a_look(seed, objective, is_free=is_free)
    assume(look is not None)
    assert look is not None
    return look


def rented(plan: Plan, *, held: bool) -> Counter[HoldingKey]:
    machines: Counter[HoldingKey] = Counter()
    for rental in plan.rentals:
        if rental.held == held:
            machines[holding_key(rental)] += rental.count
    return machines


@pytest.mark.slow
@given(seeds, objectives)
@law
def test_what_is_called_valid_passes_the_check_that_knows_no_solver(seed: int, objective: ObjectiveKind) -> None:
    look = looked(seed, objective)
    for option in look.found.options:
        if option.plan is not None:
            violations = verify(look.on_market, option.plan, is_standing=True)
            assert option.is_valid == (violations == ()), (option.kind, violations)
            assert option.is_valid or option.kind in ("keep", "reroute")


@pytest.mark.slow
@given(seeds, objectives, st.sampled_from([StepLimits(0.3, 1), StepLimits(0.2, None, 1.0), StepLimits(None, 1)]))
@law
def test_a_step_holds_and_is_within_its_limits_unless_more_is_needed(
    seed: int, objective: ObjectiveKind, limits: StepLimits
) -> None:
    look = looked(seed, objective)
    question = consideration(look.problem, look.plan, look.holdings, look.market, look.switching)
    found = consider(replace(question, limits=limits))
    is_needed = not (found.keep.carries and found.keep.is_valid)
    for option in found.options:
        if option.plan is not None and option.kind in ("relayout", "refleet"):
            assert verify(look.on_market, option.plan, is_standing=True) == ()
            assert is_needed or limits.allow(question.standing.replicas, option.plan)


@pytest.mark.slow
@given(seeds)
@law
def test_each_step_of_disruption_carries_at_least_as_much_and_no_more_than_the_bound(seed: int) -> None:
    """keep <= reroute <= relayout <= refleet <= bound, where changes cost nothing."""
    valid = [option for option in looked(seed, "max_throughput", is_free=True).found.options if option.is_valid]
    for less, more in pairwise(valid):
        assert more.capacity_rps >= less.capacity_rps * (1 - TWO_GAPS), (less.kind, more.kind)
    for option in valid:
        if option.plan is not None and option.plan.bound is not None:
            assert option.capacity_rps <= option.plan.bound * (1 + USD)


@given(seeds, objectives)
@law
def test_no_option_uses_more_machines_than_are_held_or_for_rent(seed: int, objective: ObjectiveKind) -> None:
    look = looked(seed, objective)
    have = {holding.key: holding.count for holding in look.holdings}
    gpus: Counter[str] = Counter()
    for offer in left_for_rent(look.market, look.holdings):
        gpus[offer.offer_id] += offer.gpus * offer.available
    for option in look.found.options:
        if option.plan is None:
            continue
        assert all(count <= have.get(key, 0) for key, count in rented(option.plan, held=True).items()), option.kind
        wanted: Counter[str] = Counter()
        for (_, offer_id, _, size), count in rented(option.plan, held=False).items():
            wanted[offer_id] += size * count
        assert all(count <= gpus[offer_id] for offer_id, count in wanted.items()), option.kind


@given(seeds, objectives)
@law
def test_replicas_that_run_on_keep_their_name_place_and_engine(seed: int, objective: ObjectiveKind) -> None:
    look = looked(seed, objective)
    before, engines = places_of(look.plan), {replica.id: replica for replica in look.plan.replicas}
    for option in look.found.options:
        if option.plan is None:
            continue
        for name, stages in places_of(option.plan).items():
            if name not in before:
                continue
            assert [(offer, gpus) for offer, _, gpus in stages] == [(o, gpus) for o, _, gpus in before[name]]
            assert all(held for _, held, _ in stages)
            after = next(replica for replica in option.plan.replicas if replica.id == name)
            assert after.role == engines[name].role
            assert after.engine_args == engines[name].engine_args
            assert after.engine_env == engines[name].engine_env
            assert after.max_batch == engines[name].max_batch


@pytest.mark.slow
@given(seeds, objectives)
@law
def test_money_is_what_separates_an_options_benefit_from_its_net(seed: int, objective: ObjectiveKind) -> None:
    look = looked(seed, objective)
    horizon_h, weight = look.switching.horizon_s / 3600, look.switching.weight
    for option in look.found.options:
        expected = option.benefit_usd_per_hour * horizon_h - weight * option.change.usd
        assert option.net_usd == pytest.approx(expected)
        assert option.change.usd >= 0
        if option.kind in ("keep", "reroute"):
            assert option.change.is_none
        if option.kind == "relayout":
            assert option.change.started == 0


@given(seeds, objectives)
@law
def test_what_a_change_counts_is_what_differs_between_the_fleets(seed: int, objective: ObjectiveKind) -> None:
    look = looked(seed, objective)
    standing = standing_of(look.plan, look.holdings)
    running = {replica.id for replica in standing.replicas}
    held: Counter[HoldingKey] = Counter()
    for rental in standing.rentals:
        held[holding_key(rental)] += rental.count
    for option in look.found.options[1:]:
        assert option.plan is not None
        new = [replica for replica in option.plan.replicas if replica.id not in running]
        on_held = [r for r in new if any(option.plan.rentals[stage.rental].held for stage in r.stages)]
        assert option.change.started == sum(rented(option.plan, held=False).values())
        assert option.change.stopped == sum((held - rented(option.plan, held=True)).values()), option.kind
        assert option.change.restarted == len(on_held)


@given(seeds, objectives, st.booleans())
@law
def test_a_plan_that_was_just_made_cannot_be_improved(seed: int, objective: ObjectiveKind, is_free: bool) -> None:
    running = a_running_fleet(seed, objective)
    assume(running is not None)
    assert running is not None
    problem, plan = running
    switching = FREE if is_free else some_switching(Random(seed), problem, plan)
    found = considered(problem, plan, switching=switching)
    assert found.keep.carries
    assert found.keep.is_valid
    worth = max(found.keep.cost_usd_per_hour, switching.usd_per_rps * found.keep.capacity_rps)
    for option in found.options[1:]:
        assert option.net_usd <= SEARCH_GAP * worth * switching.horizon_h, option.kind


@pytest.mark.slow
@given(seeds, objectives)
@law
def test_a_change_that_was_made_is_not_made_again(seed: int, objective: ObjectiveKind) -> None:
    """The best option is carried out; on what is left of the market nothing is better then."""
    look = looked(seed, objective)
    best = look.found.option("refleet") or look.found.options[-1]
    assume(best.plan is not None and best.carries)
    assert best.plan is not None
    left = left_for_rent(look.market, look.holdings)
    again = considered(look.problem, best.plan, market=left, switching=look.switching)
    assert again.keep.capacity_rps == pytest.approx(best.capacity_rps, rel=1e-6)
    worth = max(again.keep.cost_usd_per_hour, look.switching.usd_per_rps * again.keep.capacity_rps)
    for option in again.options[1:]:
        assert option.net_usd <= SEARCH_GAP * worth * look.switching.horizon_h, option.kind


@pytest.mark.slow
@given(seeds, st.integers(min_value=0, max_value=5))
@law
def test_a_lost_machine_takes_from_what_is_carried_what_its_replicas_carried(seed: int, which: int) -> None:
    """With one workload, whose shares fall to the other replicas in proportion to what they take."""
    market = random_problem(seed)
    model = replace(market.models[0], workloads=market.models[0].workloads[:1])
    rows = tuple(row for row in market.measured if row.model == model.name and row.rps.get("w0"))
    assume(rows)
    problem = replace(market, models=(model,), measured=rows, limits=Limits())
    plan = solve(problem)
    holdings = holdings_of(plan.rentals)
    assume(sum(holding.count for holding in holdings) > 1)
    left = without(plan, {holdings[which % len(holdings)].key[1]: 1})
    found = considered(problem, plan, holdings=left, market=[])
    standing = {replica.id for replica in standing_of(plan, left).replicas}
    carried = {replica.id: sum(rate.rps for rate in replica.throughput_rps) for replica in plan.replicas}
    assert len(standing) < len(plan.replicas)
    assert found.keep.capacity_rps == pytest.approx(sum(carried[name] for name in standing), rel=1e-6)


@pytest.mark.slow
@given(seeds, objectives, st.integers(min_value=0, max_value=5))
@law
def test_fewer_machines_never_carry_more(seed: int, objective: ObjectiveKind, which: int) -> None:
    running = a_running_fleet(seed, objective)
    assume(running is not None)
    assert running is not None
    problem, plan = running
    problem = replace(problem, limits=Limits())
    holdings = holdings_of(plan.rentals)
    assume(sum(holding.count for holding in holdings) > 1)
    left = without(plan, {holdings[which % len(holdings)].key[1]: 1})
    whole = considered(problem, plan, market=[])
    most_rps = max(option.capacity_rps for option in whole.options)
    for option in considered(problem, plan, holdings=left, market=[]).options:
        assert option.capacity_rps <= most_rps * (1 + TWO_GAPS), option.kind


@given(seeds, st.sampled_from(PRICED), st.sampled_from([60.0, 1800.0]))
@law
def test_where_machines_start_for_longer_than_the_horizon_none_is_worth_it(
    seed: int, objective: ObjectiveKind, startup_s: float
) -> None:
    running = a_running_fleet(seed, objective)
    assume(running is not None)
    assert running is not None
    problem, plan = running
    market = [replace(offer, price_usd_per_hour=offer.price_usd_per_hour * 0.9) for offer in problem.offers]
    found = considered(problem, plan, market=market, switching=Switching(startup_s=startup_s, horizon_s=60.0))
    for option in found.options[1:]:
        if option.change.started:
            assert option.net_usd <= USD, option.change


@given(seeds, objectives)
@law
def test_below_what_is_worth_doing_nothing_is_sought(seed: int, objective: ObjectiveKind) -> None:
    running = a_running_fleet(seed, objective)
    assume(running is not None)
    assert running is not None
    problem, plan = running
    found = considered(problem, plan, least_net_usd=float("inf"), is_urgent=False)
    assert not found.searched
    assert {option.kind for option in found.options} <= {"keep", "reroute"}


@pytest.mark.slow
def test_random_markets_bring_options_of_every_kind() -> None:
    """Else the laws above would say little."""
    looks = [a_look(seed, OBJECTIVES[seed % 4]) for seed in range(16)]
    found = [look.found for look in looks if look is not None]
    kinds = Counter(option.kind for each in found for option in each.options)
    assert set(kinds) == {"keep", "reroute", "relayout", "refleet"}
    assert sum(each.keep.carries for each in found) >= 8
    assert sum(not each.keep.carries for each in found) >= 3


@pytest.mark.slow
def test_random_markets_with_roles_bring_fleets_with_roles() -> None:
    looks = [a_look(ROLES_FROM + seed, OBJECTIVES[seed % 4]) for seed in range(25)]
    before = [bool(look.plan.kv_transfers) for look in looks if look is not None]
    after = [option.plan for look in looks if look is not None for option in look.found.options]
    assert sum(before) >= 5
    kinds = {option.kind for look in looks if look is not None for option in look.found.options}
    assert kinds >= {"keep", "reroute", "refleet"}
    assert sum(plan is not None and len(plan.kv_transfers) > 0 for plan in after) >= 6


@pytest.mark.slow
@given(st.integers(min_value=ROLES_FROM, max_value=ROLES_FROM + 24), objectives)
@law
def test_where_nothing_has_changed_what_is_handed_over_stays_as_it_is(seed: int, objective: ObjectiveKind) -> None:
    running = a_running_fleet(seed, objective)
    assume(running is not None)
    assert running is not None
    problem, plan = running
    kept = considered(problem, plan).keep.plan
    assert kept is not None
    assert {(t.workload, t.prefill, t.decode) for t in kept.kv_transfers} == {
        (t.workload, t.prefill, t.decode) for t in plan.kv_transfers
    }
    assert [t.fraction for t in kept.kv_transfers] == pytest.approx([t.fraction for t in plan.kv_transfers])
    assert len(kept.combos) == len(plan.combos)


@for_each("seed", [10, ROLES_FROM + 10])
def test_the_same_facts_bring_the_same_options(seed: int) -> None:
    look = a_look(seed, "min_cost")
    assert look is not None
    again = considered(look.problem, look.plan, holdings=look.holdings, market=look.market, switching=look.switching)
    assert [option.kind for option in again.options] == [option.kind for option in look.found.options]
    for one, other in zip(again.options, look.found.options, strict=True):
        assert machines_of(one.plan) == machines_of(other.plan)
        assert one.net_usd == other.net_usd
        if one.plan and other.plan:
            assert (one.plan.replicas, one.plan.routing) == (other.plan.replicas, other.plan.routing)
            assert one.plan.kv_transfers == other.plan.kv_transfers
