"""Aggregated results of InferenceMAX (InferenceX), agg_*.json, alone or gathered in a list as the site has them.

Format: https://github.com/InferenceMAX/InferenceMAX (what its utils make of results of vLLM's benchmark). One flat
object a run; rates are tokens/s of each GPU, latencies seconds. What a request had is not stated but follows: as many
requests are in flight as `conc` says, so that requests/s = conc / mean_e2el (Little), and tokens a request are
tokens/s over that; `isl` and `osl` are the most that lengths were drawn up to.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.validation import validate
from sutler.service.profiles.readers.outcome import RunsRead, collected
from sutler.service.profiles.readers.values import DegreeText, Label, Measured, Positive, Stated
from sutler.service.profiles.runs import BenchmarkRun

FORMAT: Final = "inferencemax"
_OWN_KEYS: Final = frozenset({"hw", "conc", "framework", "tput_per_gpu"})
_ENGINES: Final = {"trt": "trtllm", "tensorrt-llm": "trtllm"}
_VERSION: Final = re.compile(r":v?(\d+\.\d+[^-/@]*)")  # of an image's tag


class _Result(Stated):
    hw: Label | None = None
    model: Label | None = None
    framework: Label | None = None
    precision: Label | None = None
    image: Label | None = None
    spec_decoding: Label | None = None
    dp_attention: Label | bool | None = None
    disagg: bool | None = None
    is_multinode: bool | None = None
    tp: DegreeText | None = None
    conc: Positive | None = None
    output_tput_per_gpu: Measured | None = None
    input_tput_per_gpu: Measured | None = None
    mean_ttft: Measured | None = None
    mean_tpot: Measured | None = None
    mean_e2el: Measured | None = None


def recognises(values: Sequence[object]) -> bool:
    return any(isinstance(value, Mapping) and value.keys() >= _OWN_KEYS for value in _flat(values))


def read(values: Sequence[object], name: str) -> RunsRead:
    """The runs of a file. Raises DocumentError where no run can be used."""
    numbered = [(f"result {number}", value) for number, value in enumerate(_flat(values), 1)]
    return collected(name, FORMAT, numbered, _run)


def _flat(values: Sequence[object]) -> list[Any]:
    return [one for value in values for one in (value if isinstance(value, list) else [value])]


def _run(place: str, value: object) -> BenchmarkRun:
    if not isinstance(value, Mapping) or not value.keys() >= _OWN_KEYS:
        raise DocumentError.of("(result)", f"is none, which has {', '.join(sorted(_OWN_KEYS))}", value=value)
    result = validate(_Result, value)
    _refuse(result)
    req_per_s = result.conc / result.mean_e2el if result.conc and result.mean_e2el else None
    framework, version = (result.framework or "").lower(), _VERSION.search(result.image or "")
    return BenchmarkRun(
        place=place,
        model=result.model,
        gpu=re.split(r"[-_]", result.hw)[0] if result.hw else None,
        precision=result.precision,
        engine=_ENGINES.get(framework, framework) or None,
        engine_version=version[1] if version else None,
        tensor_parallel=result.tp,
        input_tokens=_each(result.input_tput_per_gpu, result.tp, req_per_s),
        output_tokens=_each(result.output_tput_per_gpu, result.tp, req_per_s),
        concurrency=result.conc,
        req_per_s=req_per_s,
        ttft_s=result.mean_ttft,
        tpot_s=result.mean_tpot,
        e2e_s=result.mean_e2el,
    )


def _refuse(result: _Result) -> None:
    """Raises DocumentError for runs of something else than one engine whose every token is computed."""
    if result.disagg or result.is_multinode:
        raise DocumentError.of("disagg", "prefill and decode stood apart: import runs of one engine", value=True)
    if (result.spec_decoding or "none").lower() not in ("none", "false"):
        remedy = "tokens were guessed ahead, and how many were right is not stated: import runs without"
        raise DocumentError.of("spec_decoding", remedy, value=result.spec_decoding)
    if str(result.dp_attention).lower() == "true":
        raise DocumentError.of("dp_attention", "ranks of attention cannot be imported: take runs without", value=True)


def _each(tokens_per_s_of_gpu: float | None, gpus: int | None, req_per_s: float | None) -> float | None:
    """Tokens of a request."""
    if tokens_per_s_of_gpu is None or gpus is None or not req_per_s:
        return None
    return tokens_per_s_of_gpu * gpus / req_per_s
