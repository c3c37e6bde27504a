"""Small result files of our own making, with the keys that the benchmark programs write; every number is invented."""

import json
from collections.abc import Iterator
from typing import Any

VLLM: dict[str, Any] = {
    "date": "20261102-101530",
    "endpoint_type": "vllm",
    "backend": "vllm",
    "label": None,
    "model_id": "meta-llama/Llama-3.1-70B-Instruct",
    "tokenizer_id": "meta-llama/Llama-3.1-70B-Instruct",
    "num_prompts": 400,
    "gpu": "h100-sxm",
    "tp": "4",
    "pp": "1",
    "version": "0.11.0",
    "dtype": "bfloat16",
    "quantization": "fp8",
    "kv_cache_dtype": "auto",
    "request_rate": "inf",
    "burstiness": 1.0,
    "max_concurrency": 64,
    "duration": 160.0,
    "completed": 400,
    "failed": 3,
    "total_input_tokens": 409600,
    "total_output_tokens": 102400,
    "request_throughput": 2.5,
    "request_goodput": None,
    "output_throughput": 640.0,
    "total_token_throughput": 3200.0,
    "max_output_tokens_per_s": 900.0,
    "max_concurrent_requests": 66,
    "rtfx": 0.0,
    "mean_ttft_ms": 750.0,
    "median_ttft_ms": 700.0,
    "std_ttft_ms": 90.0,
    "p99_ttft_ms": 1200.0,
    "mean_tpot_ms": 95.5,
    "median_tpot_ms": 94.0,
    "std_tpot_ms": 4.0,
    "p99_tpot_ms": 110.0,
    "mean_itl_ms": 95.4,
    "mean_e2el_ms": 25102.5,
    "median_e2el_ms": 25000.0,
}


def distribution(mean: float, count: int = 300) -> dict[str, Any]:
    """A metric of GuideLLM, whose medians are not its means."""
    found = {"mean": mean, "median": mean * 0.9, "std_dev": 0.1, "count": count, "total_sum": mean * count}
    none = {"mean": 0.0, "median": 0.0, "std_dev": 0.0, "count": 0, "total_sum": 0.0}
    return {"successful": found, "errored": none, "incomplete": none, "total": found}


GUIDELLM_METRICS: dict[str, Any] = {
    "request_totals": {"successful": 300, "errored": 2, "incomplete": 7, "total": 309},
    "requests_per_second": distribution(5.0),
    "request_concurrency": distribution(15.8),
    "request_latency": distribution(3.2),
    "prompt_token_count": distribution(512.0),
    "output_token_count": distribution(128.0),
    "time_to_first_token_ms": distribution(150.0),
    "time_per_output_token_ms": distribution(25.0),
    "inter_token_latency_ms": distribution(24.0),
}


