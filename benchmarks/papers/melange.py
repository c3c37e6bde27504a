"""The evaluation of Melange (arXiv 2404.14527), section 6 and appendix C: the cheapest fleet for a rate and a TPOT.

Llama-2-7b on single GPUs of four types at the prices of its Table 1. The paper shows its request lengths as figures
only: we draw ours from log-normal distributions with the means in a machine's captions of them and spreads of ours.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Final, Literal

from benchmarks.papers.cells import OPTIONS, Cell
from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.problem import LatencyLimit, Objective, Offer, Problem, Search, ServedModel, Workload
from sutler.solver.units import MILLISECONDS_PER_SECOND

Dataset = Literal["arena", "pubmed", "mixed"]
PRICES_USD_PER_HOUR: Final[Mapping[str, float]] = {
    "l4": 0.7,
    "a10g": 1.01,
    "a100-sxm4-80gb": 3.67,
    "h100-sxm": 7.516,
}
"""Table 1."""
RATES_RPS: Final = (1, 2, 4, 8, 16, 32, 64, 128)
"""The paper's, and two more: our engines carry so much more that its 32 requests/s make small fleets."""
TPOT_MS: Final = (120, 40)
AVAILABLE: Final = 400
"""Of each type: more than any fleet of the paper has, which takes what it wants."""
PUBMED_SHARE: Final = 0.2
"""Of the mixed requests (appendix A.1)."""
CONTEXT_TOKENS: Final = 32_768
"""Its requests are longer than the 4,096 tokens that Llama-2 was trained for; only their cost matters here."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Log-normal input and output tokens, independent of each other: means of captions of Figure 10, our spreads."""

    input_mean: float
    input_sigma: float
    output_mean: float
    output_sigma: float


LENGTHS: Final[Mapping[Dataset, Lengths]] = {
    "arena": Lengths(329.43, 0.9, 195.66, 0.7),
    "pubmed": Lengths(4174.13, 0.8, 314.1, 0.6),
}
_PARTS: Final = (0.5, 0.3, 0.15, 0.05)
"""The shares of a distribution's parts, from short to long; each counts as its median."""
_OUTPUT_PARTS: Final = (0.5, 0.5)


def cells() -> list[Cell]:
    singles = tuple(f"homogeneous/{gpu}" for gpu in PRICES_USD_PER_HOUR)
    return [
        Cell(
            "melange",
            (("dataset", dataset), ("tpot_ms", tpot), ("rate", rate)),
            ("sutler", "melange", *singles),
            problem,
        )
        for tpot in TPOT_MS
        for dataset in ("arena", "pubmed", "mixed")
        for rate in RATES_RPS
    ]


def problem(*, dataset: Dataset, tpot_ms: int, rate: int) -> Problem:
    """One row of Tables 3 to 8: one engine per GPU, no headroom."""
    spec = replace(load_models()["llama-2-7b"], max_context_tokens=CONTEXT_TOKENS)
    limit = LatencyLimit("tpot", 50, tpot_ms / MILLISECONDS_PER_SECOND)
    model = ServedModel("llama-2-7b", spec, "fp16", "fp16", workloads(dataset, float(rate)), slo=(limit,))
    offers = tuple(Offer("cloud", gpu, gpu, 1, AVAILABLE, usd) for gpu, usd in PRICES_USD_PER_HOUR.items())
    return Problem(
        objective=Objective("min_cost"),
        models=(model,),
        offers=offers,
        gpus=load_gpus(),
        search=Search(tensor_parallel=(1,), max_pipeline_stages=1),
        options=OPTIONS,
    )


def workloads(dataset: Dataset, rate_rps: float) -> tuple[Workload, ...]:
    """Buckets of similar requests with their rates."""
    if dataset != "mixed":
        return _buckets(dataset, rate_rps)
    short, long = (1 - PUBMED_SHARE) * rate_rps, PUBMED_SHARE * rate_rps
    return (*_buckets("arena", short), *_buckets("pubmed", long))


def _buckets(dataset: Dataset, rate_rps: float) -> tuple[Workload, ...]:
    lengths = LENGTHS[dataset]
    inputs = parts(lengths.input_mean, lengths.input_sigma, _PARTS)
    outputs = parts(lengths.output_mean, lengths.output_sigma, _OUTPUT_PARTS)
    return tuple(
        Workload(f"{dataset}-{i + 1}-{o + 1}", round(tokens), round(answer), rate_rps * share * answer_share)
        for i, (tokens, share) in enumerate(zip(inputs, _PARTS, strict=True))
        for o, (answer, answer_share) in enumerate(zip(outputs, _OUTPUT_PARTS, strict=True))
    )


def parts(mean: float, sigma: float, shares: tuple[float, ...]) -> tuple[float, ...]:
    """Medians of a log-normal distribution's parts of these shares, scaled so that they have the mean."""
    ends = [sum(shares[: i + 1]) for i in range(len(shares))]
    medians = [
        math.exp(sigma * NormalDist().inv_cdf(end - share / 2)) for end, share in zip(ends, shares, strict=True)
    ]
    scale = mean / sum(median * share for median, share in zip(medians, shares, strict=True))
    return tuple(scale * median for median in medians)
