"""One sentence of evidence for a rate of the roofline: what it rests on, what holds it back, or why there is none.

Flow: Roofline.detail -> here -> prepare.py on the one layout, so that it costs nothing while solving.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from sutler.solver.problem import ServedModel
from sutler.solver.throughput.aiconfigurator import BAND as OPERATOR_BAND
from sutler.solver.throughput.aiconfigurator import would_help
from sutler.solver.throughput.base import Layouts, Rates
from sutler.solver.throughput.behaviour import at_worst, own_of
from sutler.solver.throughput.composer import Pairs, compose
from sutler.solver.throughput.latency import QUEUEING_NOTE, FirstToken, LimitOfEach, longest_wait_s
from sutler.solver.throughput.loaded import GRID, loaded_of
from sutler.solver.throughput.memory import MAX_SEQUENCES
from sutler.solver.throughput.prepare import Prepared, are_linked, known_spec, prepare, stated_bands
from sutler.solver.throughput.speeds import arithmetic
from sutler.solver.throughput.stages import ROOFLINE, Basis, ModelStages

_HARDLY_ANY = 0.005  # of the sequences run


def served_detail(
    model: ServedModel,
    layouts: Layouts,
    rates: Rates,
    layout: int,
    workload: int,
    source: ModelStages,
    engine: str,
    *,
    planned: bool = True,
) -> str:
    """For a rate above zero. `planned`: the batch was chosen here, so say what bounds it."""
    model, rates, workload = _one_workload(model, rates, workload)
    prepared = _prepared(model, layouts, rates, layout, source)
    pairs, batch = _pair(workload), int(rates.batch[layout, workload])
    bases = _bases(prepared, source, workload, batch)
    composed = compose(prepared.pipes, pairs, np.array([float(batch)]))
    stage = int(composed.bottleneck[0])
    share = float(composed.rate_rps[0] * composed.slowest_prefill_s[0])
    parts = [
        f"{' and '.join(dict.fromkeys(one.title for one in bases))}, {engine}",
        f"{', '.join(dict.fromkeys(one.sentence for one in bases))}; {_band_text(prepared, source, workload, batch)}",
        f"bottleneck {_stage_name(prepared, stage)}, {share:.0%} of its time in prefill",
        *_notes(prepared, model),
        *_better_known(prepared, model, source, bases),
    ]
    if planned:
        parts.append(f"batch {batch} bounded by {_batch_bound(prepared, workload, batch)}")
    if planned and prepared.limits:
        parts.append(f"percentiles from {QUEUEING_NOTE}")
    parts += _handed_over(prepared, rates, workload)
    return "; ".join(parts)


def source_names(
    model: ServedModel, layouts: Layouts, rates: Rates, layout: int, workload: int, source: ModelStages
) -> tuple[str, str]:
    """What answers for the stages: `roofline`, `profiles`, `aiconfigurator`, or several with a plus between them; and
    the versions of their data, likewise."""
    model, rates, workload = _one_workload(model, rates, workload)
    prepared = _prepared(model, layouts, rates, layout, source)
    bases = _bases(prepared, source, workload, int(rates.batch[layout, workload]))
    names, versions = (dict.fromkeys(column) for column in zip(*((b.source, b.version) for b in bases), strict=True))
    return "+".join(names), "+".join(versions)


def unserved_detail(
    model: ServedModel,
    layouts: Layouts,
    rates: Rates,
    layout: int,
    workload: int,
    source: ModelStages,
    first: FirstToken,
) -> str:
    """Why a rate is zero."""
    model, rates, workload = _one_workload(model, rates, workload)
    prepared = _prepared(model, layouts, rates, layout, source)
    for error in prepared.errors:
        if error is not None:
            return error
    if not are_linked(prepared.layouts)[0]:
        return "no bandwidth between two stages: give inter_machine_gb_per_s, or use one stage"
    spec, request = known_spec(model), model.workloads[workload]
    if request.input_tokens + request.output_tokens > spec.max_context_tokens:
        total = request.input_tokens + request.output_tokens
        return f"{total:g} tokens exceed the context of {spec.id}, {spec.max_context_tokens}"
    if prepared.max_batch[0, workload] < 1:
        return _memory_reason(prepared, model, workload)
    broken = ", ".join(_limit_name(limit) for limit in _broken(prepared, workload, first))
    return f"no batch and no load keep {broken or 'all limits at once'} ({QUEUEING_NOTE})"


def _one_workload(model: ServedModel, rates: Rates, workload: int) -> tuple[ServedModel, Rates, int]:
    """The question about one workload alone: the others' tables are not needed."""
    column = slice(workload, workload + 1)
    names = ("rps", "batch", "ttft_s", "tpot_s", "low_rps", "high_rps")
    only = replace(rates, **{name: getattr(rates, name)[:, column] for name in names})
    return replace(model, workloads=model.workloads[column]), only, 0


def _prepared(model: ServedModel, layouts: Layouts, rates: Rates, layout: int, source: ModelStages) -> Prepared:
    most = max(MAX_SEQUENCES, int(rates.batch[layout].max()))
    one, layers = layouts.only(layout), rates.layers[layout : layout + 1]
    return prepare(model, replace(one, layers=layers) if layers.any() else one, source, max_sequences=most)


