"""The calibrated roofline as a source of rates: at the largest batch that fits, and within the limits.

Flow: Layouts -> prepare.py -> composer.py -> Rates; and loaded.py -> points.py, ceilings.py -> Points, load ceilings.
Layouts are handled together: python loops run over blocks of thousands of them, stages, caps and loads.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from sutler.solver.arrays import FloatArray, IntArray, concatenated, take_rows
from sutler.solver.calibration.factors import REFERENCE_ENGINE, Calibration, EngineFactors, shipped_calibration
from sutler.solver.problem import NO_GUESSES, EngineName, Estimates, ServedModel
from sutler.solver.throughput.aiconfigurator import OperatorStages
from sutler.solver.throughput.architecture import layer_work
from sutler.solver.throughput.base import Layouts, Points, RateBasis, Rates
from sutler.solver.throughput.ceilings import load_ceilings
from sutler.solver.throughput.composer import Pairs, compose
from sutler.solver.throughput.corrected import CorrectedStages
from sutler.solver.throughput.evidence import RateEvidence
from sutler.solver.throughput.hopes import most_rps
from sutler.solver.throughput.latency import FirstToken, first_token
from sutler.solver.throughput.loaded import loaded_of
from sutler.solver.throughput.memory import MAX_SEQUENCES
from sutler.solver.throughput.mixes import least_of, mixes_of, offered_shares
from sutler.solver.throughput.operator_package import missing
from sutler.solver.throughput.points import FoundPoints, operating_points, unlimited_points
from sutler.solver.throughput.prepare import PreparedLayouts, known_spec, prepare, stated_bands
from sutler.solver.throughput.roles import Handover
from sutler.solver.throughput.stages import ModelStages, RooflineStages, stage_kinds, traffic_of

# Chosen so that a block's arrays, of which points have more, stay in the processor's cache.
PAIRS_PER_BLOCK: Final = 1 << 15
POINT_PAIRS_PER_BLOCK: Final = 1 << 16
# Whose factors an engine has; what runs any layout is taken for the reference one.
FACTORS_OF: Final[Mapping[EngineName, str]] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "tensorrt-llm": "trtllm",
    "any-layout": REFERENCE_ENGINE,
}


@dataclass(frozen=True, slots=True)
class Roofline:
    """`engine_name` is a calibrated serving engine; any other counts as the reference one with a wider band.
    None: the engine and version of each model.

    `estimates`: whether the operator database answers where its band is narrower, wherever it can, or nowhere.
    """

    calibration: Calibration = field(default_factory=shipped_calibration)
    engine_name: str | None = None
    estimates: Estimates = "narrowest_band"

    def engine(self, model: ServedModel) -> EngineFactors:
        """The factors of what serves the model."""
        known = FACTORS_OF[model.engine]
        return self.calibration.engine(self.engine_name or self.calibration.version_of(known, model.engine_version))

    def engine_title(self, model: ServedModel) -> str:
        """The engine, and what stands in for it where it has no factors of its own."""
        engine = self.engine(model)
        known = engine.name in self.calibration.engines
        return engine.title if known else f"{REFERENCE_ENGINE} standing in for {engine.name}"

    def first_token(self, model: ServedModel) -> FirstToken:
        """What first tokens of the model wait for beside the engine's steps."""
        return first_token(self.calibration.factors, self.engine(model))

    def stages(self, model: ServedModel) -> RooflineStages:
        """The questions for `model`. Raises InvalidProblemError where its architecture is unknown."""
        work = layer_work(known_spec(model), model.precision, model.kv_precision)
        return RooflineStages(
            work, model.precision, self.calibration, self.engine(model), model.speculation or NO_GUESSES
        )

    def planning_stages(self, model: ServedModel) -> ModelStages:
        """What rates rest on: corrected by the runs of a user's calibration for this engine, or answered by the
        operator database where that is there and surer."""
        return self._with_operators(model, self._corrected(model) or self.stages(model))

    def simulation_stages(self, model: ServedModel) -> ModelStages:
        """What simulations step by; `slower` corrects their seconds."""
        return self._with_operators(model, self.stages(model))

    def slower(self, model: ServedModel, layouts: Layouts, *, max_batch: int) -> FloatArray:
        """The factors by which a user's runs lengthen the seconds of the one layout [max_batch + 2]: those of decode
        steps of 0, 1, 2, ... sequences, and last those of prompts; the means over stages and workloads."""
        stages = self._corrected(model)
        if stages is None:
            return np.ones(max_batch + 2)
        kinds, _ = stage_kinds(layouts)
        batches = np.append(np.arange(max_batch + 1, dtype=np.float64), stages.alone_batch)
        found = stages.factors(kinds, traffic_of(model), batches)
        slower = np.log(np.concatenate([found.steps[:, :, :-1], found.prompts[:, :, -1:]], axis=2))
        asked = self.simulation_stages(model)
        if isinstance(asked, OperatorStages):
            slower[asked.answers(kinds)] = 0.0
        return np.asarray(np.exp(slower.mean(axis=(0, 1))))

    def _corrected(self, model: ServedModel) -> CorrectedStages | None:
        corrections = self.calibration.corrections
        if corrections is None or corrections.engine != self.engine(model).name:
            return None
        return CorrectedStages(self.stages(model), known_spec(model), corrections)

    def _with_operators(self, model: ServedModel, stages: ModelStages) -> ModelStages:
        if self.estimates == "roofline" or missing() is not None or model.speculation is not None:
            return stages
        everywhere = self.estimates == "aiconfigurator"
        return OperatorStages(stages, known_spec(model), model.kv_precision, everywhere)

    def handover(self, model: ServedModel, layouts: Layouts) -> Handover:
        """What handing over keys and values takes, in the order of `layouts`."""
        prepared = prepare(model, layouts, self.planning_stages(model), max_sequences=MAX_SEQUENCES)
        return prepared.handover.take(np.argsort(prepared.order))

    def rates(self, model: ServedModel, layouts: Layouts, *, caps: IntArray | None = None) -> Rates:
        """Rates of every layout on every workload, with at most `caps` [num_layouts] sequences at a time; None: as
        many as fit. Raises InvalidProblemError where the model's architecture is unknown."""
        stages = self.planning_stages(model)
        prepared = prepare(model, layouts, stages, max_sequences=MAX_SEQUENCES)
        batch = _batch(prepared, caps)
        return _rates(prepared, stages, batch, _full_rps(prepared, batch))

    def points(
        self,
        model: ServedModel,
        layouts: Layouts,
        *,
        caps: IntArray | None,
        most_load: float,
        is_hoped: bool = False,
    ) -> Points:
        """Operating points of every layout, those of `caps` [num_layouts] alone where they are given; `most_load`: of
        what a cap carries; `is_hoped`: instead of its points one that is no worse than any of them. Raises
        InvalidProblemError where the model's architecture is unknown."""
        stages = self.planning_stages(model)
        prepared = prepare(model, layouts, stages, max_sequences=MAX_SEQUENCES)
        mixes, batch = mixes_of(model), _batch(prepared, caps)
        runs = prepared.fits[:, None] if caps is None else True
        base_s = self.first_token(model).base_s
        if is_hoped or not prepared.limits:
            rps = _full_rps(prepared, batch * runs)
            if is_hoped:
                rps = most_rps(prepared, rps, mixes, base_s=base_s)
            found = [unlimited_points(rps, batch, len(mixes), most_load=most_load)]
            return _points(prepared, stages, mixes, found)
        offered, found = offered_shares(model), []
        for rows in _layout_blocks(np.flatnonzero((batch * runs).any(axis=1)), batch.shape[1]):
            points = operating_points(
                loaded_of(prepared, rows, base_s=base_s),
                prepared.limits,
                mixes,
                offered,
                most_load=most_load,
                caps=None if caps is None else caps[prepared.order[rows]],
            )
            found.append(replace(points, layout=rows[points.layout]))
        return _points(prepared, stages, mixes, found)

    def ceilings(
        self, model: ServedModel, layouts: Layouts, *, caps: IntArray, rps: FloatArray, most_load: float
    ) -> FloatArray:
        """Returns the largest load [num_layouts], as a share of what its cap carries, at which each layout keeps all
        limits of requests in the proportions of `rps` [num_layouts, W]. Raises InvalidProblemError as above."""
        prepared = prepare(model, layouts, self.planning_stages(model), max_sequences=MAX_SEQUENCES)
        rps, back = rps[prepared.order], np.argsort(prepared.order)
        if not prepared.limits:
            full_rps = _full_rps(prepared, _batch(prepared, caps))
            is_served = ((rps > 0) <= (full_rps > 0)).all(axis=1) & rps.any(axis=1)
            return np.where(is_served, most_load, 0.0)[back]
        loaded = loaded_of(prepared, np.arange(len(layouts)), base_s=self.first_token(model).base_s)
        limits = [replace(limit, seconds=limit.seconds[:, None]) for limit in prepared.limits]
        capped = loaded.capped(caps[prepared.order])
        return load_ceilings(capped, np.ascontiguousarray(rps.T), limits, most_load=most_load)[back]

    def basis(self, model: ServedModel, layouts: Layouts, rates: Rates, layout: int, workload: int) -> RateBasis:
        """What the number rests on and its bottleneck, or why there is none."""
        evidence = RateEvidence(model, layouts, rates, layout, workload, self.planning_stages(model))
        is_served = rates.rps[layout, workload] > 0
        title, base_s = self.engine_title(model), self.first_token(model).base_s
        detail = evidence.served(title) if is_served else evidence.unserved(base_s)
        return RateBasis(*evidence.source(), detail)


