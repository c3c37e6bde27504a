"""Plans the rest of an application anew when it runs faster or slower than planned (SamuLLM §4.3, and beyond).

Flow: a plan, what its models have done by now -> adjust (here) -> OfflinePlan for what is left. SamuLLM keeps its
stages and only reorders their ends; here the speeds that were seen are taken into account and the rest is searched
again, with what runs kept where that is better.
"""

import time
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from sutler.solver.arrays import IntArray
from sutler.solver.errors import InvalidProblemError
from sutler.solver.offline.application import Application
from sutler.solver.offline.bounds import lower_bound
from sutler.solver.offline.costs import Costs
from sutler.solver.offline.execution import BEGINNING, Start, execute
from sutler.solver.offline.forecast import Forecaster
from sutler.solver.offline.hardware import Hardware
from sutler.solver.offline.plan import OfflineOptions, OfflinePlan
from sutler.solver.offline.request_set import Pile
from sutler.solver.offline.sampling import sample
from sutler.solver.offline.search import searched
from sutler.solver.offline.stages import Execution, RunningReplica, Schedule

LEAST_FINISHED: Final = 10  # requests that a speed is taken from; chosen: fewer say more of their lengths
MOST_SLOWDOWN: Final = 10.0  # chosen: a report beyond it tells of a fault, not of a speed


@dataclass(frozen=True, slots=True)
class ReportedProgress:
    """What is known at `at_s` (since the beginning). finished_requests: by node. replicas: what is up; None: what the
    plan has there at that time."""

    at_s: float
    finished_requests: Mapping[int, int]
    replicas: tuple[RunningReplica, ...] | None = None


@dataclass(frozen=True, slots=True)
class Adjusted:
    """`plan` of what is left at `start`, times counted from the beginning; slowdowns: by node, how many times as long
    its steps take as the application has it; unadjusted_s: when all would be done with the old schedule at these
    speeds."""

    plan: OfflinePlan
    start: Start
    slowdowns: Mapping[int, float]
    unadjusted_s: float


def adjust(
    application: Application,
    hardware: Hardware,
    schedule: Schedule,
    reported: ReportedProgress,
    options: OfflineOptions | None = None,
    *,
    start: Start = BEGINNING,
    clock: Callable[[], float] = time.monotonic,
) -> Adjusted:
    """The rest of `schedule`, planned anew; never later than going on with it as it was.

    `start`: where the schedule begins, if it was adjusted itself (`application` then has the speeds that were seen).
    A model that the report leaves out is as far as the plan has it. Which of its requests are done is not asked: they
    are taken to be those that the simulation finishes first. Raises InvalidProblemError where a report says more than
    there is, or less than one before it, or where nothing is left to be planned.
    """
    begun_s = clock()
    options = options or OfflineOptions()
    pile = sample(application, seed=options.seed)
    costs = Costs(application, hardware, pile, options)
    _check(costs, start, reported)
    slowdowns = _slowdowns(costs, schedule, start, reported)
    costs = replace(costs, application=with_slowdowns(application, slowdowns))
    execution = execute(costs, schedule, start=start)
    now = _start(costs, execution, start, reported)
    if len(now.finished) == len(pile):
        raise InvalidProblemError("models", "all requests are done", "there is nothing left to be planned")
    rest = tuple(executed.stage for executed in execution.stages if executed.end_s > reported.at_s)
    unadjusted = execute(costs, rest, start=now)
    forecaster = Forecaster(costs)
    found = searched(forecaster, deadline_s=begun_s + options.time_limit_s, clock=clock, start=now, begin_with=rest)
    plan = found.plan(forecaster, lower_bound(costs, now), seconds=clock() - begun_s)
    return Adjusted(plan, now, slowdowns, unadjusted.makespan_s)


def with_slowdowns(application: Application, slowdowns: Mapping[int, float]) -> Application:
    """The application with models that are so many times as slow as they were taken to be."""
    return replace(
        application,
        nodes=tuple(
            replace(node, slowdown=node.slowdown * slowdowns.get(position, 1.0))
            for position, node in enumerate(application.nodes)
        ),
    )


