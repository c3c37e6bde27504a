"""Fixed mixes: workloads of a model that a replica serves in just the proportions in which they are offered.

A replica of a fixed mix keeps its limits at a higher load than one that must be ready for every mixture of what it
admits (points.py), and needs one rate instead of one per workload. Rates of a model therefore have a column for each
workload and, after those, one for each of its mixes: all that is offered, and the halves with the shorter and the
longer prompts. Where requests are split in fixed proportions, the fraction that goes to a replica is the same for all
workloads of its mix, so that it stays a mix of theirs when demands change.
"""

from collections.abc import Iterator

import numpy as np

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.problem import Problem, ServedModel


def mixes_of(model: ServedModel) -> FloatArray:
    """Returns the shares of the requests of each column of rates [V, W]: first of each workload alone, then of the
    fixed mixes.

    Without latency limits there are none: a replica then serves any mixture at the rates of its workloads.
    """
    alone = np.eye(len(model.workloads))
    demand = np.array([workload.demand for workload in model.workloads])
    members = np.flatnonzero(demand > 0)
    if len(members) < 2 or not model.is_limited:
        return alone
    tokens = np.array([workload.input_tokens for workload in model.workloads])
    mixed = np.zeros((0, len(demand)))
    for some in (members, *halves(members, tokens)):
        mixed = np.vstack([mixed, np.where(np.isin(np.arange(len(demand)), some), demand, 0.0) / demand[some].sum()])
    return np.vstack([alone, mixed])


def offered_shares(model: ServedModel) -> FloatArray:
    """Returns the shares of the model's requests [W]; of each workload as many where no demand says."""
    demand = np.array([workload.demand for workload in model.workloads])
    return demand / demand.sum() if demand.sum() > 0 else np.full(len(demand), 1 / len(demand))


def halves(workloads: IntArray, input_tokens: FloatArray | IntArray) -> Iterator[IntArray]:
    """Yields the workloads with the shorter prompts and those with the longer ones, at least two of each.

    `input_tokens` [W].
    """
    count = len(workloads)
    if count < 3:
        return
    half = (count + 1) // 2
    by_length = workloads[np.argsort(input_tokens[workloads], kind="stable")]
    yield np.sort(by_length[:half])
    yield np.sort(by_length[count - half :])


def most_columns(problem: Problem) -> int:
    """The most columns that the rates of a model have, over all models."""
    return max(len(mixes_of(model)) for model in problem.models)


def least_of(values: FloatArray, mixes: FloatArray) -> FloatArray:
    """Returns the least [num_layouts, V] over the workloads of each column; `values` [num_layouts, W]."""
    of_workload = np.ascontiguousarray(values.T)
    return np.stack([of_workload[mix > 0].min(axis=0) for mix in mixes], axis=1)
