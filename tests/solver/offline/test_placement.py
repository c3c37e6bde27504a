"""Placing: as every assignment of GPUs says it, and the cases that the rules are made for."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import pytest

from sutler.solver.errors import InvalidProblemError
from sutler.solver.offline import placement
from sutler.solver.offline.hardware import Hardware
from sutler.solver.offline.placement import Group, can_place, place, place_groups
from sutler.solver.offline.placing_ahead import PlacedSchedule, place_schedule
from tests.solver.offline.placement_builders import (
    after,
    assignments,
    at,
    least_moves_s,
    may_lie,
    moves_s,
    new,
    random_arrivals,
    random_degrees,
    random_groups,
    random_hardware,
    running,
    some_hardware,
)

PAIRS = some_hardware([2, 2, 2, 2])
NVSWITCH = some_hardware([8])


def assert_valid(hardware: Hardware, groups: Sequence[Group], gpus: Sequence[tuple[tuple[int, int], ...]]) -> None:
    taken = [number for numbers in gpus for number in numbers]
    assert len(taken) == len(set(taken))
    for group, numbers in zip(groups, gpus, strict=True):
        assert may_lie(hardware, numbers, group.tensor_parallel)


# ---- against every assignment


@pytest.mark.parametrize("part", range(6))
def test_groups_fit_exactly_where_some_assignment_of_gpus_exists(part: int) -> None:
    random = Random(part)
    answers = set()
    for _ in range(100):
        hardware = random_hardware(random, 8)
        degrees = random_degrees(random, hardware, 6, among=(1, 2, 2, 3, 4, 4, 5, 6))
        answer = next(assignments(hardware, degrees), None) is not None
        assert can_place(hardware, degrees) is answer, (hardware.islands, degrees)
        answers.add(answer)
    assert answers == {True, False}


@pytest.mark.slow
@pytest.mark.parametrize("part", range(3))
def test_no_assignment_of_gpus_moves_less(part: int) -> None:
    random = Random(100 + part)
    costs = []
    for _ in range(60):
        hardware = random_hardware(random, 8 if random.random() < 0.15 else 6)
        groups = random_groups(random, hardware)
        least_s = least_moves_s(hardware, [groups])
        placed = place_groups(hardware, groups)
        if placed is None:
            assert least_s is None
            continue
        assert placed.is_exact
        assert placed.reload_s == pytest.approx(least_s)
        assert moves_s(groups, placed.gpus) == pytest.approx(least_s)
        assert_valid(hardware, groups, placed.gpus)
        costs.append(placed.reload_s)
    assert sum(cost_s > 0 for cost_s in costs) >= 3


SMALL = ([[2, 2]], [[2], [2]], [[2, 2, 1]], [[1, 1, 2]], [[1, 3]], [[1, 1, 1, 1]], [[1, 1], [1, 1]])


@pytest.mark.slow
def test_no_assignment_of_gpus_in_all_stages_moves_less() -> None:
    random = Random(200)
    moved, spared = 0, 0
    for _ in range(200):
        hardware = some_hardware(*random.choice(SMALL))
        first = random_groups(random, hardware)
        stages = [first if random.random() < 0.5 else [replace(group, on=()) for group in first]]
        for _ in range(random.choice((1, 2))):
            stay = [group for group in stages[-1] if random.random() < 0.6]
            stages.append([*random_arrivals(random, hardware, stay, 2), *stay])
        least_s = least_moves_s(hardware, stages)
        placed = place_schedule(hardware, stages)
        if placed is None:
            assert least_s is None
            continue
        assert placed.proven
        assert placed.reload_s == pytest.approx(least_s)
        assert schedule_moves_s(stages, placed) == pytest.approx(least_s)
        for groups, gpus in zip(stages, placed.gpus, strict=True):
            assert_valid(hardware, groups, gpus)
        in_turn = place_schedule(hardware, stages, time_limit_s=0.0)
        assert in_turn is not None
        moved += placed.reload_s > 0
        spared += placed.reload_s < in_turn.reload_s
    assert moved >= 10
    assert spared >= 10


def schedule_moves_s(stages: Sequence[Sequence[Group]], placed: PlacedSchedule) -> float:
    total_s = moves_s(stages[0], placed.gpus[0])
    for number in range(1, len(stages)):
        started = after(stages[number], stages[number - 1], placed.gpus[number - 1])
        total_s += moves_s(started, placed.gpus[number])
    return total_s


# ---- SamuLLM §4.3: NVLink joins GPUs 0 and 1, and 2 and 3


def test_a_pair_goes_where_nothing_has_to_move() -> None:
    pairs = some_hardware([2, 2])
    assert place(pairs, [running(0, 2), new(1, 2)]) == (at(2), at(0, 1))


def test_a_pair_moves_the_cheaper_of_two_models_out_of_its_way() -> None:
    pairs = some_hardware([2, 2])
    placed = place_groups(pairs, [running(0, 0, reload_s=30.0), running(1, 2, reload_s=12.0), new(2, 2)])
    assert placed is not None
    assert placed.gpus == (at(0), at(1), at(2, 3))
    assert placed.reload_s == 12.0


def test_one_dear_model_stays_and_two_cheap_ones_move() -> None:
    # Pairs (0,1) (2,3) (4,5): the TP2 needs a pair. 0 and 1 hold 3 s each, 2 holds 20 s, 4 holds 20 s.
    pairs = some_hardware([2, 2, 2])
    groups = [
        running(0, 0, reload_s=3.0),
        running(1, 1, reload_s=3.0),
        running(2, 2, reload_s=20.0),
        running(3, 4, reload_s=20.0),
        new(4, 2),
    ]
    placed = place_groups(pairs, groups)
    assert placed is not None
    assert placed.reload_s == 6.0
    assert placed.gpus[2:] == (at(2), at(4), at(0, 1))


# ---- islands


def test_any_two_gpus_of_an_nvswitch_make_a_pair() -> None:
    full = [running(number, gpu) for number, gpu in enumerate((0, 2, 3, 4, 5, 7))]
    placed = place(NVSWITCH, [*full, new(9, 2)])
    assert placed is not None
    assert placed[-1] == at(1, 6)


def test_a_group_larger_than_every_island_takes_whole_islands_of_one_host() -> None:
    assert place(PAIRS, [new(0, 4), running(1, 0)]) == (at(2, 3, 4, 5), at(0))
    assert not can_place(some_hardware([2, 2], across=False), [4])
    assert not can_place(some_hardware([2], [2]), [4])
    assert not can_place(some_hardware([2, 2]), [3])


def test_a_group_that_an_island_is_large_enough_for_spans_none() -> None:
    # The host of pairs could seat four on two islands, but the island of four elsewhere could hold them.
    assert can_place(some_hardware([2, 2], [4]), [4])
    assert not can_place(some_hardware([2, 2], [4]), [4, 4])
    assert can_place(some_hardware([2, 2], [3]), [4])


def test_the_tightest_island_is_not_taken_where_that_leaves_no_room() -> None:
    # 3 and 2 on the island of 5, 2 and 2 on that of 4; with the 3 on the 4, a 2 has no place.
    assert can_place(some_hardware([4, 5]), [3, 2, 2, 2])
    assert place(some_hardware([4, 5]), [new(0, 2), new(1, 2), new(2, 2), new(3, 3)]) is not None


def test_small_groups_fill_broken_islands_first() -> None:
    assert place(PAIRS, [running(0, 4), new(1, 1), new(2, 1)]) == (at(4), at(5), at(0))
    assert place(some_hardware([4, 2]), [running(0, 0, 1), new(1, 2)]) == (at(0, 1), at(2, 3))


def test_small_groups_go_to_the_host_with_the_least_room() -> None:
    assert place(some_hardware([2, 2], [2]), [new(0, 1)]) == (at(0, host=1),)


# ---- what runs


def test_groups_that_fit_with_what_runs_move_nothing() -> None:
    groups = [running(0, 6, 5), running(1, 0, 1, 2, 4), new(2, 2)]
    assert place(NVSWITCH, groups) == (at(6, 5), at(0, 1, 2, 4), at(3, 7))


def test_a_group_that_runs_where_it_may_not_stay_moves() -> None:
    across_pairs, elsewhere = running(0, 1, 2, reload_s=7.0), running(1, 0, host=5, reload_s=2.0)
    placed = place_groups(some_hardware([2, 2]), [across_pairs, elsewhere])
    assert placed is not None
    assert placed.gpus == (at(0, 1), at(2))
    assert placed.reload_s == 9.0


def test_groups_that_do_not_fit_have_no_place() -> None:
    assert place(PAIRS, [running(0, 0, 1), *(new(node, 1) for node in range(1, 8))]) is None
    assert place_schedule(PAIRS, [[new(0, 2)], [new(node, 2) for node in range(5)]]) is None


def test_two_groups_on_one_gpu_are_refused() -> None:
    with pytest.raises(InvalidProblemError, match="one group"):
        place(PAIRS, [running(0, 1), running(1, 0, 1)])


def test_one_replica_twice_in_a_stage_is_refused() -> None:
    with pytest.raises(InvalidProblemError, match="its own number"):
        place_schedule(PAIRS, [[new(0, 1)], [new(0, 1), new(0, 1)]])


def test_moves_are_still_possible_where_there_are_too_many_to_try(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "MOST_CHECKS", 3)
    groups = [running(number, 2 * number, reload_s=10.0 - number) for number in range(4)]
    placed = place_groups(PAIRS, [*groups, new(9, 4)])
    assert placed is not None
    assert not placed.is_exact
    assert_valid(PAIRS, [*groups, new(9, 4)], placed.gpus)
    assert placed.reload_s == 8.0 + 7.0  # the dearest two stay


def test_sixty_four_gpus_make_room_exactly() -> None:
    # Eight islands of 8 with 7 single GPUs used: a group of 8 moves the 7 of the one island where they cost least.
    hardware = some_hardware(*[[8]] * 8)
    singles = [
        Group(8 * host + gpu, 0, 1, at(gpu, host=host), 5.0 if host == 6 else 6.0)
        for host in range(8)
        for gpu in range(7)
    ]
    placed = place_groups(hardware, [*singles, new(99, 8)])
    assert placed is not None
    assert placed.is_exact
    assert placed.reload_s == 35.0
    assert placed.gpus[-1] == at(*range(8), host=6)


# ---- looking ahead


def test_a_schedule_looks_ahead_where_single_placements_must_move() -> None:
    # Stage 1: a, b and c, one GPU each: tidily a and b on one pair, c on the next. Stage 2: a and c stay, and a pair
    # comes: single placements have broken both pairs by then; looking ahead, a and c share one from the start.
    pairs = some_hardware([2, 2])
    stages = [[new(0, 1), new(1, 1), new(2, 1)], [new(0, 1), new(2, 1), new(3, 2)]]
    first = place(pairs, stages[0])
    assert first is not None
    then = place_groups(pairs, after(stages[1], stages[0], first))
    assert then is not None
    assert then.reload_s == 10.0
    ahead = place_schedule(pairs, stages)
    assert ahead is not None
    assert ahead.proven
    assert ahead.reload_s == 0.0
    assert ahead.gpus[0][0] == ahead.gpus[1][0]
    assert ahead.gpus[0][2] == ahead.gpus[1][1]


def test_a_group_that_was_away_costs_nothing_when_it_comes_back() -> None:
    pairs = some_hardware([2])
    stages = [[running(0, 0), running(1, 1)], [new(2, 2)], [new(0, 1), new(1, 1)]]
    placed = place_schedule(pairs, stages)
    assert placed is not None
    assert (placed.reload_s, placed.proven) == (0.0, True)


def test_a_schedule_starts_from_what_runs() -> None:
    pairs = some_hardware([2, 2])
    stages = [
        [running(0, 0, reload_s=30.0), running(1, 2, reload_s=12.0)],
        [new(0, 1, reload_s=30.0), new(1, 1, reload_s=12.0), new(2, 2)],
    ]
    placed = place_schedule(pairs, stages)
    assert placed is not None
    assert (placed.reload_s, placed.proven) == (12.0, True)
    assert placed.gpus[1] == (at(0), at(1), at(2, 3))


def test_a_schedule_without_time_is_placed_stage_by_stage_and_not_proven() -> None:
    stages = [[new(0, 1), new(1, 1), new(2, 1)], [new(0, 1), new(2, 1), new(3, 2)]]
    placed = place_schedule(some_hardware([2, 2]), stages, time_limit_s=0.0)
    assert placed is not None
    assert (placed.reload_s, placed.proven) == (10.0, False)


def test_a_schedule_of_no_stages_has_nothing_to_place() -> None:
    assert place_schedule(PAIRS, []) == PlacedSchedule((), 0.0, True)


def test_the_same_question_gets_the_same_answer() -> None:
    random = Random(7)
    for _ in range(20):
        hardware = random_hardware(random, 8)
        groups = random_groups(random, hardware)
        stages = [groups, [new(999, 1), *groups[1:]]]
        assert place(hardware, groups) == place(hardware, groups)
        assert place_schedule(hardware, stages) == place_schedule(hardware, stages)
