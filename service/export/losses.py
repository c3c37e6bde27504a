"""Where requests go while replicas are dead: by the plan's routing for what was lost, else in proportion."""

from collections.abc import Collection, Mapping
from math import fsum

from sutler.service.documents.plan import LossDocument, PlanDocument, RouteDocument
from sutler.service.export.router import rates_of


def without(plan: PlanDocument, dead: Collection[str]) -> PlanDocument:
    """The plan with its routing around the replicas with these ids.

    It starts from the plan's routing for the loss that has happened, if there is one. What that, or the plan, would
    send to other dead replicas goes to the rest of the workload's replicas in proportion; where none is left, to
    replicas of its model by the requests/s that they sustain; and where all of these are dead, it stays as planned.
    """
    loss = loss_that_happened(plan, dead)
    routing = plan.routing if loss is None else loss.routing
    return plan.model_copy(update={"routing": tuple(_around(plan, route, dead) for route in routing)})


def loss_that_happened(plan: PlanDocument, dead: Collection[str]) -> LossDocument | None:
    """Of the losses with a routing whose replicas are all dead, the one with the most of them."""
    happened = [loss for loss in plan.losses if loss.routing and loss.replicas and {*loss.replicas} <= {*dead}]
    return max(happened, key=lambda loss: len(loss.replicas), default=None)


def served_fraction(plan: PlanDocument, dead: Collection[str]) -> float:
    """Of the requests as planned, the share that goes to replicas which are not dead; 1 where there are none."""
    rates = rates_of(plan)
    served = fsum(
        rates[route.model, route.workload] * fsum(_alive(route.fractions, dead).values()) for route in plan.routing
    )
    return served / fsum(rates.values()) if rates else 1.0


def unserved(plan: PlanDocument, dead: Collection[str]) -> list[str]:
    """Models of whose replicas that take requests all are dead."""
    return sorted({route.model for route in without(plan, dead).routing if not _alive(route.fractions, dead)})


def _around(plan: PlanDocument, route: RouteDocument, dead: Collection[str]) -> RouteDocument:
    sustained = {
        replica.id: replica.sustained_rps.get(route.workload, 0.0)
        for replica in plan.replicas
        if replica.model == route.model and replica.role == "aggregated"
    }
    for weights in (_alive(route.fractions, dead), _alive(sustained, dead)):
        total = fsum(weights.values())
        if total > 0:
            return route.model_copy(update={"fractions": {id: weight / total for id, weight in weights.items()}})
    return route


def _alive(weights: Mapping[str, float], dead: Collection[str]) -> dict[str, float]:
    return {replica: weight for replica, weight in weights.items() if replica not in dead}
