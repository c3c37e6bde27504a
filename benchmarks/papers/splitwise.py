"""The cluster designs of Splitwise (arXiv 2311.18677), section VI.B and C: Figures 18 and 19.

DGX-A100 and DGX-H100 with one engine on each, by the power and price ratios of its Table V, for the median requests
of its two traces. Where the designs are of equal power or cost, it is that of 40 DGX-H100 (section VI.B); where they
are of equal throughput, 70 requests/s, the load that Figure 12 is sized for. The limits are those of Table VI.

Under these limits a machine may not be fully busy. The paper's simulator finds for every cluster how busy; a problem
has one `max_utilisation_fraction`, so that every cell is asked for several, and a strategy's best one counts.

The baselines run prompts and answers together and cap nothing, and designs without caps have none. So a problem comes
with three sets of settings, and a strategy is asked under those that it needs; sutler under all three.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Final, Literal

from benchmarks.papers.cells import OPTIONS, Cell
from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.estimate import estimate, one_layout
from sutler.solver.problem import LatencyLimit, Limits, Objective, Offer, Problem, Search, ServedModel, Workload
from sutler.solver.throughput.roofline import Roofline

Goal = Literal["iso-power", "iso-cost", "least-power", "least-cost"]
Mix = Literal["coding", "conversation"]
Allowed = Literal["together", "apart", "apart and capped"]
GOALS: Final[tuple[Goal, ...]] = ("iso-power", "iso-cost", "least-power", "least-cost")
LIMITED_BY_POWER: Final = ("iso-power", "least-power")
"""A cap saves watts alone."""
MIXES: Final[Mapping[Mix, tuple[float, float]]] = {"coding": (1500, 13), "conversation": (1020, 129)}
"""Median prompt and answer tokens (section III.A)."""
MODELS: Final = ("llama-2-70b", "bloom-176b")
DGX_GPUS: Final = 8
A100, H100 = "a100-sxm4-80gb", "h100-sxm"
A100_USD_PER_HOUR: Final = 16.0
"""Of a DGX; of ours: only ratios matter, and 2 $/h per GPU is of the order of 2026."""
H100_PRICE_RATIO: Final = 2.35
"""Table V. It has 2.5 where H100 are token machines; the same machine has one price here."""
INFINIBAND_GB_PER_S: Final[Mapping[str, float]] = {A100: 25.0, H100: 50.0}
"""200 and 400 Gb/s (section VI.A)."""
REFERENCE_H100: Final = 40
MOST_MACHINES: Final[Mapping[str, int]] = {A100: 400, H100: 200}
RATE_RPS: Final = 70.0
POWER_CAP_FRACTION: Final = 0.5
"""Of each GPU of a capped token machine (section IV.D)."""
SLOWDOWN: Final[Mapping[Literal["ttft", "tpot", "e2e"], Mapping[int, float]]] = {
    "ttft": {50: 2.0, 90: 3.0, 99: 6.0},
    "tpot": {50: 1.25, 90: 1.5, 99: 5.0},
    "e2e": {50: 1.25, 90: 1.5, 99: 5.0},
}
"""Table VI: over an unloaded DGX-A100."""
BASELINES: Final = (f"homogeneous/{A100}", f"homogeneous/{H100}")
STRATEGIES: Final[Mapping[Allowed, tuple[str, ...]]] = {
    "together": ("sutler", *BASELINES),
    "apart": ("sutler", "splitwise/aa", "splitwise/hh", "splitwise/ha"),
    "apart and capped": ("sutler", "splitwise/hhcap"),
}
"""Replicas that prefill and decode; with prefill and decode replicas as well; with GPUs at POWER_CAP_FRACTION too."""
UTILISATIONS: Final[Mapping[Allowed, tuple[float, ...]]] = {
    "together": (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.55, 0.6, 0.65, 0.7, 0.8, 0.9),
    "apart": (0.6, 0.7, 0.8, 0.9),
    "apart and capped": (0.6, 0.7, 0.8, 0.9),
}
"""A prefill replica is loaded less than is allowed where its limits ask for that, so that few are enough there."""


def cells() -> list[Cell]:
    return [
        Cell(
            "splitwise",
            (("model", model), ("mix", mix), ("goal", goal), ("allowed", allowed), ("utilisation", utilisation)),
            strategies,
            problem,
        )
        for model in MODELS
        for mix in MIXES
        for goal in GOALS
        for allowed, strategies in STRATEGIES.items()
        if allowed != "apart and capped" or goal in LIMITED_BY_POWER
        for utilisation in UTILISATIONS[allowed]
    ]


def problem(*, model: str, mix: Mix, goal: Goal, allowed: Allowed, utilisation: float) -> Problem:
    """One group of bars of Figure 18 or 19."""
    gpus = load_gpus()
    watts = REFERENCE_H100 * DGX_GPUS * (gpus[H100].tdp_watts or 0.0)
    usd = REFERENCE_H100 * A100_USD_PER_HOUR * H100_PRICE_RATIO
    fixed = goal in ("iso-power", "iso-cost")
    least: Literal["min_power", "min_cost"] = "min_power" if goal == "least-power" else "min_cost"
    return Problem(
        objective=Objective("max_throughput" if fixed else least),
        models=(served(model, mix),),
        offers=offers(),
        gpus=gpus,
        budget_usd_per_hour=usd if goal == "iso-cost" else None,
        limits=Limits(max_power_watts=watts if goal == "iso-power" else None, max_utilisation_fraction=utilisation),
        search=Search(
            tensor_parallel=(DGX_GPUS,),
            max_pipeline_stages=1,
            disaggregation="off" if allowed == "together" else "auto",
            power_caps_fraction=(POWER_CAP_FRACTION,) if allowed == "apart and capped" else (),
        ),
        options=OPTIONS,
    )


def offers() -> tuple[Offer, ...]:
    return tuple(
        Offer(
            "datacentre",
            f"dgx-{gpu}",
            gpu,
            DGX_GPUS,
            MOST_MACHINES[gpu],
            A100_USD_PER_HOUR * ratio,
            site="datacentre",
            inter_machine_gb_per_s=INFINIBAND_GB_PER_S[gpu],
        )
        for gpu, ratio in ((A100, 1.0), (H100, H100_PRICE_RATIO))
    )


@cache
def served(model: str, mix: Mix) -> ServedModel:
    """With the nine limits, in seconds by our estimates of the unloaded machine."""
    input_tokens, output_tokens = MIXES[mix]
    workload = Workload(mix, input_tokens, output_tokens, RATE_RPS)
    plain = ServedModel(model, load_models()[model], "fp16", "fp16", (workload,))
    layout = one_layout(load_gpus()[A100], tensor_parallel=DGX_GPUS, pipeline_parallel=1)
    alone = estimate(Roofline(), plain, layout, concurrency=1)
    e2e_s = alone.ttft_s + (output_tokens - 1) * alone.tpot_s
    unloaded_s = {"ttft": alone.ttft_s, "tpot": alone.tpot_s, "e2e": e2e_s}
    limits = tuple(
        LatencyLimit(metric, percentile, times * unloaded_s[metric])
        for metric, slowdowns in SLOWDOWN.items()
        for percentile, times in slowdowns.items()
    )
    return replace(plain, slo=limits)
