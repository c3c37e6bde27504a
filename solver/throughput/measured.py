"""Rates that the caller measured: they win over every estimate.

Flow: Problem.measured -> measured_rates (here) -> throughput/__init__.py overrides the roofline row by row.
"""

from collections.abc import Sequence

import numpy as np

from sutler.solver.arrays import BoolArray
from sutler.solver.problem import MeasuredRate, MeasuredStage, Problem, ServedModel
from sutler.solver.throughput.base import Layouts, Rates


def measured_rows(problem: Problem, model: ServedModel) -> tuple[MeasuredRate, ...]:
    """The rows of the problem's table that are about `model` at its precision."""
    return tuple(r for r in problem.measured if r.model == model.name and r.precision in (None, model.precision))


def measured_rates(problem: Problem, model: ServedModel, layouts: Layouts) -> Rates:
    """Rates as they were measured, whatever the cap; batch and layers are unknown.

    A layout matches a row of its role with the same (GPU, tensor parallel) stages in order, unless its GPUs are
    capped; of several such rows the first counts. Layouts without a row do not fit and have rate 0.
    """
    shape = (len(layouts), len(model.workloads))
    rps, known = np.zeros(shape), np.zeros(len(layouts), dtype=np.bool_)
    for row in measured_rows(problem, model) if layouts.power_cap_fraction >= 1 else ():
        if row.role == layouts.role:
            match = matching(row.stages, layouts)
            rps[match & ~known] = [row.rps.get(workload.name, 0.0) for workload in model.workloads]
            known |= match
    return Rates(
        rps=rps,
        batch=np.zeros(shape, dtype=np.int64),
        low_rps=rps.copy(),
        high_rps=rps.copy(),
        layers=np.zeros(layouts.gpu.shape, dtype=np.int64),
        fits=known,
    )


def measured_detail(rates: Rates, layout: int, workload: int) -> str:
    """One sentence of evidence for a rate of `measured_rates`."""
    if not rates.fits[layout]:
        return "no row of throughput.table has these stages, and throughput.only excludes estimates"
    if rates.rps[layout, workload] > 0:
        return "row of throughput.table in the problem"
    return "the row of throughput.table leaves this workload out: rate 0"


def matching(stages: Sequence[MeasuredStage], layouts: Layouts, data_parallel: int = 1) -> BoolArray:
    """Which layouts have these stages, in order, and so many ranks [num_layouts]."""
    slugs = {gpu.slug: index for index, gpu in enumerate(layouts.gpus)}
    width = layouts.gpu.shape[1]
    if len(stages) > width or any(stage.gpu not in slugs for stage in stages):
        return np.zeros(len(layouts), dtype=np.bool_)
    gpu, degree = np.full(width, -1), np.zeros(width, dtype=np.int64)
    for index, stage in enumerate(stages):
        gpu[index], degree[index] = slugs[stage.gpu], stage.tensor_parallel
    same_degree = (layouts.tensor_parallel == degree) | (layouts.gpu < 0)
    return np.asarray(((layouts.gpu == gpu) & same_degree).all(axis=1) & (layouts.ranks == data_parallel))
