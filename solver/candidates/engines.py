"""Which layouts a serving engine can run: what it cannot run does not exist for the search.

Flow: ServedModel.engine -> abilities (here) -> shapes.py leaves out the rest, verify/replicas.py checks plans.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sutler.solver.catalog.entries import Precision
from sutler.solver.market.pools import PIECE_SIZES
from sutler.solver.problem import EngineName, Problem, Role, ServedModel

ANY_LAYOUT: Final = "any-layout"


@dataclass(frozen=True, slots=True)
class Abilities:
    """What an engine can run. `unequal_degrees`: stages of one pipeline may differ in tensor parallelism.
    `mixed_gpus`: in GPU type, without being asked to. `hands_over_pipelines`: prefill and decode replicas may have
    several stages. `spreads_experts`: attention may be data parallel while the experts are spread over all GPUs of a
    replica. `speculates_in_pipelines`: tokens may be guessed where a replica has several stages. `least_cuda`: what
    its current release is built for, `least_compute_capability` what its kernels need of GPUs at any precision; None:
    nothing known."""

    unequal_degrees: bool
    mixed_gpus: bool
    hands_over_pipelines: bool
    spreads_experts: bool = False
    speculates_in_pipelines: bool = False
    least_cuda: float | None = None
    least_compute_capability: float | None = None

    def compute_capability_at(self, precision: Precision) -> float | None:
        """What GPUs have to support; bfloat16 arithmetic came with 8.0 (CUDA C++ Programming Guide, appendix)."""
        needed = self.least_compute_capability
        return None if needed is None else max(needed, 8.0) if precision == "bf16" else needed


# vLLM: one --tensor-parallel-size; NixlConnector knows no pipelines (github.com/vllm-project/vllm/issues/52913);
# experts: docs.vllm.ai/en/latest/serving/expert_parallel_deployment.
# SGLang: one --tp-size; of pipelines that hand over, only prefill with Mooncake is documented (docs.sglang.io);
# experts: --enable-dp-attention.
# TensorRT-LLM: one tp_size; context and generation servers may be pipelines (nvidia.github.io/TensorRT-LLM);
# attention is data parallel over all GPUs or none, which is not looked at.
# Speculation in pipelines: vLLM does not start (github.com/vllm-project/vllm/issues/57755), SGLang only by a variable
# (github.com/sgl-project/sglang/pull/30775); of TensorRT-LLM the same is taken.
# CUDA: vLLM's wheels are of 12.8 and 12.9, which run on drivers of 12.8 (docs.vllm.ai/en/stable/getting_started/
# installation/gpu), SGLang's and TensorRT-LLM's of 13 (docs.sglang.io/docs/get-started/install,
# nvidia.github.io/TensorRT-LLM). Compute capability: vLLM 7.5 (same page; fp8 runs weight-only from there on),
# TensorRT-LLM from Ampere on (supported-hardware); of SGLang's kernels the same as vLLM's is taken.
ABILITIES: Final[Mapping[EngineName, Abilities]] = {
    "vllm": Abilities(
        unequal_degrees=False,
        mixed_gpus=False,
        hands_over_pipelines=False,
        spreads_experts=True,
        least_cuda=12.8,
        least_compute_capability=7.5,
    ),
    "sglang": Abilities(
        unequal_degrees=False,
        mixed_gpus=False,
        hands_over_pipelines=False,
        spreads_experts=True,
        least_cuda=13.0,
        least_compute_capability=7.5,
    ),
    "tensorrt-llm": Abilities(
        unequal_degrees=False,
        mixed_gpus=False,
        hands_over_pipelines=True,
        least_cuda=13.0,
        least_compute_capability=8.0,
    ),
    ANY_LAYOUT: Abilities(
        unequal_degrees=True,
        mixed_gpus=True,
        hands_over_pipelines=True,
        spreads_experts=True,
        speculates_in_pipelines=True,
    ),
}


def mixes_gpus(problem: Problem, model: ServedModel) -> bool:
    """Whether pipelines of several GPU types are sought: what was asked for, else what the engine is made for."""
    asked = problem.search.mixed_gpu_pipelines
    return ABILITIES[model.engine].mixed_gpus if asked is None else asked


def spreads_experts(problem: Problem, model: ServedModel, role: Role) -> bool:
    """Whether layouts with attention data parallelism are sought."""
    has_experts = model.spec is not None and model.spec.moe is not None
    able = problem.search.expert_parallel and ABILITIES[model.engine].spreads_experts
    return able and has_experts and role == "aggregated"


def shares_experts(problem: Problem, gpus: int) -> bool:
    """Whether experts may be spread over so many GPUs: as many as tensor parallelism may have, or a whole machine of
    another size within them."""
    sizes = problem.search.tensor_parallel
    return gpus in sizes or (gpus not in PIECE_SIZES and gpus <= max(sizes))


def has_pipelines(model: ServedModel, role: Role) -> bool:
    """Whether the model's engine can run replicas of several stages."""
    return can_run(model.engine, role, (1, 1), guesses=guesses(model, role))


def guesses(model: ServedModel, role: Role) -> bool:
    """Whether replicas of the role guess tokens."""
    return model.speculation is not None and role != "prefill"


def can_run(engine: EngineName, role: Role, degrees: Sequence[int], *, guesses: bool = False) -> bool:
    """Whether the engine can run a pipeline with stages of these tensor-parallel degrees; `guesses` tokens or not."""
    able = ABILITIES[engine]
    is_even = able.unequal_degrees or len(set(degrees)) <= 1
    has_stages = (able.hands_over_pipelines or role == "aggregated") and (able.speculates_in_pipelines or not guesses)
    return is_even and (len(degrees) == 1 or has_stages)


def engine_of(model: ServedModel, role: Role, degrees: Sequence[int]) -> EngineName:
    """What runs a replica: the model's engine; what was measured on a layout beyond it was another one."""
    can = can_run(model.engine, role, degrees, guesses=guesses(model, role))
    return model.engine if can else ANY_LAYOUT
