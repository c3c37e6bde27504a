"""From what was learnt to rates: a calibration of the deployment's own, within bounds, and how far a plan is from it.
Pure.

Flow: learning.py -> Learnt -> learn (here) -> Lesson -> translation/to_problem.py, replanning/drift.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from math import exp, log, nan
from typing import Any, Final

import numpy as np

from sutler.service.deployments.rates.learning import (
    Cell,
    LayoutKey,
    LayoutOf,
    Learnt,
    Sizes,
    Stretch,
    Told,
    gathered,
)
from sutler.service.deployments.schemas import PolicyDocument
from sutler.service.documents.calibration import CalibrationDocument
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.plan import PlanDocument, ReplicaDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.translation.calibrations import calibration_of, fitted_parts
from sutler.service.translation.names import names_of
from sutler.service.translation.to_plan import gpus_of, roofline_of, served_models
from sutler.solver.calibration.factors import Calibration, shipped_calibration
from sutler.solver.catalog.entries import Gpu
from sutler.solver.errors import InvalidProblemError, UnknownNameError
from sutler.solver.problem import ServedModel
from sutler.solver.throughput.operating import OperatingPoint, corrected_errors, learnt, log_rates, speed_errors
from sutler.solver.throughput.roofline import Roofline
from sutler.solver.version import VERSION

LEAST_FASTER, MOST_FASTER = 0.5, 1.5  # times the estimate: beyond, something else is wrong than the estimate
LEAST_SHIFT: Final = 0.05  # chosen: of a rate; what calibrated estimates of the same runs differ by
SURE: Final = 2.0  # standard deviations
NAME: Final = "learnt"


@dataclass(frozen=True, slots=True)
class Known:
    """What there is to know of the layouts of a deployment: its models and GPUs, and the estimates that its problem
    asks for. `engine`: the one that its calibration is of; None: each model's own. `layouts`: of the replicas of the
    plan that holds, by id, or why nothing is learnt of one."""

    models: Mapping[str, ServedModel]
    gpus: Mapping[str, Gpu]
    base: Calibration
    engine: str | None
    plan: PlanDocument
    layouts: Mapping[str, LayoutKey | str] = field(default_factory=dict)

    def engine_of(self, model: ServedModel) -> str:
        """The name of the factors that the model's rates are estimated by."""
        return Roofline(self.base, self.engine).engine(model).name


def known_of(problem: ProblemDocument, plan: PlanDocument, learnt: Learnt) -> Known:
    """`problem` with its calibration in it, and the plan that holds. Raises what the problem raises."""
    names, gpus = names_of(problem), gpus_of(plan)
    for slug in {cell.layout.gpu for cell in learnt.cells} - gpus.keys():
        try:
            gpus[slug] = names.gpu(slug)
        except UnknownNameError:
            continue
    given = problem.throughput.calibration
    own = calibration_of(given) if isinstance(given, CalibrationDocument) else None
    engine = None if own is None else own.serves
    known = Known(served_models(plan), gpus, own or shipped_calibration(), engine, plan)
    measured = {one.replica for one in plan.evidence if one.source == "measured"}
    layouts = {one.id: _layout(one, known, is_measured=one.id in measured) for one in plan.replicas}
    return replace(known, layouts=layouts)


def gathered_of(known: Known, learnt: Learnt, told: Sequence[Told], *, carried_out_s: float) -> Learnt:
    """What is known with what the engines have told of late. What was learnt beside other estimates is forgotten."""
    if learnt.beside != known.base.version:
        learnt = Learnt(since=learnt.since, until=learnt.until, beside=known.base.version)

    def errors_of(full: Sequence[Stretch]) -> Sequence[float]:
        points = [_point(known, of, of.sizes, of.residence_s) for of in full]
        return list(speed_errors(points, known.base).tolist())

    return gathered(learnt, told, _layouts(known, learnt, carried_out_s), errors_of)


def _layouts(known: Known, learnt: Learnt, carried_out_s: float) -> LayoutOf:
    """What an engine is taken for: the layout of the replica that its feed names, or of all of the model's where they
    are alike. Where the plan has it for another than before, engines are believed to be it once the plan can have
    been carried out."""
    by_model: dict[str, set[LayoutKey | str]] = {}
    for replica in known.plan.replicas:
        by_model.setdefault(replica.model, set()).add(known.layouts[replica.id])
    settled_at = known.plan.created_at + timedelta(seconds=carried_out_s)

    def layout_of(one: Told) -> LayoutKey | None:
        alike = by_model.get(one.model, set())
        found = known.layouts.get(one.replica) if one.replica else next(iter(alike)) if len(alike) == 1 else None
        if not isinstance(found, LayoutKey) or found.model != one.model:
            return None
        before = learnt.layouts.get(one.source)
        is_new = before is not None and before != found
        return None if is_new and one.started_at < settled_at else found

    return layout_of


def _layout(replica: ReplicaDocument, known: Known, *, is_measured: bool) -> LayoutKey | str:
    model, stage = known.models[replica.model], replica.stages[0]
    if replica.role != "aggregated":
        return f"it is a {replica.role} replica: only those that do both are learnt from"
    if len(replica.stages) > 1 or replica.data_parallel > 1:
        return "it has several stages or ranks: a calibration is of one"
    if stage.power_cap_watts is not None:
        return "its GPUs are capped"
    if model.spec is None or is_measured:
        return "its rates are measured ones (throughput.table)"
    if model.speculation is not None:
        return "it guesses tokens: how many are accepted is not known"
    served = model.at(replica.precision)
    return LayoutKey(
        model=replica.model,
        gpu=stage.gpu,
        tensor_parallel=stage.tensor_parallel,
        precision=served.precision,
        kv_precision=served.kv_precision,
        engine=known.engine_of(model),
    )


