"""From a plan and addresses to what is sent where, and what the plan expects of it.

Flow: PlanDocument, --at -> targets_of -> Target -> load.py; measured -> runs.py. Only what a calibration can be
fitted to is measured: whole replicas of one kind of GPU, without speculation and power caps (docs/calibration.md).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isqrt
from typing import Final
from urllib.parse import urlsplit

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.plan import EvidenceDocument, PlanDocument, ReplicaDocument
from sutler.service.errors import FieldProblem
from sutler.service.translation.to_plan import gpus_of, served_models, solver_plan
from sutler.service.trial.engine import Address, Engine
from sutler.service.trial.errors import TrialError
from sutler.service.trial.load import MOST_CLIENTS, Load
from sutler.solver.estimate import Estimate, estimate
from sutler.solver.problem import ServedModel, Workload
from sutler.solver.simulation.replicas import layouts_of_replica, with_layers
from sutler.solver.throughput.base import Layouts
from sutler.solver.throughput.memory import MAX_SEQUENCES
from sutler.solver.throughput.roofline import Roofline

MOST_EACH: Final = 30  # requests of a client that are simulated; as profiles do (service/profiles/simulated.py)


@dataclass(frozen=True, slots=True)
class Target:
    """A replica of the plan that answers at an address. `model`: as the plan has it, at its precision;
    `evidence`: what the plan says of its rates, by workload; `checkpoint`: what the plan has the engine load."""

    address: Address
    replica: ReplicaDocument
    model: ServedModel
    layouts: Layouts
    evidence: Mapping[str, EvidenceDocument]
    served_as: str | None
    checkpoint: str

    def batch(self, workload: Workload, roofline: Roofline) -> int:
        """Requests that the plan has in flight on it at once, of this workload alone."""
        fit = int(roofline.rates(self._with(workload), self.layouts).batch[0, 0])
        return max(1, min(self.replica.max_batch or MAX_SEQUENCES, fit or MAX_SEQUENCES))

    def expected(self, workload: Workload, roofline: Roofline, *, concurrency: int, each: float) -> Estimate:
        """The same closed loop by the estimates of `roofline`, with `each` requests of a client."""
        return estimate(
            roofline,
            self._with(workload),
            self.layouts,
            concurrency=concurrency,
            length_spread_fraction=0.0,
            requests_per_client=min(max(round(each), 1), MOST_EACH),
        )

    def is_cached(self, workload: Workload) -> bool:
        """Whether the plan counts on prompts in the prefix cache, which random ones are not."""
        return self.model.cached_fraction(workload) > 0

    def _with(self, workload: Workload) -> ServedModel:
        """The model with these requests alone, no limits and no cached prompts."""
        alone = replace(workload, prefix_cache_hit_fraction=0.0, slo=None)
        return replace(self.model, workloads=(alone,), slo=(), prefix_cache_hit_fraction=0.0)

    def names(self) -> set[str]:
        """What a server that runs it may call the model."""
        spec = self.model.spec
        known = (self.replica.model, self.replica.checkpoint, self.checkpoint, spec and spec.id, spec and spec.hf_id)
        return {name for name in known if name}


def targets_of(
    plan: PlanDocument,
    at: Mapping[str, str],
    *,
    served_as: Mapping[str, str] | None = None,
    key: str | None = None,
    silence_s: float,
) -> tuple[Target, ...]:
    """The replicas that are named, in the order of the plan. Raises DocumentError naming all that cannot be."""
    named = served_as or {}
    if not at:
        raise DocumentError.of("--at", "say where replicas of the plan answer, as REPLICA=URL")
    replicas = {replica.id: replica for replica in plan.replicas}
    wrong = [*_unknown("--at", at, replicas), *_unknown("--served-as", named, at)]
    wrong += [FieldProblem("--at", repr(name), reason) for name, url in at.items() if (reason := _wrong_url(url))]
    models = served_models(plan)
    chosen = [replica for replica in plan.replicas if replica.id in at]
    wrong += [
        FieldProblem("--at", repr(replica.id), reason)
        for replica in chosen
        for reason in _unfit(replica, models[replica.model])
    ]
    if len({replica.engine for replica in chosen}) > 1:
        remedy = "name replicas of one engine: a calibration is fitted to one"
        wrong.append(FieldProblem("--at", ", ".join(sorted({replica.engine for replica in chosen})), remedy))
    if wrong:
        raise DocumentError(wrong)
    described = {replica.id: replica for replica in solver_plan(plan).replicas}
    gpus = gpus_of(plan)
    found = []
    for replica in chosen:
        model = models[replica.model].at(described[replica.id].precision)
        address = Address(replica.id, at[replica.id].rstrip("/").removesuffix("/v1"), key, silence_s)
        evidence = {one.workload: one for one in plan.evidence if one.replica == replica.id}
        layouts = layouts_of_replica(with_layers(described[replica.id], model), gpus)
        checkpoint = str(replica.engine_args.get("model", ""))
        found.append(Target(address, replica, model, layouts, evidence, named.get(replica.id), checkpoint))
    return tuple(found)


def check_served(target: Target) -> tuple[str, str]:
    """The name that the server has for the planned model, and the engine's version if it says it.

    Raises TrialError where it cannot be reached, or serves something else.
    """
    with Engine(target.address) as engine:
        served = engine.served()
        found = next((one for one in served if one.id == target.served_as), None)
        if target.served_as is None:
            found = next((one for one in served if {one.id, one.root} & target.names()), None)
        if found is None:
            listed, planned = ", ".join(one.id for one in served), target.served_as or target.replica.model
            remedy = f"correct the address, or say --served-as {target.replica.id}=NAME if it is the planned model"
            raise TrialError(f"{target.address.name} at {target.address.url} serves {listed}, not {planned}", remedy)
        longest = max(round(w.input_tokens) + round(w.output_tokens) for w in target.model.workloads)
        if found.max_tokens is not None and found.max_tokens < longest:
            reason = f"{target.address.name} takes {found.max_tokens} tokens, and a planned request has {longest}"
            raise TrialError(reason, "start it with the plan's arguments (`sutler export`)")
        return found.id, engine.version()


def loads_of(
    target: Target, roofline: Roofline, served: str, *, concurrencies: Sequence[int], seconds: float
) -> Iterator[tuple[Workload, Load]]:
    """What is sent to a replica: every workload that the plan routes to it, at each concurrency.

    None is given: alone, at the plan's batch, and halfway between these on a scale of factors.
    """
    assert target.model.spec is not None, "targets_of refuses models of unknown architecture"
    for workload in target.model.workloads:
        if target.replica.throughput_rps.get(workload.name, 0.0) <= 0:
            continue
        batch = min(target.batch(workload, roofline), MOST_CLIENTS)
        for concurrency in sorted(set(concurrencies or (1, isqrt(batch), batch))):
            yield (
                workload,
                Load(
                    served,
                    target.model.spec.vocab_size,
                    max(1, round(workload.input_tokens)),
                    max(1, round(workload.output_tokens)),
                    concurrency,
                    seconds,
                ),
            )


def _unknown(option: str, given: Mapping[str, str], known: Mapping[str, object]) -> Iterator[FieldProblem]:
    remedy = f"name one of {', '.join(known)}" if known else "the plan runs nothing"
    return (FieldProblem(option, repr(name), remedy) for name in given if name not in known)


def _wrong_url(url: str) -> str | None:
    """Why it is no address, without showing it: it may hold a password."""
    try:
        parts = urlsplit(url)
        known = parts.scheme in {"http", "https"} and parts.hostname and (parts.port or True)
    except ValueError:
        known = False
    is_plain = known and not (parts.query or parts.fragment or "@" in url or any(map(str.isspace, url)))
    return None if is_plain else "must be http(s)://HOST[:PORT] and, at most, a path; the key is SUTLER_REPLICA_KEY"


def _unfit(replica: ReplicaDocument, model: ServedModel) -> Iterator[str]:
    """Why runs of such a replica say nothing to a calibration."""
    if model.spec is None:
        yield "its rates are measured and its architecture is unknown: there is no estimate to correct"
    if replica.role != "aggregated":
        yield f"is a {replica.role} replica: a calibration is fitted to replicas that do both"
    if len({(stage.gpu, stage.tensor_parallel) for stage in replica.stages}) > 1 or replica.data_parallel > 1:
        yield "has unlike stages or ranks of attention: a calibration is fitted to tensor-parallel replicas"
    if model.speculation is not None:
        yield "guesses tokens (speculation): how many are right hangs on the text, which random prompts are not"
    if any(stage.power_cap_watts is not None for stage in replica.stages):
        yield "has a power cap: a calibration is of the card without one"
