"""The calibrated roofline as a source of rates: the largest batch that fits, lowered until the limits hold.

Flow: Layouts -> prepare.py -> composer.py -> latency.py -> Rates. Layouts are handled together: python loops run
over blocks of thousands of them, stages and batch sizes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from solver.problem import Estimates, ServedModel
from solver.throughput.aiconfigurator import OperatorStages, missing, operator_stages
from solver.throughput.base import FloatArray, IntArray, Layouts, Rates
from solver.throughput.composer import Pairs
from solver.throughput.corrected import CorrectedStages
from solver.throughput.evidence import served_detail, source_names, unserved_detail
from solver.throughput.factors import REFERENCE_ENGINE, Calibration, Engine, shipped_calibration
from solver.throughput.latency import FirstToken, closed_loop, first_token, prefill_utilisation_fraction
from solver.throughput.limits import batches_within_limits, load_at
from solver.throughput.memory import MAX_SEQUENCES
from solver.throughput.prepare import Prepared, known_spec, prepare, stated_bands
from solver.throughput.roles import Handover
from solver.throughput.stages import ROOFLINE, ModelStages, RooflineStages, roofline_stages, stage_kinds, traffic_of

PAIRS_PER_BLOCK: Final = 1 << 15


@dataclass(frozen=True, slots=True)
class Roofline:
    """`engine_name` is a calibrated serving engine; any other counts as the reference one with a wider band.

    `estimates`: whether the operator database answers where its band is narrower, wherever it can, or nowhere.
    """

    calibration: Calibration = field(default_factory=shipped_calibration)
    engine_name: str = REFERENCE_ENGINE
    estimates: Estimates = "narrowest_band"
    name: str = ROOFLINE

    @property
    def engine(self) -> Engine:
        return self.calibration.engine(self.engine_name)

    @property
    def engine_title(self) -> str:
        """The engine, and what stands in for it where it has no factors of its own."""
        if self.engine_name in self.calibration.engines:
            return self.engine_name
        return f"{REFERENCE_ENGINE} standing in for {self.engine_name}"

    @property
    def first_token(self) -> FirstToken:
        return first_token(self.calibration.factors, self.engine)

    def stages(self, model: ServedModel) -> RooflineStages:
        """The two questions for `model`. Raises InvalidProblemError where its architecture is unknown."""
        return roofline_stages(model, known_spec(model), self.calibration, self.engine)

    def planning_stages(self, model: ServedModel) -> ModelStages:
        """What rates rest on: corrected by the runs of a user's calibration for this engine, or answered by the
        operator database where that is there and surer."""
        return self._with_operators(model, self._corrected(model) or self.stages(model))

    def simulation_stages(self, model: ServedModel) -> ModelStages:
        """What simulations step by; `slower` corrects their seconds."""
        return self._with_operators(model, self.stages(model))

    def slower(self, model: ServedModel, layouts: Layouts, batch: float) -> float:
        """By what a user's runs lengthen all seconds of the one layout: the mean over stages and workloads."""
        stages = self._corrected(model)
        if stages is None:
            return 1.0
        kinds, _ = stage_kinds(layouts)
        slower = -np.log(stages.faster(kinds, traffic_of(model), batch))
        asked = self.simulation_stages(model)
        if isinstance(asked, OperatorStages):
            slower[asked.answers(kinds)] = 0.0
        return float(np.exp(slower.mean()))

    def _corrected(self, model: ServedModel) -> CorrectedStages | None:
        corrections = self.calibration.corrections
        if corrections is None or corrections.engine != self.engine_name:
            return None
        return CorrectedStages(self.stages(model), known_spec(model), corrections)

    def _with_operators(self, model: ServedModel, stages: ModelStages) -> ModelStages:
        if self.estimates == "roofline" or missing() is not None:
            return stages
        return operator_stages(model, stages, everywhere=self.estimates == "aiconfigurator")

    def source_of(
        self, model: ServedModel, layouts: Layouts, rates: Rates, layout: int, workload: int
    ) -> tuple[str, str]:
        """What evidence calls it, and the version of its data."""
        return source_names(model, layouts, rates, layout, workload, self.planning_stages(model))

    def handover(self, model: ServedModel, layouts: Layouts) -> Handover:
        """What handing over keys and values takes, in the order of `layouts`."""
        prepared = prepare(model, layouts, self.planning_stages(model), max_sequences=MAX_SEQUENCES)
        return prepared.handover.take(np.argsort(prepared.order))

    def rates(self, model: ServedModel, layouts: Layouts, *, utilisation_fraction: float) -> Rates:
        """See base.Source. Raises InvalidProblemError where the model's architecture is unknown."""
        stages = self.planning_stages(model)
        prepared = prepare(model, layouts, stages, max_sequences=MAX_SEQUENCES)
        first = self.first_token
        blocks = [_block(prepared, pairs, first, utilisation_fraction) for pairs in _blocks(prepared.max_batch.shape)]
        return _rates(prepared, stages, blocks)

    def detail(self, model: ServedModel, layouts: Layouts, rates: Rates, layout: int, workload: int) -> str:
        """See base.Source."""
        if rates.rps[layout, workload] > 0:
            return served_detail(
                model, layouts, rates, layout, workload, self.planning_stages(model), self.engine_title
            )
        return unserved_detail(model, layouts, rates, layout, workload, self.planning_stages(model), self.first_token)


