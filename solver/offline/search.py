"""sutler's search: many schedules on forecasts, the best of them executed, stage by stage, and searched again.

Flow: planner.py, adjusting.py -> searched (here) -> beam.py, improvement.py on forecasts, execution.py for the rest.

Forecasts are some percent off, and models that are done in another order than was forecast can spoil what follows. So
a schedule is executed one stage at a time, and the rest is improved again from where things really stand. Of few
requests a forecast says least, and few are quickly executed: there the best schedule is improved on executions, too.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from math import inf
from typing import Final

import numpy as np

from sutler.solver.offline.beam import Rule, beam, kept, rolled_out
from sutler.solver.offline.execution import BEGINNING, ScheduleRun, Start, execute
from sutler.solver.offline.forecast import Forecast, Forecaster
from sutler.solver.offline.greedy import greedy
from sutler.solver.offline.heuristics import max_heuristic, min_heuristic
from sutler.solver.offline.improvement import improved, one_change
from sutler.solver.offline.placement import Group
from sutler.solver.offline.plan import LowerBound, OfflinePlan, Strategy
from sutler.solver.offline.stages import Execution, RunState, Schedule

# All are chosen. What they come to is measured by `make offline-bench` (docs/offline-results.md): nine models with
# 10,000 requests are planned within ten seconds, and no plan of 127 is slower than another strategy's. More of any
# kind of look costs time in proportion; what each is spent on is said beside it.

# Rows of local changes on forecasts take most of the time. A row is long enough to cool down, and rows begin in turn
# at the schedule of each rule, as which one leads to the best is not known before.
STEPS: Final = 800  # local changes in a row
MOST_ROWS: Final = 30  # five or six from each beginning
PATIENCE_ROWS: Final = 8  # without a better schedule: more than one from each beginning
LARGE_REQUESTS: Final = 60_000  # with more, executions take the time that rows of changes would,
LARGE_PATIENCE_ROWS: Final = 4  # and so many have to do
TEMPERATURES: Final = (0.01, 0.002)  # turn by turn: one wanders, the other polishes
BEST: Final = 2  # schedules that get another row: the second may have more to gain than the first
LEAST_GAIN_FRACTION: Final = 1e-3  # that counts as better: forecasts are off by more
FORECAST_FRACTION: Final = 0.5  # of the time, at most, for forecasts: the rest is left to executions

# Executions, which say what is true and take as long as there are requests.
EXECUTED: Final = 8  # schedules that are executed at most, beside the greedy one
EXECUTED_REQUESTS: Final = 100_000  # in all of them: bounds the time that simulating takes
WORSE_FRACTION: Final = 0.1  # by how much a forecast may be beaten and be executed: they are off by some per cent
STEPS_AGAIN: Final = 150  # changes of the rest after each stage: few, since it begins at a good schedule
TRIED_REQUESTS: Final = 30_000  # so many are executed in local changes of the best execution,
MOST_TRIED: Final = 300  # where few requests make executions as cheap as forecasts


@dataclass(frozen=True, slots=True)
class SearchResult:
    """`execution`: of the best schedule; rivals_s: the time of other strategies that were executed on the way."""

    execution: Execution
    rivals_s: Mapping[Strategy, float] = field(default_factory=dict)
    executed: int = 1
    hit_time_limit: bool = False

    def plan(
        self, forecaster: Forecaster, bound: LowerBound, *, seconds: float, strategy: Strategy = "sutler"
    ) -> OfflinePlan:
        """The plan that it makes, after `seconds` and all that the forecaster was asked."""
        return OfflinePlan(
            strategy=strategy,
            schedule=self.execution.schedule,
            execution=self.execution,
            pile=forecaster.costs.pile,
            bound=bound,
            rivals_s=self.rivals_s,
            seconds=seconds,
            evaluated_schedules=self.executed + forecaster.forecasts,
            hit_time_limit=self.hit_time_limit,
        )


def searched(
    forecaster: Forecaster,
    *,
    deadline_s: float,
    clock: Callable[[], float],
    start: Start = BEGINNING,
    begin_with: Schedule = (),
    most_executed: int = EXECUTED,
) -> SearchResult:
    """Never later than greedy's schedule, nor than `begin_with`, as executed from `start`.

    The same for the same arguments unless the deadline comes first.
    """

    def stop() -> bool:
        return clock() > deadline_s

    enough_s = clock() + FORECAST_FRACTION * (deadline_s - clock())
    greedily = by_rule(forecaster, greedy, start=start)
    rivals: dict[Strategy, float] = {"greedy": greedily.makespan_s}
    executions = [greedily]
    most = max(1, min(most_executed, EXECUTED_REQUESTS // max(1, len(forecaster.costs.pile))))
    if begin_with:
        executions.append(execute(forecaster.costs, begin_with, start=start))
    forecasts = _found(forecaster, start, begin_with, lambda: clock() > enough_s)
    cut_short = clock() > enough_s
    for position, found in enumerate(forecasts[:most]):
        if position and stop():
            break
        executions.append(_executed(forecaster, found, start, stop))
    tries = min(MOST_TRIED, TRIED_REQUESTS // max(1, len(forecaster.costs.pile)))
    best = min(executions, key=lambda execution: execution.makespan_s)
    best, tried = _tried(forecaster, best, start=start, tries=tries, stop=stop)
    if not stop():
        executions.append(_placed_ahead(forecaster, best, start))
        best = min(best, executions[-1], key=lambda execution: execution.makespan_s)
    return SearchResult(best, rivals, len(executions) + tried, hit_time_limit=cut_short or stop())


def _tried(
    forecaster: Forecaster, best: Execution, *, start: Start, tries: int, stop: Callable[[], bool]
) -> tuple[Execution, int]:
    """(the best execution after local changes, each of them executed; how many were). Forecasts are the less sure the
    fewer requests there are, and the fewer there are the quicker they are executed."""
    draw = np.random.default_rng(0)
    seen: set[object] = set()
    for _ in range(tries):
        if stop():
            break
        change = one_change(forecaster, best.schedule, draw) if best.schedule else None
        if change is None:
            continue
        schedule = (*best.schedule[: change[0]], *change[1])
        key = tuple((tuple(stage.plans.items()), stage.until_node, stage.until_fraction) for stage in schedule)
        if key not in seen:
            seen.add(key)
            execution = execute(forecaster.costs, schedule, start=start)
            best = min(best, execution, key=lambda one: one.makespan_s)
    return best, len(seen)


def by_rule(forecaster: Forecaster, rule: Rule, *, start: Start = BEGINNING) -> Execution:
    """One rule, asked at the end of every stage."""
    run = ScheduleRun(forecaster.costs, start=start)
    everything = frozenset(range(len(forecaster.costs.plans)))
    while not run.is_done:
        run.stage(rule(forecaster, run.standing()), returning=everything)
    return run.execution()


def _found(forecaster: Forecaster, start: Start, begin_with: Schedule, stop: Callable[[], bool]) -> list[Forecast]:
    """Improved schedules from different beginnings, the best first, without those that are much later."""
    now = ScheduleRun(forecaster.costs, start=start).standing() if start != BEGINNING else forecaster.beginning()
    begun = [rolled_out(forecaster, rule, now) for rule in (greedy, min_heuristic, max_heuristic, kept)]
    if begin_with:
        begun.append(forecaster.run(begin_with, now))
    together = beam(forecaster, now, stop=stop)
    if together is not None:
        begun.append(together)
    better: list[Forecast] = []
    best_s, best_row = inf, 0
    patience = LARGE_PATIENCE_ROWS if len(forecaster.costs.pile) > LARGE_REQUESTS else PATIENCE_ROWS
    for row in range(MOST_ROWS):
        if row - best_row >= patience or stop():
            break
        temperature = TEMPERATURES[row // len(begun) % len(TEMPERATURES)]
        found = improved(
            forecaster, begun[row % len(begun)], steps=STEPS, seed=row, temperature=temperature, stop=stop
        )
        better.append(found)
        if found.end_s < best_s * (1.0 - LEAST_GAIN_FRACTION):
            best_s, best_row = found.end_s, row
    better = _sorted(better)
    better = _sorted(
        [*better, *(improved(forecaster, one, steps=STEPS, seed=MOST_ROWS, stop=stop) for one in better[:BEST])]
    )
    return [one for one in better if one.end_s <= better[0].end_s * (1.0 + WORSE_FRACTION)]


def _placed_ahead(forecaster: Forecaster, execution: Execution, start: Start) -> Execution:
    """The same schedule with its replicas placed for all stages at once, where that spares moves."""
    if _moves(execution) == 0:
        return execution
    costs = forecaster.costs
    up = {(replica.node, replica.number): replica for replica in start.replicas}
    stages = []
    for position, executed in enumerate(execution.stages):
        groups = []
        for replica in executed.replicas:
            degree = len(replica.gpus)
            before = up.get((replica.node, replica.number))
            on = before.gpus if position == 0 and before and len(before.gpus) == degree else ()
            groups.append(Group(replica.node, replica.number, degree, on, costs.shards[replica.node][degree].load_s))
        stages.append(groups)
    from sutler.solver.offline.placing_ahead import place_schedule  # CP-SAT brings pandas along: 0.3 s and 36 MB

    placed = place_schedule(costs.hardware, stages)
    if placed is None:
        return execution
    placements = [
        {(group.node, group.number): gpus for group, gpus in zip(groups, on, strict=True)}
        for groups, on in zip(stages, placed.gpus, strict=True)
    ]
    return execute(costs, execution.schedule, start=start, placements=placements)


def _moves(execution: Execution) -> int:
    """Replicas that run in two stages one after the other, on other GPUs."""
    moves = 0
    for before, after in pairwise(execution.stages):
        gpus = {(replica.node, replica.number): replica.gpus for replica in before.replicas}
        moves += sum(
            replica.is_loaded and len(gpus.get((replica.node, replica.number), ())) == len(replica.gpus)
            for replica in after.replicas
        )
    return moves


def _sorted(found: Iterable[Forecast]) -> list[Forecast]:
    """The best first, without those that end at the same time as another."""
    return sorted({round(one.end_s, 3): one for one in found}.values(), key=lambda one: one.end_s)


def _executed(forecaster: Forecaster, found: Forecast, start: Start, stop: Callable[[], bool]) -> Execution:
    run = ScheduleRun(forecaster.costs, start=start)
    rest: Schedule = found.stages
    while not run.is_done:
        stage, rest = run.following(rest)
        run.stage(stage, returning=frozenset(node for after in rest for node in after.plans))
        if not run.is_done and not stop():
            rest = _again(forecaster, run, rest, stop)
    return run.execution()


def _again(forecaster: Forecaster, run: ScheduleRun, rest: Schedule, stop: Callable[[], bool]) -> Schedule:
    """The rest of a schedule from where things stand, improved."""
    now: RunState = run.standing()
    waiting = run.waiting()
    going_on = forecaster.run((waiting, *rest) if waiting else rest, now)
    greedily = rolled_out(forecaster, greedy, now)
    better = min(going_on, greedily, key=lambda one: one.end_s)
    return improved(forecaster, better, steps=STEPS_AGAIN, seed=0, stop=stop).stages
