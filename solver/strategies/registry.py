"""Which strategies a problem can be planned with, and all of them side by side.

Flow: `sutler compare` -> compare (here) -> Strategy.plan of each -> verify -> Ran.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import partial
from typing import Final

from sutler.solver import planner
from sutler.solver.checks import check
from sutler.solver.errors import PlanViolationError, UnknownNameError
from sutler.solver.problem import Disaggregation, Problem
from sutler.solver.progress import Clock, SecondsLeft
from sutler.solver.strategies import (
    cauchy,
    composition,
    greedy,
    hexgen,
    homogeneous,
    melange,
    round_robin,
    splitwise,
    spot_hedge,
    uniform_deployment,
)
from sutler.solver.strategies.comparing import (
    NotApplicableError,
    Ran,
    Strategy,
    StrategyPlan,
    engines_beyond,
    reserve_beyond,
    settings_beyond,
)
from sutler.solver.strategies.straight_line import solved
from sutler.solver.verify import verify

_MILP_PAPER = "Jiang et al., arXiv 2502.00722"
_SECTION_5_1 = f"{_MILP_PAPER}, section 5.1"
_FIGURE_7 = f"Jiang et al., ICML 2024; {_MILP_PAPER}, section 5.2 (Figure 7)"
_FIGURE_8 = f"{_MILP_PAPER}, section 5.2 (Figure 8)"
_CAUCHY = "Cauchy, sections 3.3 and 4.3"
_MELANGE = "Griggs et al., arXiv 2404.14527, section 5.4"
_SPLITWISE = "Patel et al., arXiv 2311.18677, section IV.D"

_COMBO_RULES: Final[dict[cauchy.Rule, str]] = {
    "mce-lp": "GPU Combos of the highest cost-efficiency",
    "mc-lp": "GPU Combos for the least cost",
    "co-lp": "GPU Combos of the least price over cost-efficiency",
}


def strategies_of(problem: Problem) -> tuple[Strategy, ...]:
    """All strategies, sutler first; those of one GPU type for every type on the market.

    All but those with an own market restrict what sutler may do under the settings of their own problems. Where these
    allow more than the caller's, `Ran.beyond` says so: layouts, roles and power caps that sutler has not.
    """
    gpus = sorted({offer.gpu for offer in problem.offers})
    alone = (
        Strategy(f"homogeneous/{g}", f"{g} alone", "homogeneous", _SECTION_5_1, partial(homogeneous.plan_limited, g))
        for g in gpus
    )
    alone_unlimited = (
        Strategy(
            f"homogeneous-unlimited/{g}",
            f"{g} alone, as many as money buys",
            "homogeneous",
            f"{_SECTION_5_1} and Appendix K",
            partial(homogeneous.plan_unlimited, g),
            own_market=True,
        )
        for g in gpus
    )
    combos = (
        Strategy(f"cauchy/{rule}", title, "disaggregated", _CAUCHY, partial(cauchy.plan, rule))
        for rule, title in _COMBO_RULES.items()
    )
    designs = (
        Strategy(d.name, d.title(problem), "disaggregated", _SPLITWISE, partial(splitwise.plan, d))
        for d in splitwise.DESIGNS
    )
    together, apart = partial(_plan_with_roles, "off"), partial(_plan_with_roles, "only")
    evenly = "sutler's fleet, every workload spread evenly over it"
    one_degree = "one tensor-parallel degree per model, no pipelines"
    return (
        Strategy("sutler", "the best plan that there is", "sutler", "", _plan_sutler),
        *alone,
        *alone_unlimited,
        Strategy("uniform-composition", "as many GPUs of every type", "ablation", _FIGURE_8, composition.plan),
        Strategy("uniform-deployment", one_degree, "ablation", _FIGURE_8, uniform_deployment.plan),
        Strategy("round-robin-assignment", evenly, "ablation", _FIGURE_8, round_robin.plan),
        Strategy("hexgen/even", "HexGen on as many GPUs of every type", "aggregated", _FIGURE_7, hexgen.plan_even),
        Strategy("hexgen/ours", "HexGen on the GPUs that sutler rents", "aggregated", _FIGURE_7, hexgen.plan_ours),
        Strategy("melange", "slices of workloads packed onto GPU types", "aggregated", _MELANGE, melange.plan),
        Strategy(
            "greedy-cheapest", "the best value that fits, again and again", "greedy", "autoscalers", greedy.plan
        ),
        Strategy(
            "spot-hedge",
            "interruptible replicas of one GPU type, two more than needed, over all places",
            "hedged",
            "SkyServe, arXiv 2411.01438, section 4",
            spot_hedge.plan,
        ),
        *combos,
        *designs,
        Strategy(
            "aggregated-only",
            "prefill and decode on the same replicas",
            "aggregated",
            "Cauchy, section 4.2 (CAUCHY*)",
            together,
        ),
        Strategy(
            "disaggregated-only",
            "prefill and decode on replicas of their own",
            "disaggregated",
            "Splitwise, section IV.D",
            apart,
        ),
    )


def compare(
    problem: Problem,
    *,
    names: Sequence[str] | None = None,
    clock: Clock = time.monotonic,
    time_limit_s: float | None = None,
    on_ran: Callable[[Ran], None] = lambda ran: None,
) -> tuple[Ran, ...]:
    """What each strategy does with the problem; sutler is always the first, since the others are measured by it.

    `names`: of strategies, of families, or patterns such as homogeneous/*; None: all. `time_limit_s` is each
    strategy's; None: the problem's own. All are after the optimum: nothing of it is given up. `on_ran` is told as
    soon as a strategy is done. Raises UnknownNameError.
    """
    check(problem)
    problem = replace(problem, objective=replace(problem.objective, give_up_fraction=0.0))
    if time_limit_s is not None:
        problem = replace(problem, options=replace(problem.options, time_limit_s=time_limit_s))
    results: list[Ran] = []
    for strategy in _chosen(strategies_of(problem), names):
        ran = _ran(strategy, problem, clock)
        results.append(replace(ran, ratio=_ratio(results[0] if results else ran, ran)))
        on_ran(results[-1])
    return tuple(results)


def _chosen(known: Sequence[Strategy], names: Sequence[str] | None) -> list[Strategy]:
    if names is None:
        return list(known)
    for name in names:
        if not any(_is_called(strategy, name) for strategy in known):
            families = dict.fromkeys(strategy.family for strategy in known)
            near = get_close_matches(name, [*families, *(s.name for s in known)], n=3)
            hint = f"did you mean {', '.join(near)}? " if near else ""
            remedy = (
                f"{hint}the strategies for this problem are {', '.join(s.name for s in known)}; "
                f"their families are {', '.join(families)}"
            )
            raise UnknownNameError("strategies", name, remedy)
    first, *others = known
    return [first, *(s for s in others if any(_is_called(s, name) for name in names))]


def _is_called(strategy: Strategy, name: str) -> bool:
    return name == strategy.family or fnmatchcase(strategy.name, name) or strategy.name.startswith(f"{name}/")


def _ran(strategy: Strategy, problem: Problem, clock: Clock) -> Ran:
    started = clock()
    try:
        planned = strategy.plan(problem, lambda: problem.options.time_limit_s - (clock() - started))
    except NotApplicableError as error:
        return Ran(strategy, None, str(error), clock() - started)
    except PlanViolationError as error:
        return Ran(strategy, None, "its plan failed verification", clock() - started, error.violations)
    seconds = clock() - started
    violations = verify(planned.problem, planned.plan)
    own = planned.problem
    search = settings_beyond(own.search, problem.search)
    beyond = (*engines_beyond(own, problem), *search, *reserve_beyond(own, problem))
    return Ran(strategy, planned, None, seconds, violations, beyond=beyond)


def _ratio(sutler: Ran, ran: Ran) -> float | None:
    ours, theirs = (None if one.planned is None else one.planned.plan.value for one in (sutler, ran))
    if ours is None or theirs is None:
        return None
    assert sutler.planned is not None
    better, worse = (ours, theirs) if sutler.planned.plan.objective == "max_throughput" else (theirs, ours)
    if better == worse:
        return 1.0
    return better / worse if worse else None


def _plan_sutler(problem: Problem, seconds_left: SecondsLeft) -> StrategyPlan:
    return StrategyPlan(planner.solve(problem, clock=lambda: -seconds_left()), problem)


def _plan_with_roles(disaggregation: Disaggregation, problem: Problem, seconds_left: SecondsLeft) -> StrategyPlan:
    own = replace(problem, search=replace(problem.search, disaggregation=disaggregation))
    return StrategyPlan(solved(own, seconds_left), own)
