"""The evaluation of Cauchy, sections 3.3.3, 4.2 and 4.3: the cheapest fleet for three kinds of requests.

8 H800, 8 A800 and 8 H20 in servers of two at the prices of its Table 1, Llama-3.1-8B. The paper does not say how fast
its network is (it moves caches by TCP); we assume 25 Gb/s between servers. Its limits hold for 90 % of the requests
here; it names no percentile.

Its rates make fleets of two to five GPUs under our estimates, where rounding up to whole GPUs decides; so there is a
cell of four times the rate as well, which fits into the same cluster.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from benchmarks.papers.cells import OPTIONS, Cell
from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.problem import LatencyLimit, Objective, Offer, Problem, Search, ServedModel, Workload
from sutler.solver.units import SECONDS_PER_HOUR

Dataset = Literal["dailymail", "sharegpt", "longwriter"]
PRICES_USD_PER_HOUR: Final[Mapping[str, float]] = {"h800-sxm": 2.69, "a800-pcie-80gb": 1.19, "h20": 1.50}
"""Table 1."""
SERVER_GPUS: Final = 2
SERVERS: Final = 4
INTER_MACHINE_GB_PER_S: Final = 3.125
PERCENTILE: Final = 90


@dataclass(frozen=True, slots=True)
class Traffic:
    """Mean tokens and requests/s of section 4.1, limits of section 3.3.3."""

    input_tokens: float
    output_tokens: float
    rate_rps: float
    ttft_s: float
    tbt_s: float


TRAFFIC: Final[Mapping[Dataset, Traffic]] = {
    "dailymail": Traffic(702, 42, 54.0, 10.0, 0.050),
    "sharegpt": Traffic(290, 207, 50.0, 5.0, 0.030),
    "longwriter": Traffic(337, 1330, 6.0, 1.0, 0.030),
}
RIVALS: Final = (
    "aggregated-only",
    "disaggregated-only",
    "melange",
    "cauchy/mce-lp",
    "cauchy/mc-lp",
    "cauchy/co-lp",
)
TIMES: Final = (1, 4)
"""Of the paper's rates."""
EXAMPLE_RPS: Final = 6.4
"""What the working example asks of short inputs with long outputs (section 3.3.3)."""
EXAMPLE_GPUS: Final[Mapping[str, int]] = {"h800-sxm": 2, "a800-pcie-80gb": 5, "h20": 1}
"""The paper's answer: two combos of an H800 and an A800, one of an A800 and an H20, one of two A800."""


def cells() -> list[Cell]:
    """The three datasets by the paper's rates and more, and the working example."""
    asked: list[tuple[Dataset, float]] = [
        (dataset, times * traffic.rate_rps) for times in TIMES for dataset, traffic in TRAFFIC.items()
    ]
    return [
        Cell("cauchy", (("dataset", dataset), ("rate", rate)), ("sutler", *RIVALS), problem)
        for dataset, rate in [*asked, ("longwriter", EXAMPLE_RPS)]
    ]


def problem(*, dataset: Dataset, rate: float) -> Problem:
    """The cheapest fleet for one kind of requests within its limits."""
    traffic = TRAFFIC[dataset]
    limits = (
        LatencyLimit("ttft", PERCENTILE, traffic.ttft_s),
        LatencyLimit("tpot", PERCENTILE, traffic.tbt_s),
    )
    workload = Workload(dataset, traffic.input_tokens, traffic.output_tokens, rate)
    spec = load_models()["llama-3.1-8b"]
    return Problem(
        objective=Objective("min_cost"),
        models=(ServedModel("llama-3.1-8b", spec, "bf16", "bf16", (workload,), slo=limits),),
        offers=offers(),
        gpus=load_gpus(),
        search=Search(tensor_parallel=(1, 2), max_pipeline_stages=1, disaggregation="auto"),
        options=OPTIONS,
    )


def offers() -> tuple[Offer, ...]:
    """Four servers of two GPUs of each type on one network, whose GPUs are rented one by one."""
    return tuple(
        Offer(
            "cluster",
            gpu,
            gpu,
            SERVER_GPUS,
            SERVERS,
            usd * SERVER_GPUS,
            divisible=True,
            site="cluster",
            inter_machine_gb_per_s=INTER_MACHINE_GB_PER_S,
        )
        for gpu, usd in PRICES_USD_PER_HOUR.items()
    )


def tokens_per_usd(dataset: Dataset, rate_rps: float, cost_usd_per_hour: float) -> float:
    """The paper's cost-efficiency (section 4.1): tokens in and out for a dollar."""
    traffic = TRAFFIC[dataset]
    return (traffic.input_tokens + traffic.output_tokens) * rate_rps * SECONDS_PER_HOUR / cost_usd_per_hour
