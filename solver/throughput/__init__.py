"""How fast every replica layout serves every workload: the front door of the throughput layer.

Sources, best first: the caller's measured rates, then the calibrated roofline. Each rate keeps its source. What
simulations have shown to miss its limits counts for less (Problem.derated).
"""

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Final

import numpy as np

from sutler.solver.arrays import BoolArray, FloatArray, IntArray, concatenated
from sutler.solver.calibration.factors import shipped_calibration
from sutler.solver.problem import Problem, ServedModel, Workload
from sutler.solver.throughput import prepare
from sutler.solver.throughput.base import Layouts, Points, RateBasis, Rates
from sutler.solver.throughput.measured import matching, measured_detail, measured_rates
from sutler.solver.throughput.mixes import least_of, mixes_of
from sutler.solver.throughput.prepare import StageCosts
from sutler.solver.throughput.roles import Handover
from sutler.solver.throughput.roofline import Roofline

# Chosen: measured rates come without latencies, so with a limit that includes a queue they are not counted on to the
# full. At 0.98 the p90 request of a replica with 200 sequences waits 20 s for one, at 0.9 0.2 s (M/M/b).
MEASURED_LOAD_FRACTION: Final = 0.85
# Operating points interpolate step times on other grids than ceilings do: within some per cent of the load.
_CEILING_TOLERANCE: Final = 0.02


def max_load_fraction(problem: Problem, model: ServedModel) -> float:
    """What load ceilings are capped to: what the caller set for the model or for all, else 1."""
    stated = (problem.limits.max_utilisation_fraction, model.max_utilisation_fraction)
    return min((fraction for fraction in stated if fraction is not None), default=1.0)


def measured_load_fraction(problem: Problem, model: ServedModel, workload: Workload) -> float:
    """The load up to which a measured rate of the workload is counted on: 0.85 where a limit includes a queue (TTFT,
    end to end), else 1; no more than the caller set."""
    queued = any(limit.metric in ("ttft", "e2e") for limit in model.limits_of(workload))
    return min(max_load_fraction(problem, model), MEASURED_LOAD_FRACTION if queued else 1.0)


def rates(
    problem: Problem, model: ServedModel, layouts: Layouts, *, caps: IntArray | None = None
) -> tuple[Rates, BoolArray]:
    """Returns `stated_rates` as plans count on them."""
    found, measured = stated_rates(problem, model, layouts, caps=caps)
    return counted(problem, found), measured


def counted(problem: Problem, stated: Rates) -> Rates:
    """What plans count on: the rates, or where the objective is robust the low end of their bands."""
    return replace(stated, rps=stated.low_rps) if problem.objective.robust else stated


def stated_rates(
    problem: Problem, model: ServedModel, layouts: Layouts, *, caps: IntArray | None = None
) -> tuple[Rates, BoolArray]:
    """Rates of `layouts` with their bands on the workloads of `model` with all sequences busy, at most `caps`
    [num_layouts] of them (None: as many as fit), and which layouts are measured [num_layouts].

    With measured rates only, or without an architecture, other layouts have rate 0 and do not fit. The memory of
    measured layouts is not checked.
    """
    measured = measured_rates(problem, model, layouts)
    found = measured
    if _estimated(problem, model):
        found = roofline_of(problem, layouts).rates(model, layouts, caps=caps)
        if measured.fits.any():
            found = _overridden(found, measured, layouts, model.spec.layers if model.spec else 0)
    most = _most_of_link(problem, model, layouts, found.layers)
    factor = _derating(problem, model, layouts)
    capped = {name: np.minimum(getattr(found, name), most) * factor for name in ("rps", "low_rps", "high_rps")}
    return replace(found, **capped), measured.fits


def points(
    problem: Problem,
    model: ServedModel,
    layouts: Layouts,
    *,
    caps: IntArray | None = None,
    is_hoped: bool = False,
) -> Points:
    """Operating points of `layouts`: what they are counted on for within all limits. With `caps` [num_layouts], at
    those alone, and every layout has one at least, if only one that admits nothing. `is_hoped`: instead of them one
    of each layout that is no worse than any of them, at the rates themselves (hopes.py)."""
    most_load = max_load_fraction(problem, model)
    measured = measured_rates(problem, model, layouts)
    parts = [_measured_points(problem, model, layouts, measured)]
    if _estimated(problem, model):
        rest = np.flatnonzero(~measured.fits)
        roofline, some = roofline_of(problem, layouts), None if caps is None else caps[rest]
        found = roofline.points(model, layouts.take(rest), caps=some, most_load=most_load, is_hoped=is_hoped)
        parts.append(replace(found, layout=rest[found.layout]))
    joined = _joined_points(parts, len(layouts), is_complete=caps is not None)
    mixes = mixes_of(model)
    most = _most_of_link(problem, model, layouts, joined.layers, joined.layout)
    most = np.where(measured.fits[joined.layout, None], _measured_loads(problem, model), most_load) * most
    most = least_of(most, mixes)
    factor = least_of(_derating(problem, model, layouts)[joined.layout], mixes)
    low_rps = np.minimum(joined.low_rps, most) * factor
    is_low = problem.objective.robust and not is_hoped
    rps = low_rps if is_low else np.minimum(joined.rps, most) * factor
    return replace(joined, rps=rps, low_rps=low_rps)