@dataclass(frozen=True, slots=True)
class Block:
    """Results of consecutive pairs, arrays [num_pairs]."""

    rps: FloatArray
    batch: IntArray
    ttft_s: FloatArray
    tpot_s: FloatArray


def _blocks(shape: tuple[int, ...]) -> Iterator[Pairs]:
    """All (layout, workload) pairs in order, in blocks that stay in the processor's cache."""
    total, workloads = shape[0] * shape[1], shape[1]
    for start in range(0, total, PAIRS_PER_BLOCK):
        index = np.arange(start, min(start + PAIRS_PER_BLOCK, total))
        yield Pairs(layout=index // workloads, workload=index % workloads)


def _block(prepared: Prepared, pairs: Pairs, first: FirstToken, utilisation_fraction: float) -> Block:
    largest = prepared.max_batch[pairs.layout, pairs.workload]
    batch = largest
    if prepared.limits:
        batch = batches_within_limits(prepared, pairs, largest, prepared.limits, first, utilisation_fraction)
    served = np.flatnonzero(batch)
    load = load_at(prepared, pairs.only(served), batch[served])
    latencies = closed_loop(load, first)
    rps = load.composed.rate_rps
    if load.role == "prefill" and prepared.limits:
        most = prefill_utilisation_fraction(load, first, prepared.limits, utilisation_fraction)
        rps = rps * most / utilisation_fraction
    size = len(pairs)
    return Block(
        rps=_scattered(rps, served, size, 0.0),
        batch=batch,
        ttft_s=_scattered(latencies.ttft_s, served, size, np.nan),
        tpot_s=_scattered(latencies.tpot_s, served, size, np.nan),
    )


def _scattered(values: FloatArray, where: IntArray, size: int, missing: float) -> FloatArray:
    out = np.full(size, missing)
    out[where] = values
    return out


def _rates(prepared: Prepared, stages: ModelStages, blocks: list[Block]) -> Rates:
    """Back to the caller's order of layouts."""
    back = np.argsort(prepared.order)
    shape = prepared.max_batch.shape

    def joined(parts: list[FloatArray]) -> FloatArray:
        return np.concatenate([*parts, np.empty(0)]).reshape(shape)[back]

    rps, batch = (joined([getattr(block, name) for block in blocks]) for name in ("rps", "batch"))
    sorted_batch = np.concatenate([*(block.batch for block in blocks), np.empty(0)]).reshape(shape)
    band = stated_bands(prepared, stages, sorted_batch)[back]
    return Rates(
        rps=rps,
        batch=batch.astype(np.int64),
        ttft_s=joined([block.ttft_s for block in blocks]),
        tpot_s=joined([block.tpot_s for block in blocks]),
        low_rps=rps / band,
        high_rps=rps * band,
        layers=prepared.layers[back],
        fits=prepared.fits[back],
    )