def guidellm_benchmark(strategy: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A benchmark of GuideLLM 0.5 to 0.7."""
    config = {
        "run_id": "5d0c",
        "run_index": 0,
        "strategy": {"worker_count": 10, **strategy},
        "profile": {"type_": "sweep", "max_concurrency": None},
        "backend": {"target": "http://localhost:8000", "model": "Qwen/Qwen3-32B"},
    }
    return {
        "type_": "generative_benchmark",
        "config": config,
        "scheduler_state": {"node_id": 0, "successful_requests": 300},
        "metrics": GUIDELLM_METRICS,
        "start_time": 1793613600.0,
        "end_time": 1793613660.0,
        "duration": 60.0,
        **changes,
    }


GUIDELLM: dict[str, Any] = {
    "metadata": {"version": 1, "guidellm_version": "0.6.0", "python_version": "3.12.3", "platform": "Linux"},
    "args": {"backend": "openai_http", "backend_kwargs": {"model": "named/in-args"}, "profile": "sweep"},
    "benchmarks": [
        guidellm_benchmark({"type_": "synchronous", "max_concurrency": 1}),
        guidellm_benchmark({"type_": "concurrent", "streams": 16, "max_concurrency": 16}),
        guidellm_benchmark({"type_": "throughput", "max_concurrency": 512}),
        guidellm_benchmark({"type_": "constant", "rate": 4.5, "max_concurrency": 512}),
        guidellm_benchmark({"type_": "poisson", "rate": 2.25, "max_concurrency": 512}),
    ],
}

GUIDELLM_OLD: dict[str, Any] = {
    "benchmarks": [
        {
            "type_": "generative_benchmark",
            "id_": "a1",
            "run_id": "b2",
            "args": {
                "profile": {"type_": "concurrent", "streams": [8]},
                "strategy_index": 0,
                "strategy": {"type_": "concurrent", "start_time": 1746000000.5, "streams": 8},
                "max_number": None,
                "max_duration": 60.0,
            },
            "run_stats": {"start_time": 1746000000.0, "end_time": 1746000061.0},
            "worker": {"type_": "generative_requests_worker", "backend_model": "meta-llama/Llama-3.1-8B-Instruct"},
            "request_loader": {"type_": "generative_request_loader"},
            "extras": {"gpu": "l40s", "tp": 1},
            "metrics": {name: value for name, value in GUIDELLM_METRICS.items() if name != "request_totals"},
            "start_time": 1746000000.5,
            "end_time": 1746000060.5,
            "duration": 60.0,
            "request_totals": {"successful": 290, "incomplete": 8, "errored": 1, "total": 299},
        }
    ]
}


def metric(unit: str, avg: float) -> dict[str, Any]:
    return {"unit": unit, "avg": avg, "min": avg / 2, "max": avg * 3, "p50": avg * 0.9, "p99": avg * 2, "std": 1.0}


NVIDIA_METRICS: dict[str, Any] = {
    "request_throughput": {"unit": "requests/sec", "avg": 8.0},
    "request_latency": metric("ms", 3900.0),
    "time_to_first_token": metric("ms", 90.0),
    "inter_token_latency": metric("ms", 15.0),
    "output_token_throughput": {"unit": "tokens/sec", "avg": 2048.0},
    "output_sequence_length": metric("tokens", 256.0),
    "input_sequence_length": metric("tokens", 1000.5),
    "request_count": {"unit": "requests", "avg": 480.0},
}

AIPERF: dict[str, Any] = {
    "schema_version": "1.5",
    "aiperf_version": "0.13.0",
    "benchmark_id": "f00d",
    **NVIDIA_METRICS,
    "error_request_count": {"unit": "requests", "avg": 4.0},
    "benchmark_duration": {"unit": "sec", "avg": 60.0},
    "goodput": None,
    "input_config": {
        "models": {"items": [{"name": "openai/gpt-oss-120b"}]},
        "endpoint": {"urls": ["http://localhost:8000/v1"], "type": "chat", "streaming": True},
        "phases": [
            {"name": "warmup", "kind": "warmup", "type": "concurrency", "concurrency": 4, "requests": 10},
            {"name": "profiling", "kind": "profiling", "type": "concurrency", "concurrency": 32, "requests": 480},
        ],
    },
    "telemetry_data": {
        "summary": {"start_time": "2026-11-02T10:00:00"},
        "endpoints": {
            "localhost:9400": {
                "gpus": {
                    "gpu_0": {"gpu_index": 0, "gpu_name": "NVIDIA H200", "gpu_uuid": "GPU-0", "metrics": {}},
                    "gpu_1": {"gpu_index": 1, "gpu_name": "NVIDIA H200", "gpu_uuid": "GPU-1", "metrics": {}},
                }
            }
        },
    },
    "was_cancelled": False,
    "error_summary": [],
    "start_time": "2026-11-02T10:00:00.250000",
    "end_time": "2026-11-02T10:01:00.250000",
}

GENAI_PERF: dict[str, Any] = {
    **NVIDIA_METRICS,
    "input_config": {
        "model": ["meta-llama/Llama-3.1-8B-Instruct"],
        "formatted_model_name": "Llama-3.1-8B-Instruct",
        "backend": "tensorrtllm",
        "endpoint": None,
        "endpoint_type": "chat",
        "service_kind": "openai",
        "streaming": True,
        "concurrency": 16,
        "request_rate": None,
        "subcommand": "profile",
    },
}

TABLE = (
    "gpu,model,precision,kv_precision,engine,engine_version,tp,pp,input_tokens,output_tokens,concurrency,"
    "request_rate_rps,req_per_s,ttft_s,tpot_s,e2e_s,completed,failed,duration_s,measured_at,source\n"
    "h100-sxm,llama-3.1-70b,fp8,bf16,vllm,0.11.0,4,2,1024,256,64,,2.5,0.75,0.0955,25.1,400,3,160,"
    "2026-11-02T10:15:30Z,mine\n"
    "h200-sxm,llama-3.1-70b,fp8,,sglang,,4.0,,1024.5,256,,2.25,2.2,0.31,0.025,,,,,2026-11-03 08:00,mine\n"
)

INFERENCEMAX: dict[str, Any] = {
    "hw": "h200-nb",
    "conc": 32,
    "image": "vllm/vllm-openai:v0.11.2",
    "model": "meta-llama/Llama-3.1-70B-Instruct",
    "infmax_model_prefix": "70b",
    "framework": "vllm",
    "precision": "fp8",
    "spec_decoding": "none",
    "disagg": False,
    "isl": 1024,
    "osl": 1024,
    "is_multinode": False,
    "tp": 4,
    "ep": 1,
    "dp_attention": "false",
    "tput_per_gpu": 480.0,
    "output_tput_per_gpu": 240.0,
    "input_tput_per_gpu": 240.0,
    "mean_ttft": 0.35,
    "median_ttft": 0.2,
    "mean_tpot": 0.032,
    "mean_intvty": 31.25,
    "mean_e2el": 30.0,
}

JSON_PAYLOADS = (VLLM, GUIDELLM, GUIDELLM_OLD, AIPERF, GENAI_PERF, INFERENCEMAX)


def as_bytes(*values: Any) -> bytes:
    """JSON values one after another, as Python writes them."""
    return "\n".join(json.dumps(value) for value in values).encode()


def changed(payload: dict[str, Any], *path: str | int, to: Any) -> dict[str, Any]:
    """A copy with one value replaced, or added."""
    copy: dict[str, Any] = json.loads(json.dumps(payload))
    here: Any = copy
    for part in path[:-1]:
        here = here[part]
    here[path[-1]] = to
    return copy


def without(payload: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in payload.items() if key not in keys}


def leaves(value: Any, *path: str | int) -> Iterator[tuple[str | int, ...]]:
    """The paths of everything in a payload, inner values and objects alike."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from leaves(child, *path, key)
