"""What one configuration should do: the numbers behind `sutler estimate`, from texts as people and files have them.

Flow: service/cli/estimate.py, estimate_table.py -> Configuration -> solver/estimate -> Estimate.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from types import MappingProxyType
from typing import Final

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.estimate import EstimateDocument
from sutler.service.translation.names import CATALOGUE, Names
from sutler.solver.calibration.factors import REFERENCE_ENGINE, Calibration, shipped_calibration
from sutler.solver.catalog import PRECISIONS, Gpu, ModelSpec, Precision
from sutler.solver.catalog.entries import usual_kv_precision
from sutler.solver.estimate import Estimate, estimate, one_layout
from sutler.solver.problem import ServedModel, Workload
from sutler.solver.throughput.roofline import Roofline

# Far beyond any deployment: a slip of the keyboard is an error, not an overflow.
MOST_TOKENS: Final = 10_000_000
MOST_REQUESTS: Final = 1_000_000
MOST_GPUS: Final = 1024
MOST_WAVES: Final = 1000
MOST_SIMULATED: Final = 100_000  # requests that are asked for; chosen: seconds

_ALSO_WRITTEN: Final[Mapping[Precision, tuple[str, ...]]] = {
    "bf16": ("bfloat16",),
    "fp16": ("float16", "half"),
    "fp8": ("float8", "fp8e4m3", "fp8block", "w8a8fp8"),
    "int8": ("w8a8", "w8a8int8"),
    "int4": ("w4a16", "awq", "gptq"),
    "fp4": ("nvfp4", "mxfp4"),
}
_PRECISIONS: Final = {text: name for name, others in _ALSO_WRITTEN.items() for text in (name, *others)}
_ENGINE_SPELLINGS: Final = MappingProxyType({"tensorrtllm": "trtllm", "tensorrt": "trtllm"})


@dataclass(frozen=True, slots=True)
class Configuration:
    """One replica and its traffic. No `concurrency`: the largest batch that fits. An empty engine is that of the
    calibration."""

    gpu: Gpu
    spec: ModelSpec
    precision: Precision
    kv_precision: Precision
    tensor_parallel: int
    pipeline_parallel: int
    input_tokens: float
    output_tokens: float
    concurrency: int | None
    engine: str
    engine_version: str = ""
    data_parallel: int = 1
    length_spread_fraction: float | None = None
    requests_per_client: int | None = None


def configuration(
    values: Mapping[str, str], spec: ModelSpec | None = None, names: Names = CATALOGUE
) -> Configuration:
    """Reads texts by name: gpu, model, precision, tp, input_tokens, output_tokens; optional pp (1), dp (1),
    concurrency (the largest batch), kv_precision (what engines choose), engine (the calibration's, or vllm) and
    engine_version (a current one), and of the benchmark that is simulated length_spread_fraction and
    requests_per_client. An empty text counts as absent. `spec`: the model, in place of its name; `names`: what names
    of GPUs and models mean.

    Raises DocumentError and InvalidProblemError, which name the field.
    """
    gpu = names.gpu(_required(values, "gpu"))
    spec = spec or names.model(_required(values, "model"))
    precision = precision_of("precision", _required(values, "precision"))
    stages, ranks = (_whole(values, name, most=MOST_GPUS) if _given(values, name) else 1 for name in ("pp", "dp"))
    if ranks > 1 and stages > 1:
        raise DocumentError.of("dp", "attention data parallelism goes with one pipeline stage", value=ranks)
    if stages > spec.layers:
        raise DocumentError.of("pp", f"{spec.id} has only {spec.layers} layers to split", value=stages)
    return Configuration(
        gpu=gpu,
        spec=spec,
        precision=precision,
        kv_precision=_kv_precision(_given(values, "kv_precision"), spec, precision),
        tensor_parallel=_whole(values, "tp", most=MOST_GPUS),
        pipeline_parallel=stages,
        input_tokens=_tokens(values, "input_tokens"),
        output_tokens=_tokens(values, "output_tokens"),
        concurrency=_whole(values, "concurrency", most=MOST_REQUESTS) if _given(values, "concurrency") else None,
        engine=engine_of(values["engine"]) if _given(values, "engine") else "",
        engine_version=_given(values, "engine_version"),
        data_parallel=ranks,
        length_spread_fraction=_fraction(values, "length_spread_fraction"),
        requests_per_client=(
            _whole(values, "requests_per_client", most=MOST_WAVES) if _given(values, "requests_per_client") else None
        ),
    )


def estimated(asked: Configuration, calibration: Calibration | None = None) -> Estimate:
    """The estimate, by the caller's own calibration or the shipped one; its `error` is set where the configuration
    cannot serve the traffic."""
    workload = Workload("estimate", asked.input_tokens, asked.output_tokens, 1.0)
    model = ServedModel(asked.spec.id, asked.spec, asked.precision, asked.kv_precision, (workload,))
    layouts = one_layout(
        asked.gpu,
        tensor_parallel=asked.tensor_parallel,
        pipeline_parallel=asked.pipeline_parallel,
        data_parallel=asked.data_parallel,
    )
    most = max(10, MOST_SIMULATED // (asked.concurrency or 1))
    if (asked.requests_per_client or 0) > most:
        remedy = f"is more than is simulated for so many clients: at most {most}"
        raise DocumentError.of("requests_per_client", remedy, value=asked.requests_per_client)
    by = calibration or shipped_calibration()
    engine = _factors_of(asked, by)
    if calibration is not None and calibration.serves != engine:
        fitted = by.engine(by.serves).title
        remedy = f"{calibration.name} was fitted to runs of {fitted}: estimate that, or leave it out"
        raise DocumentError.of("engine", remedy, value=f"{asked.engine} {asked.engine_version}".strip())
    roofline = Roofline(by, engine)
    return estimate(
        roofline,
        model,
        layouts,
        concurrency=asked.concurrency,
        length_spread_fraction=asked.length_spread_fraction,
        requests_per_client=asked.requests_per_client,
    )


def estimate_document(config: Configuration, own: Calibration | None = None) -> EstimateDocument:
    """The same as callers get it. Raises DocumentError where the configuration cannot serve the traffic."""
    found = estimated(config, own)
    if found.error is not None:
        raise DocumentError.of("gpu", found.error, value=config.gpu.slug)
    by = own or shipped_calibration()
    layout = ("tensor_parallel", "pipeline_parallel", "data_parallel", "precision", "kv_precision", "engine_version")
    load = ("input_tokens", "output_tokens")
    rates = ("concurrency", "running", "req_per_s", "ttft_s", "tpot_s", "low_req_per_s", "high_req_per_s")
    return EstimateDocument(
        schema="sutler/estimate/v1",
        model=config.spec.id,
        gpu=config.gpu.slug,
        engine=by.engine(_factors_of(config, by)).engine,
        **{name: getattr(config, name) for name in (*layout, *load)},
        **{name: getattr(found, name) for name in (*rates, "source", "detail")},
    )


def _factors_of(asked: Configuration, by: Calibration) -> str:
    """The name of the factors that are meant."""
    if not asked.engine and not asked.engine_version:
        return by.serves
    return by.version_of(asked.engine or by.engine(by.serves).engine, asked.engine_version)


def precision_of(field: str, text: str) -> Precision:
    """The precision that a spelling means. Raises DocumentError."""
    plain = "".join(char for char in text.lower() if char.isalnum())
    if plain not in _PRECISIONS:
        raise DocumentError.of(field, f"use one of {', '.join(PRECISIONS)}", value=text)
    return _PRECISIONS[plain]


def engine_of(text: str) -> str:
    """The engine a spelling means; empty: the one the factors refer to. An engine that is not calibrated is no
    error: its estimate says so and is stated more widely."""
    plain = "".join(char for char in text.lower() if char.isalnum())
    return _ENGINE_SPELLINGS.get(plain, plain) or REFERENCE_ENGINE


def _kv_precision(text: str, spec: ModelSpec, precision: Precision) -> Precision:
    if not text or text.lower() == "auto":
        return usual_kv_precision(spec, precision)
    return precision_of("kv_precision", text)


def _given(values: Mapping[str, str], name: str) -> str:
    return values.get(name, "").strip()


def _required(values: Mapping[str, str], name: str) -> str:
    text = _given(values, name)
    if not text:
        raise DocumentError.of(name, "is empty; give a value")
    return text


def _number(values: Mapping[str, str], name: str) -> float:
    text = _required(values, name)
    try:
        number = float(text)
    except ValueError:
        raise DocumentError.of(name, "give a number", value=text) from None
    if not isfinite(number):
        raise DocumentError.of(name, "give a finite number", value=text)
    return number


def _whole(values: Mapping[str, str], name: str, *, most: int) -> int:
    number = _number(values, name)
    if number != int(number) or not 1 <= number <= most:
        raise DocumentError.of(name, f"give a whole number from 1 to {most}", value=values[name])
    return int(number)


def _fraction(values: Mapping[str, str], name: str) -> float | None:
    if not _given(values, name):
        return None
    number = _number(values, name)
    if not 0 <= number <= 1:
        raise DocumentError.of(name, "give a fraction from 0 to 1", value=values[name])
    return number


def _tokens(values: Mapping[str, str], name: str) -> float:
    number = _number(values, name)
    if not 1 <= number <= MOST_TOKENS:
        raise DocumentError.of(name, f"give a number of tokens from 1 to {MOST_TOKENS}", value=values[name])
    return number
