"""Whose limits are kept: a model's by all requests that are under them, a workload's own by its own."""

from dataclasses import replace

import numpy as np
import pytest

from sutler.solver.problem import LatencyLimit, ServedModel, Workload
from sutler.solver.simulation.fleet import simulate
from sutler.solver.simulation.outcome import Outcome
from sutler.solver.simulation.requests import RequestKind
from sutler.solver.simulation.summary import group_results, summarise
from tests.solver.simulation.builders import random_requests, toy_replica

KINDS = (RequestKind("chat", "short", 100.0, 10.0, 1.0), RequestKind("chat", "batch", 100.0, 10.0, 1.0))
TIGHT, LOOSE = LatencyLimit("e2e", 90, 1e-3), LatencyLimit("e2e", 90, 1e3)


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    """Every other request is of the batch, on a replica of its own."""
    asked = random_requests(3, 200, rate_rps=5.0)
    asked = replace(asked, kinds=KINDS, kind=np.arange(200) % 2)
    return simulate([toy_replica(), toy_replica(name="chat-1")], np.eye(2), asked)


def served(slo: tuple[LatencyLimit, ...], *own: tuple[LatencyLimit, ...] | None) -> dict[str, ServedModel]:
    workloads = tuple(
        Workload(kind.workload, 100.0, 10.0, 1.0, limits) for kind, limits in zip(KINDS, own, strict=True)
    )
    return {"chat": ServedModel("chat", None, "bf16", "bf16", workloads, slo)}


def test_a_limit_of_the_model_holds_for_what_has_none_of_its_own(outcome: Outcome) -> None:
    found = summarise(outcome, ["0", "1"], served((TIGHT,), None, ()), warm_up_s=0.0)
    [result] = found.models[0].limits
    assert (result.limit, result.workload, result.within_fraction) == (TIGHT, None, 0.0)
    assert [len(one.limits) for one in found.workloads] == [1, 0]
    assert [one.goodput_rps > 0 for one in found.workloads] == [False, True]
    assert found.models[0].goodput_rps == pytest.approx(found.workloads[1].goodput_rps)
    assert not found.meets_all_limits


def test_a_limit_of_its_own_is_a_workloads_alone(outcome: Outcome) -> None:
    found = summarise(outcome, ["0", "1"], served((TIGHT,), (LOOSE,), (LOOSE,)), warm_up_s=0.0)
    assert [(one.limit, one.workload) for one in found.models[0].limits] == [(LOOSE, "short"), (LOOSE, "batch")]
    assert found.meets_all_limits
    strict = summarise(outcome, ["0", "1"], served((), (LOOSE,), (TIGHT,)), warm_up_s=0.0)
    assert [(one.workload, one.is_met) for one in strict.models[0].limits] == [("short", True), ("batch", False)]
    assert not strict.meets_all_limits


def test_a_limit_that_half_of_the_requests_keep_is_kept_by_half(outcome: Outcome) -> None:
    middle = LatencyLimit("e2e", 50, float(np.median(outcome.e2e_s)))
    together = summarise(outcome, ["0", "1"], served((middle,), None, None), warm_up_s=0.0)
    assert together.models[0].limits[0].within_fraction == pytest.approx(0.5, abs=0.01)


def test_a_group_of_replicas_is_judged_by_the_kinds_that_are_asked_for(outcome: Outcome) -> None:
    asked = [(TIGHT, [0]), (TIGHT, [1]), (LOOSE, [0, 1])]
    first, second = group_results(outcome, [0, 1], [asked, asked], warm_up_s=0.0)
    assert [one.within_fraction for one in first] == [0.0, 1.0, 1.0]
    assert [one.within_fraction for one in second] == [1.0, 0.0, 1.0]
