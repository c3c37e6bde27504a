"""One sentence of evidence for a rate of the roofline: what it rests on, what holds it back, or why there is none.

Flow: Roofline.basis -> RateEvidence (here) -> prepare.py on the one layout, so that it costs nothing while solving.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sutler.solver.problem import ServedModel
from sutler.solver.throughput.aiconfigurator import BAND as OPERATOR_BAND
from sutler.solver.throughput.aiconfigurator import would_help
from sutler.solver.throughput.base import Layouts, Rates
from sutler.solver.throughput.behaviour import at_worst
from sutler.solver.throughput.composer import Pairs, compose
from sutler.solver.throughput.latency import QUEUEING_NOTE, LimitOfEach, longest_wait_s
from sutler.solver.throughput.loaded import GRID, loaded_of
from sutler.solver.throughput.memory import MAX_SEQUENCES
from sutler.solver.throughput.operator_package import REMEDY
from sutler.solver.throughput.prepare import PreparedLayouts, are_linked, known_spec, prepare, stated_bands
from sutler.solver.throughput.speeds import arithmetic
from sutler.solver.throughput.stages import ROOFLINE, Basis, ModelStages

_HARDLY_ANY = 0.005  # of the sequences run; chosen: about one of the 256 that engines run at most


class RateEvidence:
    """What one rate of the roofline rests on: the question about one layout and one workload, asked once more.

    The other workloads are left out, since their tables are not needed.
    """

    def __init__(
        self, model: ServedModel, layouts: Layouts, rates: Rates, layout: int, workload: int, source: ModelStages
    ) -> None:
        self._rps, self._batch = float(rates.rps[layout, workload]), int(rates.batch[layout, workload])
        self._model = replace(model, workloads=model.workloads[workload : workload + 1])
        self._spec, self._source = known_spec(model), source
        one, layers = layouts.only(layout), rates.layers[layout : layout + 1]
        one = replace(one, layers=layers) if layers.any() else one
        prepared = prepare(self._model, one, source, max_sequences=max(MAX_SEQUENCES, self._batch))
        self._prepared, self._kinds = prepared, prepared.kinds

    def served(self, engine: str, *, is_planned: bool = True) -> str:
        """Explains a rate above zero. `is_planned`: the batch was chosen here, so say what bounds it."""
        prepared, bases = self._prepared, self._bases()
        composed = compose(prepared.pipes, Pairs(np.array([0]), np.array([0])), np.array([float(self._batch)]))
        share = float(composed.rate_rps[0] * composed.slowest_prefill_s[0])
        band = stated_bands(prepared, self._source, np.array([[self._batch]]))[0, 0]
        parts = [
            f"{' and '.join(dict.fromkeys(one.title for one in bases))}, {engine}",
            f"{', '.join(dict.fromkeys(one.sentence for one in bases))}; error within a factor {band:.2f}",
            f"bottleneck {self._stage_name(int(composed.bottleneck[0]))}, {share:.0%} of its time in prefill",
            *self._notes(),
            *self._better_known(bases),
        ]
        if is_planned:
            parts.append(f"batch {self._batch} bounded by {self._batch_bound()}")
        if is_planned and prepared.limits:
            parts.append(f"percentiles from {QUEUEING_NOTE}")
        return "; ".join([*parts, *self._handed_over()])

    def source(self) -> tuple[str, str]:
        """What answers for the stages: `roofline`, `profiles`, `aiconfigurator`, or several with a plus between them;
        and the versions of their data, likewise."""
        pairs = ((basis.source, basis.version) for basis in self._bases())
        names, versions = (dict.fromkeys(column) for column in zip(*pairs, strict=True))
        return "+".join(names), "+".join(versions)

    def unserved(self, base_s: float) -> str:
        """Why a rate is zero; `base_s` as of latency.FirstToken."""
        prepared, spec, request = self._prepared, self._spec, self._model.workloads[0]
        for error in prepared.errors:
            if error is not None:
                return error
        if not are_linked(prepared.layouts)[0]:
            return "no bandwidth between two stages: give inter_machine_gb_per_s, or use one stage"
        total = request.input_tokens + request.output_tokens
        if total > spec.max_context_tokens:
            return f"{total:g} tokens exceed the context of {spec.id}, {spec.max_context_tokens}"
        if prepared.max_batch[0, 0] < 1:
            need = f"the weights of {self._model.name} at {self._model.precision}"
            if not prepared.layers.any():
                return f"{need} and the KV cache of one sequence do not fit on the stages, whatever the layer split"
            return f"{need} and the KV cache of one sequence of {total:g} tokens do not fit with this layer split"
        broken = ", ".join(_limit_name(limit) for limit in _broken(prepared, base_s))
        return f"no batch and no load keep {broken or 'all limits at once'} ({QUEUEING_NOTE})"

    def _stage_name(self, stage: int) -> str:
        kind = int(self._prepared.kind[0, stage])
        gpu = self._kinds.gpus[int(self._kinds.gpu[kind])].slug
        degree, ranks = int(self._kinds.tensor_parallel[kind]), int(self._kinds.ranks[kind])
        if ranks > 1:
            return f"{gpu} x{degree * ranks} (DP{ranks}·EP{degree * ranks})"
        stages, layers = int(self._prepared.pipes.stages[0]), int(self._prepared.layers[0, stage])
        place = f" ({stage + 1} of {stages}, {layers} layers)" if stages > 1 else ""
        return f"{gpu} x{degree}{place}"

    def _bases(self) -> list[Basis]:
        """What every kind of stage of the layout rests on."""
        traffic = self._prepared.pipes.traffic
        return [
            self._source.basis(self._kinds, traffic, kind=kind, workload=0, batch=self._batch)
            for kind in range(len(self._kinds))
        ]

    def _batch_bound(self) -> str:
        prepared = self._prepared
        if self._batch >= MAX_SEQUENCES:
            return "the engine's largest batch"
        if self._batch < prepared.max_batch[0, 0] and prepared.limits:
            return " and ".join(_limit_name(limit) for limit in prepared.limits)
        return "the memory for full-length KV caches"

    def _handed_over(self) -> list[str]:
        """What the network has to do with it, for prefill and decode replicas."""
        role, found = self._prepared.layouts.role, self._prepared.handover
        if role == "aggregated" or self._prepared.layouts.kv_gb_per_s is None:
            return []
        moves = {"prefill": "sends", "decode": "receives"}[role]
        size, seconds = found.kv_gb[0], found.kv_s[0, 0]
        parts = [f"{role} only, {moves} {size:.3g} GB of keys and values a prompt in {seconds:.3g} s"]
        if self._rps * float(found.link_s[0, 0]) > 1 - 1e-6:
            parts.append("its network bounds the rate")
        return parts

    def _notes(self) -> list[str]:
        gpus = dict.fromkeys(int(gpu) for gpu in self._kinds.gpu)
        notes = dict.fromkeys(arithmetic(self._kinds.gpus[gpu], self._model.precision).note for gpu in gpus)
        return [note for note in notes if note]

    def _better_known(self, bases: Sequence[Basis]) -> list[str]:
        """GPUs whose rates the operator database would state more closely, were it there."""
        model, kinds = self._model, self._kinds
        slugs = []
        for gpu, degree, basis in zip(kinds.gpu, kinds.tensor_parallel, bases, strict=True):
            known = kinds.gpus[int(gpu)]
            is_assumed = basis.source == ROOFLINE and self._source.calibration.gpu_class(known).band > OPERATOR_BAND
            if is_assumed and would_help(known, self._spec, model.precision, model.kv_precision, int(degree)):
                slugs.append(known.slug)
        names = ", ".join(dict.fromkeys(slugs))
        return [f"aiconfigurator knows {names} better: {REMEDY}"] if names else []


def _broken(prepared: PreparedLayouts, base_s: float) -> list[LimitOfEach]:
    """The limits of the one workload that no cap keeps on its own at hardly any load."""
    loaded = loaded_of(prepared, np.zeros(len(GRID), dtype=np.int64), base_s=base_s)
    behaviour = at_worst(loaded.capped(GRID).running(np.full(len(GRID), _HARDLY_ANY)))
    waits = [longest_wait_s(behaviour, loaded.own, limit)[0] for limit in prepared.limits]
    return [limit for limit, longest_s in zip(prepared.limits, waits, strict=True) if (longest_s < 0).all()]


def _limit_name(limit: LimitOfEach) -> str:
    """Names a limit of the one workload."""
    return f"{limit.metric}_p{limit.percentile}_s {limit.seconds[0]:g}"
