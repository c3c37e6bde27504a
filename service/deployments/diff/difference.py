"""From two plans to what has to be done: which machines to keep, start and stop, and which requests go elsewhere.

Pure. In order: start and check, re-route, stop; so nothing is taken away before what replaces it serves.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from math import fsum
from typing import Any, Final

from sutler.service.deployments.diff import words
from sutler.service.deployments.diff.capacity import capacity_steps
from sutler.service.deployments.diff.matching import KeyedFleet, Matching, fleet_of
from sutler.service.deployments.diff.offers import Machines, OfferChange, offer_changes
from sutler.service.deployments.diff.schema import (
    DIFF_SCHEMA,
    REROUTE,
    START,
    STOP,
    CostChange,
    DiffDocument,
    KeptMachines,
    Reroute,
    StartedMachines,
    StoppedMachines,
)
from sutler.service.deployments.diff.stable_ids import KeyedPlan, KeyedRoute, keyed, power_caps
from sutler.service.deployments.holdings.schemas import HoldingDocument
from sutler.service.documents.plan import PlanDocument

NOISE: Final = 1e-6  # shares that differ by less come from rounding in the solver
DIGITS: Final = 12  # of USD and shares: what follows them comes from the order of sums


def difference(
    before: PlanDocument | None,
    after: PlanDocument,
    *,
    reason: str,
    held: Sequence[HoldingDocument] | None = None,
    of_running: bool = False,
) -> DiffDocument:
    """What has to be done to have `after` where there is `before`, or nothing at all.

    `held` is all that is really rented: what of it no plan rents is to be stopped, and what `before` rents beyond it
    is gone. None: nobody said, so `before` is what is rented. Machines kept and started are those of `after`;
    machines kept, stopped and gone are those of `before`, and what else is held. `of_running`: `after` was made from
    what is held and says so (`rentals[].held`): what else it rents is new, be it of an offer that is held too, as one
    that has become cheaper.
    """
    old, new = fleet_of(before), fleet_of(after)
    matching, changes = offer_changes(old, new, held, of_running=of_running and held is not None)
    origin: dict[str, Any] = {"from": None if before is None else before.revision}  # a keyword of Python
    return DiffDocument(
        schema=DIFF_SCHEMA,
        **origin,
        to=after.revision,
        reason=reason,
        usd_per_hour=_cost(before, after),
        keep=tuple(_kept(change, old, new, matching) for change in changes if change.kept.keys),
        start=tuple(_started(change, new) for change in changes if change.started.keys),
        stop=tuple(item for change in changes for item in _stopped(change, old, has_before=before is not None)),
        reroute=tuple(_reroutes(before, after, matching)),
        capacity=tuple(capacity_steps(before, after, old, new, matching, changes)),
    )


def _cost(before: PlanDocument | None, after: PlanDocument) -> CostChange:
    old, new = (0.0 if plan is None else _plan_cost(plan) for plan in (before, after))
    return CostChange(before=_tidy(old), after=_tidy(new), change=_tidy(new - old))


def _plan_cost(plan: PlanDocument) -> float:
    return fsum(rental.price_usd_per_hour * rental.count for rental in plan.rentals)


def _tidy(value: float) -> float:
    """A value without its last digits, which are noise, and without a negative zero."""
    return round(value, DIGITS) + 0.0


def _kept(change: OfferChange, before: KeyedFleet, after: KeyedFleet, matching: Matching) -> KeptMachines:
    running = _replicas_on(after, change.kept.keys)
    restart = [key for key in running if key not in matching.engines]
    recapped = _recapped(change, before, after, matching)
    bent = {role: _ids(after, keys) for role, keys in _bent(running, before, after, matching).items()}
    reason = words.kept(
        goes_on=_ids(after, (key for key in running if key in matching.engines)),
        restart=_ids(after, restart),
        found=change.found,
        paid=change.paid,
        now=change.kept.prices,
        recapped=recapped,
        bent=bent,
    )
    return KeptMachines(
        **_offer(change, change.kept),
        reason=reason,
        phase=REROUTE if restart or recapped or bent else None,
        replicas=_ids(after, running),
        restart=_ids(after, restart),
    )


def _bent(
    running: Iterable[str], before: KeyedFleet, after: KeyedFleet, matching: Matching
) -> dict[tuple[str, str], list[str]]:
    """The replicas whose engine runs on in another role, by (role, role before)."""
    found: dict[tuple[str, str], list[str]] = {}
    for key in running:
        if key in matching.engines:
            roles = after.replicas[key].replica.role, before.replicas[matching.engines[key]].replica.role
            if roles[0] != roles[1]:
                found.setdefault(roles, []).append(key)
    return found


def _recapped(change: OfferChange, before: KeyedFleet, after: KeyedFleet, matching: Matching) -> int:
    """How many of the kept machines get other power caps than they have."""
    had, get = power_caps(before.replicas.values()), power_caps(after.replicas.values())
    return sum(get.get(key, {}) != had.get(matching.machines.get(key, ""), {}) for key in change.kept.keys)


def _started(change: OfferChange, after: KeyedFleet) -> StartedMachines:
    replicas = _ids(after, _replicas_on(after, change.started.keys))
    capped = len(power_caps(after.replicas.values()).keys() & set(change.started.keys))
    reason = words.started(replicas, is_gone=bool(change.gone.keys), capped=capped)
    return StartedMachines(**_offer(change, change.started), reason=reason, phase=START, replicas=replicas)


def _stopped(change: OfferChange, before: KeyedFleet, *, has_before: bool) -> Iterator[StoppedMachines]:
    """What is given back, what is gone already, and what no plan knows of: one entry each."""
    ran = _ids(before, _replicas_on(before, change.stopped.keys))
    for machines, reason, held in (
        (change.stopped, words.stopped(ran), True),
        (change.gone, words.gone(), False),
        (change.unplanned, words.unplanned(has_before=has_before), True),
    ):
        if machines.prices:
            yield StoppedMachines(**_offer(change, machines), reason=reason, phase=STOP, replicas=(), held=held)


def _offer(change: OfferChange, machines: Machines) -> dict[str, Any]:
    """The fields that all entries for machines share."""
    names = ("provider", "offer_id", "contract", "gpu", "gpus")
    return {
        "key": change.key,
        **{name: getattr(change.offer, name) for name in names},
        "count": len(machines.prices),
        "usd_per_hour": _tidy(fsum(machines.prices)),
        "machines": machines.keys,
    }


def _replicas_on(fleet: KeyedFleet, machines: Iterable[str]) -> list[str]:
    """Their keys, each once."""
    return list(dict.fromkeys(replica for machine in machines for replica in fleet.on.get(machine, ())))


def _ids(fleet: KeyedFleet, replicas: Iterable[str]) -> tuple[str, ...]:
    return tuple(fleet.replicas[key].replica.id for key in replicas)


def _reroutes(before: PlanDocument | None, after: PlanDocument, matching: Matching) -> Iterator[Reroute]:
    """Yields workloads whose requests go elsewhere; an engine that runs on is the same place under its new key."""
    parts = keyed(after)
    old = {} if before is None else _routes(keyed(before))
    new = _routes(parts)
    ids = {part.key: part.replica.id for part in parts.replicas}
    names = _names_of_earlier(matching.engines, set(ids))
    for key in sorted({*old, *new}):
        shares = {names(k): share for k, share in old[key].fractions.items()} if key in old else {}
        wanted = dict(new[key].fractions) if key in new else {}
        moved = _moved(shares, wanted)
        if moved > NOISE or not shares or not wanted:
            part = (new if key in new else old)[key]
            why = words.handed_over if part.is_handed_over else words.rerouted
            yield Reroute(
                key=key,
                model=part.route.model,
                workload=part.route.workload,
                before=shares,
                after=wanted,
                replica_ids={k: ids[k] for k in wanted},
                moved_fraction=moved,
                usd_per_hour=0.0,
                reason=why(
                    moved, is_new=not shares, is_over=not wanted, to=[ids[k] for k, share in wanted.items() if share]
                ),
                phase=REROUTE,
            )


def _routes(parts: KeyedPlan) -> dict[str, KeyedRoute]:
    return {route.key: route for route in (*parts.routes, *parts.answers)}


def _names_of_earlier(engines: Mapping[str, str], keys: set[str]) -> Callable[[str], str]:
    """Returns how the entries call a replica of the earlier plan: an engine that runs on has its later key.

    Where the key of one that goes is, in the later plan, that of another engine that runs on, `/before` is added.
    """
    new_keys = {earlier: key for key, earlier in engines.items()}
    taken = keys & set(engines)

    def name(key: str) -> str:
        return new_keys.get(key, f"{key}/before" if key in taken else key)

    return name


def _moved(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    gained = fsum(max(0.0, share - before.get(key, 0.0)) for key, share in after.items())
    lost = fsum(max(0.0, share - after.get(key, 0.0)) for key, share in before.items())
    return _tidy(min(1.0, max(gained, lost)))
