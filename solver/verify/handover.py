"""Who hands over keys and values to whom: networks, conservation of every workload, sizes, seconds and combos."""

from collections import defaultdict
from collections.abc import Iterator

import numpy as np

from sutler.solver.answer.pairing import combos_of
from sutler.solver.plan import KvTransfer, Replica
from sutler.solver.throughput import handover, roofline_of
from sutler.solver.throughput.roles import Handover, exposed
from sutler.solver.verify.numbers import agrees
from sutler.solver.verify.service import layouts_of_replicas
from sutler.solver.verify.view import PlanView

Key = tuple[str, str]


def wrong_handover(view: PlanView) -> Iterator[str]:
    """Transfers and combos that do not follow from replicas, routing and rates."""
    unknown = list(_unknown(view))
    yield from unknown
    if unknown:
        return
    yield from _unbalanced(view)
    yield from _wrong_figures(view)
    plan = view.plan
    if any(rate.workload not in _workloads(view)[r.model] for r in plan.replicas for rate in r.throughput_rps):
        return  # service.py says so
    combos = combos_of(view.problem, plan.rentals, plan.replicas)
    if plan.combos != combos and not view.is_standing:
        yield f"combos: {plan.combos!r}, expected {combos!r}"


def _unknown(view: PlanView) -> Iterator[str]:
    """References that lead nowhere, and pairs that are named twice or are on different networks."""
    replicas = {replica.id: replica for replica in view.plan.replicas}
    workloads = _workloads(view)
    seen = set()
    for index, transfer in enumerate(view.plan.kv_transfers):
        path = f"kv_transfers[{index}]"
        if transfer.workload not in workloads.get(transfer.model, []):
            yield f"{path}: {(transfer.model, transfer.workload)}, expected a workload of the problem"
        for role, name in (("prefill", transfer.prefill), ("decode", transfer.decode)):
            replica = replicas.get(name)
            if replica is None or (replica.role, replica.model) != (role, transfer.model):
                yield f"{path}.{role}: {name!r}, expected a {role} replica of {transfer.model!r}"
        if transfer.prefill in replicas and transfer.decode in replicas:
            joints = {_joint(view, replicas[name]) for name in (transfer.prefill, transfer.decode)}
            if len(joints) > 1:
                expected = "expected both on one network or one machine"
                yield f"{path}: from {transfer.prefill!r} to {transfer.decode!r}, {expected}"
        key = (transfer.model, transfer.workload, transfer.prefill, transfer.decode)
        if key in seen:
            yield f"{path}: {key}, expected each pair once"
        seen.add(key)


def _workloads(view: PlanView) -> dict[str, list[str]]:
    return {name: [workload.name for workload in model.workloads] for name, model in view.models.items()}


def _joint(view: PlanView, replica: Replica) -> object:
    return view.joint(replica.stages[0].rental, replica.stages[0].machine)


def _unbalanced(view: PlanView) -> Iterator[str]:
    """What a prefill replica gets by the routing it hands over, all of it."""
    given: dict[tuple[Key, str], float] = defaultdict(float)
    roles = {replica.id: replica.role for replica in view.plan.replicas}
    for route in view.plan.routing:
        for share in route.shares:
            if roles.get(share.replica) == "prefill":
                given[(route.model, route.workload), share.replica] = share.fraction
    sent: dict[tuple[Key, str], float] = defaultdict(float)
    for transfer in view.plan.kv_transfers:
        sent[(transfer.model, transfer.workload), transfer.prefill] += transfer.fraction
    for key in sorted(given.keys() | sent.keys()):
        if not agrees(given[key], sent[key]):
            workload, name = key
            yield f"kv_transfers of {name!r} for {workload}: {sent[key]!r} handed over, {given[key]!r} routed to it"


def _wrong_figures(view: PlanView) -> Iterator[str]:
    links = _links(view)
    for index, transfer in enumerate(view.plan.kv_transfers):
        kv_gb, exposed_s = _figures(view, transfer, links)
        for name, stated, expected in (
            ("kv_gb", transfer.kv_gb, kv_gb),
            ("exposed_s", transfer.exposed_s, exposed_s),
        ):
            if (stated is None) != (expected is None) or not agrees(stated or 0.0, expected or 0.0):
                yield f"kv_transfers[{index}].{name}: {stated!r}, expected {expected!r}"


def _links(view: PlanView) -> dict[str, Handover | None]:
    """The links by replica."""
    names = {transfer.prefill for transfer in view.plan.kv_transfers}
    names |= {transfer.decode for transfer in view.plan.kv_transfers}
    return {
        replica.id: handover(view.problem, view.served(replica), layouts_of_replicas(view, [number]))
        for number, replica in enumerate(view.plan.replicas)
        if replica.id in names
    }


def _figures(
    view: PlanView, transfer: KvTransfer, links: dict[str, Handover | None]
) -> tuple[float | None, float | None]:
    prefill, decode = links[transfer.prefill], links[transfer.decode]
    model = view.models[transfer.model]
    if prefill is None or decode is None or model.spec is None:
        return None, None
    workload = [w.name for w in model.workloads].index(transfer.workload)
    slower_s = max(float(prefill.kv_s[0, workload]), float(decode.kv_s[0, workload]))
    latency_s = roofline_of(view.problem).calibration.priors.cross_machine_hop_latency_s
    prefill_s = prefill.prefill_s[:, workload]
    seconds = exposed(np.array([slower_s]), prefill_s, model.spec.layers, latency_s)
    return float(prefill.kv_gb[workload]), float(seconds[0])
