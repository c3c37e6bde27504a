"""Reads the measured runs that the roofline is fitted and judged on, from the files of one folder.

serving_dense.csv is required; layer_gemm_vidur.csv, static_splitwise.csv and paper_table6.csv are used where they
lie beside it. The columns are those of the files' own headers.
"""

import csv
from dataclasses import dataclass, replace
from pathlib import Path

from sutler.solver.catalog import resolve_gpu, resolve_model
from sutler.solver.catalog.entries import PRECISIONS, Gpu, ModelSpec, Precision
from sutler.solver.throughput.runs import LayerRun, ServingRun

# internlm-20b is not served by anyone today, so the catalogue leaves it out (config.json of internlm/internlm-20b).
INTERNLM_20B = ModelSpec(
    id="internlm-20b",
    layers=60,
    hidden_size=5120,
    heads=40,
    kv_heads=40,
    head_dim=128,
    intermediate_size=13824,
    vocab_size=103168,
    max_context_tokens=4096,
    total_params=60 * (4 * 5120**2 + 3 * 5120 * 13824) + 2 * 103168 * 5120,
    active_params=60 * (4 * 5120**2 + 3 * 5120 * 13824) + 2 * 103168 * 5120,
)
CLOSED_LOOP = "closed loop"
STATIC_BATCH = "static batch"
VIDUR_GPUS = {"a40": "a40", "a100": "a100-sxm4-80gb", "h100": "h100-sxm"}


@dataclass(frozen=True, slots=True)
class Table6Row:
    """A row of Table 6 of arXiv 2502.00722 in requests/s of the replica; TP and PP as printed."""

    gpu: str
    tensor_parallel: int
    pipeline_parallel: int
    placement: str
    req_per_s: float


# What the catalogue has under a newer name: the same architecture (config.json of both).
ALIKE = {"Qwen/Qwen2-7B": "qwen2.5-7b"}
# Cards or dies, its source does not say.
UNCLEAR_GPUS = ("mi250",)


def static_batches(path: Path) -> list[ServingRun]:
    """Static batches of the engines of 2024. Raises OSError and KeyError (a missing column)."""
    return [
        replace(
            _serving_run({**row, "ttft_s": "nan", "tpot_s": "nan"}), engine=f"{row['backend']}-2024", is_static=True
        )
        for row in _rows(path)
        if row["kind"] == STATIC_BATCH and row["gpu"] not in UNCLEAR_GPUS
    ]


def serving_runs(path: Path) -> list[ServingRun]:
    """The closed loops whose concurrency is verified. Raises OSError and KeyError (a missing column)."""
    rows = _rows(path)
    return [
        _serving_run(row)
        for row in rows
        if row["concurrency_verified"] == "True" and row.get("kind", CLOSED_LOOP) == CLOSED_LOOP
    ]


def layer_runs(path: Path) -> list[LayerRun]:
    """Kernel times per layer without attention."""
    return [
        LayerRun(
            gpu=resolve_gpu(VIDUR_GPUS[row["gpu"]]),
            spec=_vidur_model(row["model"]),
            precision=_precision(row["precision"]),
            tensor_parallel=int(row["tp"]),
            tokens=float(row["tokens_in_batch"]),
            seconds=float(row["layer_time_ms_without_attention_kernel"]) / 1e3,
        )
        for row in _rows(path)
    ]


def static_runs(path: Path) -> list[ServingRun]:
    """Static batches of Llama-2-70B on A100 with the vLLM that Splitwise profiled in 2023; BLOOM's feed-forward part
    is not one the catalogue describes."""
    gpu = resolve_gpu("a100-sxm4-80gb")
    return [
        replace(_run(row, gpu=gpu, model="llama-2-70b", precision="fp16", engine="vllm-2023"), is_static=True)
        for row in _rows(path)
        if row["e2e_consistent"] == "True" and row["model"] == "llama2-70b"
    ]


def table6_rows(path: Path) -> list[Table6Row]:
    return [
        Table6Row(
            gpu=row["gpu"],
            tensor_parallel=int(row["tp"]),
            pipeline_parallel=int(row["pp"]),
            placement=row["placement"],
            req_per_s=float(row["req_per_s_if_real_is_per_dollar_hour"]),
        )
        for row in _rows(path)
    ]


def _serving_run(row: dict[str, str]) -> ServingRun:
    gpu, precision = resolve_gpu(row["gpu"]), _precision(row["precision"])
    return _run(row, gpu=gpu, model=ALIKE.get(row["model"], row["model"]), precision=precision, engine=row["backend"])


def _run(row: dict[str, str], *, gpu: Gpu, model: str, precision: Precision, engine: str) -> ServingRun:
    return ServingRun(
        gpu=gpu,
        spec=resolve_model(model),
        precision=precision,
        kv_precision=_precision(row.get("kv_precision") or kv_precision_served(gpu, precision)),
        engine=engine,
        tensor_parallel=int(row["tp"]),
        input_tokens=float(row["input_tokens"]),
        output_tokens=float(row["output_tokens"]),
        concurrency=float(row["batch_or_concurrency"]),
        req_per_s=float(row["req_per_s"]),
        ttft_s=float(row["ttft_s"]),
        tpot_s=float(row["tpot_s"]),
        version=row.get("backend_version", ""),
    )


def kv_precision_served(gpu: Gpu, precision: Precision) -> Precision:
    """What the measured servers ran with: a 16-bit cache, but fp8 on Blackwell with fp8 or fp4 weights (server
    configurations of InferenceMAX, August 2025, github.com/InferenceMAX/InferenceMAX: --kv-cache-dtype fp8 on B200,
    none on H200)."""
    if (gpu.architecture or "").lower() == "blackwell" and precision in ("fp8", "fp4"):
        return "fp8"
    return "fp16" if precision == "fp16" else "bf16"


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def _precision(name: str) -> Precision:
    return next(one for one in PRECISIONS if one == name)


def _vidur_model(name: str) -> ModelSpec:
    return INTERNLM_20B if name == "internlm/internlm-20b" else resolve_model(name)
