"""The grid of "Demystifying Cost-Efficiency in LLM Serving over Heterogeneous GPUs" (arXiv 2502.00722), section 5.

Three traces (Table 5), four availabilities (Table 4), 15, 30 and 60 $/h, Llama-3-8B, Llama-3-70B and both with 80 %
of the requests for the small one, under the GPU figures of its Table 1 and under today's. An availability of a GPUs
is floor(a / 8) machines of 8 and one of the rest, all on one site with 5 Gb/s between machines (section 5.1).
"""

from collections.abc import Mapping
from typing import Final

from benchmarks.instances import PAPER_PRICES_USD_PER_HOUR, TRACE_SHARES, served
from benchmarks.papers.cells import OPTIONS, Cell, Parameter, Part
from sutler.solver.catalog import load_gpus
from sutler.solver.problem import Objective, Offer, Problem, Search, ServedModel

AVAILABILITY: Final[Mapping[int, Mapping[str, int]]] = {
    1: {"4090": 16, "a40": 12, "a6000": 8, "l40": 12, "a100": 6, "h100": 8},
    2: {"4090": 32, "a40": 8, "a6000": 16, "l40": 16, "a100": 7, "h100": 12},
    3: {"4090": 32, "a40": 16, "a6000": 8, "l40": 8, "a100": 32, "h100": 8},
    4: {"4090": 24, "a40": 24, "a6000": 24, "l40": 16, "a100": 4, "h100": 8},
}
"""Table 4."""
BUDGETS_USD_PER_HOUR: Final = (15, 30, 60)
MODELS: Final = ("llama-3-8b", "llama-3-70b", "both")
SMALL_SHARE: Final = 0.8
"""Of the requests, for Llama-3-8B in the mix (section 5.2)."""
CATALOGS: Final = ("paper_table1", "default")
TODAY: Final[Mapping[str, str]] = {
    "4090": "rtx-4090",
    "a40": "a40",
    "a6000": "rtx-a6000",
    "l40": "l40",
    "a100": "a100-sxm4-80gb",
    "h100": "h100-sxm",
}
"""The default catalogue's names of the paper's GPUs; section 5.1 says that A100 and H100 have NVLink."""
CLASSES: Final[Mapping[str, tuple[str, ...]]] = {
    "data centre": ("a100", "h100"),
    "workstation": ("a40", "a6000", "l40"),
    "consumer": ("4090",),
}
"""Section 5.1."""
HOMOGENEOUS: Final = ("h100", "a6000", "4090")
STAGES: Final = 2
LONG_STAGES: Final = 4
MORE_BUDGETS_USD_PER_HOUR: Final = (5, 10, 15, 20, 30, 45, 60)
MACHINE_GPUS: Final = 8
INTER_MACHINE_GB_PER_S: Final = 0.625

SAME_SUPPLY: Final = (
    "uniform-composition",
    "uniform-deployment",
    "round-robin-assignment",
    "hexgen/even",
    "hexgen/ours",
    "greedy-cheapest",
)


def cells() -> list[Cell]:
    """The grid, the budgets of Figure 16, and longer pipelines on part of the grid."""
    grid = [
        _cell("grid", catalog, model, trace, availability, budget, STAGES)
        for catalog in CATALOGS
        for model in MODELS
        for trace in TRACE_SHARES
        for availability in AVAILABILITY
        for budget in BUDGETS_USD_PER_HOUR
    ]
    budgets = [
        _cell("budget", "paper_table1", "llama-3-70b", trace, 1, budget, STAGES)
        for trace in TRACE_SHARES
        for budget in MORE_BUDGETS_USD_PER_HOUR
    ]
    pipelines = [
        _cell("pipelines", catalog, "llama-3-70b", trace, 1, budget, stages)
        for catalog in CATALOGS
        for trace in TRACE_SHARES
        for budget in BUDGETS_USD_PER_HOUR
        for stages in (STAGES, LONG_STAGES)
    ]
    return grid + budgets + pipelines


def problem(*, catalog: str, model: str, trace: int, availability: int, budget: int, stages: int) -> Problem:
    """One cell: the most requests/s for the budget."""
    return Problem(
        objective=Objective("max_throughput"),
        models=_models(model, trace),
        offers=offers(AVAILABILITY[availability], catalog=catalog),
        gpus=load_gpus(catalog),
        budget_usd_per_hour=float(budget),
        search=Search(max_pipeline_stages=stages),
        options=OPTIONS,
    )


def offers(availability: Mapping[str, int], *, catalog: str) -> tuple[Offer, ...]:
    """A row of Table 4 at the prices of Table 1, with the catalogue's names."""
    return tuple(
        Offer(
            "cloud",
            f"{gpu}-x{gpus}",
            slug(gpu, catalog),
            gpus,
            count,
            PAPER_PRICES_USD_PER_HOUR[gpu] * gpus,
            divisible=True,
            site="cloud",
            inter_machine_gb_per_s=INTER_MACHINE_GB_PER_S,
        )
        for gpu, total in availability.items()
        for gpus, count in ((MACHINE_GPUS, total // MACHINE_GPUS), (total % MACHINE_GPUS, 1))
        if gpus and count
    )


def slug(gpu: str, catalog: str) -> str:
    """The name of one of the paper's GPUs in the catalogue."""
    return gpu if catalog == "paper_table1" else TODAY[gpu]


def gpu_class(slug_of_gpu: str) -> str:
    """Data centre, workstation or consumer, of a name of either catalogue."""
    papers = {today: name for name, today in TODAY.items()}
    name = papers.get(slug_of_gpu, slug_of_gpu)
    return next(kind for kind, gpus in CLASSES.items() if name in gpus)


def homogeneous(gpu: str, catalog: str, *, unlimited: bool) -> str:
    """The strategy's name."""
    return f"{'homogeneous-unlimited' if unlimited else 'homogeneous'}/{slug(gpu, catalog)}"


def _models(model: str, trace: int) -> tuple[ServedModel, ...]:
    if model != "both":
        return (served(model, trace=trace),)
    return (
        served("llama-3-8b", trace=trace, rate_rps=SMALL_SHARE),
        served("llama-3-70b", trace=trace, rate_rps=1 - SMALL_SHARE),
    )


def _cell(part: Part, catalog: str, model: str, trace: int, availability: int, budget: int, stages: int) -> Cell:
    parameters: tuple[tuple[str, Parameter], ...] = (
        ("catalog", catalog),
        ("model", model),
        ("trace", trace),
        ("availability", availability),
        ("budget", budget),
        ("stages", stages),
    )
    return Cell(part, parameters, _strategies(part, catalog), problem)


def _strategies(part: Part, catalog: str) -> tuple[str, ...]:
    unlimited = tuple(homogeneous(gpu, catalog, unlimited=True) for gpu in HOMOGENEOUS)
    limited = tuple(homogeneous(gpu, catalog, unlimited=False) for gpu in HOMOGENEOUS)
    if part == "pipelines":
        return ("sutler",)
    return ("sutler", *unlimited) if part == "budget" else ("sutler", *unlimited, *limited, *SAME_SUPPLY)
