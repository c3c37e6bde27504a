"""GPU Combos (Cauchy, sections 3.2 and 3.3.1): what each of them serves, costs and is worth.

A combo serves one workload of one model, as Cauchy profiles each model and dataset. It is i prefill and j decode
replicas on one network, from 1:1 to 2:6, or one aggregated replica; 2:2, 2:4 and 2:6, and two aggregated replicas,
are two of a smaller combo each. All replicas of a side have one layout: a machine's GPUs without pipeline, of the
degrees that the GPU type has the one with the most requests/s per GPU. The same GPU with other links is another type.

Goodput is that of the slower side, from the rates that sutler plans with, which are within all latency limits,
network included. Cost-efficiency is eq. 14 with these rates, price being watts for min_power:

    C = prompt tokens/h of a prefill replica / its $/h  +  answer tokens/h of a decode replica / its $/h

so that it is the same for all counts. An aggregated replica is one of either side for half of its price, which it is
worth where both take as long. Of a pair of types the direction with the lower C is dropped where the other serves at
all ("Pareto filtering"). Cauchy's ranking ends in a short list; here all combos are passed on.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd

import numpy as np

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.candidates.enumerate import AGGREGATED, DECODE, PREFILL, kv_network
from sutler.solver.polytope.rows import Polytope
from sutler.solver.strategies.rules import least_expense
from sutler.solver.units import SECONDS_PER_HOUR

COUNTS = tuple((i, j) for i in (1, 2) for j in range(1, 7) if gcd(i, j) == 1)

_FREE_SHARE = 1e-6  # of the dearest replica's price counts as the price of one that is free


@dataclass(frozen=True, slots=True)
class Combos:
    """N combos; rates in the polytope's scale.

    demand [N]; first, second [N]: candidates of the prefill and the decode replicas, of an aggregated combo the same;
    counts [N, 2]: how many of each, of an aggregated combo (1, 0)
    goodput [N]: requests/s; price [N]: $/h or watts; tokens_per_usd [N]: cost-efficiency
    """

    demand: IntArray
    first: IntArray
    second: IntArray
    counts: IntArray
    goodput: FloatArray
    price: FloatArray
    tokens_per_usd: FloatArray

    def __len__(self) -> int:
        return len(self.demand)


def combos_of(polytope: Polytope) -> Combos:
    """All that some replicas of the polytope make up."""
    price = _price(polytope)
    found = [combo for row in range(len(polytope.demands)) for combo in _of_demand(polytope, row, price)]
    columns = np.array(found, dtype=np.float64).reshape(len(found), 8).T
    demand, first, second, i, j = (column.astype(np.int64) for column in columns[:5])
    return Combos(demand, first, second, np.column_stack([i, j]), *columns[5:])


_Combo = tuple[float, ...]  # demand, first, second, counts of both, goodput, price, tokens per USD


def _of_demand(polytope: Polytope, row: int, price: FloatArray) -> Iterator[_Combo]:
    demand = polytope.demands[row]
    workload = polytope.problem.models[demand.model].workloads[demand.workload]
    rate = polytope.rate[:, demand.workload]
    worth = rate * polytope.scale_rps * SECONDS_PER_HOUR / price
    prompts, answers = worth * workload.input_tokens, worth * workload.output_tokens
    chosen = _layouts(polytope, row)
    network, role, pool = (
        kv_network(polytope.candidates, polytope.supply),
        polytope.candidates.role,
        polytope.candidates.pool[:, 0],
    )
    for c in chosen[role[chosen] == AGGREGATED].tolist():
        yield row, c, c, 1, 0, rate[c], price[c], 2.0 * (prompts[c] + answers[c])
    for site in np.unique(network[chosen][network[chosen] >= 0]):
        here = chosen[network[chosen] == site]
        sides = [{int(pool[c]): int(c) for c in here[role[here] == side]} for side in (PREFILL, DECODE)]
        efficiency = {(p, d): prompts[a] + answers[b] for p, a in sides[0].items() for d, b in sides[1].items()}
        for (p, d), tokens_per_usd in efficiency.items():
            if efficiency.get((d, p), 0.0) > tokens_per_usd:
                continue
            a, b = sides[0][p], sides[1][d]
            for i, j in COUNTS:
                yield row, a, b, i, j, min(i * rate[a], j * rate[b]), i * price[a] + j * price[b], tokens_per_usd


def _layouts(polytope: Polytope, row: int) -> IntArray:
    """Returns of every pool and role the candidate with the most requests/s of the workload per GPU."""
    demand, candidates = polytope.demands[row], polytope.candidates
    rate = polytope.rate[:, demand.workload]
    pool = polytope.candidates.pool[:, 0]
    best: dict[tuple[int, int], int] = {}
    for c in np.flatnonzero((candidates.model == demand.model) & (rate > 0)).tolist():
        key = (int(candidates.role[c]), int(pool[c]))
        if key not in best or _per_gpu(polytope, rate, c) > _per_gpu(polytope, rate, best[key]):
            best[key] = c
    return np.array(list(best.values()), dtype=np.int64)


def _per_gpu(polytope: Polytope, rate: FloatArray, candidate: int) -> float:
    return float(rate[candidate] / polytope.candidates.piece_size[candidate, 0])


def _price(polytope: Polytope) -> FloatArray:
    """[C] the price of one replica by the cheapest GPUs of its pool: what it has to be worth, in $/h or watts."""
    price = least_expense(polytope)
    dearest = float(price.max(initial=0.0)) or 1.0
    return np.maximum(price, _FREE_SHARE * dearest)
