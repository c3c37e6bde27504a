"""A plan document of an offline application as a schedule: what to stop, keep and start in each step.

Flow: OfflinePlanDocument -> schedule_of (here) -> OfflineScheduleDocument -> script.py. One step for each stage as it
ran in the simulation, since those stages have places: models that have to wait for GPUs, or that go on beyond the
stage that they were planned for, are in them already.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from sutler.service.documents.errors import DocumentError
from sutler.service.errors import FieldProblem, short_repr
from sutler.service.export.command import HEALTH_PATH, VLLM_VERSION
from sutler.service.export.layout import Value, further_arguments
from sutler.service.export.naming import dns_labels
from sutler.service.export.result import NothingToRunError
from sutler.service.offline.plan_schema import OfflinePlanDocument, PlacedReplica, SimulatedStage, StageModel
from sutler.service.offline.running.engine import LOOPBACK, engine_warnings, loaded, serve_words, start_up_limit_s
from sutler.service.offline.schedule_schema import (
    OfflineScheduleDocument,
    RequestCount,
    ScheduledHost,
    ScheduledStart,
    ScheduleModel,
    ScheduleReplica,
    ScheduleStep,
    StepEnd,
)

FIRST_PORT: Final = 8000
LAST_PORT: Final = 65_535
_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")
Running = dict[str, ScheduledStart]


def schedule_of(
    plan: OfflinePlanDocument, *, first_port: int = FIRST_PORT, arguments: Iterable[str] = ()
) -> OfflineScheduleDocument:
    """The schedule of a plan; ports are counted from `first_port` on every host. `arguments`: of all servers besides,
    as NAME=VALUE by vLLM's names.

    Raises NothingToRunError for a plan without stages, DocumentError for one that contradicts itself.
    """
    check_runnable(plan)
    files = file_names(model.name for model in plan.models)
    running = [_running(stage, files) for stage in plan.stages]
    return OfflineScheduleDocument(
        schema="sutler/offline-schedule/v1",
        plan=plan.id,
        revision=plan.revision,
        application=plan.application.name,
        engine=f"vLLM {VLLM_VERSION}",
        makespan_s=max(stage.end_s for stage in plan.stages) if plan.makespan_s is None else plan.makespan_s,
        hosts=tuple(_hosts(plan, running)),
        models=tuple(
            ScheduleModel(model=model.name, file=files[model.name], requests=model.requests) for model in plan.models
        ),
        replicas=tuple(_replicas(plan, files, first_port, further_arguments(arguments))),
        steps=tuple(_steps(plan, running)),
        warnings=(*engine_warnings(plan), *plan.warnings),
    )


def _running(stage: SimulatedStage, files: Mapping[str, str]) -> Running:
    found = {}
    for model in stage.models:
        for replica in model.replicas:
            name = replica_id(files[model.model], tensor_parallel=model.tensor_parallel, number=replica.number)
            gpus = tuple(sorted(gpu.gpu for gpu in replica.gpus))
            environment = {"CUDA_DEVICE_ORDER": "PCI_BUS_ID", "CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))}
            found[name] = ScheduledStart(
                id=name,
                host=replica.gpus[0].host,
                gpus=gpus,
                environment=environment,
                expected_ready_s=replica.ready_s,
            )
    return found


def _hosts(plan: OfflinePlanDocument, running: Iterable[Running]) -> Iterator[ScheduledHost]:
    assert plan.hardware is not None, "check_runnable lets no plan through without hardware"
    used = {start.host for step in running for start in step.values()}
    machines = {
        host: f"{rental.gpus} x {rental.gpu}, offer {rental.offer_id} of {rental.provider}"
        for rental in plan.rentals
        for host in rental.hosts
    }
    for host in sorted(used):
        yield ScheduledHost(
            host=host,
            machine=machines.get(host),
            islands=tuple(tuple(sorted(island.gpus)) for island in plan.hardware.islands if island.host == host),
            spans_islands=plan.hardware.across_gb_per_s > 0,
        )


def _replicas(
    plan: OfflinePlanDocument, files: Mapping[str, str], first_port: int, further: Mapping[str, Value]
) -> Iterator[ScheduleReplica]:
    """Yields replicas in the order of their first use; one that changes its host is a replica on each."""
    models = {model.name: model for model in plan.models}
    waits_s = _longest_waits_s(plan)
    is_alone = len({host for _, _, _, host in waits_s}) == 1
    ports: dict[int, int] = {}
    for (name, degree, number, host), wait_s in waits_s.items():
        port = ports[host] = ports.get(host, first_port - 1) + 1
        if port > LAST_PORT:
            raise DocumentError.of("--port", f"host {host} runs out of ports: begin lower", value=first_port)
        yield ScheduleReplica(
            id=replica_id(files[name], tensor_parallel=degree, number=number),
            model=name,
            host=host,
            tensor_parallel=degree,
            port=port,
            command=serve_words(
                plan, models[name], tensor_parallel=degree, port=port, is_alone=is_alone, further=further
            ),
            health_url=f"http://{LOOPBACK}:{port}{HEALTH_PATH}",
            health_limit_s=start_up_limit_s(wait_s),
        )


def _longest_waits_s(plan: OfflinePlanDocument) -> dict[tuple[str, int, int, int], float]:
    """Seconds until a replica serves, downloads counted, by model, GPUs, number and host."""
    load_s = {model.name: model.load_s for model in plan.models}
    found: dict[tuple[str, int, int, int], float] = {}
    for stage in plan.stages:
        for one in stage.models:
            for replica in one.replicas:
                key = (one.model, one.tensor_parallel, replica.number, replica.gpus[0].host)
                loading_s = load_s[one.model].get(str(one.tensor_parallel), 0.0)
                found[key] = max(found.get(key, 0.0), loading_s, replica.ready_s - stage.start_s)
    return found


def _steps(plan: OfflinePlanDocument, running: Iterable[Running]) -> Iterator[ScheduleStep]:
    requests = {model.name: model.requests for model in plan.models}
    before: Running = {}
    for stage, now in zip(plan.stages, running, strict=True):
        kept = {name for name, start in now.items() if name in before and _place(before[name]) == _place(start)}
        yield ScheduleStep(
            start_s=stage.start_s,
            end_s=stage.end_s,
            stop=tuple(name for name in before if name not in kept),
            keep=tuple(name for name in now if name in kept),
            start=tuple(start for name, start in now.items() if name not in kept),
            running=tuple(now.values()),
            ends=_end(stage, requests),
        )
        before = now


def _place(start: ScheduledStart) -> tuple[int, tuple[int, ...]]:
    return start.host, start.gpus


def _end(stage: SimulatedStage, requests: Mapping[str, int]) -> StepEnd:
    """`until` of a plan is a share of the model's tokens: requests are what a client can count.

    Where the simulated stage ended by it, they are those that were finished then.
    """
    expected = tuple(one.model for one in stage.models if one.finished_requests >= requests[one.model])
    waited_for = next((one for one in stage.models if stage.until and one.model == stage.until.model), None)
    if stage.until is None or waited_for is None:
        return StepEnd(expected=expected, until=None)
    share = round(stage.until.fraction * requests[waited_for.model])
    count = share if expected else waited_for.finished_requests
    return StepEnd(expected=expected, until=RequestCount(model=waited_for.model, requests=max(1, count)))


def file_names(models: Iterable[str]) -> dict[str, str]:
    """A name for each model, unique among them: letters, digits, dots, hyphens and underscores, no dot first.

    A model with such a name keeps it; any other gets its readable part and a digest of the whole.
    """
    given = list(dict.fromkeys(models))
    names = {model: model for model in given if _PLAIN.fullmatch(model)}
    labels = dns_labels([*names, *(model for model in given if model not in names)])
    return {model: names.get(model, labels[model]) for model in given}


def replica_id(file: str, *, tensor_parallel: int, number: int) -> str:
    """Unique for every replica of every model: read from the right, it says which it is."""
    return f"{file}-tp{tensor_parallel}-{number}"


def check_runnable(plan: OfflinePlanDocument) -> None:
    """Raises NothingToRunError for a plan without stages, DocumentError with every contradiction."""
    if not plan.stages or plan.hardware is None:
        conflicts = "; ".join(
            f"{one.constraint} needs {one.needed:g} {one.unit}, there is {one.available:g}" for one in plan.conflicts
        )
        remedy = conflicts or "give it requests, hardware that its models fit on, or more time, and plan again"
        raise NothingToRunError(f"the plan is {plan.status} and has no stages", remedy)
    stages = (problem for at, stage in enumerate(plan.stages) for problem in _stage(plan, at, stage))
    problems = [*_models(plan), *stages]
    if problems:
        raise DocumentError(problems)


def _models(plan: OfflinePlanDocument) -> Iterator[FieldProblem]:
    for position, model in enumerate(plan.models):
        named = loaded(model)
        if named.startswith("-"):
            remedy = "must name the model to load: a repository or a path, which does not begin with -"
            yield FieldProblem(f"models[{position}].architecture.hf_id", short_repr(named), remedy)


def _stage(plan: OfflinePlanDocument, at: int, stage: SimulatedStage) -> Iterator[FieldProblem]:
    known = {model.name for model in plan.models}
    there = {(i.host, gpu) for i in plan.hardware.islands for gpu in i.gpus} if plan.hardware else set()
    taken: dict[tuple[int, int], str] = {}
    seen: set[str] = set()
    for position, model in enumerate(stage.models):
        path = f"stages[{at}].models[{position}]"
        if model.model not in known or model.model in seen:
            remedy = "must be one of the plan's models, each at most once in a stage"
            yield FieldProblem(f"{path}.model", short_repr(model.model), remedy)
        seen.add(model.model)
        for number, replica in enumerate(model.replicas):
            yield from _replica(f"{path}.replicas[{number}]", model, replica, there, taken)


def _replica(
    path: str,
    model: StageModel,
    replica: PlacedReplica,
    there: set[tuple[int, int]],
    taken: dict[tuple[int, int], str],
) -> Iterator[FieldProblem]:
    gpus = [(gpu.host, gpu.gpu) for gpu in replica.gpus]
    shown = short_repr(gpus)
    if len(set(gpus)) != model.tensor_parallel or len(gpus) != model.tensor_parallel:
        remedy = f"must name as many GPUs as tensor_parallel, {model.tensor_parallel}"
        yield FieldProblem(f"{path}.gpus", shown, remedy)
    if len({host for host, _ in gpus}) > 1:
        yield FieldProblem(f"{path}.gpus", shown, "must be on one host: a replica does not span machines")
    if not set(gpus) <= there:
        yield FieldProblem(f"{path}.gpus", shown, "must be GPUs that hardware.islands lists")
    for gpu in gpus:
        owner = taken.setdefault(gpu, path)
        if owner != path:
            yield FieldProblem(f"{path}.gpus", shown, f"takes a GPU that {owner} has in the same stage")
            break
    if [one.number for one in model.replicas].count(replica.number) > 1:
        yield FieldProblem(f"{path}.number", str(replica.number), "is used twice: every replica needs its own")
