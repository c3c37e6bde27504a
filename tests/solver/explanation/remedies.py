"""Random problems without a plan, and whether what their plans say has to give is enough and the least.

`squeezed` makes every kind of limit too tight now and then, alone and with others.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count
from random import Random

from sutler.solver import solve
from sutler.solver.explanation.granting import granted
from sutler.solver.plan import Conflict
from sutler.solver.problem import LatencyLimit, Problem, SolveOptions
from tests.builders import (
    OBJECTIVES,
    random_estimated_problem,
    random_estimated_roles_problem,
    random_problem,
    random_roles_problem,
)

LESS = 0.015
_QUICK = SolveOptions(alternatives=False)
_TOO_TIGHT = ("budget", "max_gpus", "max_gpus_per_provider", "share", "watts", "utilisation", "load", "headroom")


def squeezed(problem: Problem, draw: Random) -> Problem:
    """With one to three limits that may well be too tight."""
    limits, gpus = problem.limits, sorted({offer.gpu for offer in problem.offers})
    for kind in draw.sample(_TOO_TIGHT, draw.randint(1, 3)):
        if kind == "budget":
            dearest = max(offer.price_usd_per_hour for offer in problem.offers)
            problem = replace(problem, budget_usd_per_hour=round(dearest * draw.uniform(0.1, 1.5), 2))
        elif kind == "max_gpus":
            limits = replace(limits, max_gpus={gpu: draw.randint(0, 2) for gpu in gpus})
        elif kind == "max_gpus_per_provider":
            limits = replace(limits, max_gpus_per_provider={name: draw.randint(0, 3) for name in "pq"})
        elif kind == "share":
            limits = replace(limits, max_share_per_provider_fraction=draw.choice([0.4, 0.5, 0.6]))
        elif kind == "watts":
            limits = replace(limits, max_power_watts=draw.uniform(200.0, 1500.0))
        elif kind == "utilisation":
            limits = replace(limits, max_utilisation_fraction=draw.uniform(0.1, 0.8))
        elif kind == "headroom" and problem.objective.kind in ("min_cost", "min_power"):
            problem = replace(problem, objective=replace(problem.objective, headroom_fraction=draw.uniform(0.1, 2.0)))
        elif kind == "load":
            problem = _times(problem, draw.uniform(1.0, 5.0))
    return replace(problem, limits=limits)


def hurried(problem: Problem, draw: Random) -> Problem:
    """With a latency limit that may well be too short."""
    limit = draw.choice(
        [LatencyLimit("ttft", 90, 0.02), LatencyLimit("tpot", 50, 0.004), LatencyLimit("e2e", 99, 0.5)]
    )
    return replace(problem, models=(replace(problem.models[0], slo=(limit,)), *problem.models[1:]))


def infeasible_problems(first_seed: int = 0, *, estimated: bool = False) -> Iterator[Problem]:
    """Without end: of measured rates, or of estimated ones; some with prefill and decode apart."""
    for seed in count(first_seed):
        draw, objective = Random(seed), OBJECTIVES[seed % 4]
        apart = draw.random() < 0.3
        if estimated:
            make = random_estimated_roles_problem if apart else random_estimated_problem
        else:
            make = random_roles_problem if apart else random_problem
        problem = make(seed, objective)
        if apart and draw.random() < 0.4:
            problem = replace(problem, search=replace(problem.search, disaggregation="only"))
        if estimated and draw.random() < 0.3:
            problem = hurried(problem, draw)
        problem = problem if draw.random() < 0.2 else squeezed(problem, draw)
        problem = replace(problem, options=_QUICK)
        if solve(problem).status == "infeasible":
            yield problem


@dataclass(frozen=True, slots=True)
class Judged:
    """`changed`: whether the conflicts are numbers of the problem; `enough`: with all of them it has a plan;
    `least`: it has none with 1.5 % (or a GPU) less of the one that is farthest off; `every`: of any one of them."""

    conflicts: tuple[Conflict, ...]
    changed: bool
    enough: bool = False
    least: bool = False
    every: bool = False


def judged(problem: Problem) -> Judged:
    conflicts = solve(problem).conflicts
    changed = granted(problem, conflicts)
    if changed is None:
        return Judged(conflicts, changed=False)
    tight = [_has_no_plan(problem, conflicts, number) for number in _levers(conflicts)]
    enough = solve(changed).status in ("optimal", "feasible")
    return Judged(conflicts, changed=True, enough=enough, least=tight[-1], every=all(tight))


def _levers(conflicts: Sequence[Conflict]) -> Iterator[tuple[int, ...]]:
    """Loads are lowered together; the others are raised one by one."""
    loads = tuple(number for number, conflict in enumerate(conflicts) if conflict.unit == "rps")
    yield from ([loads] if loads else [])
    yield from ((number,) for number, conflict in enumerate(conflicts) if conflict.unit != "rps")


def _has_no_plan(problem: Problem, conflicts: Sequence[Conflict], lever: tuple[int, ...]) -> bool:
    less = [_a_little_less(one) if number in lever else one for number, one in enumerate(conflicts)]
    changed = granted(problem, less)
    assert changed is not None
    return solve(changed).status == "infeasible"


def _a_little_less(conflict: Conflict) -> Conflict:
    if conflict.unit in ("rps", "tokens per request"):
        return replace(conflict, available=min(conflict.needed, conflict.available * (1 + LESS)))
    if conflict.constraint == "headroom":
        more = (1 + conflict.available) * (1 + LESS) - 1
        return replace(conflict, available=min(conflict.needed, more))
    if conflict.unit == "gpu":
        gpus = int(conflict.constraint.rsplit("/", 1)[1]) if conflict.constraint.startswith("supply/") else 1
        return replace(conflict, needed=conflict.needed - gpus)
    return replace(conflict, needed=max(conflict.available, conflict.needed * (1 - LESS)))


def _times(problem: Problem, factor: float) -> Problem:
    models = [
        replace(model, workloads=tuple(replace(w, demand=w.demand * factor) for w in model.workloads))
        for model in problem.models
    ]
    return replace(problem, models=tuple(models))
