"""Writes a fitted calibration as the TOML file that the package ships: what it rests on and how far off it is."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from benchmarks.accuracy.errors import METRICS, Errors
from sutler.solver.calibration.factors import REFERENCE_ENGINE, Calibration
from sutler.solver.throughput.runs import LayerRun

HEADER = """\
# Factors of the roofline, fitted to measured runs. Written by
#     python -m benchmarks.accuracy serving_dense.csv --write solver/calibration/calibration.toml
# from benchmarks/roofline_prior.toml, which explains every assumption; meanings and units are in factors.py.
# Edit the prior and write again instead of editing this file.
"""


def calibration_toml(
    calibration: Calibration, serving: Path, judged: Sequence[Errors], layers: Sequence[LayerRun]
) -> str:
    """The whole file. `judged`: the errors of leaving groups out."""
    parts = [HEADER, _provenance(serving, layers)]
    parts += [_residual(errors) for errors in judged]
    parts.append(_section("factors", asdict(calibration.factors)))
    parts.append(_section("priors", asdict(calibration.priors)))
    parts.append(_section("correlation", asdict(calibration.correlation)))
    for one in calibration.gpu_classes:
        parts.append(_section(f"gpu_class.{one.name}", _without_name(asdict(one))))
    parts += [_table("[[kernels]]", asdict(one)) for one in calibration.kernels]
    parts += [_table("[[compared]]", asdict(one)) for one in calibration.compared]
    for name, engine in calibration.engines.items():
        parts.append(_section(f"engine.{name}", _without_name(asdict(engine))))
    return "\n".join(parts)


def _provenance(serving: Path, layers: Sequence[LayerRun]) -> str:
    values: dict[str, object] = {
        "serving_runs": "aiconfigurator-core 0.12.0 systems/silicon_sample.csv (Apache-2.0, NVIDIA), verified rows",
        "serving_sha256": hashlib.sha256(serving.read_bytes()).hexdigest(),
        "reference_engine": REFERENCE_ENGINE,
    }
    wide = serving.with_name("serving_wide.csv")
    if wide.exists():
        values["wide_runs"] = (
            "closed loops of aiconfigurator-core 0.12.0 (Apache-2.0, NVIDIA), cloudrift-ai/deplodock @9da9d04 and "
            "ree2raz/inference-bench @6219100 (Apache-2.0), hholtmann/llm-consumer-gpu-benchmark @59e3541 (MIT)"
        )
        values["wide_sha256"] = hashlib.sha256(wide.read_bytes()).hexdigest()
    if layers:
        values["layer_profiles"] = "microsoft/vidur data/profiling/compute @7d47513 (MIT), medians"
    return _section("provenance", values)


def _residual(errors: Errors) -> str:
    values: dict[str, object] = {"group": errors.group, "rows": len(errors.req_per_s)}
    for name in METRICS:
        of_name = getattr(errors, name)
        values[f"{name}_median_error_fraction"] = float(np.median(of_name))
        values[f"{name}_p90_error_fraction"] = float(np.quantile(of_name, 0.9))
    return _table("[[residuals]]", values)


def _section(name: str, values: dict[str, object]) -> str:
    return _table(f"[{name}]", values)


def _table(header: str, values: dict[str, object]) -> str:
    return "\n".join([header, *(f"{name} = {_toml_value(value)}" for name, value in values.items()), ""])


def _without_name(values: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in values.items() if name != "name"}


def _toml_value(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.4g}" if "." in f"{value:.4g}" or "e" in f"{value:.4g}" else f"{value:.1f}"
    if isinstance(value, Iterable) and not isinstance(value, str):
        return f"[{', '.join(_toml_value(one) for one in value)}]"
    return f'"{value}"' if isinstance(value, str) else str(value)
