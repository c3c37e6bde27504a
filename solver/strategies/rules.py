"""Routing by rule instead of by LP: what routers do that know replicas but not what each is good at; and what rules
rate replicas by."""

import numpy as np

from sutler.solver.answer.describe import as_split
from sutler.solver.answer.routing import Routing
from sutler.solver.arrays import FloatArray
from sutler.solver.polytope.column_generation import rough_price_usd_per_hour
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.rows import Polytope

_ROUNDING = 1e-9  # relative: what sums of floats may be off by


def spread_evenly(polytope: Polytope, allocation: Allocation) -> Routing:
    """Round robin: the same share of a workload to every replica of its model that can serve it."""
    return by_weight(polytope, allocation, np.ones(len(allocation.candidate)))


def by_weight(polytope: Polytope, allocation: Allocation, weight: FloatArray) -> Routing:
    """Every workload in proportion to the replicas' weights [n], among those that can serve it."""
    serves = polytope.rates_on(np.arange(len(polytope.demands)), allocation.candidate) > 0
    share = np.where(serves, weight * allocation.replicas, 0.0)
    served = share.sum(axis=1, keepdims=True)
    return as_split(polytope, allocation, np.divide(share, served, out=np.zeros_like(share), where=served > 0))


def least_expense(polytope: Polytope) -> FloatArray:
    """[C] $/h of a replica on the cheapest GPUs of its pools, or its watts where the objective is power."""
    if polytope.problem.objective.kind != "min_power":
        return rough_price_usd_per_hour(polytope) + polytope.candidates.storage_usd_per_hour
    gpus = polytope.problem.gpus
    return polytope.candidates.summed([gpus[pool.gpu].tdp_watts or 0.0 for pool in polytope.supply.pools])


def mixed_rates(polytope: Polytope) -> FloatArray:
    """[C] multiples of its model's whole demand that one replica carries alone; 0 where it cannot serve all of it.

    The time that a request of a set takes is the mean over the mix: rates combine harmonically.
    """
    busy = np.zeros(len(polytope.candidates))
    for demand in polytope.demands:
        own = polytope.candidates.model == demand.model
        with np.errstate(divide="ignore"):
            busy[own] += demand.fraction / polytope.rate[own, demand.workload]
    offered = polytope.offered
    models, fractions = zip(*((demand.model, demand.fraction) for demand in polytope.demands), strict=True)
    whole = np.bincount(models, fractions)
    is_whole = offered >= whole[:, None] * (1 - _ROUNDING)
    per_rps = np.divide(1.0, offered, out=np.zeros_like(offered), where=is_whole)
    of_mix: FloatArray = (polytope.rate * per_rps[polytope.candidates.model]).max(axis=1, initial=0.0)
    return np.maximum(1.0 / busy, of_mix)
