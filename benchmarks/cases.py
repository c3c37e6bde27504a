"""The benchmark's cases and what each yields, as plain data.

Nothing of the solver is imported here, so that the process which starts the measured ones stays small.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal, TypedDict

Group = Literal["a", "b", "c", "d", "e", "f", "g", "h"]
Build = Literal["one_site", "wide_site", "single_offers", "twelve_models", "melange"]
Solver = Literal["exact", "binary_search", "plain", "slices", "generated"]
Disaggregation = Literal["off", "auto"]

TITLES: Final[dict[Group, str]] = {
    "a": "one site, mixed pipelines",
    "b": "methods compared on the same polytope, to a gap (tolerance) of 0.1 %",
    "c": "500 single offers, two models",
    "d": "twelve models, five networked sites and 250 single hosts, 30 s",
    "e": "prefill and decode on replicas of their own: off, and auto",
    "g": "one site, 12 GPU types: 270 thousand pipelines of up to 4 stages listed and generated; of up to 5, 6 and 8 "
    "stages 2.9 million, 26 million and 1.4 thousand million, generated",
    "f": "inputs of Mélange's format, by sutler and by Mélange's slices with CBC",
    "h": "instances of groups a, c and d: without latency limits, and with TTFT p90 of 4 s and TPOT p90 of 0.15 s",
}
RELATIVE_GAP: Final = 0.001
TIME_LIMIT_S: Final = 30.0
LONG_TIME_LIMIT_S: Final = 60.0  # group a: shows how long the gap takes, not how good 30 s are
COMPARISON_LIMIT_S: Final = 150.0
QUICK_COMPARISON_LIMIT_S: Final = 20.0
SLICES_TIME_LIMIT_S: Final = 10.0  # chosen: group f is 200 processes
MELANGE_INPUTS: Final = 100
ROLES_TIME_LIMIT_S: Final = 120.0
DISAGGREGATIONS: Final[tuple[Disaggregation, ...]] = ("off", "auto")

_WIDE: Final = (("2k", 6, 3, (30, 60)), ("10k", 11, 3, (30, 60, 120)), ("100k", 12, 4, (30, 60, 120)))


@dataclass(frozen=True, slots=True)
class Case:
    """One row: `parameters` are those of the function `build` in benchmarks/instances.py."""

    group: Group
    name: str
    build: Build
    parameters: tuple[tuple[str, int | float | bool], ...]
    solver: Solver = "exact"
    time_limit_s: float = TIME_LIMIT_S
    repeat: bool = False  # solve once more in another process and compare the plans
    disaggregation: Disaggregation = "off"
    latency_limits: bool = False  # LATENCY_LIMITS of instances.py


class Result(TypedDict):
    """What one case yields. Seconds are wall-clock but for cpu_seconds; None: the phase does not exist or no plan."""

    candidates: int
    workloads: int
    models: int
    offers: int
    value: float | None
    bound: float | None
    relative_gap: float | None
    candidates_seconds: float
    solve_seconds: float
    finish_seconds: float | None
    plan_seconds: float | None
    total_seconds: float
    cpu_seconds: float
    peak_mb: float
    import_mb: float
    status: str
    limit: str | None
    cost_usd_per_hour: float | None
    plan_digest: str | None


def cases(groups: Sequence[Group], *, quick: bool) -> list[Case]:
    """The cases of some groups in the order in which they run; `quick`: a few small ones of each."""
    known = [
        *_one_site(),
        *_comparison(quick=quick),
        *_single_offers(),
        *_twelve_models(),
        *_roles(),
        *_melange(),
        *_deep(),
        *_limited(),
    ]
    chosen = [case for case in known if case.group in groups]
    return [case for case in chosen if case.name in _QUICK] if quick else chosen


_QUICK: Final = (
    "paper, 2 stages, 15 $/h",
    "paper, 3 stages, 30 $/h",
    "wide 2k, 60 $/h",
    "wide 10k, 120 $/h",
    "500 singles, seed 0, 15 $/h",
    "500 slices, seed 0, 15 $/h",
    "12 models, 1500 $/h",
    "wide 10k, 3.125 GB/s, 120 $/h",
    "Mélange's input 0",
    "Mélange's input 7",
    "6 stages, 30 $/h",
)
_LIMITED: Final = (
    "paper, 4 stages, 15 $/h",
    "paper, 4 stages, 30 $/h",
    "wide 2k, 30 $/h",
    "wide 2k, 60 $/h",
    "wide 10k, 60 $/h",
    *(f"500 singles, seed 0, {budget} $/h" for budget in (15, 40, 120)),
    "12 models, 300 $/h",
    "12 models, 100 req/s",
)


def _one_site() -> list[Case]:
    paper = [
        Case(
            "a",
            f"paper, {stages} stages, {budget} $/h",
            "one_site",
            (("budget_usd_per_hour", float(budget)), ("stages", stages)),
            time_limit_s=LONG_TIME_LIMIT_S,
            repeat=(stages, budget) == (3, 30),
        )
        for stages in (2, 3, 4)
        for budget in (15, 30, 60)
    ]
    return paper + [_wide(size, budget) for size, _, _, budgets in _WIDE for budget in budgets]


def _wide(size: str, budget: int) -> Case:
    gpu_types, stages = next((types, stages) for name, types, stages, _ in _WIDE if name == size)
    parameters = (("budget_usd_per_hour", float(budget)), ("gpu_types", gpu_types), ("stages", stages))
    return Case("a", f"wide {size}, {budget} $/h", "wide_site", parameters, time_limit_s=LONG_TIME_LIMIT_S)


def _comparison(*, quick: bool) -> list[Case]:
    limit = QUICK_COMPARISON_LIMIT_S if quick else COMPARISON_LIMIT_S
    chosen = [case for case in _one_site() if case.name in _COMPARED]
    methods: tuple[Solver, ...] = ("exact", "binary_search", "plain")
    return [Case("b", case.name, case.build, case.parameters, method, limit) for case in chosen for method in methods]


_COMPARED: Final = ("paper, 3 stages, 15 $/h", "paper, 3 stages, 30 $/h", "wide 2k, 30 $/h", "wide 2k, 60 $/h")


def _single_offers() -> list[Case]:
    return [
        Case(
            "c",
            f"500 {'slices' if slices else 'singles'}, seed {seed}, {budget} $/h",
            "single_offers",
            (("seed", seed), ("budget_usd_per_hour", float(budget)), ("slices", slices)),
            repeat=(seed, budget) == (0, 15),
        )
        for slices in (False, True)
        for seed in (0, 1, 2)
        for budget in (15, 40, 120)
    ]


def _twelve_models() -> list[Case]:
    return [
        Case("d", f"12 models, {amount} {unit}", "twelve_models", (("seed", 0), (name, float(amount))))
        for name, unit, amounts in (
            ("budget_usd_per_hour", "$/h", (150, 300, 600, 1500)),
            ("rate_rps", "req/s", (30, 100, 300)),
        )
        for amount in amounts
    ]


def _roles() -> list[Case]:
    """Each instance twice; a thin, an ordinary and a fast network between the machines."""
    return [
        Case(
            "e",
            f"wide 10k, {network:g} GB/s, {budget} $/h",
            "wide_site",
            (
                ("budget_usd_per_hour", float(budget)),
                ("gpu_types", 11),
                ("stages", 3),
                ("inter_machine_gb_per_s", network),
            ),
            time_limit_s=ROLES_TIME_LIMIT_S,
            disaggregation=disaggregation,
        )
        for network in (0.625, 3.125, 50.0)
        for budget in (30, 60, 120)
        for disaggregation in DISAGGREGATIONS
    ]


def _limited() -> list[Case]:
    """Each instance twice."""
    known = {case.name: case for case in (*_one_site(), *_single_offers(), *_twelve_models())}
    return [
        replace(known[name], group="h", repeat=False, latency_limits=limits)
        for name in _LIMITED
        for limits in (False, True)
    ]


def _melange() -> list[Case]:
    methods: tuple[Solver, ...] = ("exact", "slices")
    return [
        Case("f", f"Mélange's input {seed}", "melange", (("seed", seed),), method, SLICES_TIME_LIMIT_S)
        for seed in range(MELANGE_INPUTS)
        for method in methods
    ]


def _deep() -> list[Case]:
    return [
        Case(
            "g",
            f"{stages} stages, {budget} $/h",
            "wide_site",
            (("budget_usd_per_hour", float(budget)), ("gpu_types", 12), ("stages", stages)),
            solver,
            LONG_TIME_LIMIT_S,
        )
        for stages, solvers in _DEEP.items()
        for budget in (30, 60, 120)
        for solver in solvers
    ]


_DEEP: Final[dict[int, tuple[Solver, ...]]] = {
    4: ("exact", "generated"),
    5: ("generated",),
    6: ("generated",),
    8: ("generated",),
}