def learnt_calibration(known: Known, found: Learnt, now: datetime) -> CalibrationDocument | None:
    """The problem's estimates with what was learnt beside them, between LEAST_FASTER and MOST_FASTER times what they
    were; None where nothing was, or where models are of several engines: a calibration is of one."""
    placed = [(cell, point) for cell in found.known(now) if (point := _cell_point(known, cell)) is not None]
    engines = set(map(known.engine_of, known.models.values()))
    placed = [(cell, point) for cell, point in placed if {point.engine} == engines]
    if not placed:
        return None
    cells, points = [cell for cell, _ in placed], [point for _, point in placed]
    before = corrected_errors(points, known.base)
    moved = np.array([cell.error for cell in cells]) - before
    errors = before + np.clip(moved, log(LEAST_FASTER), log(MOST_FASTER))
    noise = np.array([cell.noise for cell in cells])
    readings = round(sum(cell.stretches for cell in cells))
    calibration = learnt(points, errors, noise, known.base, name=NAME, readings=readings)
    return validate(
        CalibrationDocument,
        {
            "schema": "sutler/calibration/v1",
            "name": NAME,
            "revision": 0,
            "created_at": max(cell.last_at for cell in cells),
            "sutler": VERSION,
            "engine_versions": (),
            "runs": calibration.corrections.runs if calibration.corrections else 0,
            "layer_times": 0,
            "before": None,
            "after": None,
            "left_out": None,
            **fitted_parts(calibration),
        },
    )


@dataclass(frozen=True, slots=True)
class Shift:
    """By how much what was learnt of a layout moves the rates that the plan rests on: `faster`, times them; within
    `noise`, in the same unit, it may be chance."""

    layout: LayoutKey
    faster: float
    noise: float
    stretches: float

    @property
    def is_one(self) -> bool:
        """Whether it is beyond what is chance, or does not matter."""
        return abs(self.faster - 1.0) > LEAST_SHIFT + self.noise


def shifts(known: Known, found: Learnt, calibration: CalibrationDocument, now: datetime) -> list[Shift]:
    """How far the plan's rates are from what was learnt, by layout, where it was tried."""
    used = set(known.layouts.values())
    now_by, then_by = calibration_of(calibration), roofline_of(known.plan).calibration
    by_layout: dict[LayoutKey, list[tuple[Cell, OperatingPoint]]] = {}
    for cell in found.known(now):
        point = _cell_point(known, cell)
        if point is not None and cell.layout in used:
            by_layout.setdefault(cell.layout, []).append((cell, point))
    return [_shift(layout, placed, now_by, then_by) for layout, placed in by_layout.items()]


def _shift(
    layout: LayoutKey, placed: Iterable[tuple[Cell, OperatingPoint]], now_by: Calibration, then_by: Calibration
) -> Shift:
    cells, points = zip(*placed, strict=True)
    weights = np.array([cell.requests for cell in cells])
    moved = log_rates(points, now_by) - log_rates(points, then_by)
    noise = np.average([cell.noise for cell in cells], weights=weights)
    change = float(np.average(moved, weights=weights))
    return Shift(layout, exp(change), SURE * float(noise), sum(cell.stretches for cell in cells))


def _cell_point(known: Known, cell: Cell) -> OperatingPoint | None:
    """The cell as the solver has it; None where the deployment knows its GPU or model no more."""
    model = known.models.get(cell.layout.model)
    if cell.layout.gpu not in known.gpus or model is None or model.spec is None:
        return None
    return _point(known, cell, ((cell.input_tokens, cell.output_tokens, 1.0),), nan)


def _point(known: Known, of: Cell | Stretch, sizes: Sizes, residence_s: float) -> OperatingPoint:
    layout = of.layout
    spec = known.models[layout.model].spec
    assert spec is not None
    return OperatingPoint(
        gpu=known.gpus[layout.gpu],
        spec=spec,
        precision=layout.precision,
        kv_precision=layout.kv_precision,
        engine=layout.engine,
        tensor_parallel=layout.tensor_parallel,
        sizes=sizes,
        residence_s=residence_s,
        in_flight=of.in_flight,
        cached_fraction=of.cached_fraction,
    )


@dataclass(frozen=True, slots=True)
class Lesson:
    """What is known with the newest readings: the calibration of it, and how far the plan is from that.
    `not_learnt`: by replica of the plan, why nothing can be."""

    learnt: Learnt
    calibration: CalibrationDocument | None = None
    shifts: tuple[Shift, ...] = ()
    not_learnt: Mapping[str, str] = field(default_factory=dict)

    @property
    def stored(self) -> dict[str, Any]:
        """As it is kept."""
        return self.learnt.model_dump(mode="json")


NOTHING: Final = Lesson(Learnt())


def learn(
    learnt: Learnt,
    told: Sequence[Told],
    problem: ProblemDocument,
    plan: PlanDocument,
    policy: PolicyDocument,
    now: datetime,
) -> Lesson:
    """Learns of what engines have told. `problem` has its calibration in it."""
    try:
        known = known_of(problem, plan, learnt)
    except (DocumentError, InvalidProblemError):  # a plan of an older version, or a problem that is no longer read
        return Lesson(learnt)
    learnt = gathered_of(known, learnt, told, carried_out_s=policy.carry_out_s)
    calibration = learnt_calibration(known, learnt, now)
    moved = () if calibration is None else tuple(shifts(known, learnt, calibration, now))
    not_learnt = {replica: why for replica, why in known.layouts.items() if isinstance(why, str)}
    return Lesson(learnt, calibration, moved, not_learnt)
