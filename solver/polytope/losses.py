"""What plans are to survive, as the polytope sees it: which candidates stand after each loss, and what they carry.

Let F(y) be the load that a fleet y carries under its best routing. What is left after the loss of d is y^(d): without
every replica that touches d. So a share rho of the load is carried after any loss if and only if
F(y^(d)) >= rho * load for each d: for every price vector of fleet_bounds.py one more inequality per loss.

Which replicas fall with a machine is decided when they are packed. What holds however they are: where a machine is
used, some replica falls with it, so F(y - e_c) >= rho * load for every candidate c with y_c >= 1.
"""

from dataclasses import dataclass

import numpy as np

from sutler.solver.arrays import BoolArray
from sutler.solver.candidates.enumerate import Candidates
from sutler.solver.market.losses import Whereabouts, falls, names_of
from sutler.solver.market.supply import Supply
from sutler.solver.problem import LossKind, Problem

_ROUNDING = 1e-7  # relative: HiGHS's tolerance


@dataclass(frozen=True, slots=True)
class Losses:
    """S losses beside those of machines.

    names [S]: kind and name; stands [S, C]: whether a candidate has nothing on what is lost
    load_fraction: to be carried after any of them, of lam; or, where the load is given, of `load_rps`
    of_any_machine: whether the loss of any one machine is to be survived as well
    """

    names: tuple[tuple[LossKind, str], ...]
    stands: BoolArray
    load_fraction: float
    load_rps: float | None
    of_any_machine: bool

    @property
    def any(self) -> bool:
        return bool(self.names) or self.of_any_machine

    @property
    def lam_share(self) -> float:
        """What is to be carried after a loss, per unit of lam."""
        return self.load_fraction if self.load_rps is None else 0.0

    def fixed(self, scale_rps: float) -> float:
        """What is to be carried after a loss whatever lam is, in units of lam."""
        return 0.0 if self.load_rps is None else self.load_fraction * self.load_rps / scale_rps

    def needed(self, lam: float, scale_rps: float) -> float:
        """What is to be carried after a loss where `lam` is carried before."""
        return self.fixed(scale_rps) if self.load_rps is not None else self.load_fraction * lam

    def lam_with(self, left: float, scale_rps: float) -> float:
        """What may be carried before a loss after which `left` is carried: any load, or none, where it is given."""
        if self.load_rps is None:
            return left / self.load_fraction
        return np.inf if left >= self.fixed(scale_rps) * (1 - _ROUNDING) else 0.0


def losses_of(problem: Problem, supply: Supply, candidates: Candidates) -> Losses:
    """What the problem asks its plans to survive; pools carry their provider and region as far as it does."""
    asked, objective = problem.resilience, problem.objective
    where = [Whereabouts(pool.provider or "", pool.region, pool.contract) for pool in supply.pools]
    used = [where[pool] for pool in np.unique(candidates.pool[candidates.pool >= 0]).tolist()]
    names = tuple((kind, name) for kind in asked.survive for name in names_of(kind, used))
    stands = np.ones((len(names), len(candidates)), dtype=np.bool_)
    for row, (kind, name) in enumerate(names):
        fallen = np.array([falls(kind, name, one) for one in where] + [False])
        stands[row] = ~fallen[candidates.pool].any(axis=1)
    return Losses(
        names=names,
        stands=stands,
        load_fraction=asked.load_fraction,
        load_rps=None if objective.maximises_rate else problem.total_demand,
        of_any_machine="machine" in asked.survive,
    )
