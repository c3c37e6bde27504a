"""The stage questions, answered by the roofline and corrected by a user's own runs near what is asked.

Flow: Roofline.planning_stages -> CorrectedStages (here) -> composer.py. A run says how many requests/s came out: the
seconds of b sequences are corrected as runs say of b in flight. Where runs with one request in flight tell what
decode steps take, prompts take the rest; else both are corrected alike.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from sutler.solver.arrays import FloatArray
from sutler.solver.calibration.corrections import Corrections, RunPoints, narrowed
from sutler.solver.catalog.entries import ModelSpec
from sutler.solver.throughput.stages import (
    BAND_BATCHES,
    Basis,
    StageKinds,
    StageSeconds,
    StagesOver,
    Traffic,
    nearest_band_batch,
)

# Chosen: what is outside the layers is not corrected; where it is most of a step, layers would have to be negative.
MOST_RATIO: Final = 3.0
PROFILES: Final = "profiles"
# Chosen: below this share of the variance (half of the deviation) a rate rests on the user's runs more than on the
# roofline.
MOST_LEFT: Final = 0.25


class Slower(NamedTuple):
    """Factors [num_kinds, W, n] on the time of a request, and on what prompts and decode steps take of it."""

    whole: FloatArray
    prompts: FloatArray
    steps: FloatArray


Key = tuple[tuple[tuple[str, int, int], ...], tuple[float, ...], tuple[float, ...]]


@dataclass(frozen=True, slots=True)
class CorrectedStages(StagesOver):
    """`base` answers; `corrections` are of its engine; `known` keeps what was asked before."""

    spec: ModelSpec
    corrections: Corrections
    known: dict[Key, tuple[Slower, FloatArray]] = field(default_factory=dict, compare=False, repr=False)

    def prefill(self, kinds: StageKinds, traffic: Traffic) -> StageSeconds:
        """See ModelStages."""
        found = self.base.prefill(kinds, traffic)
        whole = self.work.layers * found.per_layer + (found.head + found.per_pass)[:, None]
        corrected = whole * self.factors(kinds, traffic, np.array([self.alone_batch])).prompts[:, :, 0]
        per_layer = (corrected - (found.head + found.per_pass)[:, None]) / self.work.layers
        return StageSeconds(np.maximum(per_layer, found.per_layer / MOST_RATIO), found.per_pass, found.head)

    def products(self, kinds: StageKinds, tokens: FloatArray) -> FloatArray:
        """See ModelStages: simulations ask the base, and are slowed as a whole (Roofline.slower)."""
        return self.base.products(kinds, tokens)

    def riding(self, kinds: StageKinds, traffic: Traffic, *, max_batch: int) -> FloatArray:
        """See ModelStages."""
        found = self.base.riding(kinds, traffic, max_batch=max_batch)
        return found * self.factors(kinds, traffic, np.arange(max_batch + 1, dtype=np.float64)).prompts

    def decode(self, kinds: StageKinds, traffic: Traffic, *, max_batch: int) -> StageSeconds:
        """See ModelStages."""
        found = self.base.decode(kinds, traffic, max_batch=max_batch)
        outside = (found.head + found.per_pass[:, None])[:, None, :]
        step = self.work.layers * found.per_layer + outside
        wanted = step * self.factors(kinds, traffic, np.arange(max_batch + 1, dtype=np.float64)).steps
        per_layer = np.maximum((wanted - outside) / self.work.layers, found.per_layer / MOST_RATIO)
        return StageSeconds(per_layer, found.per_pass, found.head)

    def bands(self, kinds: StageKinds, traffic: Traffic) -> FloatArray:
        """See ModelStages: as much narrower as the runs leave of the variance."""
        return narrowed(self.base.bands(kinds, traffic), self._left(kinds, traffic))

    def basis(self, kinds: StageKinds, traffic: Traffic, *, kind: int, workload: int, batch: float) -> Basis:
        """See ModelStages: `profiles` where the runs explain most of the error."""
        found = self.base.basis(kinds, traffic, kind=kind, workload=workload, batch=batch)
        left = self._left(kinds, traffic)[kind, workload, int(nearest_band_batch(np.array(batch)))]
        faster = self.faster(kinds, traffic, batch)[kind, workload]
        runs = f"{self.corrections.runs} runs of calibration {self.calibration.name} make it x{faster:.2f}"
        source = PROFILES if left <= MOST_LEFT else found.source
        return Basis(source, found.version, found.title, f"{found.sentence}; {runs}")

    def _left(self, kinds: StageKinds, traffic: Traffic) -> FloatArray:
        """Share of the variance of the error that the runs leave [num_kinds, W, len(BAND_BATCHES)]."""
        return self._kriged(kinds, traffic)[1]

    def _kriged(self, kinds: StageKinds, traffic: Traffic) -> tuple[Slower, FloatArray]:
        """Factors at BAND_BATCHES and the share left there, computed once: tables, bands and evidence ask for the
        same ones."""
        slugs = [kinds.gpus[int(gpu)].slug for gpu in kinds.gpu]
        shards = tuple(zip(slugs, kinds.tensor_parallel.tolist(), kinds.ranks.tolist(), strict=True))
        key: Key = (shards, tuple(traffic.input_tokens.tolist()), tuple(traffic.output_tokens.tolist()))
        if key not in self.known:
            shape = (len(kinds), len(traffic.input_tokens), len(BAND_BATCHES))
            points = self._points(kinds, traffic)
            mean, left = self.corrections.at(points)
            whole, stepping = np.exp(-mean), self._stepping_fraction(kinds, traffic).ravel()
            factors = (whole, *self.corrections.split(points, whole, stepping))
            self.known[key] = (Slower(*(one.reshape(shape) for one in factors)), left.reshape(shape))
        return self.known[key]

    def _stepping_fraction(self, kinds: StageKinds, traffic: Traffic) -> FloatArray:
        """What of a request's time on a GPU that has all layers are its own decode steps, at BAND_BATCHES."""
        if self.corrections.phases is None:
            return np.zeros((len(kinds), len(traffic.input_tokens), len(BAND_BATCHES)))
        most, at = int(BAND_BATCHES[-1]), BAND_BATCHES.astype(np.int64)
        decode = self.base.decode(kinds, traffic, max_batch=most)
        step = self.work.layers * decode.per_layer + (decode.head + decode.per_pass[:, None])[:, None, :]
        steps = traffic.decode_steps[:, None] * step[:, :, at]
        prompts = BAND_BATCHES * self.work.layers * self.base.riding(kinds, traffic, max_batch=most)[:, :, at]
        return np.asarray(steps / np.maximum(steps + prompts, 1e-12))

    def faster(self, kinds: StageKinds, traffic: Traffic, batch: float) -> FloatArray:
        """The factor by which the runs raise the rate at a batch [num_kinds, W]."""
        return np.asarray(1.0 / self.factors(kinds, traffic, np.array([batch])).whole[:, :, 0])

    def factors(self, kinds: StageKinds, traffic: Traffic, batch: FloatArray) -> Slower:
        """Factors at each batch [num_kinds, W, len(batch)]."""
        found, _ = self._kriged(kinds, traffic)
        place = np.interp(np.log2(np.maximum(batch, 1.0)), np.log2(BAND_BATCHES), np.arange(len(BAND_BATCHES)))
        low = np.minimum(place.astype(np.int64), len(BAND_BATCHES) - 2)
        share = place - low
        return Slower(*(one[:, :, low] * (one[:, :, low + 1] / one[:, :, low]) ** share for one in found))

    @property
    def alone_batch(self) -> float:
        """As which a prompt that is alone is corrected: one where runs tell prompts from decode steps, else the
        geometric mean of their concurrencies."""
        return 1.0 if self.corrections.phases else float(2.0 ** np.mean(self.corrections.points.log2[:, 2]))

    def _points(self, kinds: StageKinds, traffic: Traffic) -> RunPoints:
        """Every kind, workload and batch of BAND_BATCHES, in this order of axes."""
        kind, workload, which = (
            axis.ravel() for axis in np.indices((len(kinds), len(traffic.input_tokens), len(BAND_BATCHES)))
        )
        lengths = [traffic.input_tokens[workload], traffic.output_tokens[workload], BAND_BATCHES[which]]
        degrees = (kinds.tensor_parallel * kinds.ranks)[kind].astype(np.float64)
        slugs = [kinds.gpus[int(gpu)].slug for gpu in kinds.gpu]
        spread = self.calibration.spread(self.base.bands(kinds, traffic)[:, 0, 0])
        labels = tuple((slugs[int(one)], self.spec.id, self.precision) for one in kind)
        return RunPoints(np.log2(np.stack([*lengths, degrees], axis=1)), labels, spread[kind])