def start_at(costs: Costs, execution: Execution, at_s: float, *, start: Start = BEGINNING) -> Start:
    """Where an execution (from `start`) stands at that time: a request writes evenly from its first token to its
    last."""
    return _start(costs, execution, start, ReportedProgress(at_s, {}))


def _check(costs: Costs, before: Start, reported: ReportedProgress) -> None:
    nodes, pile = costs.application.nodes, costs.pile
    if reported.at_s <= before.at_s:
        remedy = f"what is planned begins at {before.at_s:g}: report what is known after that"
        raise InvalidProblemError("at_s", reported.at_s, remedy)
    for node, finished in reported.finished_requests.items():
        numbers = pile.of_node(node)
        field, already = f"models[{node}].finished_requests", _finished(pile, before, node)
        if not 0 <= finished <= len(numbers):
            remedy = f"{nodes[node].name} has {len(numbers)} requests in the plan: say how many are done"
            raise InvalidProblemError(field, finished, remedy)
        if finished < already:
            remedy = f"{nodes[node].name} had finished {already} by the last report: count from the beginning"
            raise InvalidProblemError(field, finished, remedy)
    _check_replicas(costs, reported.replicas or ())


def _check_replicas(costs: Costs, replicas: Sequence[RunningReplica]) -> None:
    sizes: dict[int, int] = {}
    seen: set[tuple[int, int]] = set()
    for position, replica in enumerate(replicas):
        name, possible = costs.application.nodes[replica.node].name, costs.shards[replica.node]
        if len(replica.gpus) not in possible:
            remedy = f"{name} runs on {' or '.join(map(str, possible))} GPUs per replica"
            raise InvalidProblemError(f"replicas[{position}].gpus", len(replica.gpus), remedy)
        if sizes.setdefault(replica.node, len(replica.gpus)) != len(replica.gpus):
            remedy = f"another replica of {name} has {sizes[replica.node]} GPUs: all have as many"
            raise InvalidProblemError(f"replicas[{position}].gpus", len(replica.gpus), remedy)
        if (replica.node, replica.number) in seen:
            remedy = f"another replica of {name} has this number: number them from 0"
            raise InvalidProblemError(f"replicas[{position}].number", replica.number, remedy)
        seen.add((replica.node, replica.number))


def _finished(pile: Pile, start: Start, node: int) -> int:
    return int(np.isin(pile.of_node(node), list(start.finished)).sum())


def _slowdowns(costs: Costs, schedule: Schedule, before: Start, reported: ReportedProgress) -> dict[int, float]:
    """Returns, by node that has been serving and is not done: how long it took beside how long it should have taken.

    Models are looked at in the order in which they begin to serve, sources before those that read them, each in a run
    in which those before it are as slow as they are: no model answers for another's delay.
    """
    found, left, depths = dict[int, float](), set(reported.finished_requests), _depths(costs)
    while left:
        slowed = replace(costs, application=with_slowdowns(costs.application, found))
        execution = execute(slowed, schedule, start=before)
        order = {node: (_serves_from_s(execution, node), depths[node]) for node in left}
        for node in [node for node in left if order[node] == min(order.values())]:
            slowdown = _slowdown(costs.pile, execution, before, node, reported)
            if slowdown is not None:
                found[node] = slowdown
            left.remove(node)
    return found


def _depths(costs: Costs) -> dict[int, int]:
    """Counts, by node, how many others are between it and one that reads none."""
    depths: dict[int, int] = {}
    for node in costs.order:
        depths[node] = 1 + max((depths[source] for source in costs.sources[node]), default=-1)
    return depths


def _serves_from_s(execution: Execution, node: int) -> float:
    return min(
        (replica.ready_s for stage in execution.stages for replica in stage.replicas if replica.node == node),
        default=np.inf,
    )


def _served_s(execution: Execution, before: Start, node: int, until_s: float) -> float:
    """The seconds for which some replica of it has been up by then."""
    served_s = 0.0
    for stage in execution.stages:
        ready_s = min((replica.ready_s for replica in stage.replicas if replica.node == node), default=np.inf)
        served_s += max(0.0, min(stage.end_s, until_s) - max(stage.start_s, ready_s, before.at_s))
    return served_s


