"""What plans say of prefill and decode replicas: who hands over to whom, and the same read as GPU Combos.

Flow: describe.py describes a fleet -> handed_over, combos_of (here) -> Plan.kv_transfers, Plan.combos.

On every network the prefill replicas of a workload produce as many caches as the decode replicas take. Any way to
pair them carries the same; they are paired in order, each filled before the next, which makes the fewest connections
and the same ones for all workloads. What a fleet that runs hands over already stays, as far as both sides still have
it.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from sutler.solver import throughput
from sutler.solver.answer.packing import Placement
from sutler.solver.answer.routing import Routing
from sutler.solver.candidates.enumerate import AGGREGATED, DECODE, ROLES, layouts_of
from sutler.solver.market.pools import network_of
from sutler.solver.plan import Combo, KvTransfer, Rental, Replica
from sutler.solver.polytope.milp import Allocation
from sutler.solver.polytope.rows import Polytope
from sutler.solver.problem import Problem, ServedModel
from sutler.solver.throughput.architecture import PRECISION_BYTES
from sutler.solver.throughput.roles import exposed
from sutler.solver.units import BYTES_PER_GB, FLOPS_PER_TFLOP, SECONDS_PER_HOUR

_LEAST_FRACTION = 1e-12  # of the requests: what differences of floats leave


@dataclass(frozen=True, slots=True)
class Side:
    """One replica of a pairing: its place in the allocation, and the share of the workload that it takes."""

    name: str
    at: int
    fraction: float


def handed_over(
    polytope: Polytope, allocation: Allocation, routing: Routing, placement: Placement
) -> tuple[KvTransfer, ...]:
    """Every pair of prefill and decode replicas that share a workload; empty without such replicas."""
    role = polytope.candidates.role[allocation.candidate]
    if (role == AGGREGATED).all():
        return ()
    links = [_Links(polytope, int(candidate)) for candidate in allocation.candidate]
    found = []
    for row, demand in enumerate(polytope.demands):
        model = polytope.problem.models[demand.model]
        workload = model.workloads[demand.workload].name
        of_workload = (one for one in placement.handed_over if (one.model, one.workload) == (model.name, workload))
        before = {(one.prefill, one.decode): one.fraction for one in of_workload}
        for prefill, decode in _sides(polytope, allocation, routing, placement, row):
            for first, second, fraction in in_order(prefill, decode, before):
                kv_gb, exposed_s = links[first.at].to(links[second.at], demand.workload)
                found.append(KvTransfer(model.name, workload, first.name, second.name, fraction, kv_gb, exposed_s))
    return tuple(found)


def in_order(
    prefill: Sequence[Side], decode: Sequence[Side], before: Mapping[tuple[str, str], float]
) -> Iterator[tuple[Side, Side, float]]:
    """Both sides filled one after the other (the north-west corner of the transport problem).

    `before`: what went from one name to another until now, which comes first.
    """
    left, right = [side.fraction for side in prefill], [side.fraction for side in decode]
    moved: dict[tuple[int, int], float] = defaultdict(float)

    def move(i: int, j: int, most: float) -> None:
        fraction = min(left[i], right[j], most)
        moved[i, j] += fraction
        left[i] -= fraction
        right[j] -= fraction

    for i, j in product(range(len(left)), range(len(right))):
        move(i, j, before.get((prefill[i].name, decode[j].name), 0.0))
    i = j = 0
    while i < len(left) and j < len(right):
        move(i, j, np.inf)
        if left[i] <= right[j]:
            i += 1
        else:
            j += 1
    for (i, j), fraction in sorted(moved.items()):
        if fraction > _LEAST_FRACTION:
            yield prefill[i], decode[j], fraction


def _sides(
    polytope: Polytope, allocation: Allocation, routing: Routing, placement: Placement, row: int
) -> Iterator[tuple[list[Side], list[Side]]]:
    """Prefill and decode replicas of one demand, network by network."""
    position = {int(c): index for index, c in enumerate(allocation.candidate)}
    workload = polytope.demands[row].workload
    by_flow: dict[int, tuple[list[Side], list[Side]]] = defaultdict(lambda: ([], []))
    for name, replica in zip(placement.names, placement.replicas, strict=True):
        at = position[replica.candidate]
        role, fraction = int(polytope.candidates.role[replica.candidate]), float(routing.fraction[row, at])
        if role != AGGREGATED and fraction > 0:
            side = Side(name, at, fraction / int(allocation.replicas[at]))
            by_flow[int(polytope.flow_of[replica.candidate, workload])][role == DECODE].append(side)
    yield from by_flow.values()


class _Links:
    """What handing over takes on one candidate's side."""

    def __init__(self, polytope: Polytope, candidate: int) -> None:
        one = polytope.candidates.take(np.array([candidate]))
        self._model: ServedModel = one.served(polytope.problem, 0)
        self._latency_s = throughput.roofline_of(polytope.problem).calibration.priors.cross_machine_hop_latency_s
        layers = one.layers if int(one.layers.sum()) > 0 else None
        role, cap = ROLES[int(one.role[0])], float(one.power_cap_fraction[0])
        layouts = layouts_of(polytope.problem, polytope.supply.pools, one, layers, role, cap)
        self._found = throughput.handover(polytope.problem, self._model, layouts)

    def to(self, other: "_Links", workload: int) -> tuple[float | None, float | None]:
        """Returns (10^9 bytes of a prompt, seconds that its prefill does not hide) over the slower of the two
        links."""
        if self._found is None or other._found is None or self._model.spec is None:
            return None, None
        transfer_s = np.maximum(self._found.kv_s[:, workload], other._found.kv_s[:, workload])
        seconds = exposed(transfer_s, self._found.prefill_s[:, workload], self._model.spec.layers, self._latency_s)
        return float(self._found.kv_gb[workload]), float(seconds[0])