def _blocks(shape: tuple[int, ...]) -> Iterator[Pairs]:
    """All (layout, workload) pairs in order, in blocks that stay in the processor's cache."""
    total, workloads = shape[0] * shape[1], shape[1]
    for start in range(0, total, PAIRS_PER_BLOCK):
        index = np.arange(start, min(start + PAIRS_PER_BLOCK, total))
        yield Pairs(layout=index // workloads, workload=index % workloads)


def _layout_blocks(rows: IntArray, workloads: int) -> Iterator[IntArray]:
    """The layouts `rows` in order, in blocks that stay in the processor's cache."""
    size = max(1, POINT_PAIRS_PER_BLOCK // workloads)
    return (rows[start : start + size] for start in range(0, len(rows), size))


def _batch(prepared: PreparedLayouts, caps: IntArray | None) -> IntArray:
    """The most sequences that run [num_layouts, W], with at most `caps` [num_layouts], in the caller's order."""
    return prepared.max_batch if caps is None else np.minimum(prepared.max_batch, caps[prepared.order][:, None])


def _full_rps(prepared: PreparedLayouts, batch: IntArray) -> FloatArray:
    """Requests/s with so many sequences [num_layouts, W]."""
    return np.concatenate([np.empty(0), *(_block(prepared, pairs, batch) for pairs in _blocks(batch.shape))]).reshape(
        batch.shape
    )


def _block(prepared: PreparedLayouts, pairs: Pairs, batches: IntArray) -> FloatArray:
    """Requests/s of consecutive pairs [num_pairs]."""
    batch, rps = batches[pairs.layout, pairs.workload], np.zeros(len(pairs))
    served = np.flatnonzero(batch)
    rps[served] = compose(prepared.pipes, take_rows(pairs, served), batch[served].astype(np.float64)).rate_rps
    return rps


def _rates(prepared: PreparedLayouts, stages: ModelStages, batch: IntArray, full_rps: FloatArray) -> Rates:
    """In the caller's order of layouts."""
    back = np.argsort(prepared.order)
    rps = full_rps[back]
    band = stated_bands(prepared, stages, batch)[back]
    return Rates(
        rps=rps,
        batch=batch[back],
        low_rps=rps / band,
        high_rps=rps * band,
        layers=prepared.layers[back],
        fits=prepared.fits[back],
    )


def _points(prepared: PreparedLayouts, stages: ModelStages, mixes: FloatArray, found: list[FoundPoints]) -> Points:
    """Joins what was found, in the caller's order of layouts."""
    none = FoundPoints(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty((0, len(mixes))))
    joined = concatenated([*found, none])
    joined = take_rows(joined, np.argsort(prepared.order[joined.layout], kind="stable"))
    rows, batch = joined.layout, np.minimum(prepared.max_batch[joined.layout], joined.cap[:, None])
    return Points(
        layout=prepared.order[rows],
        max_batch=joined.cap,
        rps=joined.rps,
        low_rps=joined.rps * least_of(1.0 / stated_bands(prepared, stages, batch, rows), mixes),
        layers=prepared.layers[rows],
    )
