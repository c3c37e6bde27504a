"""What a plan is made of: execution plans, stages, and what came of them.

An execution plan is (dp, tp), a stage a set of models that run together with theirs, a schedule a sequence of stages
(SamuLLM, Fang et al., §3, eqs. 3 and 4). Nodes are positions in `Application.nodes`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sutler.solver.arrays import FloatArray


@dataclass(frozen=True, slots=True, order=True)
class ExecutionPlan:
    """`data_parallel` replicas of `tensor_parallel` GPUs each."""

    data_parallel: int
    tensor_parallel: int

    @property
    def gpus(self) -> int:
        return self.data_parallel * self.tensor_parallel

    def __str__(self) -> str:
        return f"{self.data_parallel} x TP{self.tensor_parallel}"


@dataclass(frozen=True, slots=True)
class ScheduleStage:
    """Which models run, and how. It ends when one of them has done all its requests, or, with `until_node`, when
    that one has done the share `until_fraction` of its work, if that comes first."""

    plans: Mapping[int, ExecutionPlan]
    until_node: int | None = None
    until_fraction: float = 1.0

    @property
    def gpus(self) -> int:
        return sum(plan.gpus for plan in self.plans.values())


Schedule = tuple[ScheduleStage, ...]

GpuNumber = tuple[int, int]
"""(host, number of the GPU there)."""

DONE: Final = 1.0 - 1e-9


@dataclass(frozen=True, slots=True)
class RunState:
    """How things stand between two stages. progress [num_nodes]: the share of each model's output tokens that are
    written; running: plans of the models that are up or loading; ready_s: from when on all their replicas serve;
    placement: the GPUs of each replica, where that is known."""

    at_s: float
    progress: tuple[float, ...]
    running: Mapping[int, ExecutionPlan]
    ready_s: Mapping[int, float]
    placement: Mapping[int, tuple[tuple[GpuNumber, ...], ...]] = field(default_factory=dict)

    def is_done(self, node: int) -> bool:
        return self.progress[node] >= DONE

    @property
    def all_done(self) -> bool:
        return all(progress >= DONE for progress in self.progress)


@dataclass(frozen=True, slots=True)
class RunningReplica:
    """Replica `number` of a node in one stage, on these GPUs, serving from `ready_s` on. `is_loaded`: it was loaded
    in this stage (a new one, or one that had to move)."""

    node: int
    number: int
    gpus: tuple[GpuNumber, ...]
    ready_s: float
    is_loaded: bool


@dataclass(frozen=True, slots=True)
class ExecutedStage:
    """What ran from `start_s` to `end_s`. finished_requests, written_tokens [num_nodes]: at its end, counted from the
    start of the application; busy_gpu_s: GPU-seconds in which an engine stepped."""

    start_s: float
    end_s: float
    stage: ScheduleStage
    replicas: tuple[RunningReplica, ...]
    finished_requests: tuple[int, ...]
    written_tokens: tuple[int, ...]
    busy_gpu_s: float
    loading_gpu_s: float


@dataclass(frozen=True, slots=True)
class Execution:
    """A schedule, run. first_token_s, finish_s [num_requests]: when each request began and ceased to write;
    node_finish_s [num_nodes]."""

    stages: tuple[ExecutedStage, ...]
    makespan_s: float
    first_token_s: FloatArray
    finish_s: FloatArray
    node_finish_s: tuple[float, ...]

    @property
    def schedule(self) -> Schedule:
        return tuple(executed.stage for executed in self.stages)
