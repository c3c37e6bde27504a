"""The part of a polytope that one model has for itself: its fleets on all that could be rented."""

from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from sutler.solver.arrays import IntArray
from sutler.solver.polytope.rows import Polytope

LEAST_MODELS = 7  # that are searched one by one; measured: of up to six a search over all finds as much, sooner


def of_one_model(polytope: Polytope, model: int) -> tuple[Polytope, IntArray]:
    """The polytope of a model's fleets where every machine is rented, without the budget; and its candidates' numbers
    in the whole. lam is in the same units: the fractions of demands stay those of all requests. Rows without a limit
    stay, so that what replicas cost and draw is among the rows here too."""
    chosen = np.flatnonzero(polytope.candidates.model == model)
    columns = polytope.rate.shape[1]
    own = np.array([demand.model == model for demand in polytope.demands])
    use = polytope.use[:, chosen]
    room = polytope.limit + np.maximum(-polytope.rent.toarray(), 0.0) @ polytope.rent_upper
    room[polytope.resources.index("budget")] = np.inf
    kept = np.flatnonzero(np.diff(csr_array(use).indptr) > 0)
    nothing = np.zeros(0)
    flow_of = polytope.flow_of[chosen]
    flows = np.unique(flow_of[flow_of >= 0])
    part = replace(
        polytope,
        problem=replace(polytope.problem, models=(polytope.problem.models[model],)),
        candidates=replace(polytope.candidates.take(chosen), model=np.zeros_like(chosen)),
        demands=tuple(replace(demand, model=0) for demand in polytope.demands if demand.model == model),
        rate=polytope.rate[chosen],
        resources=tuple(polytope.resources[row] for row in kept),
        use=csr_array(use[kept]),
        rent=csr_array((len(kept), 0)),
        limit=room[kept],
        cost_use=polytope.cost_use[chosen],
        watts_use=polytope.watts_use[chosen],
        cost_rent=nothing,
        watts_rent=nothing,
        use_upper=polytope.use_upper[chosen],
        rent_upper=nothing,
        share_of=polytope.share_of[chosen],
        curve_of=nothing.astype(np.int64),
        flow_of=np.where(flow_of >= 0, np.searchsorted(flows, flow_of), -1),
        num_flows=len(flows),
        mixed=csr_array(polytope.mixed[model * columns : (model + 1) * columns][:, own]),
        losses=replace(polytope.losses, stands=polytope.losses.stands[:, chosen]),
    )
    return part, chosen
