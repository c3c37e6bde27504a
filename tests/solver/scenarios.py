"""Survival as a plain MILP: a routing of its own for every loss, by SciPy, over all candidates of a polytope.

Which candidates stand after a loss is read from the offers behind their pools, what they serve from `rate`.
"""

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array, hstack

from sutler.solver.arrays import BoolArray
from sutler.solver.polytope.objectives import first_goal
from sutler.solver.polytope.rows import Polytope
from sutler.solver.problem import LossKind, Problem
from tests.solver.planning_builders import WholeProgram, polytope_of


def least_value(problem: Problem) -> float:
    """The primary objective, minimised (throughput as its negative); inf: infeasible. Machines are not asked for."""
    polytope = polytope_of(problem)
    goal = first_goal(polytope)
    program = WholeProgram(polytope, goal)
    pairs, rent, use = program.pairs, len(polytope.cost_rent), len(polytope.candidates)
    losses = [stands for kind in problem.resilience.survive for stands in stands_after(polytope, kind)]
    first = 1 + rent + use
    served = program._demand_rows()
    lopsided = np.vstack([program._share_rows(), program._flow_rows()])
    flows = program._flow_rows()
    capacity = np.zeros((use, first + len(pairs)))
    for column, (c, _) in enumerate(pairs):
        capacity[c, first + column] = 1.0
    capacity[:, 1 + rent : first] = -np.eye(use)
    resources = np.hstack(
        [
            np.zeros((len(polytope.limit), 1)),
            polytope.rent.toarray(),
            polytope.use.toarray(),
            np.zeros((len(polytope.limit), len(pairs))),
        ]
    )
    constraints = [
        LinearConstraint(_wide(served, len(losses), len(pairs)), 0, 0),
        LinearConstraint(_wide(np.vstack([capacity, lopsided]), len(losses), len(pairs)), -np.inf, 0),
        LinearConstraint(_wide(resources, len(losses), len(pairs)), -np.inf, polytope.limit),
    ]
    asked, objective = problem.resilience, problem.objective
    for number, stands in enumerate(losses):
        kept = np.array([stands[c] for c, _ in pairs], dtype=np.bool_)
        own = served[:, first:] * kept
        of_lam = served[:, :1] * (asked.load_fraction if objective.maximises_rate else 0.0)
        fixed = 0.0 if objective.maximises_rate else asked.load_fraction * problem.total_demand / polytope.scale_rps
        rows = _scenario(of_lam, own, number, first, len(losses), len(pairs))
        constraints.append(LinearConstraint(rows, -served[:, 0] * fixed, np.inf))
        busy = np.where(stands[:, None], capacity[:, first:], 0.0)
        runs = capacity[:, :first] * stands[:, None]
        more = _scenario(runs, busy, number, first, len(losses), len(pairs))
        constraints.append(LinearConstraint(more, -np.inf, 0))
        if len(flows):
            handed = _scenario(
                np.zeros((len(flows), 1)), flows[:, first:] * kept, number, first, len(losses), len(pairs)
            )
            constraints.append(LinearConstraint(handed, -np.inf, 0))
        lost = np.flatnonzero(~kept)
        none = csr_array(
            (np.ones(len(lost)), (np.arange(len(lost)), first + len(pairs) * (1 + number) + lost)),
            shape=(len(lost), first + len(pairs) * (1 + len(losses))),
        )
        if len(lost):
            constraints.append(LinearConstraint(none, 0, 0))
    width = first + len(pairs) * (1 + len(losses))
    upper = np.full(width, np.inf)
    upper[1 : 1 + rent] = polytope.rent_upper
    lower = np.zeros(width)
    lower[0] = goal.lam_lower
    solved = milp(
        np.concatenate([[goal.lam_weight], goal.rent_cost, goal.use_cost, np.zeros(width - first)]),
        constraints=constraints,
        integrality=np.concatenate([[0.0], np.ones(rent + use), np.zeros(width - first)]),
        bounds=Bounds(lower, upper),
        options={"mip_rel_gap": 1e-7, "time_limit": 60.0},
    )
    return float(solved.fun) if solved.x is not None else np.inf


def stands_after(polytope: Polytope, kind: LossKind) -> list[BoolArray]:
    """[C] per loss of a kind whether a candidate has nothing on what is lost, by the offers behind its pools."""
    problem, supply = polytope.problem, polytope.supply
    of_pool: dict[int, set[str]] = {}
    for offer, pool in zip(problem.offers, supply.pool_of_offer, strict=True):
        name = {
            "provider": offer.provider,
            "place": f"{offer.provider}/{offer.region}",
            "interruptible": "interruptible" if offer.contract == "interruptible" else "",
        }[kind]
        if name:
            of_pool.setdefault(pool, set()).add(name)
    for (offer_index, _), pool in supply.pool_of_machine.items():
        of_pool[pool] = of_pool.get(supply.pool_of_offer[offer_index], set())
    found = []
    for name in sorted(set().union(*of_pool.values())) if of_pool else []:
        lost = [name in of_pool.get(pool, set()) for pool in range(len(supply.pools))] + [False]
        found.append(np.asarray(~np.array(lost)[polytope.candidates.pool].any(axis=1)))
    return found


def _wide(rows: np.ndarray, losses: int, pairs: int) -> csr_array:
    return csr_array(hstack([csr_array(rows), csr_array((len(rows), losses * pairs))]))


def _scenario(known: np.ndarray, own: np.ndarray, number: int, first: int, losses: int, pairs: int) -> csr_array:
    """Rows over the columns that all share, of which `known` are the first, and the routing of one loss."""
    rows = np.zeros((len(own), first + pairs * (1 + losses)))
    rows[:, : known.shape[1]] = known
    start = first + pairs * (1 + number)
    rows[:, start : start + pairs] = own
    return csr_array(rows)
