"""What users write beside their results: --metadata of vLLM, --output-extras and labels of GuideLLM.

Benchmark programs see a URL, not the GPUs behind it; these labels are the only place where a file names them.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from sutler.service.documents.validation import validate
from sutler.service.profiles.readers.values import DegreeText, Label, Stated, named
from sutler.service.profiles.runs import BenchmarkRun

# "auto" is what engines call their own choice.
_SAYS_NOTHING: Final = frozenset({"", "auto", "none", "null", "unknown", "n/a"})


class Labels(Stated):
    """What labels say, under the names that are usual for them."""

    model: Label | None = None
    gpu: Label | None = named("gpu", "gpu_type", "gpu_name", "gpu_model", "accelerator", "hardware")
    precision: Label | None = named("precision", "quantization", "quant", "dtype")
    kv_precision: Label | None = named("kv_precision", "kv_cache_dtype")
    engine: Label | None = None
    engine_version: Label | None = named("engine_version", "vllm_version", "backend_version", "version")
    tensor_parallel: DegreeText | None = named("tensor_parallel", "tp", "tp_size", "tensor_parallel_size")
    pipeline_parallel: DegreeText | None = named("pipeline_parallel", "pp", "pp_size", "pipeline_parallel_size")

    def put_on(self, run: BenchmarkRun) -> BenchmarkRun:
        """The run with what the labels say; they win, for the user wrote them for this very purpose."""
        return replace(run, **{name: value for name, value in self if value is not None})


def labels_of(written: Mapping[str, object]) -> Labels:
    """Capitals and hyphens in the names do not matter. Raises DocumentError for what cannot be meant."""
    plain = {name.strip().lower().replace("-", "_"): value for name, value in written.items()}
    return validate(Labels, {name: value for name, value in plain.items() if says_something(value)})


def says_something(value: object) -> bool:
    return value is not None and not (isinstance(value, str) and value.strip().lower() in _SAYS_NOTHING)
