"""Problems of known size for the benchmark: one site, hundreds of single offers, and twelve models on many sites.

GPUs, models and rates are the catalogue's and the roofline's; prices are of the order of public marketplaces in
2026. Everything is drawn from a seed, so that the same name is always the same instance.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from benchmarks.melange_inputs import as_problem, drawn
from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.catalog.entries import Precision
from sutler.solver.problem import LatencyLimit, Objective, Offer, Problem, Search, ServedModel, SolveOptions, Workload

# (input, output) tokens of the nine workload types and their shares, Jiang et al. Tables 1, 4 and 5.
TOKENS = tuple((inputs, outputs) for outputs in (18, 253, 510) for inputs in (2455, 824, 496))
TRACE_SHARES = {
    1: (33, 7, 8, 7, 27, 6, 6, 3, 3),
    2: (22, 5, 5, 21, 5, 5, 19, 6, 12),
    3: (4, 1, 4, 3, 20, 27, 1, 25, 15),
}
PAPER_AVAILABILITY_1 = {"4090": 16, "a40": 12, "a6000": 8, "l40": 12, "a100": 6, "h100": 8}
PAPER_PRICES_USD_PER_HOUR = {"4090": 0.53, "a40": 0.55, "a6000": 0.83, "l40": 0.83, "a100": 1.75, "h100": 2.99}

MARKET_PRICES_USD_PER_HOUR = {
    "rtx-3090": 0.22,
    "rtx-4090": 0.40,
    "rtx-5090": 0.60,
    "rtx-a5000": 0.25,
    "rtx-a6000": 0.50,
    "rtx-6000-ada": 0.75,
    "a40": 0.45,
    "l40": 0.80,
    "l40s": 0.85,
    "rtx-pro-6000-ws": 1.20,
    "a100-pcie-80gb": 1.00,
    "a100-sxm4-80gb": 1.25,
    "h100-pcie": 1.90,
    "h100-sxm": 2.40,
    "h200-sxm": 3.20,
    "b200": 5.00,
    "mi300x": 2.20,
}
OFFER_WEIGHTS = (5, 7, 4, 2, 3, 2, 2, 1, 2, 2, 2, 2, 1, 3, 2, 1, 1)
TWELVE_MODELS: tuple[tuple[str, Precision], ...] = (
    ("llama-3.1-8b", "bf16"),
    ("llama-3.1-70b", "bf16"),
    ("llama-3.3-70b", "fp8"),
    ("qwen3-8b", "bf16"),
    ("qwen3-14b", "bf16"),
    ("qwen3-32b", "bf16"),
    ("qwen2.5-72b", "bf16"),
    ("mistral-small-24b", "bf16"),
    ("mixtral-8x7b", "bf16"),
    ("gemma-2-27b", "bf16"),
    ("qwen3-30b-a3b", "bf16"),
    ("qwen2.5-7b", "bf16"),
)

LATENCY_LIMITS: Final = (LatencyLimit("ttft", 90, 4.0), LatencyLimit("tpot", 90, 0.15))


def within_limits(problem: Problem) -> Problem:
    """The same with latency limits for every model."""
    return replace(problem, models=tuple(replace(model, slo=LATENCY_LIMITS) for model in problem.models))


def workloads(trace: int, rate_rps: float) -> tuple[Workload, ...]:
    """The paper's nine workloads in the shares of one of its traces."""
    return tuple(
        Workload(f"w{index + 1}", inputs, outputs, rate_rps * share / 100)
        for index, ((inputs, outputs), share) in enumerate(zip(TOKENS, TRACE_SHARES[trace], strict=True))
    )


def served(model: str, *, trace: int = 2, rate_rps: float = 1.0, precision: Precision = "bf16") -> ServedModel:
    """Makes a model for the paper's engine, which runs any layout."""
    spec = load_models()[model]
    return ServedModel(model, spec, precision, "bf16", workloads(trace, rate_rps), engine="any-layout")


