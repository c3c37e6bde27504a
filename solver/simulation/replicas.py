"""From the replicas of a plan to what is simulated: their step times, cache and scheduler.

Flow: a plan's replicas, its models and GPUs -> simulated_replicas (here) -> fleet.py.

A replica whose rate was measured steps as fast as was measured: all of its seconds are multiplied by what the
roofline sustains over what the evidence says. With a user's calibration they are multiplied by what its runs say.
GPUs with a power cap are the slower cards that the cap makes of them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from sutler.solver.arrays import IntArray
from sutler.solver.catalog.entries import Gpu
from sutler.solver.catalog.power_caps import capped
from sutler.solver.errors import InvalidProblemError
from sutler.solver.plan import Evidence, Replica, Stage, sequences_of
from sutler.solver.problem import Role, ServedModel, Workload
from sutler.solver.simulation.bending import either_phases
from sutler.solver.simulation.engine import EngineSettings, Scheduling
from sutler.solver.simulation.fleet import SimulatedReplica
from sutler.solver.simulation.step_times import Lengths, StepTimes, step_times
from sutler.solver.throughput.base import Layouts
from sutler.solver.throughput.memory import MAX_SEQUENCES
from sutler.solver.throughput.operator_package import missing
from sutler.solver.throughput.roofline import Roofline
from sutler.solver.throughput.stage_times import CHUNK_TOKENS

MEASURED: Final = "measured"
OPERATORS: Final = "aiconfigurator"


def simulated_replicas(
    replicas: Sequence[Replica],
    *,
    models: Mapping[str, ServedModel],
    gpus: Mapping[str, Gpu],
    evidence: Sequence[Evidence],
    lengths: Mapping[str, Lengths],
    scheduling: Scheduling = "chunked",
    max_batched_tokens: int = 2048,
    roofline: Roofline | None = None,
    either_phase: Collection[str] = (),
) -> tuple[SimulatedReplica, ...]:
    """Makes the replicas of a plan, in the order given; equal replicas share their tables. `lengths`: by model;
    `either_phase`: the ids of replicas of one phase whose engines take either.

    Raises InvalidProblemError where an architecture or a layer split is unknown, or a model does not fit.
    """
    roofline = roofline or Roofline()
    known: dict[object, StepTimes] = {}
    found, phases = [], either_phases(replicas, models)
    for planned in replicas:
        model = models[planned.model].at(planned.precision)
        replica = with_layers(planned, model)
        rates = tuple((e.workload, e.rps) for e in evidence if e.replica == replica.id and _is_scaled(e.source))
        most = _most_sequences(replica)
        kind = (model.name, model.precision, replica.role, replica.data_parallel)
        key = (kind, tuple(map(_shape, replica.stages)), most, rates)
        if key not in known:
            known[key] = _times(replica, model, gpus, lengths[model.name], dict(rates), most, roofline)
        settings = EngineSettings(
            max_sequences=most,
            max_batched_tokens=max_batched_tokens,
            scheduling=scheduling,
            role=replica.role,
        )
        is_first = replica.role != "decode" or replica.id in either_phase  # of a hand-over, the first server's alone
        outside_s = roofline.first_token(model).base_s if is_first else 0.0
        bends = phases.get(replica.id) if replica.id in either_phase else None
        found.append(SimulatedReplica(replica.id, known[key], settings, outside_s, bends))
    return tuple(found)


def _most_sequences(replica: Replica) -> int:
    """What its engine takes at once: one that takes either phase is started for more than its plan counts on."""
    started_for = 0 if replica.role == "aggregated" else sequences_of(dict(replica.engine_args))
    return max(replica.max_batch or MAX_SEQUENCES, started_for)


def with_layers(replica: Replica, model: ServedModel) -> Replica:
    """Splits layers evenly where the plan says nothing of them, as engines do: it rests on measured rates alone."""
    if model.spec is None or any(stage.layers is not None for stage in replica.stages):
        return replica
    share, more = divmod(model.spec.layers, len(replica.stages))
    stages = (replace(stage, layers=share + (number < more)) for number, stage in enumerate(replica.stages))
    return replace(replica, stages=tuple(stages))


def _is_scaled(source: str) -> bool:
    """Whether nothing here knows the seconds behind a rate: measured, or from operators that are not at hand."""
    return source == MEASURED or (OPERATORS in source and missing() is not None)


def _shape(stage: Stage) -> tuple[object, ...]:
    links = (stage.intra_gb_per_s, stage.hop_gb_per_s)
    return (stage.gpu, stage.tensor_parallel, stage.layers, stage.piece, *links, stage.power_cap_watts)


def _times(
    replica: Replica,
    model: ServedModel,
    gpus: Mapping[str, Gpu],
    lengths: Lengths,
    measured_rps: Mapping[str, float],
    max_sequences: int,
    roofline: Roofline,
) -> StepTimes:
    layouts = layouts_of_replica(replica, gpus)
    times = step_times(model, layouts, roofline.simulation_stages(model), lengths, max_sequences=max_sequences)
    if times.kv_tokens < 1:
        remedy = f"{model.name} does not fit on its stages by the estimate: it cannot be simulated"
        raise InvalidProblemError(f"replicas[{replica.id}]", replica.id, remedy)
    if measured_rps:
        if replica.role == "aggregated":
            rates = roofline.rates(model, layouts).rps[0].tolist()
        else:
            rates = [
                sustained_rps(times, replica.role, max_sequences, workload, model.cached_fraction(workload))
                for workload in model.workloads
            ]
        return times.scaled(_slower(model, rates, measured_rps))
    return times.slowed(roofline.slower(model, layouts, max_batch=times.max_sequences).tolist())


def _slower(model: ServedModel, rates_rps: Sequence[float], measured_rps: Mapping[str, float]) -> float:
    """How much longer everything takes than the roofline says, by the workloads that were measured."""
    ratios = [
        rate_rps / measured_rps[workload.name]
        for workload, rate_rps in zip(model.workloads, rates_rps, strict=True)
        if measured_rps.get(workload.name, 0.0) > 0 and rate_rps > 0
    ]
    return float(np.exp(np.mean(np.log(ratios)))) if ratios else 1.0


def sustained_rps(
    times: StepTimes, role: Role, max_sequences: int, workload: Workload, cached_fraction: float = 0.0
) -> float:
    """Prompts/s, or answers/s, that a full replica of one role sustains; 0 where its cache holds none.

    Prompts fill a step of the stage that takes the longest; an answer of n tokens takes n - 1 steps of the
    whole batch, at the mean context.
    """
    if role == "prefill":
        prompt, cached = workload.input_tokens, workload.input_tokens * cached_fraction
        together = min(CHUNK_TOKENS / (prompt - cached), max_sequences)
        attention_s = [together * seconds for seconds in times.attention_of(prompt, cached)]
        return together / times.mixed_s(together * (prompt - cached), attention_s, 0, 0.0)
    steps, context = max(workload.output_tokens - 1.0, 0.0), workload.input_tokens + workload.output_tokens / 2
    batch = min(max_sequences, times.max_sequences, int(times.kv_tokens / context))
    return batch / (steps * times.line(batch, context).at(context)) if steps and batch else 0.0


def layouts_of_replica(replica: Replica, gpus: Mapping[str, Gpu]) -> Layouts:
    """The one layout of a replica, by the links that its plan states.

    Raises InvalidProblemError where the plan does not say how many layers a stage has.
    """
    stages = replica.stages
    if any(stage.layers is None for stage in stages):
        remedy = "the plan does not know the model's layers: give its architecture in the problem, and plan again"
        raise InvalidProblemError(f"replicas[{replica.id}].stages[].layers", None, remedy)
    names = tuple(dict.fromkeys(stage.gpu for stage in stages))
    follows = [index + 1 < len(stages) for index in range(len(stages))]
    hops = [
        (stage.hop_gb_per_s or 0.0) if goes_on else np.inf for stage, goes_on in zip(stages, follows, strict=True)
    ]
    across = [goes_on and stages[i].piece != stages[i + 1].piece for i, goes_on in enumerate(follows)]
    return Layouts(
        gpus=tuple(_as_capped(gpus[name], stages) for name in names),
        gpu=np.array([[names.index(stage.gpu) for stage in stages]]),
        tensor_parallel=np.array([[stage.tensor_parallel for stage in stages]]),
        intra_gb_per_s=np.array([[stage.intra_gb_per_s or 0.0 for stage in stages]]),
        hop_gb_per_s=np.array([hops], dtype=np.float64),
        cross_machine=np.array([across]),
        layers=np.array([[stage.layers for stage in stages]]),
        data_parallel=np.array([replica.data_parallel]),
    )


def _as_capped(gpu: Gpu, stages: Sequence[Stage]) -> Gpu:
    """The card at the cap that the stages on it state."""
    watts = next(stage.power_cap_watts for stage in stages if stage.gpu == gpu.slug)
    return gpu if watts is None or not gpu.tdp_watts else capped(gpu, watts / gpu.tdp_watts)


def lengths_of(model: ServedModel, input_tokens: IntArray, output_tokens: IntArray) -> Lengths:
    """The lengths of the requests for a model; of its workloads where there are none."""
    if not len(input_tokens):
        longest = max(w.input_tokens + w.output_tokens for w in model.workloads)
        return Lengths(longest, float(np.mean([w.input_tokens + w.output_tokens / 2 for w in model.workloads])))
    held = (input_tokens + output_tokens / 2) * output_tokens  # a request counts for as long as it decodes
    return Lengths(float((input_tokens + output_tokens).max()), float(held.sum() / output_tokens.sum()))
