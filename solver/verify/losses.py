"""What a plan says of losses: which replicas fall, that the routing of the rest keeps its limits, and that nothing
that was to be survived is missing. Every loss is routed anew.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from sutler.solver.market.losses import KINDS, Whereabouts, falls, machine_names, names_of
from sutler.solver.plan import Loss, Replica, WorkloadRate
from sutler.solver.problem import LossKind
from sutler.solver.verify.carried import most_carried
from sutler.solver.verify.numbers import RATE_TOLERANCE, agrees
from sutler.solver.verify.service import Sustained, sustained_rates
from sutler.solver.verify.view import PlanView

_LOAD_TOLERANCE: Final = 1e-5  # of two routings by different programs


def wrong_losses(view: PlanView, sustained: dict[str, Sustained]) -> Iterator[str]:
    """Losses that are missing, that take away other replicas, or after which less is carried than stated."""
    if not view.rates_rps or (view.is_standing and not view.plan.losses):
        return  # totals.py says that there is no value; what runs may be planned before plans stated losses
    stated = {(loss.kind, loss.name): loss for loss in view.plan.losses}
    if len(stated) < len(view.plan.losses):
        yield f"losses: {[(loss.kind, loss.name) for loss in view.plan.losses]}, expected each once"
        return
    whole, fallen = True, {kind: _fallen(view, kind) for kind in KINDS}
    for kind in KINDS:
        expected, found = fallen[kind], {name for own, name in stated if own == kind}
        if kind in view.problem.resilience.survive:
            wanted = set(expected)
        else:
            wanted = found & set(expected) if len(found) == 1 or not expected else set(expected)
        if found != wanted:
            whole = False
            yield f"losses: {kind} {sorted(found)}, expected {sorted(wanted)}"
        for name in sorted(found & wanted):
            if sorted(stated[kind, name].replicas) != sorted(expected[name]):
                whole = False
                yield (
                    f"losses {kind} {name!r}.replicas: {sorted(stated[kind, name].replicas)}, expected "
                    f"{sorted(expected[name])}"
                )
    if whole:
        yield from _wrong_rest(view, sustained, fallen)


def _fallen(view: PlanView, kind: LossKind) -> dict[str, set[str]]:
    """The replicas that fall with everything of a kind that can be lost."""
    where = [Whereabouts(offer.provider, offer.region, offer.contract) for offer in view.offers]
    if kind != "machine":
        return {
            name: {
                replica.id
                for replica in view.plan.replicas
                if any(falls(kind, name, where[stage.rental]) for stage in replica.stages)
            }
            for name in names_of(kind, where)
        }
    names = machine_names(view.plan.rentals, [offer.machine_id for offer in view.offers])
    fallen: dict[str, set[str]] = {name: set() for name in names.values()}
    for replica in view.plan.replicas:
        for stage in replica.stages:
            fallen[names[stage.rental, stage.machine]].add(replica.id)
    return fallen


def _wrong_rest(
    view: PlanView, sustained: dict[str, Sustained], fallen_with: Mapping[LossKind, Mapping[str, set[str]]]
) -> Iterator[str]:
    """Checks what is carried: by the routing that is stated, if any, and that it is no more than any carries."""
    asked = view.problem.resilience
    least = asked.load_fraction * (1 - RATE_TOLERANCE)
    rates = {replica.id: sustained[replica.id].rps for replica in view.plan.replicas}
    kinds = {one.id: (one.model, one.role, tuple(rates[one.id].items())) for one in view.plan.replicas}
    roles = [{one.id for one in view.plan.replicas if one.role == role} for role in ("prefill", "decode")]
    known: dict[frozenset[tuple[object, int]], float] = {}

    def most_after(fallen: set[str]) -> float:
        """Where prompts and answers run apart, no more than either carries. Replicas alike count as one."""
        key = frozenset(Counter(kinds[name] for name in fallen).items())
        if key not in known:
            without = {frozenset(fallen | ids) for ids in roles}
            known[key] = min([1.0, *(most_carried(view, rates, view.rates_rps, without=each) for each in without)])
        return known[key]

    for loss in view.plan.losses:
        path = f"losses {loss.kind} {loss.name!r}"
        if not 0.0 <= loss.carried_fraction <= 1.0:
            yield f"{path}.carried_fraction: {loss.carried_fraction!r}, expected 0 to 1"
        if loss.kind in asked.survive and loss.carried_fraction < least and not view.is_standing:
            yield f"{path}.carried_fraction: {loss.carried_fraction!r}, expected at least {asked.load_fraction!r}"
        most = most_after(set(loss.replicas))
        if loss.carried_fraction > most * (1 + _LOAD_TOLERANCE):
            yield f"{path}.carried_fraction: {loss.carried_fraction!r}, expected no more than {most!r}"
        if loss.kind not in asked.survive:
            worst = min(most_after(fallen) for fallen in fallen_with[loss.kind].values())
            if loss.carried_fraction > worst + _LOAD_TOLERANCE:
                yield f"{path}.carried_fraction: {loss.carried_fraction!r}, expected the worst of its kind, {worst!r}"
        if bool(loss.routing) != (loss.kind in asked.survive):
            yield f"{path}.routing: {len(loss.routing)} routes, expected some exactly where it is to be survived"
    yield from _overloaded(view)


def _overloaded(view: PlanView) -> Iterator[str]:
    """Replicas that a routing after a loss gives more than keeps their limits; all losses are rated at once."""
    replicas, pieces = [], []
    for loss in view.plan.losses:
        left = {replica.id: number for number, replica in enumerate(view.plan.replicas)}
        for fallen in loss.replicas:
            left.pop(fallen, None)
        given = _given(view, loss)
        for name in sorted({replica for replica, _ in given} - set(left)):
            yield f"losses {loss.kind} {loss.name!r}.routing: share for {name!r}, expected one that is left"
        for name, number in left.items():
            own = tuple(WorkloadRate(w, rps) for (replica, w), rps in given.items() if replica == name and rps > 0)
            if own:
                replicas.append(_named(view.plan.replicas[number], f"{name} after {loss.kind} {loss.name!r}", own))
                pieces.append(view.pieces[number])
    if not replicas:
        return
    after = replace(view, plan=replace(view.plan, replicas=tuple(replicas)), pieces=tuple(pieces))
    found = sustained_rates(after)
    for replica in replicas:
        name, known = replica.id, found[replica.id]
        lacking = [rate.workload for rate in replica.throughput_rps if known.rps[rate.workload] <= 0]
        if lacking:
            yield f"losses: {name} serves {lacking}, expected none where its rate is 0"
            continue
        load = sum(rate.rps / known.rps[rate.workload] for rate in replica.throughput_rps)
        if load > known.most_load_fraction * (1 + RATE_TOLERANCE):
            yield f"losses: {name} has a load of {load!r}, expected at most {known.most_load_fraction!r}"


def _named(replica: Replica, name: str, rates: tuple[WorkloadRate, ...]) -> Replica:
    return replace(replica, id=name, throughput_rps=rates)


def _given(view: PlanView, loss: Loss) -> Mapping[tuple[str, str], float]:
    """Requests/s by replica and workload as the routing after the loss sends the load that is carried then."""
    found: dict[tuple[str, str], float] = defaultdict(float)
    for route in loss.routing:
        rps = view.rates_rps.get((route.model, route.workload), 0.0) * loss.carried_fraction
        for share in route.shares:
            found[share.replica, route.workload] += share.fraction * rps
        total = sum(share.fraction for share in route.shares)
        if route.shares and not agrees(total, 1.0):
            found[f"(fractions sum to {total!r})", route.workload] = rps
    for transfer in loss.kv_transfers:
        rps = view.rates_rps.get((transfer.model, transfer.workload), 0.0) * loss.carried_fraction
        found[transfer.decode, transfer.workload] += transfer.fraction * rps
    return found