def stage_costs(problem: Problem, model: ServedModel, layouts: Layouts, *, deepest: int) -> StageCosts:
    """What `layouts` of a single stage each cost pipelines of up to `deepest` of them. Raises InvalidProblemError
    where the model's architecture is unknown."""
    return prepare.stage_costs(model, layouts, roofline_of(problem, layouts).planning_stages(model), deepest=deepest)


def ceilings(
    problem: Problem, model: ServedModel, layouts: Layouts, *, caps: IntArray, rps: FloatArray
) -> FloatArray:
    """Returns the largest load [num_layouts], as a share of `rates` under the same caps [num_layouts], at which each
    layout keeps all limits of requests in the proportions of `rps` [num_layouts, W]."""
    rps, caps = rps * problem.objective.carried_load, np.maximum(caps, 1)
    measured, known = measured_rates(problem, model, layouts).fits, np.ones(len(layouts))
    if measured.any() or not _estimated(problem, model):
        full, _ = rates(problem, model, layouts, caps=caps)
        busy = np.divide(rps, full.rps, out=np.zeros_like(rps), where=(rps > 0) & (full.rps > 0))
        known = np.where(busy.any(axis=1), busy.sum(axis=1), 1.0)
        known = known / np.where(busy.any(axis=1), (busy / _measured_loads(problem, model)).sum(axis=1), 1.0)
    if not _estimated(problem, model):
        return np.asarray(known)
    most_load = max_load_fraction(problem, model)
    if problem.objective.robust:  # as busy as the stated rates would be with as much more as the bands are wide
        stated, _ = stated_rates(problem, model, layouts, caps=caps)
        rps = rps * np.divide(stated.rps, stated.low_rps, out=np.ones_like(rps), where=stated.low_rps > 0)
    roofline, rps = roofline_of(problem, layouts), rps / _derating(problem, model, layouts)
    found = roofline.ceilings(model, layouts, caps=caps, rps=rps, most_load=most_load)
    if layouts.role != "aggregated":  # a load is of what the links carry, too
        full = roofline.rates(model, layouts, caps=caps)
        linked_rps = np.minimum(full.rps, _most_of_link(problem, model, layouts, full.layers))
        busy, linked = (
            np.divide(rps, of, out=np.zeros_like(rps), where=(rps > 0) & (of > 0)).sum(axis=1)
            for of in (full.rps, linked_rps)
        )
        found = np.minimum(found * np.divide(linked, busy, out=np.ones_like(busy), where=busy > 0), most_load)
    return np.where(measured, known, found)


def stated_ceiling(problem: Problem, ceiling: float, utilisation_fraction: float) -> float:
    """What a plan states of a replica: its ceiling, or the load that it is promised to carry where that lies above by
    no more than the two ways to compute them differ."""
    load = utilisation_fraction * problem.objective.carried_load
    return load if ceiling < load <= ceiling * (1 + _CEILING_TOLERANCE) else ceiling


def _measured_loads(problem: Problem, model: ServedModel) -> FloatArray:
    """Returns up to which load measured rates are counted on [W]."""
    return np.array([measured_load_fraction(problem, model, workload) for workload in model.workloads])


def _measured_points(problem: Problem, model: ServedModel, layouts: Layouts, measured: Rates) -> Points:
    rows = np.flatnonzero(measured.fits)
    split = np.zeros((len(rows), layouts.gpu.shape[1]), dtype=np.int64)
    if _estimated(problem, model) and model.spec is not None:
        split = _even_split(layouts.take(rows), model.spec.layers) if layouts.layers is None else layouts.layers[rows]
    rps = measured.rps[rows] * _measured_loads(problem, model)
    rps = np.pad(rps, ((0, 0), (0, len(mixes_of(model)) - rps.shape[1])))
    return Points(rows, np.zeros(len(rows), dtype=np.int64), rps, rps.copy(), split)


