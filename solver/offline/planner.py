"""From an application and hardware to a plan: the front door of offline planning.

Flow: sample -> Costs -> lower_bound, search -> execute -> OfflinePlan. Renting (renting.py) and adjusting
(adjusting.py) come in here, too.
"""

import time
from collections.abc import Callable, Mapping
from typing import Final

from sutler.solver.offline.application import Application
from sutler.solver.offline.beam import Rule
from sutler.solver.offline.bounds import lower_bound
from sutler.solver.offline.costs import Costs
from sutler.solver.offline.execution import BEGINNING, Start, execute
from sutler.solver.offline.forecast import Forecaster
from sutler.solver.offline.greedy import greedy
from sutler.solver.offline.hardware import Hardware
from sutler.solver.offline.heuristics import max_heuristic, min_heuristic
from sutler.solver.offline.plan import STRATEGIES, OfflineOptions, OfflinePlan, Strategy
from sutler.solver.offline.request_set import Pile
from sutler.solver.offline.sampling import sample
from sutler.solver.offline.search import SearchResult, by_rule, searched
from sutler.solver.offline.stages import Execution, Schedule

RULES: Final[Mapping[Strategy, Rule]] = {
    "greedy": greedy,
    "max_heuristic": max_heuristic,
    "min_heuristic": min_heuristic,
}


def plan_application(
    application: Application,
    hardware: Hardware,
    options: OfflineOptions | None = None,
    *,
    strategy: Strategy = "sutler",
    pile: Pile | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> OfflinePlan:
    """The schedule that `strategy` finds, and what the simulation makes of it, with the lengths that the options'
    seed draws or with those of `pile`.

    sutler's is never slower than greedy's: it begins with it. Raises InvalidProblemError where a model fits nowhere
    or a prompt exceeds its model's context.
    """
    begun_s = clock()
    options = options or OfflineOptions()
    pile = sample(application, seed=options.seed) if pile is None else pile
    costs = Costs(application, hardware, pile, options)
    forecaster = Forecaster(costs)
    if strategy == "sutler":
        found = searched(forecaster, deadline_s=begun_s + options.time_limit_s, clock=clock)
    else:
        found = SearchResult(by_rule(forecaster, RULES[strategy]))
    return found.plan(forecaster, lower_bound(costs), seconds=clock() - begun_s, strategy=strategy)


def compare_strategies(
    application: Application,
    hardware: Hardware,
    options: OfflineOptions | None = None,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> Mapping[Strategy, OfflinePlan]:
    """What every strategy makes of the application, in the order of STRATEGIES."""
    return {
        strategy: plan_application(application, hardware, options, strategy=strategy, clock=clock)
        for strategy in STRATEGIES
    }


def simulate_schedule(
    application: Application,
    hardware: Hardware,
    schedule: Schedule,
    options: OfflineOptions | None = None,
    *,
    pile: Pile | None = None,
    start: Start = BEGINNING,
) -> Execution:
    """What becomes of a schedule, with the lengths that the options' seed draws or with those of `pile`.

    Raises InvalidProblemError as plan_application does.
    """
    options = options or OfflineOptions()
    pile = sample(application, seed=options.seed) if pile is None else pile
    return execute(Costs(application, hardware, pile, options), schedule, start=start)
