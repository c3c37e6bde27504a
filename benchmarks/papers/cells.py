"""One cell of an evaluation, and what a strategy did with it: all that is kept between runs.

Flow: grid.py, melange.py, cauchy.py, splitwise.py (cells of a paper) -> running.py (outcomes) -> summaries -> report.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from sutler.solver.plan import Plan
from sutler.solver.problem import Problem, SolveOptions

Part = Literal["grid", "budget", "pipelines", "melange", "cauchy", "splitwise"]
PARTS: tuple[Part, ...] = ("grid", "budget", "pipelines", "melange", "cauchy", "splitwise")
Parameter = str | int | float

OPTIONS = SolveOptions(relative_gap=0.002, time_limit_s=60.0, alternatives=False, robustness=False)
"""Of every strategy on every cell: a gap far below the differences that are reported."""


@dataclass(frozen=True, slots=True)
class Cell:
    """`build` makes the problem of the parameters; `strategies` are the names to compare on it."""

    part: Part
    parameters: tuple[tuple[str, Parameter], ...]
    strategies: tuple[str, ...]
    build: Callable[..., Problem]

    @property
    def name(self) -> str:
        return "/".join([self.part, *(f"{value}" for _, value in self.parameters)])

    def problem(self) -> Problem:
        return self.build(**dict(self.parameters))

    def get(self, parameter: str) -> Parameter:
        """Raises KeyError where the cell has no such parameter."""
        return dict(self.parameters)[parameter]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one strategy did with one cell. `value` None: no plan, as `reason` or `status` says.

    `value` and `bound` are in the unit of the cell's objective. `gpus`: rented, by slug, and their cost in
    `gpu_usd_per_hour`; `served_rps`: requests/s that come to an end, by GPU type of the stages that serve them.
    `own_market`: the strategy was given supply that the cell does not have.
    """

    cell: str
    strategy: str
    status: str
    value: float | None = None
    bound: float | None = None
    cost_usd_per_hour: float | None = None
    power_watts: float | None = None
    throughput_rps: float | None = None
    gpus: Mapping[str, int] = field(default_factory=dict)
    gpu_usd_per_hour: Mapping[str, float] = field(default_factory=dict)
    served_rps: Mapping[str, float] = field(default_factory=dict)
    prefill_gpus: int = 0
    decode_gpus: int = 0
    own_market: bool = False
    reason: str | None = None
    violations: tuple[str, ...] = ()
    seconds: float = 0.0


def outcome_of(
    cell: str, strategy: str, plan: Plan, *, own_market: bool, violations: tuple[str, ...], seconds: float
) -> Outcome:
    """What is kept of a plan."""
    gpus: dict[str, int] = {}
    usd: dict[str, float] = {}
    for rental in plan.rentals:
        gpus[rental.gpu] = gpus.get(rental.gpu, 0) + rental.gpus * rental.count
        usd[rental.gpu] = usd.get(rental.gpu, 0.0) + rental.price_usd_per_hour * rental.count
    return Outcome(
        cell=cell,
        strategy=strategy,
        status=plan.status,
        value=plan.value,
        bound=plan.bound,
        cost_usd_per_hour=plan.cost_usd_per_hour,
        power_watts=plan.power_watts,
        throughput_rps=plan.throughput_rps,
        gpus=dict(sorted(gpus.items())),
        gpu_usd_per_hour=dict(sorted(usd.items())),
        served_rps=_served(plan),
        prefill_gpus=_gpus_in(plan, "prefill"),
        decode_gpus=_gpus_in(plan, "decode"),
        own_market=own_market,
        reason="; ".join(conflict.remedy for conflict in plan.conflicts) or None,
        violations=violations,
        seconds=seconds,
    )


def from_json(row: Mapping[str, Any]) -> Outcome:
    """Raises TypeError where the row is of another version."""
    return Outcome(**{**row, "violations": tuple(row["violations"])})


def _served(plan: Plan) -> dict[str, float]:
    """A replica's requests count for its stages in equal parts."""
    found: dict[str, float] = {}
    for replica in plan.replicas:
        if replica.role != "prefill":
            rps = sum(one.rps for one in replica.throughput_rps) / len(replica.stages)
            for stage in replica.stages:
                found[stage.gpu] = found.get(stage.gpu, 0.0) + rps
    return dict(sorted(found.items()))


def _gpus_in(plan: Plan, role: str) -> int:
    return sum(len(stage.gpu_indices) for one in plan.replicas if one.role == role for stage in one.stages)
