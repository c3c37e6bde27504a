"""SGLang's words for what plans say by vLLM's names; names that both have in common pass as they are.

https://docs.sglang.io/advanced_features/server_arguments.html, of 0.5.23;
https://docs.sglang.io/advanced_features/pd_disaggregation.html for prefill and decode.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from sutler.solver.problem import Role

VERSION: Final = "0.5.23"
IMAGE: Final = f"lmsysorg/sglang:v{VERSION}"
DOCUMENTATION: Final = "https://docs.sglang.io/advanced_features/server_arguments.html"
COMMAND: Final = ("python3", "-m", "sglang.launch_server")

_NAMES: Final[Mapping[str, str]] = {
    "tensor_parallel_size": "tp_size",
    "pipeline_parallel_size": "pp_size",
    "data_parallel_size": "dp_size",
    "max_num_seqs": "max_running_requests",
    "max_num_batched_tokens": "chunked_prefill_size",
    "max_model_len": "context_length",
}
_VALUES: Final[Mapping[tuple[str, object], str]] = {
    ("quantization", "compressed-tensors"): "w8a8_int8",
    ("kv_cache_dtype", "fp8"): "fp8_e4m3",
}
_VARIABLES: Final[Mapping[str, str]] = {"VLLM_PP_LAYER_PARTITION": "SGLANG_PP_LAYER_PARTITION"}
# vLLM states them for each rank of attention, SGLang for all ranks together.
_OF_ALL_RANKS: Final = frozenset({"tensor_parallel_size", "max_num_seqs", "max_num_batched_tokens"})
_METHODS: Final[Mapping[str, str]] = {"mtp": "NEXTN", "draft_model": "STANDALONE"}
_OF_VLLM: Final = frozenset({"kv_transfer_config"})

Value = str | int | float | bool


def arguments(given: Iterable[tuple[str, Value]], role: Role) -> Iterator[tuple[str, Value]]:
    """Arguments of a replica by SGLang's names; its role stands in them."""
    known = dict(given)
    ranks, degree = int(known.get("data_parallel_size", 1)), int(known.get("tensor_parallel_size", 1))
    for name, value in known.items():
        if name == "enable_expert_parallel":
            yield from (("enable_dp_attention", True), ("ep_size", degree * ranks))
        elif name in _OF_ALL_RANKS and ranks > 1:
            yield _NAMES[name], int(value) * ranks
        elif name == "speculative_config":
            yield from _speculation(json.loads(str(value)))
        elif name not in _OF_VLLM:
            yield _NAMES.get(name, name), _VALUES.get((name, value), value)
    if role != "aggregated":
        yield "disaggregation_mode", role
        yield "disaggregation_transfer_backend", "nixl"


def _speculation(config: Mapping[str, str | int]) -> Iterator[tuple[str, Value]]:
    """One chain of guesses, as vLLM makes them: no tree."""
    method, guesses = str(config["method"]), int(config["num_speculative_tokens"])
    yield "speculative_algorithm", _METHODS.get(method, method.upper())
    if "model" in config:
        yield "speculative_draft_model_path", config["model"]
    if method == "ngram":
        yield "speculative_num_draft_tokens", guesses
    else:
        yield from (("speculative_num_steps", guesses), ("speculative_eagle_topk", 1))
        yield "speculative_num_draft_tokens", guesses + 1


def environment(given: Mapping[str, str]) -> dict[str, str]:
    return {_VARIABLES.get(name, name): value for name, value in given.items()}
