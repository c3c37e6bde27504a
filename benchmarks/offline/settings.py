"""The grid: which applications, in which variants, by which strategies, and what is kept of each.

Flow: applications.py -> settings.py -> run.py (outcomes) -> results/offline.json -> report.py.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from benchmarks.offline.applications import (
    DOCUMENTS_SEED,
    ENSEMBLING_MEAN_TOKENS,
    ROUTING_REQUESTS,
    SUMMARY,
    chain_summary,
    ensembling,
    mixed,
    routing,
)
from benchmarks.offline.paper import ABLATION_DOCUMENTS, Part
from sutler.solver.offline.application import Application
from sutler.solver.offline.plan import STRATEGIES, OfflineOptions, Strategy

VariantName = Literal["keeps", "reloads", "no preemption"]
KNOWN_SEEDS: Final = 20
DOCUMENTS: Final = (100, 300, 500)


@dataclass(frozen=True, slots=True)
class Variant:
    """`keeps`: a model that changes its plan keeps the replicas that it still has; `reloads`: it loads all of them
    anew, as in the paper; `no preemption`: no model stops or changes before it is done."""

    name: VariantName
    options: OfflineOptions
    strategies: tuple[Strategy, ...]


VARIANTS: Final = (
    Variant("keeps", OfflineOptions(), STRATEGIES),
    Variant("reloads", OfflineOptions(keeps_replicas=False), STRATEGIES),
    Variant("no preemption", OfflineOptions(preemption=False), ("sutler", "greedy", "min_heuristic")),
)


@dataclass(frozen=True, slots=True)
class Setting:
    """`build` makes the application, `seed` its requests; `compares_known`: sampled lengths are held against known
    ones on it; slowed: models whose speed is taken wrongly, and the plan then adjusted."""

    part: Part
    label: str
    build: Callable[[], Application]
    seed: int = 0
    variants: tuple[VariantName, ...] = ("keeps",)
    compares_known: bool = False
    slowed: tuple[str, ...] = ()
    is_quick: bool = False

    @property
    def name(self) -> str:
        return f"{self.part}: {self.label}"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one strategy did with one setting. `makespan_s` None: no plan, as `reason` says. planning_s: of the
    processor; planning_wall_s: of the clock, with whatever else the machine did; forecast_s: what the forecast of the
    search makes of the schedule that was executed (of sutler's)."""

    setting: str
    variant: VariantName
    strategy: Strategy
    makespan_s: float | None = None
    planning_s: float = 0.0
    planning_wall_s: float = 0.0
    forecast_s: float | None = None
    area_s: float = 0.0
    critical_path_s: float = 0.0
    stages: int = 0
    loads: int = 0
    evaluated_schedules: int = 0
    hit_time_limit: bool = False
    reason: str | None = None

    @property
    def bound_s(self) -> float:
        return max(self.area_s, self.critical_path_s)

    @property
    def end_to_end_s(self) -> float | None:
        return None if self.makespan_s is None else self.makespan_s + self.planning_s


@dataclass(frozen=True, slots=True)
class Loss:
    """A schedule planned on sampled answers, run on those that `seed` draws: `executed_s`, against `known_s` of the
    schedule planned on the latter. `expected_s`: what its own plan said."""

    setting: str
    seed: int
    expected_s: float
    executed_s: float
    known_s: float

    @property
    def fraction(self) -> float:
        """The loss as a share of the time with known lengths; negative where not knowing was luck."""
        return self.executed_s / self.known_s - 1


@dataclass(frozen=True, slots=True)
class Recovery:
    """A plan for models of the expected speeds, where `node` takes `factor` times as long. At `at_s` the plan goes on
    as it was (`going_on_s`), is adjusted by what was seen (`adjusted_s`), or is searched again by one who knows the
    speed (`oracle_s`): the times at which all is done. slowdown: of the node, as adjust inferred it; None: it did
    not."""

    setting: str
    node: str
    factor: float
    at_s: float
    going_on_s: float
    adjusted_s: float
    oracle_s: float
    slowdown: float | None = None

    @property
    def oracle_gain_s(self) -> float:
        return self.going_on_s - self.oracle_s

    @property
    def gain_s(self) -> float:
        return self.going_on_s - self.adjusted_s


