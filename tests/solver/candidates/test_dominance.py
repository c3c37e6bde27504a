"""Dropping dominated candidates: each rule by hand, and the optimum with and without pruning."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from sutler.solver.candidates.dominance import signatures
from sutler.solver.problem import MeasuredRate, ObjectiveKind, Offer, Problem, Search
from tests.builders import (
    OBJECTIVES,
    a_model,
    a_problem,
    a_workload,
    an_offer,
    measured,
    random_estimated_problem,
    random_estimated_roles_problem,
    random_problem,
    random_roles_problem,
)
from tests.looped import for_each
from tests.solver.planning_builders import least_value, polytope_of, stages_of
from tests.solver.throughput.builders import a_dense_spec

NETWORK: dict[str, Any] = {"site": "s1", "inter_machine_gb_per_s": 12.5}
MACHINE = an_offer("a", 4, price=4.0)


def kept(*rows: MeasuredRate, offers: tuple[Offer, ...] = (MACHINE,), **others: Any) -> list[str]:
    """The layouts left after pruning: "a:2+b:1" is a pipeline of a pair of a and one b."""
    others.setdefault("models", [a_model(a_workload("w1"), a_workload("w2"))])
    polytope = polytope_of(a_problem(offers=offers, rows=rows, **others))
    return sorted(
        "+".join(f"{gpu}:{degree}" for gpu, degree in stages_of(polytope, c)) for c in range(len(polytope.candidates))
    )


def rates(w1: float, w2: float) -> Mapping[str, float]:
    return {"w1": w1, "w2": w2}


@pytest.mark.slow
@for_each("seed", range(4))
def test_signatures_are_equal_for_equal_model_role_cap_and_pieces_alone(seed: int) -> None:
    problem = random_estimated_roles_problem(seed, "min_power")
    problem = replace(problem, search=replace(problem.search, power_caps_fraction=(0.4, 0.5, 0.6, 0.7, 0.8)))
    candidates = polytope_of(problem, pruned=False).candidates
    told_apart = {
        (
            int(candidates.model[c]),
            int(candidates.role[c]),
            float(candidates.power_cap_fraction[c]),
            tuple(sorted(zip(candidates.piece_pool[c].tolist(), candidates.piece_size[c].tolist(), strict=True))),
        ): int(signature)
        for c, signature in enumerate(signatures(candidates))
    }
    assert len(told_apart) > 15
    assert len(set(told_apart.values())) == len(told_apart)


def test_of_two_layouts_of_the_same_gpus_the_faster_stays() -> None:
    """A pair as TP 2 or as PP 2 takes the same two GPUs of one machine."""
    assert kept(measured("a:2", rates(2.0, 2.0)), measured(["a", "a"], rates(1.9, 2.0))) == ["a:2"]
    assert kept(measured("a:2", rates(2.0, 2.0)), measured(["a", "a"], rates(2.1, 2.0))) == ["a:1+a:1"]


def test_layouts_that_are_each_better_at_something_both_stay() -> None:
    both = [measured("a:2", rates(2.0, 1.0)), measured(["a", "a"], rates(1.0, 2.0))]
    assert kept(*both) == ["a:1+a:1", "a:2"]


def test_of_equal_layouts_one_stays() -> None:
    assert len(kept(measured("a:2", rates(2.0, 2.0)), measured(["a", "a"], rates(2.0, 2.0)))) == 1


def test_an_odd_layout_competes_for_the_piece_that_it_keeps() -> None:
    """A pipeline of three keeps four GPUs, so a faster group of four replaces it; a slower one does not."""
    three = measured(["a", "a", "a"], rates(3.0, 3.0))
    assert kept(three, measured("a:4", rates(4.0, 3.0))) == ["a:4"]
    assert kept(three, measured("a:4", rates(4.0, 2.0))) == ["a:1+a:1+a:1", "a:4"]


def test_a_pipeline_goes_where_replicas_on_each_of_its_parts_serve_as_much() -> None:
    """1 + 2 req/s on a and b alone against 3 on both together; at 3.1 the pipeline is worth having."""
    offers = (an_offer("a", **NETWORK), an_offer("b", **NETWORK))
    alone = [measured("a", rates(1.0, 1.0)), measured("b", rates(2.0, 2.0))]
    assert kept(*alone, measured(["a", "b"], rates(3.0, 3.0)), offers=offers) == ["a:1", "b:1"]
    assert kept(*alone, measured(["a", "b"], rates(2.0, 3.1)), offers=offers) == ["a:1", "a:1+b:1", "b:1"]


def test_a_pipeline_of_three_goes_where_one_stage_and_the_other_two_serve_as_much() -> None:
    offers = (an_offer("a", available=2, **NETWORK), an_offer("b", **NETWORK))
    parts = [measured("b", rates(2.0, 2.0)), measured(["a", "a"], rates(3.0, 3.0))]
    assert kept(*parts, measured(["a", "b", "a"], rates(5.0, 5.0)), offers=offers) == ["a:1+a:1", "b:1"]
    assert len(kept(*parts, measured(["a", "b", "a"], rates(5.1, 5.0)), offers=offers)) == 3


def test_parts_of_which_one_alone_runs_nothing_do_not_replace_a_pipeline() -> None:
    """A model that only fits on a and b together: a is no replica by itself."""
    offers = (an_offer("a", **NETWORK), an_offer("b", **NETWORK))
    rows = [measured("b", rates(9.0, 9.0)), measured(["a", "b"], rates(3.0, 3.0))]
    assert kept(*rows, offers=offers) == ["a:1+b:1", "b:1"]


def test_a_group_goes_where_two_replicas_on_its_halves_serve_as_much() -> None:
    assert kept(measured("a", rates(1.0, 1.0)), measured("a:2", rates(2.0, 2.0))) == ["a:1"]
    assert kept(measured("a", rates(1.0, 1.0)), measured("a:2", rates(1.0, 2.1))) == ["a:1", "a:2"]
    assert kept(measured("a:2", rates(2.0, 2.0)), measured("a:4", rates(4.0, 3.9))) == ["a:2"]


def test_halves_of_halves_replace_a_group_even_where_the_halves_go_first() -> None:
    """a:4 falls to two a:2, which themselves fall to four a."""
    rows = [measured("a", rates(1.0, 1.0)), measured("a:2", rates(2.0, 2.0)), measured("a:4", rates(4.0, 4.0))]
    assert kept(*rows) == ["a:1"]


def test_fewer_gpus_in_a_bigger_piece_ask_for_more() -> None:
    """A pair as fast as three single GPUs replaces none of them: a machine of one GPU cannot host it."""
    offers = (MACHINE, an_offer("a", price=1.5))
    assert kept(measured("a", rates(1.0, 1.0)), measured("a:2", rates(3.0, 3.0)), offers=offers) == ["a:1", "a:2"]


def test_a_replica_on_better_gpus_does_not_replace_one_on_worse() -> None:
    offers = (an_offer("a"), an_offer("b", price=0.1))
    assert kept(measured("a", rates(1.0, 1.0)), measured("b", rates(9.0, 9.0)), offers=offers) == ["a:1", "b:1"]


def test_one_model_does_not_replace_another() -> None:
    models = [a_model(a_workload(), name="chat"), a_model(a_workload(), name="code")]
    rows = [measured("a", {"w1": 5.0}, "chat"), measured("a:2", {"w1": 1.0}, "code")]
    assert kept(*rows, models=models) == ["a:1", "a:2"]


def test_two_halves_that_both_pay_for_a_checkpoint_do_not_replace_the_whole() -> None:
    """One piece of 2 keeps 8.8 GB, two pieces of 1 keep 17.6 GB; where storage is free they are as good."""

    def layouts(storage_usd: float) -> list[str]:
        return kept(
            measured("a", rates(1.0, 1.0)),
            measured("a:2", rates(2.0, 2.0)),
            offers=(an_offer("a", 2, price=2.0, disk_gb=100.0, disk_usd_per_gb_month=storage_usd),),
            models=[
                a_model(a_workload("w1"), a_workload("w2"), spec=a_dense_spec(total_params=4e9, active_params=4e9))
            ],
        )

    assert layouts(0.1) == ["a:1", "a:2"]
    assert layouts(0.0) == ["a:1"]


@pytest.mark.parametrize("objective", OBJECTIVES)
@for_each("seed", range(1, 100, 5), quick=6)
def test_pruning_keeps_the_optimum_on_measured_rates(seed: int, objective: ObjectiveKind) -> None:
    problem = random_problem(seed, objective, most_gpus=14)
    assert least_value(problem) == pytest.approx(least_value(problem, pruned=False), rel=1e-6)


@pytest.mark.parametrize("objective", OBJECTIVES)
@for_each("seed", range(5), quick=2)
def test_pruning_keeps_the_optimum_of_prefill_and_decode_apart(seed: int, objective: ObjectiveKind) -> None:
    problem = random_roles_problem(seed, objective, most_gpus=12)
    assert least_value(problem) == pytest.approx(least_value(problem, pruned=False), rel=1e-6)


@pytest.mark.parametrize("objective", ["max_throughput", "min_power"])
@for_each("seed", range(1, 4), quick=1)
def test_pruning_keeps_the_optimum_of_estimated_roles_and_caps(seed: int, objective: ObjectiveKind) -> None:
    problem = random_estimated_roles_problem(seed, objective)
    search = replace(problem.search, max_pipeline_stages=1, power_caps_fraction=(0.5,))
    problem = replace(problem, models=problem.models[:1], offers=problem.offers[:4], search=search)
    assert least_value(problem) == pytest.approx(least_value(problem, pruned=False), rel=1e-6)


def small_estimated_problem(seed: int, objective: ObjectiveKind) -> Problem:
    """Fewer configurations, so that the unpruned MILP ends quickly."""
    problem = random_estimated_problem(seed)
    return a_problem(
        offers=problem.offers[:5],
        models=problem.models[:1],
        gpus=list(problem.gpus.values()),
        budget_usd_per_hour=12.0,
        search=Search(max_pipeline_stages=2),
        measured_only=False,
        objective=objective,
    )


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["max_throughput", "min_cost"])
@for_each("seed", range(4))
def test_pruning_keeps_the_optimum_on_estimated_rates(seed: int, objective: ObjectiveKind) -> None:
    problem = small_estimated_problem(seed, objective)
    whole, pruned = polytope_of(problem, pruned=False), polytope_of(problem)
    assert len(pruned.candidates) <= len(whole.candidates)
    assert least_value(problem) == pytest.approx(least_value(problem, pruned=False), rel=1e-6)


@pytest.mark.slow
def test_pruning_drops_a_good_part_of_what_estimates_offer() -> None:
    """Not a law, but if nothing were dropped the laws above would say nothing."""
    dropped = total = 0
    for seed in range(10):
        problem = small_estimated_problem(seed, "max_throughput")
        total += len(polytope_of(problem, pruned=False).candidates)
        dropped += len(polytope_of(problem, pruned=False).candidates) - len(polytope_of(problem).candidates)
    assert dropped > 0.3 * total
