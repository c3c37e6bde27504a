"""Results of `vllm bench serve --save-result` and of the older benchmark_serving.py, alone or appended to one file.

Format: https://github.com/vllm-project/vllm/blob/main/vllm/benchmarks/serve.py (main_async writes it, benchmark
and process_one_metric fill it), https://github.com/vllm-project/vllm/blob/v0.9.0/benchmarks/benchmark_serving.py.
One flat object a run; --append-result puts objects one after another; --metadata adds keys beside them. Totals
are over the completed requests. `request_rate` is "inf" where everything was sent at once. SGLang's bench_serving
descends from the same script and writes the same keys but for the model.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import isinf
from typing import Annotated, Any, Final

import numpy as np
from pydantic import BeforeValidator, Field
from pydantic_core import PydanticCustomError

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.fields import Name
from sutler.service.documents.validation import validate
from sutler.service.profiles.readers.labels import labels_of
from sutler.service.profiles.readers.outcome import RunsRead, collected
from sutler.service.profiles.readers.values import (
    Counted,
    Measured,
    Positive,
    Stated,
    named,
    per_request,
    seconds_of_ms,
)
from sutler.service.profiles.runs import BenchmarkRun

FORMAT: Final = "vllm"
_DATE: Final = "%Y%m%d-%H%M%S"
_OWN_KEYS: Final = frozenset({"request_throughput", "completed", "duration"})
# `backend` names the API that was called; "openai" and its kin may be any engine.
_ENGINES: Final = ("vllm", "sglang", "tensorrt-llm", "lmdeploy", "tgi")


def _finite_rate(value: object) -> object:
    everything_at_once = value == "inf" or (isinstance(value, float) and isinf(value) and value > 0)
    return None if everything_at_once else value


def _date(value: object) -> object:
    try:
        return datetime.strptime(value if isinstance(value, str) else "", _DATE).replace(tzinfo=UTC)
    except ValueError:
        raise PydanticCustomError("vllm_date", "must be a time such as 20261120-120000") from None


class _Result(Stated):
    model_id: Name | None = None
    backend: Name | None = named("backend", "endpoint_type")
    date: Annotated[datetime, BeforeValidator(_date)] | None = None
    request_rate: Annotated[Positive | None, BeforeValidator(_finite_rate)] = None
    ramp_up_strategy: Name | None = None
    max_concurrency: Positive | None = None
    duration: Measured | None = None
    completed: Counted | None = None
    failed: Counted | None = None
    total_input_tokens: Counted | None = None
    total_output_tokens: Counted | None = None
    request_throughput: Measured | None = None
    mean_ttft_ms: Measured | None = None
    mean_tpot_ms: Measured | None = None
    mean_e2el_ms: Measured | None = None
    input_lens: list[Counted] | None = None
    output_lens: list[Counted] | None = None
    random_range_ratio: Annotated[float, Field(ge=0, le=1)] | None = None


def recognises(values: Sequence[object]) -> bool:
    return any(isinstance(value, Mapping) and _is_result(value) for value in _flat(values))


def read(values: Sequence[object], name: str) -> RunsRead:
    """The runs of a file. Raises DocumentError where no run can be used."""
    numbered = [(f"result {number}", value) for number, value in enumerate(_flat(values), 1)]
    return collected(name, FORMAT, numbered, _run)


def _flat(values: Sequence[object]) -> list[Any]:
    """Results that somebody gathered in a list are as good as those that vLLM appended."""
    return [one for value in values for one in (value if isinstance(value, list) else [value])]


def _is_result(value: Mapping[str, object]) -> bool:
    return value.keys() >= _OWN_KEYS and not isinstance(value["request_throughput"], Mapping)


def _run(place: str, value: object) -> BenchmarkRun:
    if not isinstance(value, Mapping) or not _is_result(value):
        keys = ", ".join(sorted(_OWN_KEYS))
        raise DocumentError.of("(result)", f"is no result of `vllm bench serve`, which has {keys}", value=value)
    result = validate(_Result, value)
    if result.ramp_up_strategy is not None:
        remedy = "measure at one request rate or concurrency: the means of a ramp belong to no load"
        raise DocumentError.of("ramp_up_strategy", remedy, value=result.ramp_up_strategy)
    return labels_of(value).put_on(_stated(place, result))


def _stated(place: str, result: _Result) -> BenchmarkRun:
    return BenchmarkRun(
        place=place,
        model=result.model_id,
        engine=next((engine for engine in _ENGINES if (result.backend or "").startswith(engine)), None),
        input_tokens=per_request(result.total_input_tokens, result.completed),
        output_tokens=per_request(result.total_output_tokens, result.completed),
        concurrency=result.max_concurrency,
        request_rate_rps=result.request_rate,
        req_per_s=result.request_throughput,
        ttft_s=seconds_of_ms(result.mean_ttft_ms),
        tpot_s=seconds_of_ms(result.mean_tpot_ms),
        e2e_s=seconds_of_ms(result.mean_e2el_ms),
        completed=result.completed,
        failed=result.failed,
        duration_s=result.duration,
        measured_at=result.date,
        length_spread_fraction=_spread(result),
    )


def _spread(result: _Result) -> float | None:
    """Of lengths even within 1 - s and 1 + s times their mean, the standard deviation is s / sqrt(3) of that. SGLang
    draws from its random_range_ratio of the longest to the longest; vLLM says each length with --save-detailed."""
    if result.random_range_ratio is not None:
        return (1.0 - result.random_range_ratio) / (1.0 + result.random_range_ratio)
    lengths = [np.array(one, dtype=np.float64) for one in (result.input_lens, result.output_lens) if one and sum(one)]
    spreads = [float(np.sqrt(3.0) * one.std() / one.mean()) for one in lengths]
    return min(max(spreads), 1.0) if spreads else None