def _joined_points(parts: Sequence[Points], layouts: int, *, is_complete: bool) -> Points:
    """Puts them in the order of layouts. `is_complete`: with a point that admits nothing for each layout that has
    none."""
    joined = concatenated(parts)
    if is_complete:
        missing = np.setdiff1d(np.arange(layouts), joined.layout)
        columns = (getattr(joined, field.name) for field in fields(joined))
        nothing = Points(*(np.zeros((len(missing), *column.shape[1:]), column.dtype) for column in columns))
        joined = concatenated([joined, replace(nothing, layout=missing)])
    return joined.take(np.argsort(joined.layout, kind="stable"))


def _derating(problem: Problem, model: ServedModel, layouts: Layouts) -> FloatArray:
    """Returns what of its rate each layout is counted on for [num_layouts, W]."""
    factor = np.ones((len(layouts), len(model.workloads)))
    for one in problem.derated:
        if (one.model, one.role) == (model.name, layouts.role) and one.precision in (None, model.precision):
            columns = np.flatnonzero([one.workload in (None, workload.name) for workload in model.workloads])
            factor[np.ix_(np.flatnonzero(matching(one.stages, layouts, one.data_parallel)), columns)] *= one.fraction
    return factor


def handover(problem: Problem, model: ServedModel, layouts: Layouts) -> Handover | None:
    """What handing over keys and values takes; None for aggregated layouts and where no architecture says."""
    if layouts.role == "aggregated" or model.spec is None or layouts.kv_gb_per_s is None:
        return None
    return roofline_of(problem, layouts).handover(model, layouts)


def _most_of_link(
    problem: Problem,
    model: ServedModel,
    layouts: Layouts,
    layers: IntArray,
    rows: IntArray | None = None,
) -> FloatArray | float:
    """What the links of prefill and decode replicas carry, request kind by request kind [rows, W]; inf for others.

    A replica is taken to be busy for the longer of its own and its link's time. Both could overlap across kinds of
    requests that differ in what binds them; that is not counted on. `layers` [rows, max_stages]: the split.
    """
    some = layouts if rows is None else layouts.take(rows)
    handed_over = handover(problem, model, replace(some, layers=layers if layers.any() else None))
    if handed_over is None:
        return np.inf
    with np.errstate(divide="ignore"):
        return np.asarray(1.0 / handed_over.link_s)


def evidence(
    problem: Problem,
    model: ServedModel,
    layouts: Layouts,
    rates: Rates,
    measured: BoolArray,
    layout: int,
    workload: int,
) -> RateBasis:
    """Returns what one rate rests on; `rates` and `measured` as returned by `stated_rates`."""
    if measured[layout] or not _estimated(problem, model):
        found = RateBasis("measured", "", measured_detail(rates, layout, workload))
    else:
        found = roofline_of(problem, layouts).basis(model, layouts, rates, layout, workload)
    if layouts.power_cap_fraction < 1:
        found = replace(found, detail=f"{found.detail}; GPUs capped to {layouts.power_cap_fraction:.0%} of their TDP")
    factor = _derating(problem, model, layouts)[layout, workload]
    if factor >= 1:
        return found
    counted = f"counted on for {factor:.0%} of that, since it missed limits when it was simulated"
    return replace(found, detail=f"{found.detail}; {counted}")


def roofline_of(problem: Problem, layouts: Layouts | None = None) -> Roofline:
    """The roofline of the problem's calibration and of the engine that it was fitted to, or as shipped, of the engine
    of each model; operators were not measured on capped GPUs."""
    calibration, engine = problem.calibration or shipped_calibration(), None
    if problem.calibration is not None:
        engine = calibration.serves
    is_capped = layouts is not None and layouts.power_cap_fraction < 1
    return Roofline(calibration, engine, "roofline" if is_capped else problem.estimates)


def _estimated(problem: Problem, model: ServedModel) -> bool:
    return model.spec is not None and not problem.measured_only


def _overridden(estimated: Rates, measured: Rates, layouts: Layouts, layers_of_model: int) -> Rates:
    """Measured rows instead of the estimated ones; the layer split stays the estimate's, even where it has none."""
    row = measured.fits[:, None]
    unsplit = measured.fits & (estimated.layers.sum(axis=1) == 0)
    names = ("rps", "batch", "low_rps", "high_rps")
    columns = {name: np.where(row, getattr(measured, name), getattr(estimated, name)) for name in names}
    layers = np.where(unsplit[:, None], _even_split(layouts, layers_of_model), estimated.layers)
    return replace(estimated, **columns, layers=layers, fits=estimated.fits | measured.fits)


def _even_split(layouts: Layouts, layers: int) -> IntArray:
    """Equal shares of the layers [num_layouts, max_stages], the remainder on the first stages."""
    stages = (layouts.gpu >= 0).sum(axis=1)[:, None]
    position = np.arange(layouts.gpu.shape[1])[None, :]
    share: IntArray = np.where(position < stages, layers // stages + (position < layers % stages), 0)
    return share