def _later_s(execution: Execution, node: int, replicas: Sequence[RunningReplica]) -> float:
    """The seconds by which the model came up later than in the execution, as far as the report says when it did."""
    planned_s = {
        (replica.number, len(replica.gpus)): replica.ready_s
        for stage in reversed(execution.stages)
        for replica in stage.replicas
        if replica.node == node
    }
    later_s = [
        replica.ready_s - planned_s[replica.number, len(replica.gpus)]
        for replica in replicas
        if replica.node == node and (replica.number, len(replica.gpus)) in planned_s
    ]
    return max(0.0, min(later_s, default=0.0))


def _slowdown(pile: Pile, execution: Execution, before: Start, node: int, reported: ReportedProgress) -> float | None:
    finish_s = np.sort(execution.finish_s[pile.of_node(node)])
    finished = reported.finished_requests[node]
    few = finished - _finished(pile, before, node) < LEAST_FINISHED
    if few or finished == len(finish_s):
        return None
    expected_s = float(finish_s[finished - 1] + finish_s[finished]) / 2
    took_s = _served_s(execution, before, node, reported.at_s)
    should_take_s = _served_s(execution, before, node, expected_s)
    took_s -= _later_s(execution, node, reported.replicas or ())
    if took_s <= 0 or should_take_s <= 0:
        return None
    return float(np.clip(took_s / should_take_s, 1 / MOST_SLOWDOWN, MOST_SLOWDOWN))


def _start(costs: Costs, execution: Execution, before: Start, reported: ReportedProgress) -> Start:
    """Where things stand as reported; where nothing is reported, as executed."""
    pile = costs.pile
    already = np.zeros(len(pile), dtype=np.int64)
    already[list(before.written)] = list(before.written.values())
    finished: set[int] = set()
    written: dict[int, int] = {}
    for node in costs.order:
        numbers = pile.of_node(node)
        finish_s, first_s = execution.finish_s[numbers], execution.first_token_s[numbers]
        at_s, in_order = reported.at_s, np.argsort(finish_s, kind="stable")
        if node in reported.finished_requests:
            done = numbers[in_order[: reported.finished_requests[node]]]
            if len(done):
                at_s = float(finish_s[in_order[len(done) - 1]])
            else:
                at_s = min(at_s, float(finish_s.min(initial=at_s)))
        else:
            done = _possible(pile, finished, numbers[in_order][: int((finish_s <= at_s).sum())])
        finished.update(done.tolist())
        begun = first_s <= at_s
        share = np.where(begun, (at_s - first_s) / np.maximum(finish_s - first_s, 1e-9), 0.0)
        outputs = pile.output_tokens[numbers]
        tokens = already[numbers] + np.where(begun, 1 + (share * (outputs - already[numbers])).astype(int), 0)
        tokens = np.minimum(tokens, outputs - 1)
        open_ones = (tokens > 0) & ~np.isin(numbers, done)
        open_ones &= np.isin(numbers, _possible(pile, finished, numbers[open_ones]))
        written.update(zip(numbers[open_ones].tolist(), tokens[open_ones].tolist(), strict=True))
    _close(pile, finished, written)
    replicas = reported.replicas
    if replicas is None:
        stage = next((stage for stage in execution.stages if stage.end_s > reported.at_s), None)
        replicas = stage.replicas if stage else ()
    done_nodes = {
        node for node in range(len(costs.application.nodes)) if set(pile.of_node(node).tolist()) <= finished
    }
    return Start(reported.at_s, frozenset(finished), written, tuple(r for r in replicas if r.node not in done_nodes))


def _possible(pile: Pile, finished: Set[int], requests: IntArray) -> IntArray:
    """Those of the requests, which are in the order in which they end, that wait for nothing but each other."""
    done = set(finished)
    for request in requests.tolist():
        if done.issuperset(pile.parents_of(request)):
            done.add(request)
    return requests[np.isin(requests, list(done))]


def _close(pile: Pile, finished: set[int], written: dict[int, int]) -> None:
    """What others have read is done."""
    open_requests = [*finished, *written]
    while open_requests:
        request = open_requests.pop()
        for parent in pile.parents_of(request):
            if parent not in finished:
                finished.add(parent)
                written.pop(parent, None)
                open_requests.append(parent)
