"""How to start a replica: arguments and environment of vLLM's server, by their documented names.

https://docs.vllm.ai/en/latest/serving/engine_args.html
"""

from typing import Final

from solver.problem import Role, ServedModel

EngineArgs = tuple[tuple[str, str | int | float | bool], ...]

PREFILL_BATCHED_TOKENS: Final = 2048  # of a prefill replica's step: what its rate is estimated with
_QUANTIZATION = {"fp8": "fp8", "int8": "compressed-tensors", "int4": "awq_marlin", "fp4": "modelopt_fp4"}


def engine_args(
    model: ServedModel, *, tensor_parallel: tuple[int, ...], max_batch: int | None, role: Role = "aggregated"
) -> EngineArgs:
    """Arguments for one replica whose stages have these tensor-parallel degrees.

    vLLM wants one tensor-parallel size for all stages; with unequal ones the size of the widest is given and
    the plan's stages say the rest.
    """
    args: dict[str, str | int | float | bool] = {
        "model": model.spec.hf_id or model.spec.id if model.spec else model.name,
        "tensor_parallel_size": max(tensor_parallel),
        "pipeline_parallel_size": len(tensor_parallel),
    }
    if model.precision in ("bf16", "fp16"):
        args["dtype"] = {"bf16": "bfloat16", "fp16": "float16"}[model.precision]
    else:
        args["quantization"] = _QUANTIZATION[model.precision]
    if model.kv_precision == "fp8":
        args["kv_cache_dtype"] = "fp8"
    if max_batch:
        args["max_num_seqs"] = max_batch
    if model.spec is not None:
        longest = max(workload.input_tokens + workload.output_tokens for workload in model.workloads)
        args["max_model_len"] = min(model.spec.max_context_tokens, _next_power_of_two(2 * longest))
    return (*args.items(), *role_args(role))


def role_args(role: Role) -> EngineArgs:
    """What a replica of one phase needs besides: how it hands keys and values over, or takes them.

    https://docs.vllm.ai/en/latest/features/nixl_connector_usage.html; `kv_role` is for readers, since NixlConnector
    leaves it to the proxy who prefills and who decodes. A transfer that fails is an error, not a prefill where
    answers are written.
    """
    if role == "aggregated":
        return ()
    kv_role = {"prefill": "kv_producer", "decode": "kv_consumer"}[role]
    transfer = f'{{"kv_connector":"NixlConnector","kv_role":"{kv_role}","kv_load_failure_policy":"fail"}}'
    limit = (("max_num_batched_tokens", PREFILL_BATCHED_TOKENS),) if role == "prefill" else ()
    return (*limit, ("kv_transfer_config", transfer))


def engine_env(layers: tuple[int, ...]) -> tuple[tuple[str, str], ...]:
    """Environment of one replica: its layer split where that is not even (VLLM_PP_LAYER_PARTITION, docs.vllm.ai)."""
    if len(layers) == 1 or 0 in layers or len(set(layers)) == 1:
        return ()
    return (("VLLM_PP_LAYER_PARTITION", ",".join(str(count) for count in layers)),)


def _next_power_of_two(value: float) -> int:
    return 1 << max(0, int(value) - 1).bit_length()