def settings() -> tuple[Setting, ...]:
    """The paper's grid, a part of it: one number is varied at a time."""
    return (*_ensembling(), *_routing(), *_chains(), *_mixed())


def outcome_from(row: Mapping[str, Any]) -> Outcome:
    """Raises TypeError where the row is of another version."""
    return Outcome(**row)


def loss_from(row: Mapping[str, Any]) -> Loss:
    """Raises TypeError where the row is of another version."""
    return Loss(**row)


def recovery_from(row: Mapping[str, Any]) -> Recovery:
    """Raises TypeError where the row is of another version."""
    return Recovery(**row)


def _ensembling() -> list[Setting]:
    slowed = {
        (1000, 256): tuple(ENSEMBLING_MEAN_TOKENS)[::2],
        (5000, 512): ("vicuna-13b-v1.5", "dolly-v2-12b", "chatglm3-6b"),
    }
    all_variants: tuple[VariantName, ...] = ("keeps", "reloads", "no preemption")
    return [
        Setting(
            "ensembling",
            f"{requests} requests, limit {limit}",
            partial(ensembling, requests=requests, limit_tokens=limit),
            variants=all_variants if requests == 1000 or (requests, limit) == (5000, 256) else ("keeps",),
            compares_known=(requests, limit) == (1000, 256),
            slowed=slowed.get((requests, limit), ()),
            is_quick=limit == 256 and requests == 1000,
        )
        for limit in (256, 512)
        for requests in (1000, 2000, 5000, 10000)
    ]


def _routing() -> list[Setting]:
    return [
        Setting(
            "routing",
            "unknown lengths",
            partial(routing, is_known=False),
            variants=("keeps", "reloads"),
            compares_known=True,
            slowed=tuple(ROUTING_REQUESTS),
            is_quick=True,
        ),
        Setting("routing", "known lengths", partial(routing, is_known=True)),
    ]


def _chains() -> list[Setting]:
    """Around 300 documents, limit 900, 4 evaluations."""
    varied = [
        *((documents, 900, 4) for documents in DOCUMENTS),
        *((300, limit, 4) for limit in (100, 300, 500)),
        *((300, 900, evaluations) for evaluations in (1, 2, 3)),
    ]
    return [
        Setting(
            "chain summary",
            f"{documents} documents, limit {limit}, {evaluations} evaluation{'s' if evaluations > 1 else ''}",
            partial(chain_summary, documents=documents, limit_tokens=limit, evaluations=evaluations),
            seed=DOCUMENTS_SEED,
            variants=("keeps", "reloads") if (documents, limit, evaluations) == (300, 900, 4) else ("keeps",),
            compares_known=documents == 100,
            slowed=(SUMMARY,) if (documents, limit, evaluations) in ((100, 900, 4), (300, 900, 4)) else (),
            is_quick=documents == 100,
        )
        for documents, limit, evaluations in varied
    ]


_MIXED_VARIANTS: Final[Mapping[tuple[int, int], tuple[VariantName, ...]]] = {
    (ABLATION_DOCUMENTS, 256): ("keeps", "no preemption"),
    (ABLATION_DOCUMENTS, 512): ("keeps", "no preemption"),
}


def _mixed() -> list[Setting]:
    varied = [*((documents, 256) for documents in DOCUMENTS), (ABLATION_DOCUMENTS, 512)]
    return [
        Setting(
            "mixed",
            f"{documents} documents, 5000 requests of limit {limit}",
            partial(mixed, documents=documents, ensembling_limit_tokens=limit),
            seed=DOCUMENTS_SEED,
            variants=_MIXED_VARIANTS.get((documents, limit), ("keeps",)),
            slowed=(SUMMARY, "vicuna-13b-v1.5") if documents == 100 else (),
            is_quick=documents == 100,
        )
        for documents, limit in varied
    ]
