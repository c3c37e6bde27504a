"""Replicas that run stay where they are: by hand, and on random fleets of held machines."""

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random

import numpy as np
import pytest

from sutler.solver.answer.packing import PackedReplica, PackingError, Pin, PinnedReplica, pack
from sutler.solver.plan import Rental
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.rows import Polytope
from sutler.solver.problem import Offer
from tests.builders import a_problem, an_offer, measured
from tests.looped import for_each
from tests.solver.planning_builders import a_fleet, candidate_with, polytope_of

ALL_SIZES = [measured(f"a:{size}", {"w1": float(size) ** 1.5}) for size in (1, 2, 4, 8)]

Place = tuple[str, int, tuple[int, ...]]
"""Offer, machine of it, GPUs."""


def market(*offers: Offer) -> Polytope:
    return polytope_of(a_problem(offers=offers, rows=ALL_SIZES), pruned=False)


def held(gpus: int, count: int = 1, *, name: str = "held", price: float = 1.0) -> Offer:
    return an_offer("a", gpus, price=price, available=count, offer_id=name, held=True)


def an_allocation(polytope: Polytope, layouts: Mapping[str, int], rented: Mapping[str, int]) -> Allocation:
    machines = np.zeros(len(polytope.cost_rent), dtype=np.int64)
    for k, one in enumerate(polytope.supply.classes):
        machines[k] = rented.get(polytope.problem.offers[one.offers[0][0]].offer_id, 0)
    return a_fleet(polytope, {candidate_with(polytope, layout): n for layout, n in layouts.items()}, machines)


def a_pin(polytope: Polytope, layout: str, copy: int, *gpus: int, offer: int = 0) -> PinnedReplica:
    """A replica that runs on these GPUs of the offer's machine number `copy`."""
    return PinnedReplica(candidate_with(polytope, layout), (Pin(offer, copy, gpus),))


def packed(
    polytope: Polytope,
    layouts: Mapping[str, int],
    rented: Mapping[str, int],
    pins: Sequence[PinnedReplica],
) -> list[tuple[Place, bool]]:
    """Where every replica's one stage stands and whether it stayed, by tensor-parallel degree."""
    rentals, replicas = pack(polytope, an_allocation(polytope, layouts, rented), pins)
    return [(place_of(rentals, replica), replica.stays) for replica in replicas]


def place_of(rentals: Sequence[Rental], replica: PackedReplica) -> Place:
    (stage,) = replica.stages
    return rentals[stage.rental].offer_id, stage.machine, stage.gpu_indices


def test_a_replica_stays_on_its_gpus_where_first_fit_would_take_others() -> None:
    polytope = market(held(4))
    pins = [a_pin(polytope, "a:1", 0, 2)]
    assert packed(polytope, {"a:1": 1}, {"held": 1}, []) == [(("held", 0, (0,)), False)]
    assert packed(polytope, {"a:1": 1}, {"held": 1}, pins) == [(("held", 0, (2,)), True)]


def test_what_is_new_goes_beside_what_stays() -> None:
    """Of GPUs 0 to 3 a pair runs on 1 and 2: another pair takes 0 and 3."""
    polytope = market(held(4))
    pins = [a_pin(polytope, "a:2", 0, 1, 2)]
    assert packed(polytope, {"a:2": 2}, {"held": 1}, pins) == [
        (("held", 0, (1, 2)), True),
        (("held", 0, (0, 3)), False),
    ]


def test_a_larger_piece_goes_to_the_machine_on_which_nothing_stays() -> None:
    """The single GPU is placed last, and still finds its place."""
    polytope = market(held(4, 2))
    pins = [a_pin(polytope, "a:1", 0, 0)]
    assert packed(polytope, {"a:1": 1, "a:4": 1}, {"held": 2}, pins) == [
        (("held", 0, (0,)), True),
        (("held", 1, (0, 1, 2, 3)), False),
    ]


def test_a_larger_piece_that_fits_nowhere_else_takes_the_place_of_a_smaller_one() -> None:
    """Four GPUs need the machine of four; the one that ran there moves to the pair."""
    polytope = market(held(4, name="four"), held(2, name="two"))
    pins = [a_pin(polytope, "a:1", 0, 0, offer=0)]
    single, four = packed(polytope, {"a:1": 1, "a:4": 1}, {"four": 1, "two": 1}, pins)
    assert single == (("two", 0, (0,)), False)
    assert (four[0][0], set(four[0][2]), four[1]) == ("four", {0, 1, 2, 3}, False)


def test_of_equal_machines_those_are_kept_on_which_most_runs() -> None:
    """Three are held, one is needed: the third runs a pair, the first a single GPU, the second nothing."""
    polytope = market(held(4, 3))
    pins = [a_pin(polytope, "a:1", 0, 3), a_pin(polytope, "a:2", 2, 2, 3)]
    assert packed(polytope, {"a:1": 1, "a:2": 1}, {"held": 1}, pins) == [
        (("held", 0, (0,)), False),
        (("held", 0, (2, 3)), True),
    ]


def test_of_several_replicas_alike_as_many_stay_as_there_are_to_be() -> None:
    """Three singles run, two are wanted: the first two that are pinned."""
    polytope = market(held(4))
    pins = [a_pin(polytope, "a:1", 0, gpu) for gpu in (3, 1, 0)]
    assert packed(polytope, {"a:1": 2}, {"held": 1}, pins) == [
        (("held", 0, (3,)), True),
        (("held", 0, (1,)), True),
    ]


def test_more_replicas_than_run_are_new() -> None:
    polytope = market(held(4))
    pins = [a_pin(polytope, "a:1", 0, 0)]
    assert packed(polytope, {"a:1": 3}, {"held": 1}, pins) == [
        (("held", 0, (0,)), True),
        (("held", 0, (1,)), False),
        (("held", 0, (2,)), False),
    ]


