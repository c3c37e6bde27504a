"""How fast every replica layout serves every workload: the front door of the throughput layer.

Sources, best first: the caller's measured rates, then the calibrated roofline. Each rate keeps its source. What
simulations have shown to miss its limits counts for less (Problem.derated).
"""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from solver.problem import Limits, Problem, ServedModel
from solver.throughput.base import Layouts, Rates, Source
from solver.throughput.factors import shipped_calibration
from solver.throughput.measured import matching, measured_of
from solver.throughput.roles import Handover
from solver.throughput.roofline import Roofline

__all__ = [
    "QUEUED_UTILISATION_FRACTION",
    "Handover",
    "Layouts",
    "RateBasis",
    "Rates",
    "Source",
    "evidence",
    "handover",
    "max_utilisation_fraction",
    "rates",
    "roofline_of",
]

# At 0.98 the p90 request of a replica with 200 slots waits 20 s for one, at 0.9 0.2 s (M/M/b, latency.py).
QUEUED_UTILISATION_FRACTION: Final = 0.85


def max_utilisation_fraction(limits: Limits, model: ServedModel) -> float:
    """The load up to which replicas of `model` are used: what the caller set; else 0.85 where a limit includes a
    queue (TTFT, end to end), else 1."""
    if limits.max_utilisation_fraction is not None:
        return limits.max_utilisation_fraction
    queued = any(limit.metric in ("ttft", "e2e") for limit in model.slo)
    return QUEUED_UTILISATION_FRACTION if queued else 1.0


def rates(problem: Problem, model: ServedModel, layouts: Layouts) -> tuple[Rates, NDArray[np.bool_]]:
    """Rates of `layouts` on the workloads of `model`, and which layouts are measured [num_layouts].

    With measured rates only, or without an architecture, other layouts have rate 0 and do not fit. The memory of
    measured layouts is not checked.
    """
    found, measured = _rates(problem, model, layouts)
    found = _within_link(problem, model, layouts, found)
    factor = _derating(problem, model, layouts)
    if factor is None:
        return found, measured
    derated = {name: getattr(found, name) * factor[:, None] for name in ("rps", "low_rps", "high_rps")}
    return replace(found, **derated), measured


def _derating(problem: Problem, model: ServedModel, layouts: Layouts) -> NDArray[np.float64] | None:
    """[num_layouts] what of its rate each layout is counted on for; None: all of it."""
    mine = [one for one in problem.derated if (one.model, one.role) == (model.name, layouts.role)]
    if not mine:
        return None
    factor = np.ones(len(layouts))
    for one in mine:
        factor[matching(one.stages, layouts)] *= one.fraction
    return factor


def handover(problem: Problem, model: ServedModel, layouts: Layouts) -> Handover | None:
    """What handing over keys and values takes; None for aggregated layouts and where no architecture says."""
    if layouts.role == "aggregated" or model.spec is None or layouts.kv_gb_per_s is None:
        return None
    return roofline_of(problem, layouts).handover(model, layouts)


def _within_link(problem: Problem, model: ServedModel, layouts: Layouts, found: Rates) -> Rates:
    """No more than the links of prefill and decode replicas carry, request kind by request kind.

    A replica is taken to be busy for the longer of its own and its link's time. Both could overlap across kinds of
    requests that differ in what binds them; that is not counted on.
    """
    handed_over = handover(problem, model, replace(layouts, layers=found.layers if found.layers.any() else None))
    if handed_over is None:
        return found
    with np.errstate(divide="ignore"):
        most = 1.0 / handed_over.link_s
    capped = {name: np.minimum(getattr(found, name), most) for name in ("rps", "low_rps", "high_rps")}
    return replace(found, **capped)


def _rates(problem: Problem, model: ServedModel, layouts: Layouts) -> tuple[Rates, NDArray[np.bool_]]:
    utilisation_fraction = max_utilisation_fraction(problem.limits, model)
    table = measured_of(model, problem.measured)
    measured = table.rates(model, layouts, utilisation_fraction=utilisation_fraction)
    if not _estimated(problem, model):
        return measured, measured.fits
    estimated = roofline_of(problem, layouts).rates(model, layouts, utilisation_fraction=utilisation_fraction)
    if not measured.fits.any():
        return estimated, measured.fits
    return _overridden(estimated, measured, layouts, model.spec.layers if model.spec else 0), measured.fits


@dataclass(frozen=True, slots=True)
class RateBasis:
    """What a rate rests on: its source, the version of the source's data, and a sentence or several."""

    source: str
    version: str
    detail: str


def evidence(
    problem: Problem,
    model: ServedModel,
    layouts: Layouts,
    rates: Rates,
    measured: NDArray[np.bool_],
    layout: int,
    workload: int,
) -> RateBasis:
    """Of one rate; `rates` and `measured` as returned by `rates`."""
    if measured[layout] or not _estimated(problem, model):
        table = measured_of(model, problem.measured)
        found = RateBasis(table.name, "", table.detail(model, layouts, rates, layout, workload))
    else:
        roofline = roofline_of(problem, layouts)
        source, version = roofline.source_of(model, layouts, rates, layout, workload)
        found = RateBasis(source, version, roofline.detail(model, layouts, rates, layout, workload))
    if layouts.power_cap_fraction < 1:
        found = replace(found, detail=f"{found.detail}; GPUs capped to {layouts.power_cap_fraction:.0%} of their TDP")
    factor = _derating(problem, model, layouts)
    if factor is None or factor[layout] >= 1:
        return found
    counted = f"counted on for {factor[layout]:.0%} of that, since it missed limits when it was simulated"
    return replace(found, detail=f"{found.detail}; {counted}")


def roofline_of(problem: Problem, layouts: Layouts | None = None) -> Roofline:
    """With the problem's calibration and the engine that it is of; operators were not measured on capped GPUs."""
    calibration = problem.calibration or shipped_calibration()
    is_capped = layouts is not None and layouts.power_cap_fraction < 1
    return Roofline(calibration, calibration.serves, "roofline" if is_capped else problem.estimates)


def _estimated(problem: Problem, model: ServedModel) -> bool:
    return model.spec is not None and not problem.measured_only


def _overridden(estimated: Rates, measured: Rates, layouts: Layouts, layers: int) -> Rates:
    """Measured rows instead of the estimated ones; the layer split stays the estimate's, even where it has none."""
    row = measured.fits[:, None]
    unsplit = measured.fits & (estimated.layers.sum(axis=1) == 0)
    return replace(
        estimated,
        rps=np.where(row, measured.rps, estimated.rps),
        batch=np.where(row, measured.batch, estimated.batch),
        ttft_s=np.where(row, measured.ttft_s, estimated.ttft_s),
        tpot_s=np.where(row, measured.tpot_s, estimated.tpot_s),
        low_rps=np.where(row, measured.low_rps, estimated.low_rps),
        high_rps=np.where(row, measured.high_rps, estimated.high_rps),
        layers=np.where(unsplit[:, None], _even_split(layouts, layers), estimated.layers),
        fits=estimated.fits | measured.fits,
    )


def _even_split(layouts: Layouts, layers: int) -> NDArray[np.int64]:
    """[num_layouts, max_stages] equal shares of the layers, the remainder on the first stages."""
    stages = (layouts.gpu >= 0).sum(axis=1)[:, None]
    position = np.arange(layouts.gpu.shape[1])[None, :]
    share: NDArray[np.int64] = np.where(position < stages, layers // stages + (position < layers % stages), 0)
    return share
