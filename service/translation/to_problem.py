"""From a checked problem document to the solver's problem: the one place that knows both vocabularies.

Names are looked up in the catalogue and in the caller's own `gpus`, traces become workloads, the market is
filtered. The way back, from the solver's plan to a document, is in from_plan.py.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from sutler.service.documents.calibration import CalibrationDocument, CalibrationFile
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.fitness import rules_of
from sutler.service.documents.plan import SleepingDocument
from sutler.service.documents.problem import ProblemDocument, context_rule
from sutler.service.documents.problem_parts import ModelDocument, SloDocument, TraceDocument
from sutler.service.documents.traces import bucket_trace_file
from sutler.service.errors import FieldProblem, short_repr
from sutler.service.translation.calibrations import calibration_of
from sutler.service.translation.fitness import Fitness, OfferKey, needs_of
from sutler.service.translation.given_models import given_spec
from sutler.service.translation.gpu_choice import GpuChoice
from sutler.service.translation.interruptions import interruptions_of
from sutler.service.translation.mapping import mapped
from sutler.service.translation.market_source import FilteredMarket, path_refused, read_market, resolve_path
from sutler.service.translation.offers import to_offer
from sutler.service.translation.stored_market import MarketStore
from sutler.solver.catalog.entries import ModelSpec, usual_kv_precision
from sutler.solver.errors import UnknownNameError
from sutler.solver.market.pools import checkpoint_gb
from sutler.solver.problem import (
    Estimates,
    LatencyLimit,
    LatencyMetric,
    Limits,
    MeasuredRate,
    Objective,
    Problem,
    Resilience,
    Search,
    ServedModel,
    SolveOptions,
    Workload,
)
from sutler.solver.throughput.operator_package import missing as operators_missing

METRICS: tuple[LatencyMetric, ...] = ("ttft", "tpot", "e2e")
PERCENTILES = (50, 90, 95, 99)
USUAL_STARTUP_S: Final = 90.0  # chosen: what a deployment's policy says by default, as is the next
USUAL_DOWNLOAD_GB_PER_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Translation:
    """A problem ready to solve, the market it rests on, and how the input was read; `sleeping`: models left out."""

    problem: Problem
    market: FilteredMarket
    notes: tuple[str, ...]
    calibration: CalibrationDocument | None = None
    sleeping: tuple[SleepingDocument, ...] = ()


def to_problem(
    document: ProblemDocument,
    *,
    folder: Path | None,
    now: datetime,
    store: MarketStore | None = None,
    rented_gpus: Collection[str] = (),
    rented_offers: Collection[OfferKey] = (),
    may_be_empty: bool = False,
) -> Translation:
    """The solver's problem; paths are relative to `folder` (None: paths are refused).

    `rented_gpus`: GPUs that it must know although none of them may be for rent. `rented_offers`: what a plan that
    stands rents, which is not asked again whether it is fit.

    Raises DocumentError and UnknownNameError for fields that are wrong, NoMarketDataError without offers, unless the
    market `may_be_empty`.
    """
    notes: list[str] = []
    gpus, calibration = GpuChoice(document), _calibration(document)
    models = _models(document, gpus, folder, notes)
    rules = rules_of(document.market.filter.fit)
    fitness = Fitness(rules, needs_of(models), gpus.known, now, frozenset(rented_offers))
    market = read_market(
        document.market, folder=folder, now=now, fitness=fitness, store=store, may_be_empty=may_be_empty
    )
    problem = Problem(
        objective=_objective(document, models),
        models=models,
        offers=tuple(to_offer(offer, market.unfit_for.get(offer.key)) for _, offer in market.offers),
        gpus=gpus.used(market, rented_gpus),
        budget_usd_per_hour=document.budget_usd_per_hour,
        limits=_limits(document, market, notes),
        resilience=mapped(Resilience, document.resilience),
        search=mapped(Search, document.search),
        options=mapped(SolveOptions, document.solver),
        measured=_measured(document),
        measured_only=document.throughput.only,
        calibration=None if calibration is None else calibration_of(calibration),
        estimates=_estimates(document),
        interruptions=interruptions_of(document, market, notes),
    )
    return Translation(problem, market, (*notes, *gpus.notes(), *market.notes), calibration)


def check_names(document: ProblemDocument) -> None:
    """Checks what can be checked of a problem before its market is known; paths are refused.

    Raises DocumentError and UnknownNameError for fields that are wrong.
    """
    _models(document, GpuChoice(document), None, [])
    calibration = _calibration(document)
    if calibration is not None:
        calibration_of(calibration)
    _estimates(document)


def _calibration(document: ProblemDocument) -> CalibrationDocument | None:
    """Returns the calibration itself: names and files became one before (service/profiles/references.py)."""
    given = document.throughput.calibration
    if isinstance(given, CalibrationFile):
        raise path_refused("throughput.calibration.file", given.file)
    if isinstance(given, str):
        remedy = "is a name, and no store is at hand: give the calibration itself (`sutler calibrate --out`)"
        raise DocumentError.of("throughput.calibration", remedy, value=given)
    return given


def _estimates(document: ProblemDocument) -> Estimates:
    wanted, lacking = document.throughput.estimates, operators_missing()
    if wanted == "aiconfigurator" and lacking is not None:
        raise DocumentError.of("throughput.estimates", lacking, value=wanted)
    return wanted


def _objective(document: ProblemDocument, models: Iterable[ServedModel]) -> Objective:
    counts, restart_s = document.objective.count_interruptions, document.objective.restart_s
    if counts and restart_s is None:
        largest_gb = max((checkpoint_gb(m.spec, p) for m in models if m.spec for p in m.precisions), default=0.0)
        restart_s = USUAL_STARTUP_S + largest_gb / USUAL_DOWNLOAD_GB_PER_S
    return mapped(Objective, document.objective, restart_s=(restart_s or 0.0) if counts else 0.0)


def _limits(document: ProblemDocument, market: FilteredMarket, notes: list[str]) -> Limits:
    """The caller's limits, those of providers under the names that the market has them by."""
    names = {offer.provider.lower(): offer.provider for _, offer in market.offers}
    gpus: dict[str, int] = {}
    for given, most in document.limits.max_gpus_per_provider.items():
        name = names.get(given.lower(), given)
        gpus[name] = min(most, gpus.get(name, most))
        if given.lower() not in names:
            notes.append(f"limits.max_gpus_per_provider.{given} limits nothing: there are no offers of {given}.")
    return mapped(Limits, document.limits, max_gpus_per_provider=gpus)


