"""Inputs in the format of Mélange's release (Griggs et al., arXiv 2404.14527), drawn from seeds, and its own planner.

An input says of each GPU type what it costs and how many requests/s of each bucket of sizes it sustains, and of the
requests how many there are and which share each bucket has. Mélange cuts every bucket into `slice_factor` slices and
gives each whole to one type (section 5.4); its release has CBC solve that.
"""

from typing import Final, TypedDict

import numpy as np
from ortools.linear_solver import pywraplp

from sutler.solver.arrays import FloatArray
from sutler.solver.catalog import load_gpus
from sutler.solver.problem import MeasuredRate, MeasuredStage, Objective, Offer, Problem, ServedModel, Workload

SLICE_FACTOR: Final = 8  # as in its release
GPU_TYPES: Final = ("rtx-4090", "l40s", "a100-pcie-80gb", "a100-sxm4-80gb", "h100-pcie", "h100-sxm")
_MODEL: Final = "served"
_SMALLEST_TOKENS: Final = 25


class GpuInfo(TypedDict):
    """One GPU type: $/h, and requests/s of each bucket [input sizes, output sizes], 0 where it cannot serve it."""

    cost: float
    tputs: list[list[float]]


class MelangeInput(TypedDict):
    """As its release reads it: `workload_distribution` [input sizes, output sizes] sums to 1."""

    gpu_info: dict[str, GpuInfo]
    workload_distribution: list[list[float]]
    total_request_rate: float
    slice_factor: int


def drawn(seed: int) -> MelangeInput:
    """2 to 6 types and 4 to 64 buckets, each twice as long as the one before. Dearer types are quicker, on long
    requests more than on short ones; the smaller half cannot serve the longest."""
    draw = np.random.default_rng(seed)
    types, (rows, columns) = int(draw.integers(2, 7)), draw.integers(2, 9, size=2)
    tokens = 2.0 ** np.arange(rows)[:, None] + 4 * 2.0 ** np.arange(columns)  # output tokens take longer
    info: dict[str, GpuInfo] = {}
    for index, name in enumerate(GPU_TYPES[:types]):
        speed = 1.8**index
        rps = 60 * speed / (tokens + 10 * speed) * draw.lognormal(0.0, 0.1, size=tokens.shape)
        if index < types // 2:
            rps[-1, -1] = 0.0
        cost = round(0.4 * 1.75**index * float(draw.lognormal(0.0, 0.15)), 3)
        info[name] = GpuInfo(cost=cost, tputs=rps.round(4).tolist())
    shares = draw.dirichlet(np.full(rows * columns, 0.5)).reshape(rows, columns)
    return MelangeInput(
        gpu_info=info,
        workload_distribution=shares.tolist(),
        total_request_rate=float(round(10 ** draw.uniform(0.0, 2.0), 2)),
        slice_factor=SLICE_FACTOR,
    )


def as_problem(given: MelangeInput) -> Problem:
    """The same question to sutler: the least $/h, of each type as many as one wants, no headroom."""
    rates, buckets = _rates_rps(given), np.ndindex(np.shape(given["workload_distribution"]))
    workloads = tuple(
        Workload(f"{row}-{column}", _SMALLEST_TOKENS * 2.0**row, _SMALLEST_TOKENS * 2.0**column, rate)
        for (row, column), rate in zip(buckets, rates.tolist(), strict=True)
    )
    offers, measured = [], []
    for name, info in given["gpu_info"].items():
        tputs = np.ravel(info["tputs"])
        most = int(np.ceil((rates[tputs > 0] / tputs[tputs > 0]).sum()))
        offers.append(Offer("cloud", name, name, 1, most, info["cost"]))
        served = {one.name: rps for one, rps in zip(workloads, tputs.tolist(), strict=True) if rps > 0}
        measured.append(MeasuredRate(_MODEL, (MeasuredStage(name, 1),), served))
    return Problem(
        objective=Objective("min_cost", headroom_fraction=0.0),
        models=(ServedModel(_MODEL, None, "bf16", "bf16", workloads),),
        offers=tuple(offers),
        gpus=load_gpus(),
        measured=tuple(measured),
        measured_only=True,
    )


def least_cost_by_slices(given: MelangeInput, *, limit_s: float) -> tuple[float | None, float, bool]:
    """Mélange's integer program by CBC: $/h of the best fleet found, the bound, and whether time ran out."""
    program = pywraplp.Solver.CreateSolver("CBC")
    factor, rates = given["slice_factor"], _rates_rps(given)
    pieces = [program.Constraint(1.0, 1.0) for _ in range(len(rates) * factor)]
    for name, info in given["gpu_info"].items():
        bought, held = program.IntVar(0, program.infinity(), name), program.Constraint(-program.infinity(), 0.0)
        program.Objective().SetCoefficient(bought, info["cost"])
        held.SetCoefficient(bought, -1.0)
        for number, once in enumerate(pieces):
            rps = float(np.ravel(info["tputs"])[number // factor])
            if rps > 0:
                goes = program.BoolVar(f"{name}-{number}")
                once.SetCoefficient(goes, 1.0)
                held.SetCoefficient(goes, float(rates[number // factor]) / factor / rps)
    program.SetTimeLimit(int(1000 * limit_s))
    status = program.Solve()
    found = status in (program.OPTIMAL, program.FEASIBLE)
    return program.Objective().Value() if found else None, program.Objective().BestBound(), status != program.OPTIMAL


def _rates_rps(given: MelangeInput) -> FloatArray:
    """[buckets] requests/s."""
    return np.ravel(given["workload_distribution"]) * given["total_request_rate"]
