"""Replicas that run already, benchmarked, and what their numbers change of the plan that they are of."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sutler.service.documents.calibration import CalibrationDocument
from sutler.service.documents.fields import finite
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.what_if import WhatIfDocument
from sutler.service.library.problems import names_in
from sutler.service.library.what_if import what_if
from sutler.service.main import opened_profiles
from sutler.service.profiles.errors import NothingToFitError
from sutler.service.profiles.readers import RunsRead
from sutler.service.profiles.repository import RunFilter
from sutler.service.settings import replica_key
from sutler.service.simulation.simulated import Choices, simulated
from sutler.service.simulation.traffic import PoissonTraffic
from sutler.service.translation.names import Names
from sutler.service.translation.to_plan import gpus_of, roofline_of, served_models
from sutler.service.trial.load import BUSY_FRACTION, measured
from sutler.service.trial.runs import TargetRun, benchmark_run
from sutler.service.trial.schemas import ExpectedLoad, TrialDocument, TrialRun
from sutler.service.trial.targets import check_served, loads_of, targets_of
from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.throughput.roofline import Roofline

if TYPE_CHECKING:
    from sutler.service.profiles.calibrating import Calibrated

Tell = Callable[[str], None]


def measure(
    plan: PlanDocument,
    at: Mapping[str, str],
    *,
    seconds: float,
    concurrencies: Sequence[int] = (),
    served_as: Mapping[str, str] | None = None,
    engine_version: str | None = None,
    silence_s: float = 300.0,
    tell: Tell = lambda _: None,
) -> tuple[TargetRun, ...]:
    """Runs every load of the replicas that answer at these addresses, one after the other; all are asked what they
    serve before the first load.

    Raises DocumentError for replicas that cannot be measured, TrialError where one does not answer as it must.
    """
    targets = targets_of(plan, at, served_as=served_as, key=replica_key(), silence_s=silence_s)
    served = [check_served(target) for target in targets]
    roofline = roofline_of(plan)
    asked = [
        (target, engine_version or said or target.model.engine_version, workload, load)
        for target, (name, said) in zip(targets, served, strict=True)
        for workload, load in loads_of(target, roofline, name, concurrencies=concurrencies, seconds=seconds)
    ]
    found = []
    for number, (target, version, workload, load) in enumerate(asked, start=1):
        words = f"run {number} of {len(asked)}: {target.replica.id}, {workload.name}, {load.concurrency} at once"
        tell(words)
        done = measured(target.address, load, on_done=partial(_tell_count, tell, words))
        found.append(TargetRun(target, workload, load, done, version))
    return tuple(found)


def concluded(
    plan: PlanDocument,
    runs: Sequence[TargetRun],
    *,
    name: str,
    problem: Path | None = None,
    keeps: bool = True,
    tell: Tell = lambda _: None,
) -> TrialDocument:
    """Imports what can be believed of the runs, fits the calibration `name`, and says what that changes: of each
    load, of the plan as it is, and with a problem of what would be planned. Without `keeps` nothing is stored.

    Raises DatabaseError, and what planning a problem raises.
    """
    tell("fitting the calibration")
    read = RunsRead("trial", tuple(map(benchmark_run, runs)))
    notes: list[str] = []
    imported, made = 0, None
    with opened_profiles(_names(plan, problem)) as service:
        believed, rejected = service.judged(read)
        if keeps:
            imported = service.import_runs(f"trial of {plan.id}", read).new
        if believed:
            key = believed[0].key
            wanted = RunFilter(engine=key.engine, engine_version=key.engine_version)
            try:
                made = service.calibrate(name, wanted, () if keeps else believed)
            except NothingToFitError as error:
                notes.append(str(error))
            if made is not None and keeps:
                made = service.keep(made)
    document = None if made is None else made.document
    after = None if document is None else plan.model_copy(update={"calibration": document})
    reasons = {one.place: one.reasons for one in rejected}
    tell("replaying the plan")
    replay = None if after is None else simulated(after, PoissonTraffic(), Choices()).resource
    return TrialDocument(
        schema="sutler/trial/v1",
        created_at=datetime.now(UTC),
        plan_id=plan.id,
        runs=tuple(_run(run, plan, after, reasons.get(run.place, ())) for run in runs),
        imported=imported,
        calibration=document,
        replay=replay,
        what_if=None if document is None or problem is None else _planned_again(problem, document, tell),
        notes=(*notes, *_notes(plan, runs, made)),
    )


def _tell_count(tell: Tell, words: str, requests: int) -> None:
    tell(f"{words}: {requests} requests")


def _names(plan: PlanDocument, problem: Path | None) -> Names:
    """What the problem describes itself; without one, what the plan says of what no catalogue has."""
    if problem is not None:
        return names_in(problem)
    specs = {one.spec.id: one.spec for one in served_models(plan).values() if one.spec is not None}
    return Names(
        {slug: gpu for slug, gpu in gpus_of(plan).items() if slug not in load_gpus()},
        {name: spec for name, spec in specs.items() if name not in load_models()},
    )


def _run(run: TargetRun, plan: PlanDocument, after: PlanDocument | None, refused: tuple[str, ...]) -> TrialRun:
    found, load = run.measured, run.load
    roofline = roofline_of(plan)
    planned = _as_stated(run, _expected(run, roofline), roofline)
    return TrialRun(
        replica=run.target.replica.id,
        workload=run.workload.name,
        concurrency=load.concurrency,
        input_tokens=load.input_tokens,
        output_tokens=load.output_tokens,
        completed=found.completed,
        duration_s=found.duration_s,
        req_per_s=found.req_per_s,
        ttft_s=found.ttft_s,
        tpot_s=found.tpot_s,
        planned=planned,
        within_band=planned.low_req_per_s <= found.req_per_s <= planned.high_req_per_s,
        calibrated=None if after is None else _expected(run, roofline_of(after)),
        refused=refused,
        sending_busy_fraction=found.busy_fraction,
    )


def _expected(run: TargetRun, roofline: Roofline) -> ExpectedLoad:
    each = run.measured.completed / run.load.concurrency
    found = run.target.expected(run.workload, roofline, concurrency=run.load.concurrency, each=each)
    return ExpectedLoad(
        req_per_s=found.req_per_s,
        low_req_per_s=found.low_req_per_s,
        high_req_per_s=found.high_req_per_s,
        ttft_s=finite(found.ttft_s),
        tpot_s=finite(found.tpot_s),
    )


def _as_stated(run: TargetRun, expected: ExpectedLoad, roofline: Roofline) -> ExpectedLoad:
    """With the rate that the plan itself states of its batch, under random arrivals; as
    estimated at other loads, and where it counts on cached prompts."""
    target, stated = run.target, run.target.evidence.get(run.workload.name)
    if (
        stated is None
        or run.load.concurrency != target.batch(run.workload, roofline)
        or target.is_cached(run.workload)
    ):
        return expected
    rates = {"req_per_s": stated.rps, "low_req_per_s": stated.low_rps, "high_req_per_s": stated.high_rps}
    return expected.model_copy(update=rates)


def _planned_again(problem: Path, calibration: CalibrationDocument, tell: Tell) -> WhatIfDocument:
    """The problem as it is and by the calibration, whose name stands for it in the answer."""
    path = "throughput.calibration"
    content: dict[str, Any] = calibration.model_dump(mode="json", by_alias=True)
    tell("planning the problem again")
    found = what_if(problem, [{path: content}])
    named = tuple(one.model_copy(update={"changes": {path: calibration.name}}) for one in found.variants)
    return found.model_copy(update={"variants": named})


def _notes(plan: PlanDocument, runs: Sequence[TargetRun], made: "Calibrated | None") -> Sequence[str]:
    busy = [run for run in runs if run.measured.busy_fraction > BUSY_FRACTION]
    cached = sorted({run.workload.name for run in runs if run.target.is_cached(run.workload)})
    replicas = {run.target.replica.id for run in runs}
    stated = sorted({one.workload for one in plan.evidence if one.replica in replicas and one.source == "measured"})
    sentences = {
        f"sending took more than {BUSY_FRACTION:.0%} of a core of this machine in {len(busy)} runs, which may have "
        "held requests up: send from a faster one": busy,
        f"the plan counts on prompts in the prefix cache ({', '.join(cached)}); these runs had none, and are "
        "compared with estimates without": cached,
        f"the plan's rates of {', '.join(stated)} are those that its problem states (throughput.table): no "
        "calibration changes them": stated,
        "the engine's version is not known: say it with --engine-version": [r for r in runs if not r.engine_version],
    }
    return [*(sentence for sentence, of in sentences.items() if of), *(made.notes if made is not None else ())]
