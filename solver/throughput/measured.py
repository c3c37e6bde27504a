"""Rates that the caller measured: they win over every estimate.

Flow: Problem.measured -> Measured (here) -> throughput.rates overrides the roofline row by row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sutler.solver.arrays import BoolArray, IntArray
from sutler.solver.problem import MeasuredRate, MeasuredStage, ServedModel
from sutler.solver.throughput.base import Layouts, Rates


@dataclass(frozen=True, slots=True)
class Measured:
    """The rows of one model's table. A layout matches a row with the same (GPU, tensor parallel) stages in order;
    of several such rows the first counts."""

    table: tuple[MeasuredRate, ...]
    name: str = "measured"

    def matches(self, layouts: Layouts) -> tuple[BoolArray, ...]:
        """Which layouts each row describes [num_layouts]; none of GPUs that are capped."""
        as_measured = layouts.power_cap_fraction >= 1
        return tuple(matching(row.stages, layouts) & (row.role == layouts.role and as_measured) for row in self.table)

    def rates(self, model: ServedModel, layouts: Layouts, *, caps: IntArray | None = None) -> Rates:
        """See base.Source. Rates are taken as they were measured, whatever the cap; batch, latencies and layers are
        unknown. Layouts without a row do not fit and have rate 0."""
        shape = (len(layouts), len(model.workloads))
        rps, known = np.zeros(shape), np.zeros(len(layouts), dtype=np.bool_)
        for row, match in zip(self.table, self.matches(layouts), strict=True):
            rps[match & ~known] = [row.rps.get(workload.name, 0.0) for workload in model.workloads]
            known |= match
        unknown = np.full(shape, np.nan)
        return Rates(
            rps=rps,
            batch=np.zeros(shape, dtype=np.int64),
            ttft_s=unknown,
            tpot_s=unknown.copy(),
            low_rps=rps.copy(),
            high_rps=rps.copy(),
            layers=np.zeros(layouts.gpu.shape, dtype=np.int64),
            fits=known,
        )

    def detail(self, model: ServedModel, layouts: Layouts, rates: Rates, layout: int, workload: int) -> str:
        """See base.Source."""
        if not rates.fits[layout]:
            return "no row of throughput.table has these stages, and throughput.only excludes estimates"
        if rates.rps[layout, workload] > 0:
            return "row of throughput.table in the problem"
        return "the row of throughput.table leaves this workload out: rate 0"


def measured_of(model: ServedModel, table: tuple[MeasuredRate, ...]) -> Measured:
    """The rows of `table` that are about `model` at its precision."""
    return Measured(tuple(r for r in table if r.model == model.name and r.precision in (None, model.precision)))


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