def _pair(workload: int) -> Pairs:
    return Pairs(layout=np.array([0]), workload=np.array([workload]))


def _stage_name(prepared: Prepared, stage: int) -> str:
    kind = int(prepared.kind[0, stage])
    gpu = prepared.kinds.gpus[int(prepared.kinds.gpu[kind])].slug
    degree, layers = int(prepared.kinds.tensor_parallel[kind]), int(prepared.layers[0, stage])
    stages = int(prepared.pipes.stages[0])
    ranks = int(prepared.kinds.ranks[kind])
    if ranks > 1:
        return f"{gpu} x{degree * ranks} (DP{ranks}·EP{degree * ranks})"
    place = f" ({stage + 1} of {stages}, {layers} layers)" if stages > 1 else ""
    return f"{gpu} x{degree}{place}"


def _bases(prepared: Prepared, source: ModelStages, workload: int, batch: int) -> list[Basis]:
    """Of every kind of stage of the one layout."""
    kinds, traffic = prepared.kinds, prepared.pipes.traffic
    return [source.basis(kinds, traffic, kind=kind, workload=workload, batch=batch) for kind in range(len(kinds))]


def _band_text(prepared: Prepared, source: ModelStages, workload: int, batch: int) -> str:
    at = np.full((1, len(prepared.pipes.traffic.input_tokens)), batch)
    return f"error within a factor {stated_bands(prepared, source, at)[0, workload]:.2f}"


def _batch_bound(prepared: Prepared, workload: int, batch: int) -> str:
    if batch >= MAX_SEQUENCES:
        return "the engine's largest batch"
    if batch < prepared.max_batch[0, workload] and prepared.limits:
        return " and ".join(_limit_name(limit) for limit in prepared.limits)
    return "the memory for full-length KV caches"


def _handed_over(prepared: Prepared, rates: Rates, workload: int) -> list[str]:
    """What the network has to do with it, for prefill and decode replicas."""
    if prepared.layouts.role == "aggregated" or prepared.layouts.kv_gb_per_s is None:
        return []
    found = prepared.handover
    moves = {"prefill": "sends", "decode": "receives"}[prepared.layouts.role]
    size, seconds = found.kv_gb[workload], found.kv_s[0, workload]
    parts = [f"{prepared.layouts.role} only, {moves} {size:.3g} GB of keys and values a prompt in {seconds:.3g} s"]
    if float(rates.rps[0, workload]) * float(found.link_s[0, workload]) > 1 - 1e-6:
        parts.append("its network bounds the rate")
    return parts


def _notes(prepared: Prepared, model: ServedModel) -> list[str]:
    gpus = dict.fromkeys(int(gpu) for gpu in prepared.kinds.gpu)
    notes = dict.fromkeys(arithmetic(prepared.kinds.gpus[gpu], model.precision).note for gpu in gpus)
    return [note for note in notes if note]


def _better_known(prepared: Prepared, model: ServedModel, source: ModelStages, bases: Sequence[Basis]) -> list[str]:
    """GPUs whose rates the operator database would state more closely, were it there."""
    spec, kinds = known_spec(model), prepared.kinds
    slugs = []
    for gpu, degree, basis in zip(kinds.gpu, kinds.tensor_parallel, bases, strict=True):
        known = kinds.gpus[int(gpu)]
        is_assumed = basis.source == ROOFLINE and source.calibration.gpu_class(known).band > OPERATOR_BAND
        if is_assumed and would_help(known, spec, model.precision, model.kv_precision, int(degree)):
            slugs.append(known.slug)
    names = ", ".join(dict.fromkeys(slugs))
    return [f"aiconfigurator knows {names} better: pip install 'sutler[aiconfigurator]'"] if names else []


def _memory_reason(prepared: Prepared, model: ServedModel, workload: int) -> str:
    request = model.workloads[workload]
    need = f"the weights of {model.name} at {model.precision}"
    if not prepared.layers.any():
        return f"{need} and the KV cache of one sequence do not fit on the stages, whatever the layer split"
    tokens = request.input_tokens + request.output_tokens
    return f"{need} and the KV cache of one sequence of {tokens:g} tokens do not fit with this layer split"


def _broken(prepared: Prepared, workload: int, first: FirstToken) -> list[LimitOfEach]:
    """The limits that no cap keeps on its own at hardly any load."""
    loaded, caps = loaded_of(prepared, np.zeros(len(GRID), dtype=np.int64)), GRID
    capped = loaded.capped(caps)
    running = capped.running(np.full(len(GRID), _HARDLY_ANY))
    behaviour, own = at_worst(running, running.rps), own_of(capped, first.base_s)
    waits = [longest_wait_s(behaviour, own, limit)[:, workload] for limit in prepared.limits]
    return [limit for limit, longest_s in zip(prepared.limits, waits, strict=True) if (longest_s < 0).all()]


def _limit_name(limit: LimitOfEach) -> str:
    """Of the one workload."""
    return f"{limit.metric}_p{limit.percentile}_s {limit.seconds[0]:g}"
