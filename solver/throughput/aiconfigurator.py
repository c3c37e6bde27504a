"""The operator database aiconfigurator-core behind the stage questions, where it knows the stage.

Flow: Roofline.stages -> OperatorStages (here) -> operator_database.py. A sibling of RooflineStages (stages.py), whose
rows stay where the database knows nothing: another GPU, an architecture that was not measured, the package absent.

The database times operators, one kernel after the other, so its rows have no step overhead: T(n layers) = n x layer
+ rest. The rest is the output projection and the embedding. All of it is `head` in decode; in prefill what grows with
the prompt, the embedding and its all-reduce, is spread over the layers: the whole model takes exactly what the
database says, and a stage with some of the layers within 0.5 % of it.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from sutler.solver.arrays import BoolArray, FloatArray
from sutler.solver.catalog.entries import Gpu, ModelSpec, Precision
from sutler.solver.throughput.operator_database import ENGINE, OperatorTimes, Passes, operator_times
from sutler.solver.throughput.operator_models import link_error, model_error, quant_modes, system_error
from sutler.solver.throughput.operator_package import DISTRIBUTION, VERSION, missing
from sutler.solver.throughput.stages import Basis, StageKinds, StageSeconds, StagesOver, Traffic

BAND: Final = 1.4  # chosen: where no run at hand says how far off the database is
# A prompt that fills half a step, for what is asked of the database about products alone.
TYPICAL: Final = Traffic(np.array([1024.0]), np.array([1.0]), np.array([1024.0]))


@dataclass(frozen=True, slots=True)
class OperatorStages(StagesOver):
    """`base` with the rows of the kinds that the operator database knows replaced by what it says of `spec` with a
    cache of `kv_precision`. `everywhere`: also where `base` states a band that is no wider."""

    spec: ModelSpec
    kv_precision: Precision
    everywhere: bool = False

    def bands(self, kinds: StageKinds, traffic: Traffic) -> FloatArray:
        """See ModelStages."""
        found = self.base.bands(kinds, traffic).copy()
        for kind, _ in self._answering(kinds):
            found[kind] = self._band(kinds, kind)
        return found

    def basis(self, kinds: StageKinds, traffic: Traffic, *, kind: int, workload: int, batch: float) -> Basis:
        """See ModelStages."""
        slug = kinds.gpus[int(kinds.gpu[kind])].slug
        if self.answers(kinds)[kind]:
            version = f"{DISTRIBUTION} {VERSION}"
            return Basis("aiconfigurator", version, "operator database", f"{slug}: operators measured for {version}")
        return self.base.basis(kinds, traffic, kind=kind, workload=workload, batch=batch)

    def answers(self, kinds: StageKinds) -> BoolArray:
        """Whether the database is asked for each kind, and answers [num_kinds]."""
        found = dict(self._answering(kinds))
        return np.array([kind in found for kind in range(len(kinds))], dtype=np.bool_)

    def prefill(self, kinds: StageKinds, traffic: Traffic) -> StageSeconds:
        """See ModelStages; prompts in whole tokens."""
        rows = [
            (kind, times.prefill(traffic.new_tokens, traffic.input_tokens)) for kind, times in self._answering(kinds)
        ]
        return self._with(self.base.prefill(kinds, traffic), rows)

    def products(self, kinds: StageKinds, tokens: FloatArray) -> FloatArray:
        """See ModelStages: the roofline's, in the proportion in which the database differs on prompts."""
        return self.base.products(kinds, tokens) * self._ratio(kinds, TYPICAL)[:, :1]

    def riding(self, kinds: StageKinds, traffic: Traffic, *, max_batch: int) -> FloatArray:
        """See ModelStages: the roofline's, in that proportion."""
        return self.base.riding(kinds, traffic, max_batch=max_batch) * self._ratio(kinds, traffic)[:, :, None]

    def _ratio(self, kinds: StageKinds, traffic: Traffic) -> FloatArray:
        """By how much longer prompts take by the database than by the roofline [num_kinds, W]."""
        return self.prefill(kinds, traffic).per_layer / self.base.prefill(kinds, traffic).per_layer

    def decode(self, kinds: StageKinds, traffic: Traffic, *, max_batch: int) -> StageSeconds:
        """See ModelStages; mean contexts in whole tokens."""
        rows = [(kind, times.decode(traffic.mean_context, max_batch)) for kind, times in self._answering(kinds)]
        return self._with(self.base.decode(kinds, traffic, max_batch=max_batch), rows)

    def _with(self, seconds: StageSeconds, rows: list[tuple[int, Passes | None]]) -> StageSeconds:
        """The roofline's `seconds` but for the kinds that have an answer."""
        found = StageSeconds(seconds.per_layer.copy(), seconds.per_pass.copy(), seconds.head.copy())
        for kind, passes in rows:
            if passes is not None:
                found.per_layer[kind] = (passes.whole_s - passes.rest_s) / self.spec.layers
                found.per_pass[kind], found.head[kind] = 0.0, passes.rest_s
        return found

    def _answering(self, kinds: StageKinds) -> Iterator[tuple[int, OperatorTimes]]:
        for kind in range(len(kinds)):
            if not self._is_preferred(kinds, kind):
                continue
            times = self._times(kinds, kind)
            if not isinstance(times, str) and times.failure is None:
                yield kind, times

    def _is_preferred(self, kinds: StageKinds, kind: int) -> bool:
        """Never to a user's own runs on the GPU; else to the roofline where the database was nearer on runs of the
        GPU, or where there was none, by the bands, which need not open the database."""
        gpu, corrections = kinds.gpus[int(kinds.gpu[kind])], self.calibration.corrections
        if corrections is not None and any(slug == gpu.slug for slug, _, _ in corrections.points.labels):
            return False
        has_experts = self.spec.moe is not None
        known = self.calibration.compared_on(gpu, has_experts=has_experts)
        if self.everywhere:
            return True
        if known is not None:
            return known.operators_error_fraction < known.roofline_error_fraction
        return self.calibration.band(gpu, self.precision, self.engine.name, has_experts=has_experts) > BAND

    def _band(self, kinds: StageKinds, kind: int) -> float:
        gpu = kinds.gpus[int(kinds.gpu[kind])]
        known = self.calibration.compared_on(gpu, has_experts=self.spec.moe is not None)
        return BAND if known is None else known.operators_band

    def _times(self, kinds: StageKinds, kind: int) -> OperatorTimes | str:
        gpu, tensor_parallel = kinds.gpus[int(kinds.gpu[kind])], int(kinds.tensor_parallel[kind])
        if self.engine.name != ENGINE:
            return f"operators are asked for {ENGINE}, not for {self.engine.name}"
        if kinds.ranks[kind] > 1:
            return "operators are not asked for attention data parallelism"
        error = link_error(gpu, tensor_parallel, float(kinds.intra_gb_per_s[kind]))
        return error or operator_times(gpu, self.spec, self.precision, self.kv_precision, tensor_parallel)


def would_help(
    gpu: Gpu, spec: ModelSpec, precision: Precision, kv_precision: Precision, tensor_parallel: int
) -> bool:
    """Whether the database, where it is not installed, knows more of such stages than the roofline assumes."""
    if missing() is None or isinstance(quant_modes(spec, precision, kv_precision), str):
        return False
    return system_error(gpu, tensor_parallel) is None and model_error(spec) is None
