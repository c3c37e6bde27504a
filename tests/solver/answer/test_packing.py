"""Pieces onto machines: by hand, and against every allocation that keeps the supply rows and some that do not."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import numpy as np
import pytest

from sutler.solver import solve
from sutler.solver.answer.packing import PackedReplica, PackingError, pack
from sutler.solver.catalog import load_gpus
from sutler.solver.plan import Rental
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.rows import Polytope
from sutler.solver.problem import Limits, MeasuredRate, Offer, Search
from sutler.solver.verify import verify
from tests.builders import a_model, a_problem, a_workload, an_offer, measured, random_problem
from tests.looped import for_each
from tests.solver.planning_builders import a_fleet, candidate_with, polytope_of
from tests.solver.throughput.builders import a_dense_spec

NETWORK: dict[str, Any] = {"site": "s1", "inter_machine_gb_per_s": 12.5}
ALL_SIZES = [measured(f"a:{size}", {"w1": float(size) ** 1.5}) for size in (1, 2, 4, 8)]


def market(*offers: Offer, rows: list[MeasuredRate] | None = None) -> Polytope:
    return polytope_of(a_problem(offers=offers, rows=rows or ALL_SIZES), pruned=False)


def packed(
    polytope: Polytope, layouts: Mapping[str, int], rented: Mapping[str, int] | None = None
) -> tuple[tuple[Rental, ...], tuple[PackedReplica, ...]]:
    """Pack replicas by layout on machines rented by offer id."""
    machines = np.zeros(len(polytope.cost_rent), dtype=np.int64)
    for k, one in enumerate(polytope.supply.classes):
        machines[k] = (rented or {}).get(polytope.problem.offers[one.offers[0][0]].offer_id, 0)
    replicas = {candidate_with(polytope, *layout.split("+")): count for layout, count in layouts.items()}
    return pack(polytope, a_fleet(polytope, replicas, machines))


def places(replicas: tuple[PackedReplica, ...]) -> list[tuple[int, int, tuple[int, ...]]]:
    """(rental, machine, GPUs) of every stage."""
    return [(stage.rental, stage.machine, stage.gpu_indices) for replica in replicas for stage in replica.stages]


def test_pieces_fill_machines_largest_first() -> None:
    """4 + 2 + 1 + 1 on two machines of 4: the four alone, then the pair and the two single GPUs together."""
    polytope = market(an_offer("a", 4, price=4.0, available=3))
    rentals, replicas = packed(polytope, {"a:1": 2, "a:2": 1, "a:4": 1}, {"a-4": 2})
    assert [(rental.gpus, rental.count) for rental in rentals] == [(4, 2)]
    assert places(replicas) == [(0, 1, (2,)), (0, 1, (3,)), (0, 1, (0, 1)), (0, 0, (0, 1, 2, 3))]


def test_machines_of_one_offer_are_one_rental() -> None:
    polytope = market(an_offer("a", 2, price=3.0, available=5))
    rentals, replicas = packed(polytope, {"a:2": 3}, {"a-2": 3})
    assert len(rentals) == 1
    assert (rentals[0].offer_id, rentals[0].count, rentals[0].price_usd_per_hour) == ("a-2", 3, 3.0)
    assert [machine for _, machine, _ in places(replicas)] == [0, 1, 2]


def test_a_machine_that_nothing_runs_on_is_not_rented() -> None:
    polytope = market(an_offer("a", 4, price=4.0, available=3))
    rentals, _ = packed(polytope, {"a:2": 2}, {"a-4": 3})
    assert [(rental.gpus, rental.count) for rental in rentals] == [(4, 1)]


def test_offers_of_one_class_are_filled_in_turn() -> None:
    """Three pairs at one price from two offers: two of the first, then one of the second."""
    first = an_offer("a", 2, price=2.0, available=2, offer_id="first")
    second = an_offer("a", 2, price=2.0, available=2, offer_id="second")
    rentals, _ = packed(market(first, second), {"a:2": 3}, {"first": 3})
    assert [(rental.offer_id, rental.count) for rental in rentals] == [("first", 2), ("second", 1)]


def test_pieces_that_pay_by_the_gpu_rent_exactly_their_gpus() -> None:
    """Two divisible machines of 4 at 1 $/h a GPU: a pair and a single GPU rent 2 and 1 GPUs, 3 $/h."""
    polytope = market(an_offer("a", 4, price=4.0, available=2, divisible=True))
    rentals, _ = packed(polytope, {"a:2": 1, "a:1": 1})
    assert [(rental.gpus, rental.count, rental.price_usd_per_hour) for rental in rentals] == [
        (2, 1, 2.0),
        (1, 1, 1.0),
    ]


def test_a_divisible_machine_is_not_cut_beyond_its_gpus() -> None:
    """Two machines of 6: two pieces of 4 leave 2 + 2 for two pairs, and no third piece of 4."""
    polytope = market(an_offer("a", 6, price=6.0, available=2, divisible=True))
    rentals, _ = packed(polytope, {"a:4": 2, "a:2": 2})
    assert sum(rental.gpus * rental.count for rental in rentals) == 12
    with pytest.raises(PackingError, match="piece of 4 GPUs"):
        packed(polytope, {"a:4": 3})


def test_the_slices_taken_of_a_machine_share_no_card() -> None:
    """A half and two quarters of a machine of 4: cards 0-1, then 2 and 3."""
    cuts = [(0, 1, 2, 3), (0, 1), (2, 3), (0,), (1,), (2,), (3,)]
    slices = [
        an_offer("a", len(cards), price=float(len(cards)), offer_id=str(cards), machine_id="m", gpu_ids=cards)
        for cards in cuts
    ]
    rentals, _ = packed(market(*slices), {"a:2": 1, "a:1": 2}, {"(0, 1)": 1, "(0,)": 2})
    assert sorted(rental.offer_id for rental in rentals) == ["(0, 1)", "(2,)", "(3,)"]


def test_a_replica_of_three_gpus_keeps_four_of_its_machine() -> None:
    """Two of them fill a machine of 8 although 8 - 6 = 2 GPUs stay empty."""
    rows = [measured(["a", "a", "a"], {"w1": 3.0})]
    polytope = market(an_offer("a", 8, price=8.0, available=2), rows=rows)
    rentals, replicas = packed(polytope, {"a+a+a": 2}, {"a-8": 1})
    assert [(rental.gpus, rental.count) for rental in rentals] == [(8, 1)]
    assert [gpus for _, _, gpus in places(replicas)] == [(0,), (1,), (2,), (4,), (5,), (6,)]


def test_stages_of_a_replica_inside_a_machine_share_their_piece_and_others_do_not() -> None:
    rows = [measured(["a:2", "a"], {"w1": 3.0})]
    inside = market(an_offer("a", 4, price=4.0), rows=rows)
    _, (replica,) = packed(inside, {"a:2+a": 1}, {"a-4": 1})
    assert [(stage.piece, stage.gpu_indices) for stage in replica.stages] == [(0, (0, 1)), (0, (2,))]
    across = market(an_offer("a", 2, price=2.0, available=2, **NETWORK), rows=rows)
    _, (replica,) = packed(across, {"a:2+a": 1}, {"a-2": 2})
    assert [(stage.piece, stage.machine, stage.gpu_indices) for stage in replica.stages] == [
        (0, 0, (0, 1)),
        (1, 1, (0,)),
    ]


def test_machines_that_store_different_models_are_different_rentals() -> None:
    """A small checkpoint of 8.8 GB and a large one of 17.6 GB at 0.1 $/GB and month, on one machine each."""
    small, large = (a_dense_spec(total_params=params, active_params=params) for params in (4e9, 8e9))
    offer = an_offer("a", 2, price=1.0, available=4, disk_gb=500.0, disk_usd_per_gb_month=0.1)
    problem = a_problem(
        offers=[offer],
        models=[a_model(name="small", spec=small), a_model(name="large", spec=large)],
        rows=[measured("a:2", {"w1": 1.0}, "small"), measured("a:2", {"w1": 1.0}, "large")],
    )
    polytope = polytope_of(problem)
    fleet = {candidate_with(polytope, "a:2", model=0): 2, candidate_with(polytope, "a:2", model=1): 1}
    rentals, _ = pack(polytope, a_fleet(polytope, fleet, np.array([3])))
    assert [(rental.count, round(rental.storage_gb, 6)) for rental in rentals] == [(2, 8.8), (1, 17.6)]
    assert [rental.price_usd_per_hour for rental in rentals] == pytest.approx(
        [1 + 8.8 * 0.1 / 720, 1 + 17.6 * 0.1 / 720]
    )
    assert [rental.storage_usd_per_hour for rental in rentals] == pytest.approx([8.8 * 0.1 / 720, 17.6 * 0.1 / 720])


def test_pieces_on_one_machine_each_store_their_checkpoint() -> None:
    """Two single GPUs in one machine with the same model keep two copies: 17.6 GB, 8 GB of them included a GPU
    rounded down to none."""
    spec = a_dense_spec(total_params=4e9, active_params=4e9)
    offer = an_offer("a", 2, price=1.0, disk_gb=500.0, disk_usd_per_gb_month=0.1, disk_included_gb=16.0)
    problem = a_problem(offers=[offer], models=[a_model(spec=spec)], rows=[measured("a", {"w1": 1.0})])
    plan = solve(problem)
    assert [rental.count for rental in plan.rentals] == [1]
    assert plan.rentals[0].storage_gb == pytest.approx(17.6)
    assert plan.cost_usd_per_hour == pytest.approx(1 + 17.6 * 0.1 / 720)


def test_pieces_that_share_a_checkpoint_rent_no_more_than_the_disk() -> None:
    """20 GB hold 8.8 GB once for all four GPUs, which are charged for it four times: an upper bound."""
    spec = a_dense_spec(total_params=4e9, active_params=4e9)
    offer = an_offer("l40s", 4, price=4.0, disk_gb=20.0, disk_usd_per_gb_month=0.1)
    problem = a_problem(
        objective="max_throughput",
        offers=[offer],
        gpus=[load_gpus()["l40s"]],
        models=[a_model(spec=spec)],
        budget_usd_per_hour=10.0,
        search=Search(tensor_parallel=(1,), max_pipeline_stages=1),
        measured_only=False,
    )
    plan = solve(problem)
    assert verify(problem, plan) == ()
    assert len(plan.replicas) == 4
    assert plan.rentals[0].storage_gb == 20.0
    assert plan.cost_usd_per_hour == pytest.approx(4 + 4 * 8.8 * 0.1 / 720)
    assert not any("disk" in warning for warning in plan.warnings)
    small = replace(problem, offers=(replace(offer, divisible=True),), search=Search(tensor_parallel=(1, 2)))
    assert any("checkpoint for every piece" in warning for warning in solve(small).warnings)
    forged = replace(problem, offers=(replace(offer, disk_gb=8.0),))
    assert any("keeps ['chat at bf16']" in sentence for sentence in verify(forged, plan))


def test_more_pieces_than_machines_is_an_error() -> None:
    polytope = market(an_offer("a", 4, price=4.0, available=2))
    with pytest.raises(PackingError, match="piece of 4 GPUs in pool a@"):
        packed(polytope, {"a:4": 2}, {"a-4": 1})


def any_allocation(polytope: Polytope, draw: Random) -> Allocation:
    """Machines that may be rented together, and replicas at random: about half of them fit."""
    rented = np.array([draw.randint(0, int(one.count)) for one in polytope.supply.classes], dtype=np.int64)
    while not keeps_couplings(polytope, rented):
        rented[draw.choice(np.flatnonzero(rented).tolist())] -= 1
    size = min(draw.randint(1, 4), len(polytope.candidates))
    chosen = draw.sample(range(len(polytope.candidates)), size)
    return a_fleet(polytope, {c: draw.randint(1, 2) for c in chosen}, rented)


def keeps_couplings(polytope: Polytope, rented: np.ndarray) -> bool:
    return all(
        sum(factor * rented[k] for k, factor in coupling.terms) <= coupling.limit
        for coupling in polytope.supply.couplings
    )


def keeps_supply_rows(polytope: Polytope, fleet: Allocation) -> bool:
    used = polytope.use[:, fleet.candidate] @ fleet.replicas + polytope.rent @ fleet.rented
    rows = [r for r, name in enumerate(polytope.resources) if name.startswith("supply/")]
    return bool((used[rows] <= polytope.limit[rows] + 1e-9).all())


def unlimited_market(seed: int) -> Polytope:
    problem = random_problem(seed, most_gpus=24)
    return polytope_of(
        a_problem(offers=problem.offers, rows=problem.measured, models=problem.models, limits=Limits()), pruned=False
    )


@for_each("seed", range(100))
def test_an_allocation_packs_exactly_if_it_keeps_the_supply_rows(seed: int) -> None:
    polytope = unlimited_market(seed)
    draw = Random(seed)
    for _ in range(6):
        fleet = any_allocation(polytope, draw)
        if not keeps_supply_rows(polytope, fleet):
            with pytest.raises(PackingError):
                pack(polytope, fleet)
            continue
        rentals, replicas = pack(polytope, fleet)
        check_placement(polytope, fleet, rentals, replicas)


@for_each("seed", range(60))
def test_pieces_that_fill_machines_pack_exactly_too(seed: int) -> None:
    """Against all ways to place them: replicas of 3 and 6 GPUs on machines of just as many, others around them."""
    draw = Random(seed)
    sizes = draw.sample((2, 3, 4, 5, 6, 7, 8), 4)
    offers = [an_offer("a", size, price=float(size), available=2) for size in sizes]
    rows = [measured(f"a:{size}", {"w1": float(size)}) for size in (1, 2, 3, 4, 6)]
    polytope = market(*offers, rows=rows)
    kept = 0
    for _ in range(20):
        fleet = any_allocation(polytope, draw)
        machines = np.repeat([one.gpus for one in polytope.supply.classes], fleet.rented).tolist()
        pieces = np.repeat(polytope.candidates.piece_size[fleet.candidate, 0], fleet.replicas).tolist()
        assert keeps_supply_rows(polytope, fleet) == fits(machines, sorted(pieces, reverse=True))
        if keeps_supply_rows(polytope, fleet):
            kept += 1
            check_placement(polytope, fleet, *pack(polytope, fleet))
        else:
            with pytest.raises(PackingError):
                pack(polytope, fleet)
    assert kept < 20


def fits(machines: list[int], pieces: list[int], used: tuple[int, ...] = ()) -> bool:
    """By trying all: a piece of 1, 2, 4 or 8 GPUs fits where as many are free, any other fills a machine."""
    if not pieces:
        return True
    first, rest = pieces[0], pieces[1:]
    used = used or (0,) * len(machines)
    tried = set()
    for index, (gpus, taken) in enumerate(zip(machines, used, strict=True)):
        room = gpus - taken >= first if first in (1, 2, 4, 8) else (gpus, taken) == (first, 0)
        if room and (gpus, taken) not in tried:
            tried.add((gpus, taken))
            if fits(machines, rest, (*used[:index], taken + first, *used[index + 1 :])):
                return True
    return False


def check_placement(
    polytope: Polytope, fleet: Allocation, rentals: tuple[Rental, ...], replicas: tuple[PackedReplica, ...]
) -> None:
    """Every replica is there, no GPU runs two stages, and nothing beyond what was allotted is rented."""
    assert Counter(replica.candidate for replica in replicas) == dict(
        zip(fleet.candidate.tolist(), fleet.replicas.tolist(), strict=True)
    )
    used = [(s.rental, s.machine, gpu) for replica in replicas for s in replica.stages for gpu in s.gpu_indices]
    assert len(set(used)) == len(used)
    for rental, machine, gpu in used:
        assert machine < rentals[rental].count
        assert gpu < rentals[rental].gpus
    for replica in replicas:
        for stage in replica.stages:
            assert rentals[stage.rental].gpu == stage.gpu
            assert len(stage.gpu_indices) == stage.tensor_parallel
        machine_of_piece = {(s.piece, s.rental, s.machine) for s in replica.stages}
        assert len(machine_of_piece) == len({stage.piece for stage in replica.stages})
    spent = sum(rental.price_usd_per_hour * rental.count for rental in rentals)
    allotted = polytope.cost_use[fleet.candidate] @ fleet.replicas + polytope.cost_rent @ fleet.rented
    assert spent <= allotted + 1e-9


def test_the_random_allocations_are_of_both_kinds() -> None:
    kept = [
        keeps_supply_rows(polytope, any_allocation(polytope, Random(seed)))
        for seed, polytope in ((seed, unlimited_market(seed)) for seed in range(60))
    ]
    assert 12 < sum(kept) < 48


def test_a_plan_for_two_models_shares_a_machine_between_them() -> None:
    """One machine of 4, a pair for each model: one rental, no GPU twice."""
    models = [a_model(a_workload(), name="chat"), a_model(a_workload(), name="code")]
    rows = [measured("a:2", {"w1": 2.0}, model.name) for model in models]
    plan = solve(a_problem(offers=[an_offer("a", 4, price=4.0)], models=models, rows=rows))
    assert [(rental.gpus, rental.count) for rental in plan.rentals] == [(4, 1)]
    assert sorted(stage.gpu_indices for replica in plan.replicas for stage in replica.stages) == [(0, 1), (2, 3)]