def _models(
    document: ProblemDocument, gpus: GpuChoice, folder: Path | None, notes: list[str]
) -> tuple[ServedModel, ...]:
    models = tuple(_model(f"models[{i}]", model, document, folder, notes) for i, model in enumerate(document.models))
    _check_measured_workloads(document, models)
    gpus.check_names()
    return models


def largest_download_gb(document: ProblemDocument) -> float:
    """What a new machine fetches at most; 0 where no architecture is known. Raises what `to_problem` raises."""
    found = [0.0]
    for number, model in enumerate(document.models):
        spec = _spec(f"models[{number}]", model, None, [], is_needed=not document.throughput.only)
        found += [checkpoint_gb(spec, precision) for precision in model.precisions if spec is not None]
    return max(found)


def _measured(document: ProblemDocument) -> tuple[MeasuredRate, ...]:
    first = {model.name: model.precisions[0] for model in document.models}
    return tuple(
        mapped(MeasuredRate, row, precision=row.precision or first[row.model]) for row in document.throughput.table
    )


def _model(
    at: str, model: ModelDocument, document: ProblemDocument, folder: Path | None, notes: list[str]
) -> ServedModel:
    spec = _spec(at, model, folder, notes, is_needed=not document.throughput.only)
    for precision in model.precisions:
        if spec is not None and precision not in spec.precisions and not document.throughput.only:
            remedy = f"{spec.id} is served as {', '.join(spec.precisions)}"
            raise DocumentError.of(f"{at}.precision", remedy, value=precision)
    if spec is not None and (model.max_context_tokens or 0) > spec.max_context_tokens:
        remedy = f"is beyond the context of {spec.id}: at most {spec.max_context_tokens}"
        raise DocumentError.of(f"{at}.max_context_tokens", remedy, value=model.max_context_tokens)
    caches = (model.kv_precision or usual_kv_precision(spec, weights) for weights in model.precisions)
    first, *others = zip(model.precisions, caches, strict=True)
    return mapped(
        ServedModel,
        model,
        spec=spec,
        precision=first[0],
        kv_precision=first[1],
        workloads=_workloads(at, model, document, folder, notes),
        slo=latency_limits(model.slo),
        engine=model.engine or document.engine,
        engine_version=model.engine_version or _shared_version(model, document),
        more_precisions=tuple(others),
    )


