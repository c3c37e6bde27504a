"""A schedule, run on the simulator: stage after stage, request by request, as the running phase would do it.

Flow: Costs, schedule -> execute (here), with changing.py and serving.py -> Execution. This is where every time that a
plan states comes from, whichever strategy made it.

A stage ends when one of its models is done, or as it says itself. Progress is looked at every POLL_S, as a
controller would, so a stage may last that much longer than its first model.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from sutler.solver.errors import InvalidProblemError
from sutler.solver.offline.changing import plans_now, runnable
from sutler.solver.offline.costs import Costs
from sutler.solver.offline.placement import Gpus, Group, can_place, place
from sutler.solver.offline.serving import NodeService, RequestStates, Server
from sutler.solver.offline.stages import (
    ExecutedStage,
    Execution,
    ExecutionPlan,
    GpuNumber,
    RunningReplica,
    RunState,
    Schedule,
    ScheduleStage,
)

POLL_S: Final = 1.0  # chosen: what a controller can ask its engines without load; stages last minutes


@dataclass(frozen=True, slots=True)
class Start:
    """Where an application stands. finished: requests that are done; written: tokens that others have so far;
    replicas: what is up and where; `at_s` since the beginning."""

    at_s: float = 0.0
    finished: frozenset[int] = frozenset()
    written: Mapping[int, int] = field(default_factory=dict)
    replicas: tuple[RunningReplica, ...] = ()


BEGINNING: Final = Start()
Placement = Mapping[tuple[int, int], Gpus]
"""GPUs by node and number of the replica."""


def execute(
    costs: Costs, schedule: Schedule, *, start: Start = BEGINNING, placements: Sequence[Placement] = ()
) -> Execution:
    """What becomes of the schedule with the lengths of the pile; the same for the same arguments.

    `placements`: where the replicas of each stage go; where none is given, or others run than it is for, as few as
    possible are moved (placement.py). What no stage of the schedule runs to its end is run after the last one, on as
    few GPUs as it needs.
    """
    _check(costs, schedule)
    run = ScheduleRun(costs, start=start, placements=placements)
    rest = schedule
    while not run.is_done:
        stage, rest = run.following(rest)
        run.stage(stage, returning={node for after in rest for node in after.plans})
    return run.execution()


class ScheduleRun:
    """An application under way. `placements`: see execute."""

    def __init__(self, costs: Costs, *, start: Start = BEGINNING, placements: Sequence[Placement] = ()) -> None:
        self._costs, self._placements = costs, placements
        self._now_s = self._begun_s = start.at_s
        self._requests = RequestStates(costs.pile, start.finished, start.written, start.at_s)
        self._services = [
            NodeService(node, costs.pile, self._requests, shards, costs.options.max_sequences)
            for node, shards in enumerate(costs.shards)
        ]
        for request in self._requests.ready():
            self._services[self._requests.node[request]].arrive(request, start.at_s)
        for replica in start.replicas:
            self._services[replica.node].start(replica)
        for service in self._services:
            service.resume(start.at_s)
        self._downloaded_s = _begun_downloads(costs, start)
        self._pending: dict[int, ExecutionPlan] = {}
        self._stage = ScheduleStage({})
        self._replicas: tuple[RunningReplica, ...] = ()
        self._stages: list[ExecutedStage] = []

    @property
    def is_done(self) -> bool:
        return all(service.is_done for service in self._services)

    def standing(self) -> RunState:
        running = self._running()
        return RunState(
            at_s=self._now_s,
            progress=tuple(1.0 if s.is_done else min(s.progress_fraction, 1.0 - 1e-6) for s in self._services),
            running=running,
            ready_s={node: max(s.replica.ready_s for s in self._services[node].servers) for node in running},
            placement={node: tuple(s.replica.gpus for s in self._services[node].servers) for node in running},
        )

    def stage(self, wanted: ScheduleStage, *, returning: Set[int] = frozenset()) -> None:
        """One stage, from now to its end. `returning`: models that later stages run."""
        preemption = self._costs.options.preemption
        plans, self._pending = plans_now(
            self._costs.hardware,
            running=self._running(at_work=preemption),
            wanted=self._unfinished(wanted.plans),
            returning=returning,
            waits_for=self._waits_for,
            preemption=preemption,
        )
        self._stage = replace(wanted, plans=plans)
        node = wanted.until_node
        if node is not None and self._services[node].has_reached(wanted.until_fraction):
            self._stage = ScheduleStage(plans)
        self._begun_s = self._now_s
        self._install()
        while not self._is_at_boundary():
            self._advance()
        self._record()

    def following(self, schedule: Schedule) -> tuple[ScheduleStage, Schedule]:
        """The next stage of a schedule, and what comes after it: first what waits for GPUs, then the first of which
        something can run. Once no stage is left, what runs goes on; else everything, on as few GPUs as it needs."""
        waiting = self.waiting()
        if waiting is not None:
            return waiting, schedule
        for position, stage in enumerate(schedule):
            if runnable(self._unfinished(stage.plans), self._waits_for):
                return stage, schedule[position + 1 :]
        if runnable(self._running(at_work=True), self._waits_for):
            return ScheduleStage({}), ()
        return ScheduleStage({node: self._costs.plans[node][0] for node in self._costs.order}), ()

    def waiting(self) -> ScheduleStage | None:
        """What the last stage wanted and had no GPUs for, before what it has; None where nothing waits."""
        pending = self._unfinished(self._pending)
        if not pending:
            return None
        others = {node: plan for node, plan in self._stage.plans.items() if node not in pending}
        return ScheduleStage({**pending, **self._unfinished(others)})

    def _unfinished(self, plans: Mapping[int, ExecutionPlan]) -> dict[int, ExecutionPlan]:
        return {node: plan for node, plan in plans.items() if not self._services[node].is_done}

    @property
    def _waits_for(self) -> list[set[int]]:
        """The sources of each node that are not done."""
        return [
            {source for source in sources if not self._services[source].is_done} for sources in self._costs.sources
        ]

    def execution(self) -> Execution:
        return Execution(
            stages=tuple(self._stages),
            makespan_s=max(service.finish_s for service in self._services),
            first_token_s=np.array(self._requests.first_token_s),
            finish_s=np.array(self._requests.finish_s),
            node_finish_s=tuple(service.finish_s for service in self._services),
        )

    def _running(self, *, at_work: bool = False) -> dict[int, ExecutionPlan]:
        """`at_work`: without models that have nothing to do and get nothing more from others that run."""
        running = {
            service.node: ExecutionPlan(len(service.servers), service.servers[0].shard.tensor_parallel)
            for service in self._services
            if service.servers and not service.is_done
        }
        if not at_work:
            return running
        waits_for = self._waits_for
        return {
            node: plan
            for node, plan in running.items()
            if self._services[node].is_at_work(self._now_s) or waits_for[node] & running.keys()
        }

    def _advance(self) -> None:
        until_s = self._now_s + POLL_S
        for node in self._costs.order:
            for at_s, request in self._services[node].advance(self._now_s, until_s):
                self._services[self._requests.node[request]].arrive(request, at_s)
        self._now_s = until_s

    def _is_at_boundary(self) -> bool:
        stage = self._stage
        if any(self._services[node].is_done for node in stage.plans):
            return True
        node = stage.until_node
        if node is not None and node in stage.plans and self._services[node].has_reached(stage.until_fraction):
            return True
        return self._now_s > self._begun_s and not any(
            self._services[node].is_at_work(self._now_s) for node in stage.plans
        )

    def _install(self) -> None:
        """Stops what is not in the stage, or not in this way; keeps, moves and starts replicas."""
        for node in self._stage.plans:
            if node not in self._downloaded_s:
                last_s = max(self._downloaded_s.values(), default=0.0)
                self._downloaded_s[node] = last_s + self._costs.download_s(node)
        groups: list[Group] = []
        for service in self._services:
            plan = self._stage.plans.get(service.node)
            keeps = self._kept(service, plan)
            for server in [server for server in service.servers if server not in keeps]:
                service.stop(server)
            if plan is None:
                continue
            load_s = self._costs.shards[service.node][plan.tensor_parallel].load_s
            if len(keeps) != plan.data_parallel:
                service.share_again()
            numbers = [server.replica.number for server in keeps]
            groups += [
                Group(service.node, server.replica.number, plan.tensor_parallel, server.replica.gpus, load_s)
                for server in keeps
            ]
            free = [number for number in range(plan.data_parallel) if number not in numbers]
            new = free[: plan.data_parallel - len(keeps)]
            groups += [Group(service.node, number, plan.tensor_parallel) for number in new]
        placed = self._placed_ahead(groups) or place(self._costs.hardware, groups)
        assert placed is not None, "plans_now lets nothing through that has no place"
        self._replicas = tuple(self._installed(group, gpus) for group, gpus in zip(groups, placed, strict=True))

    def _placed_ahead(self, groups: Sequence[Group]) -> tuple[Gpus, ...]:
        """Returns what was decided for this stage, if these are the replicas that it was decided for."""
        stage = len(self._stages)
        if stage >= len(self._placements):
            return ()
        decided = self._placements[stage]
        names = {(group.node, group.number): group.tensor_parallel for group in groups}
        if names != {name: len(gpus) for name, gpus in decided.items()}:
            return ()
        return tuple(decided[name] for name in names)

    def _kept(self, service: NodeService, plan: ExecutionPlan | None) -> list[Server]:
        servers = service.servers
        if plan is None or not servers or servers[0].shard.tensor_parallel != plan.tensor_parallel:
            return []
        if len(servers) != plan.data_parallel and not self._costs.options.keeps_replicas:
            return []
        return sorted(servers, key=lambda server: server.replica.number)[: plan.data_parallel]

    def _installed(self, group: Group, gpus: tuple[GpuNumber, ...]) -> RunningReplica:
        service = self._services[group.node]
        running = next((server for server in service.servers if server.replica.number == group.number), None)
        if running is not None:
            if set(running.replica.gpus) == set(gpus):
                return replace(running.replica, is_loaded=False)
            service.stop(running)
        begin_s = max(self._now_s, self._downloaded_s[group.node])
        ready_s = begin_s + self._costs.shards[group.node][group.tensor_parallel].load_s
        replica = RunningReplica(group.node, group.number, gpus, ready_s, is_loaded=True)
        service.start(replica)
        return replica

    def _record(self) -> None:
        end_s = max(service.finish_s for service in self._services) if self.is_done else self._now_s
        loading = [
            max(min(replica.ready_s, end_s) - self._begun_s, 0.0) * len(replica.gpus) for replica in self._replicas
        ]
        servers = [server for service in self._services for server in service.servers]
        busy_gpu_s = sum(server.busy_s * server.shard.tensor_parallel for server in servers)
        for server in servers:
            server.busy_s = 0.0
        self._append(
            ExecutedStage(
                start_s=self._begun_s,
                end_s=end_s,
                stage=self._stage,
                replicas=self._replicas,
                finished_requests=tuple(service.finished_requests for service in self._services),
                written_tokens=tuple(service.written_tokens for service in self._services),
                busy_gpu_s=busy_gpu_s,
                loading_gpu_s=sum(loading),
            )
        )

    def _append(self, stage: ExecutedStage) -> None:
        """A stage that only goes on with the last one is one with it."""
        if self._stages and self._stages[-1].stage.plans == stage.stage.plans:
            before = self._stages.pop()
            loaded = {(r.node, r.number) for r in before.replicas if r.is_loaded}
            stage = replace(
                stage,
                start_s=before.start_s,
                replicas=tuple(
                    replace(r, is_loaded=r.is_loaded or (r.node, r.number) in loaded) for r in stage.replicas
                ),
                busy_gpu_s=before.busy_gpu_s + stage.busy_gpu_s,
                loading_gpu_s=before.loading_gpu_s + stage.loading_gpu_s,
            )
        self._stages.append(stage)


def _begun_downloads(costs: Costs, start: Start) -> dict[int, float]:
    """When the models that were used before `start` were on the disks. A host fetches one model after the other from
    the beginning on, in the order of their first use."""
    pile = costs.pile
    used = {int(pile.node[request]) for request in (*start.finished, *start.written)}
    used |= {replica.node for replica in start.replicas}
    found, at_s = {}, 0.0
    for node in sorted(used):
        at_s += costs.download_s(node)
        found[node] = at_s
    return found


def _check(costs: Costs, schedule: Schedule) -> None:
    for position, stage in enumerate(schedule):
        for node, plan in stage.plans.items():
            degrees = (plan.tensor_parallel,) * plan.data_parallel
            if plan.tensor_parallel in costs.shards[node] and can_place(costs.hardware, degrees):
                continue
            remedy = (
                f"{costs.application.nodes[node].name} cannot run so on {costs.hardware.gpus} x "
                f"{costs.hardware.gpu.slug} with these lengths: use one of {', '.join(map(str, costs.plans[node]))}"
            )
            raise InvalidProblemError(f"schedule[{position}]", str(plan), remedy)