def combos_of(problem: Problem, rentals: Sequence[Rental], replicas: Sequence[Replica]) -> tuple[Combo, ...]:
    """One per model and network, or machine, on which some replicas prefill and others decode."""
    apart: dict[tuple[str, str], list[Replica]] = defaultdict(list)
    networks = {(one.provider, one.offer_id, one.contract): network_of(one) for one in problem.offers}
    for replica in replicas:
        if replica.role != "aggregated":
            at = replica.stages[0]
            rental = rentals[at.rental]
            network = networks[rental.provider, rental.offer_id, rental.contract]
            machine = f"{rental.provider}:{rental.offer_id}, rentals[{at.rental}], machine {at.machine}"
            apart[replica.model, network or machine].append(replica)
    models = {model.name: model for model in problem.models}
    return tuple(
        _combo(problem, models[model], network, rentals, members) for (model, network), members in apart.items()
    )


def _combo(
    problem: Problem, model: ServedModel, network: str, rentals: Sequence[Rental], members: Sequence[Replica]
) -> Combo:
    prefill, decode = ([r for r in members if r.role == role] for role in ("prefill", "decode"))
    usd = [_usd_per_hour(rentals, side) for side in (prefill, decode)]
    is_priced = min(usd) > 0
    coefficients = _coefficients(model.at(decode[0].precision if decode else None), decode)
    tokens_per_usd = peak_tokens_per_usd = None
    if is_priced:
        prompts, answers = _tokens_per_s(model, prefill), _tokens_per_s(model, decode)
        tokens_per_usd = (prompts / usd[0] + answers / usd[1]) * SECONDS_PER_HOUR
    if is_priced and coefficients is not None:
        a1, a2 = coefficients
        flops = sum(n * (problem.gpus[gpu].peak_tflops_bf16_dense or 0.0) for gpu, n in _gpus(prefill))
        moved = sum(n * (problem.gpus[gpu].memory_bandwidth_gb_per_s or 0.0) for gpu, n in _gpus(decode))
        rates = a1 * flops * FLOPS_PER_TFLOP / usd[0] + a2 * moved * BYTES_PER_GB / usd[1]
        peak_tokens_per_usd = rates * SECONDS_PER_HOUR
    return Combo(
        model=model.name,
        network=network,
        prefill_replicas=len(prefill),
        decode_replicas=len(decode),
        prefill_gpus=_gpus(prefill),
        decode_gpus=_gpus(decode),
        tokens_per_usd=tokens_per_usd,
        a1_tokens_per_flop=None if coefficients is None else coefficients[0],
        a2_tokens_per_byte=None if coefficients is None else coefficients[1],
        peak_tokens_per_usd=peak_tokens_per_usd,
    )


def _gpus(replicas: Sequence[Replica]) -> tuple[tuple[str, int], ...]:
    counts: Counter[str] = Counter()
    for replica in replicas:
        for stage in replica.stages:
            counts[stage.gpu] += stage.gpus
    return tuple(sorted(counts.items()))


def _usd_per_hour(rentals: Sequence[Rental], replicas: Sequence[Replica]) -> float:
    """The $/h of the GPUs that they use, at their share of the machines' prices."""
    stages = [stage for replica in replicas for stage in replica.stages]
    return sum(rentals[s.rental].price_usd_per_hour / rentals[s.rental].gpus * s.gpus for s in stages)


def _tokens_per_s(model: ServedModel, replicas: Sequence[Replica]) -> float:
    """Prompt tokens of prefill replicas, answer tokens of decode replicas."""
    tokens = {("prefill", workload.name): workload.input_tokens for workload in model.workloads} | {
        ("decode", workload.name): workload.output_tokens for workload in model.workloads
    }
    return sum(rate.rps * tokens[r.role, rate.workload] for r in replicas for rate in r.throughput_rps)


def _coefficients(model: ServedModel, decode: Sequence[Replica]) -> tuple[float, float] | None:
    """Returns (A1 in tokens/FLOP, A2 in tokens/byte) of the mean request that is handed over (Cauchy, eqs. 1, 2, 6,
    7, 12 and 13), at the decode replicas' mean batch. None where the architecture or a batch is unknown, or all
    idle."""
    spec, batches = model.spec, [replica.max_batch for replica in decode if replica.max_batch]
    if spec is None or not batches:
        return None
    tokens = {workload.name: workload for workload in model.workloads}
    rates = [(rate.rps, tokens[rate.workload]) for replica in decode for rate in replica.throughput_rps]
    whole = sum(rps for rps, _ in rates)
    if whole <= 0:
        return None
    r_in = sum(rps * workload.input_tokens for rps, workload in rates) / whole
    r_out = sum(rps * workload.output_tokens for rps, workload in rates) / whole
    layers, hidden, intermediate = spec.layers, spec.hidden_size, spec.intermediate_size
    c1 = 4.0 * layers * hidden
    c2 = 8.0 * layers * hidden**2 + 6.0 * layers * hidden * intermediate
    weights = 2.0 * spec.vocab_size * hidden + (4.0 * hidden**2 + 3.0 * hidden * intermediate + 2.0 * hidden) * layers
    c3 = PRECISION_BYTES[model.precision] * weights
    c4 = 2.0 * PRECISION_BYTES[model.kv_precision] * layers * spec.kv_heads * spec.head_dim
    batch = sum(batches) / len(batches)
    return 1.0 / (c1 * r_in + c2), 1.0 / (c4 * r_out / 2.0 + c4 * r_in + c3 / batch)