def _shared_version(model: ModelDocument, document: ProblemDocument) -> str:
    """The problem's, where the model is served by the problem's engine."""
    is_shared = model.engine in (None, document.engine)
    return (document.engine_version or "") if is_shared else ""


def _spec(
    at: str, model: ModelDocument, folder: Path | None, notes: list[str], *, is_needed: bool
) -> ModelSpec | None:
    try:
        return given_spec(f"{at}.model", model.name, model.model, folder, notes)
    except UnknownNameError:
        if is_needed:
            raise
        return None


def latency_limits(slo: SloDocument) -> tuple[LatencyLimit, ...]:
    """Lists the limits that are set."""
    limits = ((metric, at, getattr(slo, f"{metric}_p{at}_s")) for metric in METRICS for at in PERCENTILES)
    return tuple(LatencyLimit(metric, at, seconds) for metric, at, seconds in limits if seconds is not None)


def own_limits(model: SloDocument, workload: SloDocument | None) -> tuple[LatencyLimit, ...] | None:
    """Lists all limits of a workload; None: those of its model.

    What it says of a metric, be it that there is no limit, replaces what the model says of it.
    """
    stated = set() if workload is None else {name.partition("_")[0] for name in workload.model_fields_set}
    if workload is None or not stated:
        return None
    kept = tuple(limit for limit in latency_limits(model) if limit.metric not in stated)
    return (*kept, *latency_limits(workload))


def _workloads(
    at: str, model: ModelDocument, document: ProblemDocument, folder: Path | None, notes: list[str]
) -> tuple[Workload, ...]:
    is_batch = document.objective.kind == "min_makespan"
    if model.trace is not None:
        found = _trace_workloads(f"{at}.trace", model.trace, folder, notes, is_batch=is_batch)
        too_long = [*context_rule(at, model.max_context_tokens, found)]  # of workloads it is in the document's rules
        if too_long:
            raise DocumentError(too_long)
        return found
    return tuple(
        mapped(Workload, w, demand=w.requests if is_batch else w.rate_rps, slo=own_limits(model.slo, w.slo))
        for w in model.workloads or ()
    )


def _trace_workloads(
    at: str, trace: TraceDocument, folder: Path | None, notes: list[str], *, is_batch: bool
) -> tuple[Workload, ...]:
    path = resolve_path(trace.file, folder, field=f"{at}.file")
    if path.exists() and not path.is_file():
        raise DocumentError.of(f"{at}.file", "is no ordinary file: name a CSV file", value=trace.file)
    bucketed = bucket_trace_file(path, buckets=trace.buckets, duration_s=trace.duration_s, field=at)
    notes.append(f"{at}: {bucketed.description}")
    return tuple(mapped(Workload, b, demand=float(b.requests) if is_batch else b.rate_rps) for b in bucketed.buckets)


def _check_measured_workloads(document: ProblemDocument, models: Iterable[ServedModel]) -> None:
    """Checks the rows for the buckets of a trace, which only its reading has shown."""
    known: Mapping[str, set[str]] = {model.name: {w.name for w in model.workloads} for model in models}
    problems = [
        FieldProblem(
            f"throughput.table[{i}].rps",
            short_repr(workload),
            f"is no workload of {row.model}: use {', '.join(sorted(known[row.model]))}",
        )
        for i, row in enumerate(document.throughput.table)
        for workload in row.rps
        if workload not in known[row.model]
    ]
    if problems:
        raise DocumentError(problems)
