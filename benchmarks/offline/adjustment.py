"""A plan adjusted after an error in one model's speed, beside going on with it and beside knowing the speed.

Flow: settings.py (the models) -> recoveries (here), with solver/offline/adjusting -> run.py.

One model takes 1.3 or 0.7 times as long as planned. Once it has done three of ten of its requests, the requests that
every model has done are reported. What is planned then, without the speed, is run at the true one; so is what goes on
as planned, and what the same search finds at the true speed.
"""

import time
from collections.abc import Callable, Iterator, Set
from typing import Final

import numpy as np

from benchmarks.offline.applications import paper_hardware
from benchmarks.offline.settings import Recovery, Setting
from sutler.solver.offline.adjusting import ReportedProgress, adjust, start_at, with_slowdowns
from sutler.solver.offline.application import Application
from sutler.solver.offline.costs import Costs
from sutler.solver.offline.execution import execute
from sutler.solver.offline.forecast import Forecaster
from sutler.solver.offline.plan import OfflineOptions, OfflinePlan
from sutler.solver.offline.planner import plan_application
from sutler.solver.offline.search import searched
from sutler.solver.offline.stages import Execution

FACTORS: Final = (1.3, 0.7)
REPORTED_FRACTION: Final = 0.3


def recoveries(
    setting: Setting, application: Application, done: Set[tuple[str, str, float]], tell: Callable[[str], None]
) -> Iterator[Recovery]:
    """Runs, one by one, those of the setting that are not `done`; the plan that they begin with is made once."""
    left = [
        (node, factor) for node in setting.slowed for factor in FACTORS if (setting.name, node, factor) not in done
    ]
    if not left:
        return
    options = OfflineOptions(seed=setting.seed)
    plan = plan_application(application, paper_hardware(), options, clock=time.process_time)
    for node, factor in left:
        recovery = _recovery(setting, application, plan, node, factor, options)
        tell(
            f"  {node} x {factor}: {recovery.going_on_s:.1f} s, adjusted {recovery.adjusted_s:.1f} s, "
            f"known {recovery.oracle_s:.1f} s"
        )
        yield recovery


def _recovery(
    setting: Setting,
    application: Application,
    plan: OfflinePlan,
    name: str,
    factor: float,
    options: OfflineOptions,
) -> Recovery:
    hardware = paper_hardware()
    node = next(position for position, one in enumerate(application.nodes) if one.name == name)
    costs = Costs(with_slowdowns(application, {node: factor}), hardware, plan.pile, options)
    static = execute(costs, plan.schedule)
    at_s = _reported_at_s(static, plan, node)
    start = start_at(costs, static, at_s)
    finished = {
        position: int((static.finish_s[plan.pile.of_node(position)] <= at_s).sum())
        for position in range(len(application.nodes))
    }
    reported = ReportedProgress(at_s, finished, start.replicas)
    adjusted = adjust(application, hardware, plan.schedule, reported, options, clock=time.process_time)
    rest = tuple(executed.stage for executed in static.stages if executed.end_s > at_s)
    known = searched(
        Forecaster(costs),
        deadline_s=time.process_time() + options.time_limit_s,
        clock=time.process_time,
        start=start,
        begin_with=rest,
    )
    return Recovery(
        setting.name,
        name,
        factor,
        at_s=at_s,
        going_on_s=execute(costs, rest, start=start).makespan_s,
        adjusted_s=execute(costs, adjusted.plan.schedule, start=start).makespan_s,
        oracle_s=known.execution.makespan_s,
        slowdown=adjusted.slowdowns.get(node),
    )


def _reported_at_s(static: Execution, plan: OfflinePlan, node: int) -> float:
    finish_s = np.sort(static.finish_s[plan.pile.of_node(node)])
    return float(finish_s[int(REPORTED_FRACTION * len(finish_s))])