def test_a_pin_of_a_layout_that_is_not_wanted_any_more_changes_nothing() -> None:
    polytope = market(held(4))
    pins = [a_pin(polytope, "a:4", 0, 0, 1, 2, 3)]
    assert packed(polytope, {"a:2": 1}, {"held": 1}, pins) == packed(polytope, {"a:2": 1}, {"held": 1}, [])


def test_a_replica_whose_machine_is_given_up_moves() -> None:
    """Both held machines are given up for a new one."""
    polytope = market(held(1, 2), an_offer("a", 2, price=1.0, available=1, offer_id="new"))
    pins = [a_pin(polytope, "a:1", 1, 0)]
    assert packed(polytope, {"a:1": 1}, {"new": 1}, pins) == [(("new", 0, (0,)), False)]


def test_a_replica_of_several_pieces_stays_only_if_all_of_them_do() -> None:
    """A pair on each of two machines: the second machine is needed for four GPUs."""
    rows = [*ALL_SIZES, measured(["a:2", "a:2"], {"w1": 5.0})]
    network = {"site": "s1", "inter_machine_gb_per_s": 12.5}
    offers = [
        an_offer("a", 2, price=1.0, available=2, offer_id="two", held=True, **network),
        an_offer("a", 4, price=2.0, available=1, offer_id="four", held=True, **network),
    ]
    polytope = polytope_of(a_problem(offers=offers, rows=rows), pruned=False)
    pipeline = next(
        c
        for c in range(len(polytope.candidates))
        if np.count_nonzero(polytope.candidates.tensor_parallel[c]) == 2 and not polytope.candidates.one_piece[c]
    )
    machines = np.array(
        [1 if polytope.problem.offers[k.offers[0][0]].gpus == 4 else 2 for k in polytope.supply.classes]
    )
    pin = PinnedReplica(pipeline, (Pin(0, 0, (0, 1)), Pin(1, 0, (2, 3))))
    _, (stays,) = pack(polytope, a_fleet(polytope, {pipeline: 1}, machines), [pin])
    assert stays.stays
    assert [stage.gpu_indices for stage in stays.stages] == [(0, 1), (2, 3)]
    four = candidate_with(polytope, "a:4")
    _, placed = pack(polytope, a_fleet(polytope, {pipeline: 1, four: 1}, machines), [pin])
    assert [replica.stays for replica in placed if replica.candidate == pipeline] == [False]


def test_pins_make_no_room_where_there_is_none() -> None:
    polytope = market(held(2))
    with pytest.raises(PackingError, match="piece of 1 GPUs"):
        packed(polytope, {"a:1": 1, "a:2": 1}, {"held": 1}, [a_pin(polytope, "a:1", 0, 0)])


def some_fleet(draw: Random, polytope: Polytope) -> Allocation | None:
    """Replicas on all held machines, if what was drawn fits."""
    layouts = {f"a:{size}": draw.randint(0, 3) for size in (1, 2, 4, 8)}
    layouts = {layout: count for layout, count in layouts.items() if count}
    everything = {offer.offer_id: offer.available for offer in polytope.problem.offers}
    fleet = an_allocation(polytope, layouts, everything)
    try:
        pack(polytope, fleet)
    except PackingError:
        return None
    return fleet if layouts else None


def as_pins(polytope: Polytope, rentals: Sequence[Rental], replicas: Sequence[PackedReplica]) -> list[PinnedReplica]:
    offers = {offer.offer_id: index for index, offer in enumerate(polytope.problem.offers)}
    return [
        PinnedReplica(replica.candidate, (Pin(offers[name], machine, gpus),))
        for replica in replicas
        for name, machine, gpus in [place_of(rentals, replica)]
    ]


@for_each("seed", range(40))
def test_what_ran_stays_as_it_was_and_what_fits_without_pins_fits_with_them(seed: int) -> None:
    draw = Random(seed)
    polytope = market(held(8, 2, name="eight"), held(4, 2, name="four", price=0.7), held(2, 2, name="two", price=0.4))
    before, after = some_fleet(draw, polytope), some_fleet(draw, polytope)
    while before is None or after is None:
        before, after = before or some_fleet(draw, polytope), after or some_fleet(draw, polytope)
    rentals, replicas = pack(polytope, before)
    pins = as_pins(polytope, rentals, replicas)
    again = pack(polytope, before, pins)
    assert all(replica.stays for replica in again[1])
    assert [place_of(again[0], replica) for replica in again[1]] == [place_of(rentals, r) for r in replicas]
    check_fleet(after, *pack(polytope, after, draw.sample(pins, len(pins))), pins)


def check_fleet(
    wanted: Allocation, rentals: Sequence[Rental], replicas: Sequence[PackedReplica], pins: Sequence[PinnedReplica]
) -> None:
    """Every replica is there, none shares a GPU, and those that stay are as many and as large as where they ran."""
    assert Counter(replica.candidate for replica in replicas) == dict(
        zip(wanted.candidate.tolist(), wanted.replicas.tolist(), strict=True)
    )
    used = [(stage.rental, stage.machine, gpu) for r in replicas for stage in r.stages for gpu in stage.gpu_indices]
    assert len(set(used)) == len(used)
    assert all(machine < rentals[rental].count and gpu < rentals[rental].gpus for rental, machine, gpu in used)
    ran = Counter((pin.candidate, pin.pins[0].gpus) for pin in pins)
    stayed = Counter((r.candidate, r.stages[0].gpu_indices) for r in replicas if r.stays)
    assert stayed <= ran
