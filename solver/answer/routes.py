"""Routing by candidates as routing by replicas: what plans state."""

from sutler.solver.answer.packing import Placement
from sutler.solver.answer.routing import Routing
from sutler.solver.candidates.enumerate import DECODE
from sutler.solver.plan import Route, Share
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.rows import Polytope


def routes_of(
    polytope: Polytope, allocation: Allocation, routing: Routing, placement: Placement
) -> tuple[Route, ...]:
    """One route per workload; replicas of a candidate get equal parts of what goes to it."""
    position = {int(c): index for index, c in enumerate(allocation.candidate)}
    routes = []
    for row, demand in enumerate(polytope.demands):
        model = polytope.problem.models[demand.model]
        shares = []
        for name, replica in zip(placement.names, placement.replicas, strict=True):
            at = position[replica.candidate]
            if routing.fraction[row, at] > 0 and polytope.candidates.role[replica.candidate] != DECODE:
                shares.append(Share(name, float(routing.fraction[row, at] / allocation.replicas[at])))
        routes.append(Route(model.name, model.workloads[demand.workload].name, tuple(shares)))
    return tuple(routes)
