"""Benchmark runs as sutler's own CSV has them, made by the shipped estimates times a factor."""

from itertools import product

from sutler.solver.calibration.factors import shipped_calibration
from sutler.solver.catalog import resolve_gpu, resolve_model
from sutler.solver.throughput.runs import ServingRun, predict, run_groups

HEADER = "gpu,model,precision,engine,engine_version,tp,input_tokens,output_tokens,concurrency,req_per_s,ttft_s,tpot_s"


def a_table(
    faster: float = 0.8,
    *,
    gpu: str = "h100-sxm",
    engine: str = "vllm",
    version: str = "0.11.0",
    in_flight: tuple[int, int] = (32, 192),
) -> str:
    """Eight runs of an 8B model on a stack so many times as fast as the shipped estimates say."""
    cases = list(product((512, 2048), (128, 512), in_flight))
    runs = [
        ServingRun(
            gpu=resolve_gpu(gpu),
            spec=resolve_model("llama-3.1-8b"),
            precision="bf16",
            kv_precision="bf16",
            engine=engine,
            tensor_parallel=1,
            input_tokens=inputs,
            output_tokens=outputs,
            concurrency=concurrency,
            req_per_s=1.0,
            ttft_s=1.0,
            tpot_s=1.0,
        )
        for inputs, outputs, concurrency in cases
    ]
    found = predict(run_groups(runs), shipped_calibration())
    rows = [
        f"{gpu},llama-3.1-8b,bf16,{engine},{version},1,{i},{o},{c},"
        f"{found.req_per_s[at] * faster:.6g},{found.ttft_s[at] / faster:.6g},{found.tpot_s[at] / faster:.6g}"
        for at, (i, o, c) in enumerate(cases)
    ]
    return "\n".join([HEADER, *rows]) + "\n"
