"""Calibrations that callers send: whatever is in them, a named error or a plan that verifies."""

import copy
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.profiles.calibrating import calibrated
from sutler.service.profiles.checks import Given, checked
from sutler.service.profiles.readers import read_runs
from sutler.service.profiles.runs import ProfileRun
from sutler.service.translation.to_problem import check_names, to_problem
from sutler.solver import solve
from sutler.solver.verify import verify
from tests.service.builders import NOW, a_snapshot
from tests.service.profiles.builders import a_table

TINY = 5e-324


@cache
def mine() -> dict[str, Any]:
    found = (checked(run, Given()) for run in read_runs(a_table(0.8).encode(), name="runs.csv").runs)
    runs = [one for one in found if isinstance(one, ProfileRun)]
    return calibrated("mine", runs, (), now=NOW).document.model_dump(mode="json", by_alias=True)


def a_problem(calibration: dict[str, Any], **others: Any) -> ProblemDocument:
    workload = {"name": "w", "input_tokens": 1024, "output_tokens": 256, "rate_rps": 1.0}
    problem = {
        "objective": {"kind": "max_throughput"},
        "budget_usd_per_hour": 20,
        "models": [{"name": "chat", "model": "llama-3.1-8b", "precision": "bf16", "workloads": [workload]}],
        "market": {"offers": a_snapshot()},
        "throughput": {"calibration": calibration},
        **others,
    }
    return validate(ProblemDocument, problem)


def changed(*changes: tuple[tuple[str | int, ...], object]) -> dict[str, Any]:
    made = copy.deepcopy(mine())
    for (*path, last), value in changes:
        place: Any = made
        for key in path:
            place = place[key]
        place[last] = value
    return made


def at_one_place(noise: float, error: float) -> dict[str, Any]:
    point = {**mine()["points"][0], "noise": noise}
    return {**mine(), "points": [{**point, "log_error": error}, {**point, "log_error": -error}] * 25}


@pytest.mark.parametrize(
    "calibration",
    [
        lambda: at_one_place(TINY, 1.0),
        lambda: {**mine(), "phase_points": at_one_place(TINY, 1.0)["points"]},
        lambda: changed((("points", 0, "spread"), TINY)),
        lambda: changed((("points", 0, "noise"), TINY)),
        lambda: changed(
            (("correlation", "common"), TINY), (("correlation", "local"), TINY), (("correlation", "noise"), TINY)
        ),
        lambda: changed((("factors", "compute_fraction"), 1e7)),
        lambda: changed((("factors", "ridge_exponent"), 1e6)),
        lambda: changed((("factors", "layer_overhead_s"), TINY)),
        lambda: changed((("gpu_classes", "nonsense"), {"compute": 1.0})),
        lambda: changed((("gpu_classes", "hopper", "speed"), 1.0)),
        lambda: changed((("engines", "vllm", "compute"), 1e6)),
        lambda: changed((("points", 0, "log_error"), 1e9)),
        lambda: changed((("points", 0, "log2"), [1e308, -1e308, 0.0, 0.0])),
        lambda: changed((("name",), "a b")),
        lambda: changed((("name",), "Yes")),
    ],
)
def test_what_no_fit_can_have_made_is_refused_by_name(calibration: Callable[[], dict[str, Any]]) -> None:
    with pytest.raises(DocumentError, match="calibration"):
        to_problem(a_problem(calibration()), folder=None, now=NOW)
    with pytest.raises(DocumentError, match="calibration"):
        check_names(a_problem(calibration(), market={}))


@pytest.mark.parametrize(
    "calibration",
    [
        lambda: at_one_place(1e-4, 20.0),
        lambda: {**mine(), "phase_points": at_one_place(1e-4, 20.0)["points"]},
        lambda: {
            **mine(),
            "phase_points": [{**one, "log_error": 20.0 * (-1) ** i} for i, one in enumerate(mine()["points"])],
        },
        lambda: changed((("points", 0, "log2"), [60.0, -10.0, 0.0, 0.0])),
        lambda: changed((("points", 0, "log_error"), 20.0), (("points", 1, "log_error"), -20.0)),
        lambda: changed((("points", 0, "gpu"), "no-such-gpu"), (("points", 1, "model"), "no-such-model")),
        lambda: changed((("engine",), "no-such-engine")),
        lambda: changed((("least_band",), 100.0)),
        lambda: changed((("engines", "vllm", "first_token_wave"), 999.0)),
        lambda: changed((("engines", "vllm", "first_token_base"), 1e-6)),
        lambda: changed((("points",), [])),
    ],
)
def test_what_is_merely_odd_gives_plans_that_verify(calibration: Callable[[], dict[str, Any]]) -> None:
    problem = to_problem(a_problem(calibration()), folder=None, now=NOW).problem
    plan = solve(problem)
    assert verify(problem, plan) == ()
    for evidence in plan.evidence:
        assert 0 < evidence.low_rps <= evidence.rps <= evidence.high_rps < float("inf")
