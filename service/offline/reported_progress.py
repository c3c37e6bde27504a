"""Where an adjusted plan begins, in its document: what is done, what is under way, what is up.

Flow: solver/offline/adjusting -> started (here) -> plan document -> planned_start (here) -> an adjustment of the
adjustment, or a simulation.
"""

from collections.abc import Iterable, Iterator

import numpy as np

from sutler.service.documents.errors import DocumentError
from sutler.service.offline.plan_issue import placed_replica
from sutler.service.offline.plan_schema import OfflinePlanDocument, PlacedReplica, StartedModel
from sutler.solver.offline.application import Application
from sutler.solver.offline.execution import BEGINNING, Start
from sutler.solver.offline.request_set import Pile
from sutler.solver.offline.stages import RunningReplica


def started(start: Start, pile: Pile, application: Application) -> tuple[StartedModel, ...]:
    """For a plan document."""
    return tuple(_started(start, pile, node, each.name) for node, each in enumerate(application.nodes))


def planned_start(plan: OfflinePlanDocument, pile: Pile) -> Start:
    """Where the plan begins. Raises DocumentError for requests that it does not have."""
    if plan.adjustment is None or plan.adjustment.start is None:
        return BEGINNING
    numbers = {model.name: number for number, model in enumerate(plan.models)}
    finished: set[int] = set()
    written: dict[int, int] = {}
    replicas: list[RunningReplica] = []
    for i, model in enumerate(plan.adjustment.start):
        at = f"adjustment.start[{i}]"
        if model.model not in numbers:
            raise DocumentError.of(
                f"{at}.model", f"is no model of this plan: use {', '.join(numbers)}", value=model.model
            )
        node = numbers[model.model]
        requests = pile.of_node(node)
        named = [number for run in model.finished for number in run] + [number for number, _ in model.written]
        if any(not 0 <= number < len(requests) for number in named):
            raise DocumentError.of(at, f"{model.model} has requests 0 to {len(requests) - 1}", value=max(named))
        finished.update(int(r) for first, last in model.finished for r in requests[first : last + 1])
        written.update({int(requests[number]): tokens for number, tokens in model.written})
        replicas += [_running(node, replica) for replica in model.replicas]
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
        finished=tuple(_runs(done.tolist())),
        written=tuple(under_way),
        replicas=tuple(placed_replica(replica) for replica in start.replicas if replica.node == node),
    )


def _runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Ascending numbers, those that follow one another as one."""
    first = last = None
    for number in numbers:
        if first is None or last is None:
            first = last = number
        elif number == last + 1:
            last = number
        else:
            yield first, last
            first = last = number
    if first is not None and last is not None:
        yield first, last


def _running(node: int, replica: PlacedReplica) -> RunningReplica:
    places = tuple((place.host, place.gpu) for place in replica.gpus)
    return RunningReplica(node, replica.number, places, replica.ready_s, is_loaded=False)
