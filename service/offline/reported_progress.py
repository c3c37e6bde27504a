"""Where an adjusted plan begins, in its document: what is done, what is under way, what is up.

Flow: solver/offline/adjusting -> started (here) -> plan document -> planned_start (here) -> an adjustment of the
adjustment, or a simulation.
"""

from collections.abc import Iterator

import numpy as np

from sutler.service.documents.errors import DocumentError
from sutler.service.offline.plan_issue import placed_replica
from sutler.service.offline.plan_schema import OfflinePlanDocument, PlacedReplica, StartedModel
from sutler.service.offline.planned import model_numbers, number_of
from sutler.service.offline.progress_schema import ReplicaProgress
from sutler.solver.arrays import IntArray
from sutler.solver.offline.application import Application
from sutler.solver.offline.execution import BEGINNING, Start
from sutler.solver.offline.request_set import Pile
from sutler.solver.offline.stages import RunningReplica


def started(start: Start, pile: Pile, application: Application) -> tuple[StartedModel, ...]:
    """Says where an adjusted plan begins, for its document."""
    return tuple(_started(start, pile, node, each.name) for node, each in enumerate(application.nodes))


def planned_start(plan: OfflinePlanDocument, pile: Pile) -> Start:
    """Returns where things stand when the plan begins. Raises DocumentError for requests that it does not have."""
    if plan.adjustment is None or plan.adjustment.start is None:
        return BEGINNING
    numbers = model_numbers(plan)
    finished: set[int] = set()
    written: dict[int, int] = {}
    replicas: list[RunningReplica] = []
    for i, model in enumerate(plan.adjustment.start):
        at = f"adjustment.start[{i}]"
        node = number_of(f"{at}.model", model.model, numbers)
        requests = pile.of_node(node)
        named = [number for run in model.finished for number in run] + [number for number, _ in model.written]
        if any(not 0 <= number < len(requests) for number in named):
            raise DocumentError.of(at, f"{model.model} has requests 0 to {len(requests) - 1}", value=max(named))
        finished.update(int(r) for first, last in model.finished for r in requests[first : last + 1])
        written.update({int(requests[number]): tokens for number, tokens in model.written})
        replicas += [running(node, replica) for replica in model.replicas]
    return Start(plan.adjustment.at_s, frozenset(finished), written, tuple(replicas))


def finished_at_start(plan: OfflinePlanDocument) -> dict[str, int]:
    """Requests that are done where the plan begins, by model."""
    if plan.adjustment is None:
        return {}
    return {
        model.model: sum(last - first + 1 for first, last in model.finished) for model in plan.adjustment.start or ()
    }


def _started(start: Start, pile: Pile, node: int, name: str) -> StartedModel:
    requests = pile.of_node(node)
    done = np.flatnonzero(np.isin(requests, list(start.finished)))
    under_way = ((number, start.written[r]) for number, r in enumerate(requests.tolist()) if r in start.written)
    return StartedModel(
        model=name,
        finished=tuple(_runs(done)),
        written=tuple(under_way),
        replicas=tuple(placed_replica(replica) for replica in start.replicas if replica.node == node),
    )


def _runs(numbers: IntArray) -> Iterator[tuple[int, int]]:
    """The first and the last of ascending numbers that follow one another."""
    for run in np.split(numbers, np.flatnonzero(np.diff(numbers) > 1) + 1):
        if len(run):
            yield int(run[0]), int(run[-1])


def running(node: int, replica: PlacedReplica | ReplicaProgress) -> RunningReplica:
    """A replica that is up, or loads, for the solver."""
    places = tuple((place.host, place.gpu) for place in replica.gpus)
    return RunningReplica(node, replica.number, places, replica.ready_s, is_loaded=False)
