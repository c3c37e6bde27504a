"""Laws of limits and loads on random problems: `python -m benchmarks.load_laws --count 300`.

What is allowed less never makes a plan better. Each problem is planned as it stands and with a lower cap on the load,
for all or for one model; with looser, fewer and less strict latency limits; and with fewer percentiles to keep. A
plan counts as worse where even its proven bound is, by more than TOLERANCE: operating points are sought on grids.
Exit 1 where a law is broken; every case prints its seed, so that `--first SEED --count 1` shows it again.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from benchmarks.scratch import tell
from sutler.solver import PlanViolationError, solve
from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.plan import Plan
from sutler.solver.problem import (
    Disaggregation,
    LatencyLimit,
    LatencyMetric,
    Limits,
    Objective,
    ObjectiveKind,
    Offer,
    Problem,
    Search,
    ServedModel,
    SolveOptions,
    Workload,
)

TOLERANCE: Final = 0.003
_PRICES: Final = {
    "l4": 0.4,
    "a10": 0.5,
    "rtx-4090": 0.4,
    "l40s": 0.9,
    "a100-sxm4-80gb": 1.3,
    "h100-sxm": 2.4,
    "h200-sxm": 3.2,
}
_MODELS: Final = ("llama-3.1-8b", "qwen3-4b", "qwen2.5-14b", "qwen3-30b-a3b", "qwen3-32b", "llama-3.3-70b")
_OBJECTIVES: Final[tuple[ObjectiveKind, ...]] = ("max_throughput", "min_makespan", "min_cost", "min_power")
_PERCENTILES: Final = (50, 90, 95, 99)
_METRICS: Final[tuple[LatencyMetric, ...]] = ("ttft", "tpot", "e2e")


@dataclass(frozen=True, slots=True)
class Violation:
    """`fraction`: by how much the problem that allows more is worse, inf where it has no plan at all."""

    seed: int
    law: str
    fraction: float
    detail: str


def main(arguments: Sequence[str] | None = None) -> int:
    """Check all laws on `--count` problems; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load_laws", description=__doc__.partition("\n")[0])
    parser.add_argument("--first", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--count", type=int, default=300, help="problems (default: 300)")
    chosen = parser.parse_args(arguments)
    planned = broken = 0
    for seed in range(chosen.first, chosen.first + chosen.count):
        has_plan, found = violations(seed)
        planned += has_plan
        broken += len(found)
        for one in found:
            print(f"seed {one.seed}: {one.law}: {one.fraction:.3%} worse: {one.detail}", flush=True)
        tell(f"seed {seed}: {'planned' if has_plan else 'infeasible'}, {len(found)} broken")
    print(f"{chosen.count} problems, {planned} with a plan, {broken} broken laws")
    return 1 if broken else 0


def violations(seed: int) -> tuple[bool, list[Violation]]:
    """Whether the problem of a seed has a plan, and the laws that it breaks."""
    problem = limited_problem(seed)
    found: list[Violation] = []

    def planned(law: str, of: Problem) -> Plan | None:
        try:
            return solve(of)
        except PlanViolationError as error:
            found.append(Violation(seed, f"{law} verifies", float("inf"), str(error)))
            return None

    plan = planned("a plan", problem)
    if plan is None:
        return True, found
    for law, other, is_tighter in changes(seed, problem):
        changed = planned(f"a plan with {law}", other)
        if changed is None:
            continue
        tight, loose = (changed, plan) if is_tighter else (plan, changed)
        fraction = worse_by(loose, tight)
        if fraction > TOLERANCE:
            found.append(Violation(seed, law, fraction, f"{_stated(loose)} where less allows {_stated(tight)}"))
    return plan.value is not None, found


def worse_by(loose: Plan, tight: Plan) -> float:
    """How far even the bound of `loose` is from the value of `tight`, as a fraction; 0 where nothing is proven."""
    if tight.value is None or loose.status == "unknown":
        return 0.0
    if loose.value is None:
        return float("inf")
    if loose.bound is None:
        return 0.0
    sign = 1.0 if loose.objective == "max_throughput" else -1.0
    return sign * (tight.value - loose.bound) / abs(tight.value)


def _stated(plan: Plan) -> str:
    return f"{plan.status} {plan.value} (bound {plan.bound})"


def changes(seed: int, problem: Problem) -> Iterator[tuple[str, Problem, bool]]:
    """(what was changed, the problem, whether it allows less)."""
    draw = Random(seed + 10**6)
    fraction = round(draw.uniform(0.3, 0.97), 3)
    limits = replace(problem.limits, max_utilisation_fraction=fraction)
    yield f"max_utilisation_fraction {fraction}", replace(problem, limits=limits), True
    index, fraction = draw.randrange(len(problem.models)), round(draw.uniform(0.3, 0.97), 3)
    models = list(problem.models)
    models[index] = replace(models[index], max_utilisation_fraction=fraction)
    named = f"max_utilisation_fraction {fraction} of {models[index].name}"
    yield named, replace(problem, models=tuple(models)), True
    factor = round(draw.choice([1.02, 1.1, 1.3, 2.0, 5.0]), 3)
    metric = draw.choice(_METRICS)
    yield f"{metric} limits x {factor}", _with_limits(problem, lambda o: _looser(o, metric, factor)), False
    yield f"all limits x {factor}", _with_limits(problem, lambda o: _looser(o, None, factor)), False
    dropped = draw.choice(_METRICS)
    yield f"no {dropped} limits", _with_limits(problem, lambda o: None if o.metric == dropped else o), False
    yield "one percentile less strict", _with_limits(problem, _less_strict), False


def _looser(limit: LatencyLimit, metric: LatencyMetric | None, factor: float) -> LatencyLimit:
    return replace(limit, seconds=limit.seconds * factor) if metric in (None, limit.metric) else limit


def _less_strict(limit: LatencyLimit) -> LatencyLimit:
    return replace(limit, percentile=_PERCENTILES[max(_PERCENTILES.index(limit.percentile) - 1, 0)])


def _with_limits(problem: Problem, change: Any) -> Problem:
    def changed(limits: tuple[LatencyLimit, ...]) -> tuple[LatencyLimit, ...]:
        return tuple(new for new in map(change, limits) if new is not None)

    models = tuple(
        replace(
            model,
            slo=changed(model.slo),
            workloads=tuple(
                one if one.slo is None else replace(one, slo=changed(one.slo)) for one in model.workloads
            ),
        )
        for model in problem.models
    )
    return replace(problem, models=models)


def limited_problem(seed: int) -> Problem:
    """Draws one to three models with limits on a small market, prompts of 30 to 12,000 tokens."""
    draw = Random(seed)
    objective = draw.choice(_OBJECTIVES)
    names = draw.sample(_MODELS, draw.choice([1, 1, 2, 3]))
    models = tuple(limited_model(draw, name) for name in names)
    offers = tuple(_offer(draw, number) for number in range(draw.randint(2, 4 + len(names))))
    disaggregation: Disaggregation = "auto" if draw.random() < 0.25 else "off"
    return Problem(
        objective=Objective(objective, draw.choice([0.0, 0.15]) if objective in ("min_cost", "min_power") else 0.0),
        models=models,
        offers=offers,
        gpus={slug: load_gpus()[slug] for slug in sorted({offer.gpu for offer in offers})},
        budget_usd_per_hour=None if objective.startswith("min_c") else round(draw.uniform(5.0, 60.0), 2),
        limits=Limits(),
        search=Search(
            max_pipeline_stages=draw.choice([1, 2]),
            disaggregation=disaggregation,
            power_caps_fraction=draw.choice([(), (0.6,)]),
        ),
        options=SolveOptions(time_limit_s=20.0, alternatives=False, robustness=False),
    )


def limited_model(draw: Random, name: str | None = None) -> ServedModel:
    """Draws a model with one to five workloads, some with limits of their own; `name`: None for any."""
    name = name or draw.choice(_MODELS)
    pace = draw.choice([1.0, 1.5, 2.5, 5.0])
    workloads = tuple(_workload(draw, number, pace) for number in range(draw.choice([1, 1, 2, 3, 5])))
    longest = max(workloads, key=lambda one: one.input_tokens)
    most = max(one.output_tokens for one in workloads)
    spec = load_models()[name]
    precision = draw.choice([p for p in ("bf16", "fp8") if p in spec.precisions])
    slo = _limits(draw, longest.input_tokens, most, pace)
    hit = draw.choice([0.0, 0.0, 0.4])
    return ServedModel(name, spec, precision, "bf16", workloads, slo, prefix_cache_hit_fraction=hit)


def _workload(draw: Random, number: int, pace: float) -> Workload:
    inputs = round(30 * 400 ** draw.random())
    outputs = round(12 * 80 ** draw.random())
    own = _limits(draw, inputs, outputs, pace) if draw.random() < 0.25 else None
    return Workload(f"w{number}", inputs, outputs, round(0.05 * 60 ** draw.random(), 3), own)


def _limits(draw: Random, inputs: float, outputs: float, pace: float) -> tuple[LatencyLimit, ...]:
    """Within reach of some of the GPUs at some of the percentiles."""
    first_s = pace * (0.12 + inputs / draw.choice([3000.0, 8000.0]))
    token_s = pace * draw.uniform(0.015, 0.05)
    seconds = {"ttft": first_s, "tpot": token_s, "e2e": draw.uniform(1.0, 2.0) * (first_s + outputs * token_s)}
    metrics = draw.sample(_METRICS, draw.choice([1, 1, 2, 3]))
    return tuple(LatencyLimit(name, draw.choice(_PERCENTILES), round(seconds[name], 4)) for name in metrics)


def _offer(draw: Random, number: int) -> Offer:
    gpu, gpus = draw.choice(sorted(_PRICES)), draw.choice([1, 2, 4, 8])
    site: dict[str, Any] = {}
    if draw.random() < 0.5:
        site = {"site": "s", "inter_machine_gb_per_s": draw.choice([1.25, 12.5, 50.0])}
    return Offer(
        provider=draw.choice(["p", "q"]),
        offer_id=f"o{number}",
        gpu=gpu,
        gpus=gpus,
        available=draw.randint(1, 4),
        price_usd_per_hour=round(_PRICES[gpu] * gpus * draw.uniform(0.8, 1.3), 3),
        divisible=draw.random() < 0.4,
        **site,
    )


if __name__ == "__main__":
    raise SystemExit(main())
