"""What a schedule would take, looked up on progress curves: thousands of schedules a second for the search.

Flow: curves.py -> Forecaster (here) -> greedy.py, heuristics.py, improvement.py. The rules of stages are those of
execution.py; request by request it may differ by some percent, so what the search likes best is executed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import numpy as np

from sutler.solver.offline.changing import plans_now, runnable
from sutler.solver.offline.costs import Costs
from sutler.solver.offline.curves import GRID, Curves
from sutler.solver.offline.placement import Group, place
from sutler.solver.offline.stages import DONE, ExecutionPlan, GpuNumber, RunState, Schedule, ScheduleStage
from sutler.solver.offline.ways import AnyWay, GrowingWay, Way, held, way_from

Placement = Mapping[int, tuple[tuple[GpuNumber, ...], ...]]
"""The GPUs of every replica, by node."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """A schedule from `begin` on: its stages as they come to be, and where things stand after each."""

    begin: RunState
    stages: Schedule
    standings: tuple[RunState, ...]

    @property
    def end_s(self) -> float:
        return self.standings[-1].at_s if self.standings else self.begin.at_s

    def before(self, stage: int) -> RunState:
        return self.standings[stage - 1] if stage else self.begin


class Forecaster:
    """Forecasts for one application on one hardware; `forecasts` counts them."""

    def __init__(self, costs: Costs, curves: Curves | None = None) -> None:
        self.costs = costs
        self.curves = curves or Curves(costs)
        self.forecasts = 0
        self._places: dict[tuple[Group, ...], tuple[tuple[GpuNumber, ...], ...]] = {}
        self._asked_of: RunState | None = None
        self._free_ways: dict[tuple[int, ExecutionPlan, float], Way | GrowingWay] = {}

    def beginning(self) -> RunState:
        empty = np.bincount(self.costs.pile.node, minlength=len(self.costs.sources)) == 0
        return RunState(0.0, tuple(np.where(empty, 1.0, 0.0).tolist()), {}, {})

    def is_ready(self, standing: RunState, node: int, plans: Mapping[int, ExecutionPlan]) -> bool:
        """Whether its sources are done or run with it."""
        return all(source in plans or standing.is_done(source) for source in self.costs.sources[node])

    def run(self, schedule: Schedule, begin: RunState | None = None) -> Forecast:
        """Every stage as it comes to be, with where things stand after it. What no stage finishes is run after the
        last one, on as few GPUs as it needs."""
        self.forecasts += 1
        now = begin = begin or self.beginning()
        stages, standings = list[ScheduleStage](), list[RunState]()
        pending, following, stage = dict[int, ExecutionPlan](), 0, ScheduleStage({})
        while not now.all_done:
            waits_for = self._waits_for(now)
            if any(not now.is_done(node) for node in pending):
                stage = ScheduleStage({**pending, **{n: plan for n, plan in stage.plans.items() if n not in pending}})
            elif following < len(schedule):
                stage = schedule[following]
                following += 1
                if not runnable(self._unfinished(now, stage.plans), waits_for):
                    continue
            else:
                stage = ScheduleStage({} if runnable(now.running, waits_for) else self._least)
            plans, pending = plans_now(
                self.costs.hardware,
                running=now.running,
                wanted=self._unfinished(now, stage.plans),
                returning={node for after in schedule[following:] for node in after.plans},
                waits_for=waits_for,
                preemption=self.costs.options.preemption,
            )
            stage = ScheduleStage(plans, stage.until_node, stage.until_fraction)
            now, placement = self._placed(now, plans)
            after = self.stage(now, stage)
            on = {node: placement[node] for node in after.running}
            now = RunState(after.at_s, after.progress, after.running, after.ready_s, on)
            stages.append(stage)
            standings.append(now)
        return Forecast(begin, tuple(stages), tuple(standings))

    def _placed(self, now: RunState, plans: Mapping[int, ExecutionPlan]) -> tuple[RunState, Placement]:
        """(where things stand without the replicas that have to move, on which GPUs everything is then)."""
        groups: list[Group] = []
        for node, plan in plans.items():
            stays = self._stays(now, node, plan)
            load_s = self.costs.shards[node][plan.tensor_parallel].load_s
            groups += [
                Group(node, number, plan.tensor_parallel, stays[number], load_s)
                if number < len(stays)
                else Group(node, number, plan.tensor_parallel)
                for number in range(plan.data_parallel)
            ]
        key = tuple(groups)
        placed = self._places.get(key)
        if placed is None:
            placed = self._places[key] = place(self.costs.hardware, groups) or ()
        placement: dict[int, list[tuple[GpuNumber, ...]]] = {node: [] for node in plans}
        running = None
        for group, gpus in zip(groups, placed, strict=True):
            placement[group.node].append(gpus)
            if group.on and set(group.on) != set(gpus):
                running = running or dict(now.running)
                left = running[group.node].data_parallel - 1
                running[group.node] = ExecutionPlan(left, group.tensor_parallel)
        if running is not None:
            now = replace(now, running={node: plan for node, plan in running.items() if plan.data_parallel})
        return now, {node: tuple(gpus) for node, gpus in placement.items()}

    def _stays(self, now: RunState, node: int, plan: ExecutionPlan) -> tuple[tuple[GpuNumber, ...], ...]:
        """Returns where the replicas are that the plan keeps."""
        running = now.running.get(node)
        if running is None or running.tensor_parallel != plan.tensor_parallel:
            return ()
        if running != plan and not self.costs.options.keeps_replicas:
            return ()
        return now.placement.get(node, ())[: plan.data_parallel]

    @cached_property
    def _least(self) -> dict[int, ExecutionPlan]:
        return {node: self.costs.plans[node][0] for node in self.costs.order}

    def _waits_for(self, now: RunState) -> list[set[int]]:
        """Returns the sources of each node that are not done."""
        return [{source for source in sources if not now.is_done(source)} for sources in self.costs.sources]

    def _unfinished(self, now: RunState, plans: Mapping[int, ExecutionPlan]) -> dict[int, ExecutionPlan]:
        return {node: plan for node, plan in plans.items() if not now.is_done(node)}

    def stage(self, standing: RunState, stage: ScheduleStage) -> RunState:
        """After one stage; at inf where nothing in it can ever be finished."""
        ways = self.ways(standing, stage.plans)
        end_s = min((way.finish_s for way in ways.values()), default=inf)
        if stage.until_node in ways:
            way = ways[stage.until_node]
            if way.progress < stage.until_fraction:
                end_s = min(end_s, float(way.at_s(np.array([stage.until_fraction]))[0]))
        if end_s == inf:
            return RunState(inf, standing.progress, {}, {})
        progress = list(standing.progress)
        for node, way in ways.items():
            progress[node] = 1.0 if way.finish_s <= end_s else way.by(end_s)
        going = {node: plan for node, plan in stage.plans.items() if progress[node] < DONE}
        downloaded_s = self._downloaded_s(standing, stage.plans)
        ready_s = {
            node: self._ready_s(standing, node, plan, downloaded_s.get(node, 0.0)) for node, plan in going.items()
        }
        return RunState(end_s, tuple(progress), going, ready_s)

    def ways(self, standing: RunState, plans: Mapping[int, ExecutionPlan]) -> dict[int, AnyWay]:
        """Returns the way of every model in `plans`, were the stage to go on until it is done."""
        if self._asked_of is not standing:
            self._asked_of, self._free_ways = standing, {}
        found: dict[int, AnyWay] = {}
        downloaded_s = self._downloaded_s(standing, plans)
        for node in self.costs.order:
            if node in plans:
                found[node] = self._way(standing, node, plans[node], found, downloaded_s.get(node, 0.0))
        return found

    def _downloaded_s(self, standing: RunState, plans: Mapping[int, ExecutionPlan]) -> dict[int, float]:
        """When the weights of models that come into use are there: after those in use before, in the order of the
        stage."""
        if not self.costs.hardware.loading.download_gb_per_s:
            return {}
        used = {node for node, progress in enumerate(standing.progress) if progress > 0} | set(standing.running)
        at_s, found = sum(self.costs.download_s(node) for node in used), {}
        for node in plans:
            if node not in used:
                at_s += self.costs.download_s(node)
                found[node] = at_s
        return found

    def flops(self, standing: RunState, after: RunState) -> float:
        """What was computed between the two (SamuLLM §3)."""
        gained = np.subtract(after.progress, standing.progress)
        return float(gained @ self.costs.flops)

    def least_gpu_s(self, standing: RunState) -> float:
        """GPU-seconds that are left at least: every model at its cheapest plan, loaded where it is not up."""
        left = 0.0
        for node, progress in enumerate(standing.progress):
            if progress < DONE:
                work_s, load_s = self._cheapest[node]
                left += (1.0 - progress) * work_s + (0.0 if node in standing.running else load_s)
        return left

    @cached_property
    def _cheapest(self) -> list[tuple[float, float]]:
        """By node, the GPU-seconds of its work, and of loading it once."""
        found = []
        for node, plans in enumerate(self.costs.plans):
            shards = self.costs.shards[node]
            work_s = min(plan.gpus * float(self.curves.at_s(node, plan)[-1]) for plan in plans)
            found.append((work_s, min(degree * shard.load_s for degree, shard in shards.items())))
        return found

    def _ready_s(self, standing: RunState, node: int, plan: ExecutionPlan, downloaded_s: float) -> float:
        if standing.running.get(node) == plan:
            return standing.ready_s[node]
        return max(standing.at_s, downloaded_s) + self.costs.shards[node][plan.tensor_parallel].load_s

    def _way(
        self,
        standing: RunState,
        node: int,
        plan: ExecutionPlan,
        ways: Mapping[int, AnyWay],
        downloaded_s: float,
    ) -> AnyWay:
        way = self._free_ways.get((node, plan, downloaded_s))
        if way is None:
            way = self._with_inputs(standing, node, plan, downloaded_s)
            self._free_ways[node, plan, downloaded_s] = way
        open_sources = [source for source in self.costs.sources[node] if not standing.is_done(source)]
        if not open_sources:
            return way
        points = np.concatenate([[way.progress], GRID[way.progress < GRID]])
        available_s = np.zeros(len(points))
        for source in open_sources:
            needed = np.interp(points, GRID, self.curves.needs(node)[source])
            reached = ways[source].at_s(needed) if source in ways else inf
            reached_s = np.where(needed <= standing.progress[source], 0.0, reached)
            available_s = np.maximum(available_s, reached_s)
        return held(way, available_s, points)

    def _with_inputs(
        self, standing: RunState, node: int, plan: ExecutionPlan, downloaded_s: float
    ) -> Way | GrowingWay:
        """Returns the way with every request ready."""
        progress, running = standing.progress[node], standing.running.get(node)
        ready_s = max(self._ready_s(standing, node, plan, downloaded_s), standing.at_s)
        curve_s = self.curves.at_s(node, plan)
        keeps = (
            running is not None
            and running != plan
            and running.tensor_parallel == plan.tensor_parallel
            and self.costs.options.keeps_replicas
        )
        if not keeps:
            return way_from(progress, ready_s, curve_s)
        assert running is not None
        before_s = max(standing.ready_s[node], standing.at_s)
        if plan.data_parallel < running.data_parallel or ready_s <= before_s:
            return way_from(progress, before_s, curve_s)
        before = way_from(progress, before_s, self.curves.at_s(node, running))
        return GrowingWay(before, way_from(before.by(ready_s), ready_s, curve_s), ready_s)
