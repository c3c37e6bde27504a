"""How a model's work gets done over time under an execution plan, from one simulation each: what a search looks at.

Flow: Costs -> Curves (here) -> forecast.py. Progress is the share of a model's output tokens that are written. Curves
say when it is reached if every request is ready from the beginning and nothing has to be loaded.

Requests go in order, so a model that is stopped at some progress and goes on under another plan has nearly the same
requests left as if it had been there from the beginning: its remaining time is the rest of the other plan's curve.
That makes a forecast of any schedule a matter of looking up numbers; execution.py says what it really takes.

Of several replicas one is simulated, with its share of the requests, short and long ones as in the whole pile. Of a
replica with more than SAMPLE requests only so many are simulated. In the middle of such a run the batch is full
and the pace even, so the middle is made as much longer as there are more requests.
"""

from dataclasses import dataclass, field
from math import ceil

import numpy as np

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.offline.costs import Costs
from sutler.solver.offline.execution import POLL_S
from sutler.solver.offline.request_set import Pile
from sutler.solver.offline.serving import NodeService, RequestStates
from sutler.solver.offline.stages import ExecutionPlan, RunningReplica

POINTS = 129  # chosen: between two of them less than a per cent of the work is done
SAMPLE = 1000  # chosen: some times the sequences that run at once, so that its middle is in a steady state
GRID: FloatArray = np.linspace(0.0, 1.0, POINTS)


@dataclass(frozen=True)
class Curves:
    """Made when first asked for, and kept."""

    costs: Costs
    _known: dict[tuple[int, ExecutionPlan], FloatArray] = field(default_factory=dict)
    _needs: dict[int, dict[int, FloatArray]] = field(default_factory=dict)

    def at_s(self, node: int, plan: ExecutionPlan) -> FloatArray:
        """Seconds at which the progress GRID is reached [POINTS]."""
        known = self._known.get((node, plan))
        if known is None:
            known = self._known[node, plan] = _curve(self.costs, node, plan)
        return known

    def needs(self, node: int) -> dict[int, FloatArray]:
        """Returns, by source, how far it has to be for the node to get as far as GRID [POINTS]."""
        known = self._needs.get(node)
        if known is None:
            known = self._needs[node] = _needed(self.costs, node)
        return known


def _curve(costs: Costs, node: int, plan: ExecutionPlan) -> FloatArray:
    numbers = costs.pile.of_node(node)
    if not len(numbers):
        return np.zeros(POINTS)
    pile = _alone(costs.pile, numbers)
    if len(pile.parents):
        first_s, finish_s = _served(costs, node, pile, plan)
        return _progress_times(first_s, finish_s, pile.output_tokens)
    each = len(numbers) / plan.data_parallel
    count = min(ceil(each), SAMPLE)
    by_length = np.argsort(pile.output_tokens, kind="stable")
    taken = np.sort(by_length[((np.arange(count) + 0.5) * len(numbers) / count).astype(np.int64)])
    part = _alone(pile, taken)
    first_s, finish_s = _served(costs, node, part, ExecutionPlan(1, plan.tensor_parallel))
    times = _progress_times(first_s, finish_s, part.output_tokens)
    factor = float(pile.output_tokens.sum()) / plan.data_parallel / float(part.output_tokens.sum())
    return _stretched(times, factor) if factor > 1.0 else times * factor


def _alone(pile: Pile, numbers: IntArray) -> Pile:
    """Some requests by themselves, which wait only for one another."""
    owner = np.repeat(np.arange(len(numbers)), pile.waits()[numbers])
    parents = np.array([parent for r in numbers.tolist() for parent in pile.parents_of(r)], dtype=np.int64)
    own = np.isin(parents, numbers)
    counts = np.bincount(owner[own], minlength=len(numbers))
    return Pile(
        node=pile.node[numbers],
        item=pile.item[numbers],
        input_tokens=pile.input_tokens[numbers],
        output_tokens=pile.output_tokens[numbers],
        parent_start=np.concatenate([[0], np.cumsum(counts)]),
        parents=np.searchsorted(numbers, parents[own]),
    )


def _served(costs: Costs, node: int, pile: Pile, plan: ExecutionPlan) -> tuple[FloatArray, FloatArray]:
    """(first token, finish) of every request, with all replicas up from the beginning."""
    requests = RequestStates(pile, (), {}, 0.0)
    service = NodeService(node, pile, requests, costs.shards[node], costs.options.max_sequences)
    for request in requests.ready():
        service.arrive(request, 0.0)
    for number in range(plan.data_parallel):
        gpus = tuple((0, number * plan.tensor_parallel + gpu) for gpu in range(plan.tensor_parallel))
        service.start(RunningReplica(node, number, gpus, 0.0, is_loaded=False))
    step_s = np.inf if plan.data_parallel == 1 else POLL_S
    now_s = 0.0
    while not service.is_done:
        service.advance(now_s, now_s + step_s)
        now_s += step_s
    return np.array(requests.first_token_s), np.array(requests.finish_s)


def _progress_times(first_s: FloatArray, finish_s: FloatArray, output_tokens: IntArray) -> FloatArray:
    """A request writes evenly between its first token and its last."""
    through_s = np.maximum(finish_s - first_s, 1e-6)
    rates = output_tokens / through_s
    times = np.concatenate([first_s, first_s + through_s])
    order = np.argsort(times, kind="stable")
    times = times[order]
    pace = np.cumsum(np.concatenate([rates, -rates])[order])
    written = np.concatenate([[0.0], np.cumsum(pace[:-1] * np.diff(times))])
    return np.asarray(np.interp(GRID * written[-1], written, times))


def _stretched(times_s: FloatArray, factor: float) -> FloatArray:
    """Returns the curve of a pile so many times as large: the ends stay as they are, the middle goes on at its
    pace."""
    low, high = POINTS // 4, 3 * POINTS // 4
    pace_s = (times_s[high] - times_s[low]) / (GRID[high] - GRID[low])
    middle = (GRID[low] + GRID[high]) / 2
    amounts = np.concatenate([GRID[middle >= GRID], GRID[middle < GRID] + (factor - 1.0)]) / factor
    stretched_s = np.where(middle >= GRID, times_s, times_s + (factor - 1.0) * pace_s)
    return np.asarray(np.interp(GRID, amounts, stretched_s))


def _needed(costs: Costs, node: int) -> dict[int, FloatArray]:
    pile = costs.pile
    numbers = pile.of_node(node)
    found = {}
    outputs = pile.output_tokens[numbers]
    parents = [pile.parents_of(r) for r in numbers.tolist()]
    for source in costs.sources[node]:
        if not len(pile.of_node(source)):
            found[source] = np.zeros(POINTS)
            continue
        progress = _progress_at_finish(costs, source)
        first = int(pile.of_node(source)[0])
        wanted = np.array(
            [max((progress[p - first] for p in waits if pile.node[p] == source), default=0.0) for waits in parents]
        )
        order = np.argsort(wanted, kind="stable")
        done = np.cumsum(outputs[order]) / outputs.sum()
        found[source] = wanted[order][np.minimum(np.searchsorted(done, GRID, "left"), len(order) - 1)]
    return found


def _progress_at_finish(costs: Costs, node: int) -> FloatArray:
    """How far the model is when each of its requests is done [requests of the node], on as few GPUs as it needs."""
    pile = _alone(costs.pile, costs.pile.of_node(node))
    first_s, finish_s = _served(costs, node, pile, costs.plans[node][0])
    times = _progress_times(first_s, finish_s, pile.output_tokens)
    return np.asarray(np.interp(finish_s, times, GRID))
