"""What the offline planner is asked and what it answers; frozen.

Flow: application, hardware, OfflineOptions -> planner.py -> OfflinePlan -> service/offline shows and stores it.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from sutler.solver.offline.request_set import Pile
from sutler.solver.offline.stages import Execution, Schedule
from sutler.solver.throughput.roofline import Roofline

Strategy = Literal["sutler", "greedy", "max_heuristic", "min_heuristic"]
STRATEGIES: tuple[Strategy, ...] = ("sutler", "greedy", "max_heuristic", "min_heuristic")


@dataclass(frozen=True, slots=True)
class OfflineOptions:
    """`seed`: of the lengths that are drawn. `preemption`: whether a model may stop before it is done, or change its
    execution plan. `keeps_replicas`: a model that changes only its number of replicas keeps those that run; False:
    it loads all of them anew, as SamuLLM does. `max_sequences`: at once in a replica (vLLM's max_num_seqs).
    `time_limit_s`: of the search; the plan then is the best so far, and no longer the same on every machine."""

    seed: int = 0
    preemption: bool = True
    keeps_replicas: bool = True
    tensor_parallel: tuple[int, ...] = (1, 2, 4, 8)
    max_sequences: int = 256
    time_limit_s: float = 30.0
    roofline: Roofline = field(default_factory=Roofline)


@dataclass(frozen=True, slots=True)
class LowerBound:
    """No schedule is faster: `area_s`, all work at the best rate on all GPUs; `critical_path_s`, the longest chain of
    requests that wait for one another, each alone on the fastest plan."""

    area_s: float
    critical_path_s: float

    @property
    def seconds(self) -> float:
        return max(self.area_s, self.critical_path_s)


@dataclass(frozen=True, slots=True)
class OfflinePlan:
    """`schedule` is what was planned, `execution` what the simulation makes of it. rivals_s: the time of every other
    strategy that was tried. `hit_time_limit`: whether the search was cut short."""

    strategy: Strategy
    schedule: Schedule
    execution: Execution
    pile: Pile
    bound: LowerBound
    rivals_s: Mapping[Strategy, float] = field(default_factory=dict)
    seconds: float = 0.0
    evaluated_schedules: int = 0
    hit_time_limit: bool = False

    @property
    def relative_gap(self) -> float:
        """How much of the time at most could be saved."""
        makespan_s = self.execution.makespan_s
        return (makespan_s - self.bound.seconds) / makespan_s if makespan_s else 0.0
