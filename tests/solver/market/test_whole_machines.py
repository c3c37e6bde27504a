"""Replicas on all GPUs of a machine that has neither 1, 2, 4 nor 8 of them."""

from dataclasses import replace
from typing import Any

import pytest

from sutler.solver import solve
from sutler.solver.candidates.enumerate import Candidates, enumerate_candidates
from sutler.solver.catalog import load_gpus, resolve_model
from sutler.solver.catalog.entries import Precision
from sutler.solver.market.supply import build_supply
from sutler.solver.plan import Plan
from sutler.solver.problem import Objective, Offer, Problem, Search, ServedModel, Workload
from sutler.solver.verify import verify
from tests.solver.replanning.builders import considered


def a_market(gpu: str = "a100-sxm4-80gb", *, model: str = "llama-3.1-70b", **sizes: int) -> Problem:
    """`three=3`: a machine of 3 GPUs called three, at 1 $/h a GPU; a model at bf16, or at fp8 where it is larger."""
    precision: Precision = "bf16" if model == "llama-3.1-70b" else "fp8"
    asked = ServedModel("chat", resolve_model(model), precision, "bf16", (Workload("w", 8000, 200, 1.0),))
    offers = tuple(Offer("cloud", name, gpu, gpus, 1, float(gpus)) for name, gpus in sizes.items())
    return Problem(Objective("max_throughput"), (asked,), offers, {gpu: load_gpus()[gpu]})


def candidates_on(problem: Problem) -> Candidates:
    return enumerate_candidates(problem, build_supply(problem))


def layouts_of(candidates: Candidates) -> set[tuple[int, int, int, int]]:
    """(tensor_parallel, stages, data_parallel, GPUs of the piece)."""
    return {
        (
            int(candidates.tensor_parallel[row, 0]),
            int((candidates.pool[row] >= 0).sum()),
            int(candidates.data_parallel[row]),
            int(candidates.piece_size[row, 0]),
        )
        for row in range(len(candidates))
    }


def test_three_gpus_hold_what_two_do_not() -> None:
    """141 GB of weights leave two cards of 80 GB no room for a request, three of them as a pipeline do."""
    assert layouts_of(candidates_on(a_market(two=2))) == set()
    assert layouts_of(candidates_on(a_market(three=3))) == {(1, 3, 1, 3)}
    assert layouts_of(candidates_on(a_market(five=5))) == {(1, 4, 1, 4), (2, 2, 1, 4), (4, 1, 1, 4)}


def test_six_gpus_hold_three_pairs() -> None:
    found = layouts_of(candidates_on(a_market(six=6)))
    assert found == {(2, 3, 1, 6), (1, 4, 1, 4), (2, 2, 1, 4), (4, 1, 1, 4)}
    deeper = replace(a_market(six=6), search=Search(max_pipeline_stages=6))
    assert layouts_of(candidates_on(deeper)) == found | {(1, 6, 1, 6)}


def test_a_part_of_a_larger_or_divisible_machine_is_no_whole_one() -> None:
    divisible = a_market(six=6)
    divisible = replace(divisible, offers=(replace(divisible.offers[0], divisible=True),))
    for problem in (a_market(eight=8), a_market(seven=7), divisible):
        assert 3 not in {size for *_, size in layouts_of(candidates_on(problem))}
        assert 6 not in {size for *_, size in layouts_of(candidates_on(problem))}


@pytest.mark.parametrize(("model", "expected"), [("kimi-k2", {(1, 6), (2, 3)}), ("deepseek-v3", set())])
def test_experts_are_spread_where_they_divide(model: str, expected: set[tuple[int, int]]) -> None:
    """384 experts on six GPUs; 256 do not go round."""
    found = layouts_of(candidates_on(a_market("b300", model=model, six=6)))
    assert {(degree, ranks) for degree, _, ranks, size in found if size == 6 and ranks > 1} == expected


@pytest.fixture(scope="module")
def planned() -> Plan:
    return solve(a_market(three=3, six=6, four=4))


def test_whole_machines_are_planned_placed_and_verified(planned: Plan) -> None:
    problem = a_market(three=3, six=6, four=4)
    assert planned.status == "optimal"
    assert not verify(problem, planned)
    assert sum(rental.gpus for rental in planned.rentals) == 13
    by_offer = {planned.rentals[replica.stages[0].rental].offer_id: replica for replica in planned.replicas}
    assert [stage.gpu_indices for stage in by_offer["three"].stages] == [(0,), (1,), (2,)]
    assert {stage.piece for stage in by_offer["three"].stages} == {0}
    less = solve(a_market(six=6, four=4))
    assert planned.throughput_rps is not None
    assert less.throughput_rps is not None
    assert planned.throughput_rps > less.throughput_rps * 1.1


def test_verify_wants_the_whole_machine(planned: Plan) -> None:
    """On the machine of six, three GPUs would keep four to themselves, and a fourth stage fits no other."""
    problem = a_market(three=3, six=6, four=4)
    at = next(i for i, r in enumerate(planned.replicas) if planned.rentals[r.stages[0].rental].offer_id == "three")
    six = next(i for i, rental in enumerate(planned.rentals) if rental.offer_id == "six")
    moved: Any = tuple(replace(stage, rental=six) for stage in planned.replicas[at].stages)
    replicas = [replace(r, stages=moved) if i == at else r for i, r in enumerate(planned.replicas)]
    assert verify(problem, replace(planned, replicas=tuple(replicas)))


def test_what_fills_a_machine_runs_on(planned: Plan) -> None:
    problem = a_market(three=3, six=6, four=4)
    keeps = considered(problem, planned, market=[]).keep
    assert keeps.plan is not None
    assert [replica.stages for replica in keeps.plan.replicas] == [replica.stages for replica in planned.replicas]
    assert keeps.plan.throughput_rps == pytest.approx(planned.throughput_rps)
