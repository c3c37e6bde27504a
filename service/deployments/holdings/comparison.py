"""What is held beside what was held, or what a plan rents, and how far a plan is carried out.

Pure; prices do not tell machines of one offer apart.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from sutler.service.deployments.holdings.schemas import HoldingDocument, MachineKey
from sutler.service.deployments.watch_schema import CarryOutResource
from sutler.service.documents.plan import PlanDocument, RentalDocument


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs: `missing` is rented by the plan and not held, `unplanned` held and not rented by the plan."""

    missing: tuple[HoldingDocument, ...]
    unplanned: tuple[HoldingDocument, ...]


def counted(holdings: Iterable[HoldingDocument]) -> Counter[MachineKey]:
    """Machines of each kind."""
    found: Counter[MachineKey] = Counter()
    for holding in holdings:
        found[holding.key] += holding.count
    return found


def beyond(these: Iterable[HoldingDocument], others: Iterable[HoldingDocument]) -> tuple[HoldingDocument, ...]:
    """The machines that are more in `these` than in `others`; of an offer at several prices, the dearest."""
    covered, found = counted(others), []
    for holding in sorted(these, key=lambda holding: (holding.key, holding.price_usd_per_hour)):
        common = min(covered[holding.key], holding.count)
        covered[holding.key] -= common
        if holding.count > common:
            found.append(holding.model_copy(update={"count": holding.count - common}))
    return tuple(found)


def compared(held: Iterable[HoldingDocument], plan: PlanDocument) -> Comparison:
    holdings, planned = tuple(held), rented_by(plan)
    return Comparison(missing=beyond(planned, holdings), unplanned=beyond(holdings, planned))


def held_by(plan: PlanDocument) -> tuple[HoldingDocument, ...]:
    """What a plan takes to be rented already."""
    return rented_by(plan.model_copy(update={"rentals": tuple(rental for rental in plan.rentals if rental.held)}))


def rented_by(plan: PlanDocument) -> tuple[HoldingDocument, ...]:
    """The plan's rentals as holdings, at its prices."""
    return carried_out(plan, ())


def carried_out(plan: PlanDocument, held: Iterable[HoldingDocument]) -> tuple[HoldingDocument, ...]:
    """What is rented once the plan is carried out where this was held.

    Machines that stay are paid as before, whatever the plan says of their price, the cheapest of each offer first;
    only new ones cost what the plan says. The times of `held` stay where offer and price are the same.
    """
    known = sorted(held, key=lambda holding: holding.price_usd_per_hour)
    paid: dict[MachineKey, list[float]] = defaultdict(list)
    for holding in known:
        paid[holding.key] += [holding.price_usd_per_hour] * holding.count
    counts: Counter[tuple[MachineKey, float]] = Counter()
    for key, prices in _planned_prices(plan).items():
        stay = paid[key][: len(prices)]
        counts.update((key, price) for price in (*stay, *prices[len(stay) :]))
    times = {_priced(holding): holding for holding in known}
    return tuple(_holding(*which, count, times) for which, count in counts.items())


def _planned_prices(plan: PlanDocument) -> dict[MachineKey, list[float]]:
    """The price of each machine; what the plan takes to be held comes first, since that is what stays."""
    prices: dict[MachineKey, list[float]] = {_key(rental): [] for rental in plan.rentals}
    for rental in sorted(plan.rentals, key=lambda rental: not rental.held):
        prices[_key(rental)] += [rental.price_usd_per_hour] * rental.count
    return prices


def _key(rental: RentalDocument) -> MachineKey:
    return (rental.provider, rental.offer_id, rental.contract, rental.gpu, rental.gpus)


def _priced(holding: HoldingDocument) -> tuple[MachineKey, float]:
    return (holding.key, holding.price_usd_per_hour)


def _holding(
    key: MachineKey, price: float, count: int, known: Mapping[tuple[MachineKey, float], HoldingDocument]
) -> HoldingDocument:
    before = known.get((key, price))
    return HoldingDocument.model_validate(
        {
            **dict(zip(("provider", "offer_id", "contract", "gpu", "gpus"), key, strict=True)),
            "count": count,
            "price_usd_per_hour": price,
            "expires_at": None if before is None else before.expires_at,
            "started_at": None if before is None else before.started_at,
        }
    )


def carry_out(
    planned: Mapping[MachineKey, int],
    held: Sequence[HoldingDocument] | None,
    *,
    revision: int,
    issued_at: datetime,
    patience_s: float,
    now: datetime,
) -> CarryOutResource:
    """How far the plan of this revision is carried out; after `patience_s` what is missing is overdue.

    `planned`: machines of each kind that it rents; `held` None: nobody has said what is rented."""
    missing = unplanned = None
    if held is not None:
        rented, wanted = counted(held), Counter(planned)
        missing, unplanned = (wanted - rented).total(), (rented - wanted).total()
    state: Literal["unreported", "met", "unmet", "overdue"] = "unreported" if missing is None else "met"
    if missing:
        state = "overdue" if now > issued_at + timedelta(seconds=patience_s) else "unmet"
    return CarryOutResource(
        revision=revision,
        issued_at=issued_at,
        state=state,
        planned_machines=sum(planned.values()),
        missing_machines=missing,
        held_machines_not_planned=unplanned,
    )
