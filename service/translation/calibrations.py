"""From a fitted calibration to its document and back.

What no fit moves (bands of GPU classes, priors, which GPU belongs to which class) stays sutler's own and is not in
the document.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from typing import Any, Final, TypeVar

import numpy as np

from sutler.service.documents.calibration import (
    CalibrationDocument,
    CalibrationPoint,
    CorrelationDocument,
    KernelsDocument,
)
from sutler.service.documents.errors import DocumentError
from sutler.solver.calibration.corrections import Corrections, Correlation, RunPoints, restored
from sutler.solver.calibration.factors import (
    CLASS_FACTORS,
    ENGINE_FACTORS,
    MAY_VANISH,
    Calibration,
    EngineFactors,
    Factors,
    GpuClass,
    Kernels,
    shipped_calibration,
)

Entry = TypeVar("Entry", Factors, GpuClass, EngineFactors)
MOST_MOVED: Final = 1000.0  # chosen: no serving stack is so far from the shipped factors
FACTORS: Final = tuple(field.name for field in fields(Factors))


def fitted_parts(calibration: Calibration) -> dict[str, object]:
    """The fields of the document that say what was fitted."""
    corrections = calibration.corrections
    return {
        "engine": calibration.serves,
        "factors": asdict(calibration.factors),
        "gpu_classes": {one.name: _only(one, CLASS_FACTORS) for one in calibration.gpu_classes},
        "engines": {name: _only(one, ENGINE_FACTORS) for name, one in calibration.engines.items()},
        "kernels": tuple(KernelsDocument.model_validate(asdict(one)) for one in calibration.kernels),
        "correlation": CorrelationDocument(**asdict(calibration.correlation)),
        "least_band": 1.0 if corrections is None else corrections.least_band,
        "share": 1.0 if corrections is None else corrections.share,
        "points": () if corrections is None else _points(corrections),
        "phase_points": () if corrections is None or corrections.phases is None else _points(corrections.phases),
    }


def calibration_of(document: CalibrationDocument, *, field: str = "throughput.calibration") -> Calibration:
    """Returns the calibration of a document.

    Raises DocumentError where it names factors, classes or engines that this sutler does not have.
    """
    shipped = shipped_calibration()
    correlation = Correlation(**document.correlation.model_dump())
    engines = {
        name: _changed(shipped.engine(name), values, ENGINE_FACTORS, f"{field}.engines.{name}")
        for name, values in document.engines.items()
    }
    unknown = document.gpu_classes.keys() - {one.name for one in shipped.gpu_classes}
    if unknown:
        raise _of_another_version(f"{field}.gpu_classes", ", ".join(sorted(unknown)))
    classes = tuple(
        _changed(one, document.gpu_classes.get(one.name, {}), CLASS_FACTORS, f"{field}.gpu_classes.{one.name}")
        for one in shipped.gpu_classes
    )
    named = f"{document.name} (revision {document.revision})" if document.revision else document.name
    return replace(
        shipped,
        factors=_changed(shipped.factors, document.factors, FACTORS, f"{field}.factors"),
        gpu_classes=classes,
        engines={**shipped.engines, **engines},
        kernels=_kernels(document, shipped),
        correlation=correlation,
        corrections=_corrected(document, correlation, field) if document.points else None,
        name=named,
        serves=document.engine,
        version=f"calibration {named} on {shipped.version}",
    )


def _kernels(document: CalibrationDocument, shipped: Calibration) -> tuple[Kernels, ...]:
    """Those of the document; the shipped ones where it has none."""
    of_its_own = [Kernels(**one.model_dump()) for one in document.kernels]
    known = {one.key: one for one in (*shipped.kernels, *of_its_own)}
    return tuple(known.values())


def _corrected(document: CalibrationDocument, correlation: Correlation, field: str) -> Corrections:
    rates = _corrections(document, document.points, correlation, f"{field}.points")
    if not document.phase_points:
        return rates
    phases = _corrections(document, document.phase_points, correlation, f"{field}.phase_points")
    return replace(rates, phases=phases)


def _corrections(
    document: CalibrationDocument, points: Sequence[CalibrationPoint], correlation: Correlation, field: str
) -> Corrections:
    places = RunPoints(
        log2=np.array([point.log2 for point in points]),
        labels=tuple((point.gpu, point.model, point.precision) for point in points),
        spread=np.array([point.spread for point in points]),
    )
    errors = np.array([point.log_error for point in points])
    noise = np.array([point.noise for point in points])
    try:
        return restored(
            correlation,
            document.engine,
            places,
            errors,
            noise,
            runs=document.runs,
            least_band=document.least_band,
            share=document.share,
        )
    except (np.linalg.LinAlgError, ValueError):
        remedy = "contradict each other at one place without any noise: calibrate again"
        raise DocumentError.of(field, remedy, value=len(points)) from None


def _points(corrections: Corrections) -> tuple[CalibrationPoint, ...]:
    points = corrections.points
    return tuple(
        CalibrationPoint.model_validate(
            {
                "gpu": gpu,
                "model": model,
                "precision": precision,
                "log2": tuple(points.log2[i].tolist()),
                "spread": float(points.spread[i]),
                "log_error": float(corrections.errors[i]),
                "noise": float(corrections.noise[i]),
            }
        )
        for i, (gpu, model, precision) in enumerate(points.labels)
    )


def _only(entry: GpuClass | EngineFactors, names: tuple[str, ...]) -> dict[str, float]:
    return {name: getattr(entry, name) for name in names}


def _changed(entry: Entry, values: Mapping[str, float], allowed: tuple[str, ...], field: str) -> Entry:
    unknown = values.keys() - set(allowed)
    if unknown:
        raise _of_another_version(field, ", ".join(sorted(unknown)))
    for name, value in values.items():
        least = 0.0 if name in MAY_VANISH else 1 / MOST_MOVED
        if not least <= value / getattr(entry, name) <= MOST_MOVED:
            remedy = f"is more than {MOST_MOVED:g} times off the shipped {getattr(entry, name):g}: no stack is"
            raise DocumentError.of(f"{field}.{name}", remedy, value=value)
    changes: dict[str, Any] = dict(values)
    return replace(entry, **changes)


def _of_another_version(field: str, names: str) -> DocumentError:
    return DocumentError.of(field, "is not known to this sutler: calibrate again with this version", value=names)
