"""What a simulation loses: which replicas of a plan fall with what is named, and how requests are sent from then on.

Flow: `--lose provider=vastai@120`, or a question's `lose` -> lost (here) -> simulated.py -> the solver's simulate.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, cast, get_args

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.plan import KvTransferDocument, LossDocument, PlanDocument, RouteDocument
from sutler.solver.market.losses import machine_names
from sutler.solver.problem import LossKind

USUAL_DETECTION_S: Final = 60.0
_KINDS: Final = cast("tuple[str, ...]", get_args(LossKind))


@dataclass(frozen=True, slots=True)
class Losing:
    """What is lost when: `kind=name@seconds`, or `interruptible@seconds`.

    `detection_s` None: as the plan says, else a minute.
    """

    kind: LossKind
    name: str
    at_s: float
    detection_s: float | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """What falls at `at_s`, and how requests are sent from `detected_s` on."""

    loss: LossDocument
    at_s: float
    detected_s: float


def losing_of(text: str, detection_s: float | None = None, *, field: str = "lose") -> Losing:
    """Reads `provider=vastai@120`. Raises DocumentError."""
    what, _, seconds = text.rpartition("@")
    kind, _, name = what.partition("=")
    try:
        at_s = float(seconds)
    except ValueError:
        at_s = -1.0
    if kind not in _KINDS or not 0 <= at_s < float("inf") or (not name and kind != "interruptible"):
        kinds = ", ".join(one for one in _KINDS if one != "interruptible")
        remedy = f"must be KIND=NAME@SECONDS, as provider=vastai@120, of the kinds {kinds}, or interruptible@SECONDS"
        raise DocumentError.of(field, remedy, value=text)
    return Losing(cast("LossKind", kind), name or kind, at_s, detection_s)


def lost(plan: PlanDocument, losing: Losing, *, field: str = "lose") -> Lost:
    """The loss as the plan states it; where it has no routing for it, shares fall to the replicas that are left.

    Raises DocumentError where the plan rents nothing of the name.
    """
    stated = {one.name: one for one in plan.losses if one.kind == losing.kind}
    fallen = _fallen(plan, losing.kind) | {name: loss.replicas for name, loss in stated.items()}
    if losing.name not in fallen:
        known = ", ".join(sorted(fallen)) or "nothing"
        remedy = f"is no {losing.kind} that this plan rents from, or that it states a loss of: it knows {known}"
        raise DocumentError.of(field, remedy, value=losing.name)
    found = stated.get(losing.name)
    if found is None or not found.routing:
        replicas = tuple(fallen[losing.name])
        found = LossDocument(
            kind=losing.kind,
            name=losing.name,
            replicas=replicas,
            carried_fraction=0.0 if found is None else found.carried_fraction,
            routing=tuple(_left(route, set(replicas)) for route in plan.routing),
            kv_transfers=tuple(_transfers_left(plan.kv_transfers, set(replicas))),
        )
    usual_s = USUAL_DETECTION_S if plan.resilience is None else plan.resilience.detection_s
    detection_s = usual_s if losing.detection_s is None else losing.detection_s
    return Lost(found, losing.at_s, losing.at_s + detection_s)


def _fallen(plan: PlanDocument, kind: LossKind) -> dict[str, tuple[str, ...]]:
    """Replicas by the name of what they fall with, as far as the rentals say; regions they do not."""
    machines = machine_names(plan.rentals, [rental.machine_id for rental in plan.rentals])
    names = {
        at: {
            "provider": plan.rentals[at[0]].provider,
            "interruptible": plan.rentals[at[0]].contract if plan.rentals[at[0]].contract == kind else "",
            "machine": machine,
            "place": "",
        }[kind]
        for at, machine in machines.items()
    }
    found: dict[str, list[str]] = defaultdict(list)
    for replica in plan.replicas:
        for name in {names[stage.rental, stage.machine] for stage in replica.stages} - {""}:
            found[name].append(replica.id)
    return {name: tuple(replicas) for name, replicas in found.items()}


def _left(route: RouteDocument, fallen: set[str]) -> RouteDocument:
    left = {name: share for name, share in route.fractions.items() if name not in fallen}
    total = sum(left.values())
    return route.model_copy(update={"fractions": {name: share / total for name, share in left.items() if total > 0}})


def _transfers_left(transfers: Sequence[KvTransferDocument], fallen: set[str]) -> Iterator[KvTransferDocument]:
    return (one for one in transfers if not {one.prefill, one.decode} & fallen)