def one_site(
    *, budget_usd_per_hour: float, trace: int = 2, stages: int = 4, models: Sequence[ServedModel] = ()
) -> Problem:
    """The paper's market: availability 1 of its Table 4 at the prices of its Table 1, on one site."""
    offers = [
        Offer(
            "cloud",
            f"{gpu}-x{gpus}",
            gpu,
            gpus,
            count,
            PAPER_PRICES_USD_PER_HOUR[gpu] * gpus,
            divisible=True,
            site="cloud",
            inter_machine_gb_per_s=0.625,
        )
        for gpu, total in PAPER_AVAILABILITY_1.items()
        for gpus, count in ((8, total // 8), (total % 8, 1))
        if gpus and count
    ]
    return Problem(
        objective=Objective("max_throughput"),
        models=tuple(models) or (served("llama-3-70b", trace=trace),),
        offers=tuple(offers),
        gpus=load_gpus("paper_table1"),
        budget_usd_per_hour=budget_usd_per_hour,
        search=Search(max_pipeline_stages=stages),
    )


def wide_site(
    *,
    gpu_types: int,
    stages: int,
    budget_usd_per_hour: float,
    machines: int = 2,
    inter_machine_gb_per_s: float = 3.125,
) -> Problem:
    """One site with many GPU types, so that mixed pipelines number in the tens of thousands."""
    slugs = tuple(MARKET_PRICES_USD_PER_HOUR)[:gpu_types]
    offers = tuple(
        Offer(
            "cloud",
            slug,
            slug,
            8,
            machines,
            MARKET_PRICES_USD_PER_HOUR[slug] * 8,
            divisible=True,
            site="cloud",
            inter_machine_gb_per_s=inter_machine_gb_per_s,
        )
        for slug in slugs
    )
    return Problem(
        objective=Objective("max_throughput"),
        models=(served("llama-3-70b"),),
        offers=offers,
        gpus=load_gpus(),
        budget_usd_per_hour=budget_usd_per_hour,
        search=Search(max_pipeline_stages=stages),
    )


def single_offers(*, seed: int, budget_usd_per_hour: float, slices: bool, offers: int = 500) -> Problem:
    """A marketplace of single hosts without a network between them, for a small and a large model.

    With `slices` every machine of several GPUs also shows its halves, quarters and single cards, as Vast.ai does.
    """
    draw = np.random.default_rng(seed)
    return Problem(
        objective=Objective("max_throughput"),
        models=(served("llama-3-70b", trace=2, rate_rps=0.2), served("llama-3-8b", trace=1, rate_rps=0.8)),
        offers=tuple(_hosts(draw, offers, slices=slices)),
        gpus=load_gpus(),
        budget_usd_per_hour=budget_usd_per_hour,
    )


def twelve_models(*, seed: int, budget_usd_per_hour: float | None = None, rate_rps: float = 1.0) -> Problem:
    """Twelve models on five networked sites and 250 single hosts: the most for a budget; without one, so many
    requests/s for the least."""
    draw = np.random.default_rng(seed)
    slugs = tuple(MARKET_PRICES_USD_PER_HOUR)
    offers = _hosts(draw, 250, slices=False)
    for site in range(5):
        for slug in draw.choice(slugs, size=3, replace=False):
            price = MARKET_PRICES_USD_PER_HOUR[slug] * float(draw.lognormal(0.1, 0.1)) * 8
            count = int(draw.integers(4, 24))
            offers.append(
                Offer(
                    "cluster",
                    f"s{site}-{slug}",
                    str(slug),
                    8,
                    count,
                    round(price, 3),
                    divisible=True,
                    site=f"s{site}",
                    inter_machine_gb_per_s=float(draw.choice([3.125, 12.5, 50.0])),
                )
            )
    shares = draw.dirichlet(np.full(len(TWELVE_MODELS), 2.0))
    models = tuple(
        served(name, trace=int(draw.integers(1, 4)), rate_rps=rate_rps * float(share), precision=precision)
        for (name, precision), share in zip(TWELVE_MODELS, shares, strict=True)
    )
    return Problem(
        objective=Objective("min_cost" if budget_usd_per_hour is None else "max_throughput"),
        models=models,
        offers=tuple(offers),
        gpus=load_gpus(),
        budget_usd_per_hour=budget_usd_per_hour,
        search=Search(max_pipeline_stages=3),
        options=SolveOptions(time_limit_s=30.0),
    )


def melange(*, seed: int) -> Problem:
    """An input in the format of Mélange's release, as a problem of the least cost."""
    return as_problem(drawn(seed))


def _hosts(draw: np.random.Generator, count: int, *, slices: bool) -> list[Offer]:
    slugs = tuple(MARKET_PRICES_USD_PER_HOUR)
    weights = np.array(OFFER_WEIGHTS, dtype=np.float64) / sum(OFFER_WEIGHTS)
    offers: list[Offer] = []
    machine = 0
    while len(offers) < count:
        slug = str(draw.choice(slugs, p=weights))
        gpus = int(draw.choice([1, 2, 4, 8], p=[0.45, 0.2, 0.2, 0.15]))
        price = MARKET_PRICES_USD_PER_HOUR[slug] * float(draw.lognormal(0.0, 0.2))
        offers += _machine(f"m{machine}", slug, gpus, price, slices=slices)
        machine += 1
    return offers[:count]


def _machine(name: str, slug: str, gpus: int, price_per_gpu: float, *, slices: bool) -> list[Offer]:
    """A host's offers; smaller slices cost a little more per GPU."""
    sizes = [size for size in (8, 4, 2, 1) if size <= gpus] if slices else [gpus]
    return [
        Offer(
            "market",
            f"{name}-{size}-{start}",
            slug,
            size,
            1,
            round(size * price_per_gpu * (1 + 0.03 * (8 - size) / 8), 4),
            machine_id=name,
            machine_gpus=gpus,
            gpu_ids=tuple(range(start, start + size)),
            site=f"market/{name}",
        )
        for size in sizes
        for start in range(0, gpus, size)
    ]
