"""How to start a replica: arguments and environment of vLLM's server, by their documented names.

https://docs.vllm.ai/en/latest/serving/engine_args.html
"""

import json
from collections.abc import Mapping
from typing import Final

from sutler.solver.catalog.entries import usual_kv_precision
from sutler.solver.plan import sequences_of
from sutler.solver.problem import Role, ServedModel, Speculation
from sutler.solver.throughput.memory import MAX_SEQUENCES
from sutler.solver.throughput.stage_times import CHUNK_TOKENS

EngineArgs = tuple[tuple[str, str | int | float | bool], ...]

STEP_TOKENS: Final = int(CHUNK_TOKENS)  # what rates and simulations count on; vLLM's own default grows with the GPU
_CACHE_16_BIT = {"bf16": "bfloat16", "fp16": "float16"}
_QUANTIZATION = {"fp8": "fp8", "int8": "compressed-tensors", "int4": "awq_marlin", "fp4": "modelopt_fp4"}


def engine_args(
    model: ServedModel,
    *,
    tensor_parallel: tuple[int, ...],
    max_batch: int | None,
    role: Role = "aggregated",
    data_parallel: int = 1,
    bends: bool = True,
) -> EngineArgs:
    """Arguments for one replica whose stages have these tensor-parallel degrees, by vLLM's names for every engine.

    vLLM has one tensor-parallel size for all stages: for unequal ones no sizes are given, and the plan's stages say
    what they are. `max_batch` None, as where rates were measured: what is simulated then. vLLM's max_num_seqs is of
    each rank of attention (docs.vllm.ai/en/latest/serving/data_parallel_deployment). `bends`: as of `role_args`; such
    an engine takes as many sequences as any plan counts on, since it cannot be told another number while it runs.
    """
    checkpoint = checkpoint_of(model)
    args: dict[str, str | int | float | bool] = {
        "model": checkpoint or (model.spec.repository if model.spec else model.name),
    }
    if len(set(tensor_parallel)) == 1:
        args |= {"tensor_parallel_size": tensor_parallel[0], "pipeline_parallel_size": len(tensor_parallel)}
    if data_parallel > 1:
        args |= {"data_parallel_size": data_parallel, "enable_expert_parallel": True}
    if model.precision in ("bf16", "fp16"):
        args["dtype"] = {"bf16": "bfloat16", "fp16": "float16"}[model.precision]
    elif checkpoint is None:  # the config.json of a known checkpoint says how it is quantised
        args["quantization"] = _QUANTIZATION[model.precision]
    if model.kv_precision == "fp8":
        args["kv_cache_dtype"] = "fp8"
    elif usual_kv_precision(model.spec, model.precision) == "fp8":  # the checkpoint's own wish, not the problem's
        args["kv_cache_dtype"] = _CACHE_16_BIT.get(model.kv_precision, "auto")
    takes_either = role != "aggregated" and bends and model.engine != "sglang" and model.speculation is None
    most = MAX_SEQUENCES if takes_either or max_batch is None else max_batch
    args["max_num_seqs"] = _of_each_rank(most, data_parallel)
    if role == "aggregated":
        args["max_num_batched_tokens"] = STEP_TOKENS
    if model.speculation is not None and role != "prefill":
        args["speculative_config"] = _speculative_config(model.speculation)
    if model.max_context_tokens is not None:
        args["max_model_len"] = model.max_context_tokens
    elif model.spec is not None:
        longest = max(workload.input_tokens + workload.output_tokens for workload in model.workloads)
        args["max_model_len"] = min(model.spec.max_context_tokens, _next_power_of_two(2 * longest))
    return (*args.items(), *role_args(role, bends=bends))


def _speculative_config(speculation: Speculation) -> str:
    """JSON, as https://docs.vllm.ai/en/latest/features/spec_decode has it."""
    told = {"method": speculation.method, "model": speculation.draft_model}
    given = {name: value for name, value in told.items() if value is not None}
    return json.dumps({**given, "num_speculative_tokens": speculation.draft_tokens}, separators=(",", ":"))


def checkpoint_of(model: ServedModel) -> str | None:
    """The repository whose weights are at the model's precision, where one is known."""
    return model.spec.checkpoint(model.precision) if model.spec else None


def role_args(role: Role, *, bends: bool) -> EngineArgs:
    """What a replica of one phase needs besides: how it hands keys and values over, or takes them.

    https://docs.vllm.ai/en/latest/features/nixl_connector_usage.html; `kv_role` is for readers, since NixlConnector
    leaves it to the proxy who prefills and who decodes. A transfer that fails is an error, not a prefill where
    answers are written. `bends`: the engine is started alike for both phases, so that it can change its phase without
    a restart; plans of versions before say instead what each was started for.
    """
    if role == "aggregated":
        return ()
    kv_role = "kv_both" if bends else {"prefill": "kv_producer", "decode": "kv_consumer"}[role]
    transfer = f'{{"kv_connector":"NixlConnector","kv_role":"{kv_role}","kv_load_failure_policy":"fail"}}'
    limit = (("max_num_batched_tokens", STEP_TOKENS),) if bends or role == "prefill" else ()
    return (*limit, ("kv_transfer_config", transfer))


def bends(role: Role, engine: str, args: Mapping[str, str | int | float | bool]) -> bool:
    """Whether a running engine prefills or decodes by what is sent to it: vLLM's that sends and receives, with the
    sequences that either phase may need.

    SGLang is started for one phase (`--disaggregation-mode`); an engine that guesses tokens, for decoding.
    """
    transfer = args.get("kv_transfer_config")
    if role == "aggregated" or engine == "sglang" or "speculative_config" in args or not isinstance(transfer, str):
        return False
    return bool(json.loads(transfer).get("kv_role") == "kv_both") and sequences_of(args) >= MAX_SEQUENCES


def either_phase(
    role: Role, engine: str, args: Mapping[str, str | int | float | bool]
) -> Mapping[str, str | int | float | bool]:
    """The arguments with which the same engine of one phase is started for either: those of versions before name one,
    which NixlConnector does not heed, and the sequences of that one."""
    transfer = args.get("kv_transfer_config")
    if role == "aggregated" or not isinstance(transfer, str):
        return args
    either = {**args, **dict(role_args(role, bends=True))}
    most = _of_each_rank(MAX_SEQUENCES, int(args.get("data_parallel_size", 1)))
    return {**either, "max_num_seqs": most} if bends(role, engine, {**either, "max_num_seqs": most}) else either


def _of_each_rank(sequences: int, ranks: int) -> int:
    return -(-sequences // ranks)


def engine_env(layers: tuple[int, ...]) -> tuple[tuple[str, str], ...]:
    """Environment of one replica: its layer split where that is not even (VLLM_PP_LAYER_PARTITION, docs.vllm.ai)."""
    if len(layers) == 1 or 0 in layers or len(set(layers)) == 1:
        return ()
    return (("VLLM_PP_LAYER_PARTITION", ",".join(str(count) for count in layers)),)


def _next_power_of_two(value: float) -> int:
    return 1 << max(0, int(value) - 1).bit_length()
