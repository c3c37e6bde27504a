"""From a plan to what stands of it: its machines as held offers, without those that are lost."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from sutler.solver.plan import Plan, Rental, Replica, Stage
from sutler.solver.problem import Offer
from sutler.solver.replanning.standing import StandingDeployment
from sutler.solver.verify.view import OfferKey

HoldingKey = OfferKey
"""(provider, offer_id, contract, GPUs) of machines that cannot be told apart."""


@dataclass(frozen=True, slots=True)
class Holding:
    """`count` rented machines at `price_usd_per_hour` each."""

    key: HoldingKey
    gpu: str
    count: int
    price_usd_per_hour: float


def holding_key(rental: Rental) -> HoldingKey:
    return rental.provider, rental.offer_id, rental.contract, rental.gpus


def holdings_of(rentals: Sequence[Rental]) -> tuple[Holding, ...]:
    """One per key; machines of one key that cost differently are held at their mean price."""
    counts: dict[HoldingKey, int] = defaultdict(int)
    usd: dict[HoldingKey, float] = defaultdict(float)
    gpu = {}
    for rental in rentals:
        key = holding_key(rental)
        counts[key] += rental.count
        usd[key] += rental.count * rental.price_usd_per_hour
        gpu[key] = rental.gpu
    return tuple(Holding(key, gpu[key], count, usd[key] / count) for key, count in counts.items())


def held_offer(holding: Holding, like: Offer | None) -> Offer:
    """The holding as the solver sees it: `like` is the offer that was rented, for its links and its site."""
    provider, offer_id, contract, gpus = holding.key
    known = like or Offer(provider, offer_id, holding.gpu, gpus, holding.count, holding.price_usd_per_hour, contract)
    return replace(
        known.on_its_own(),
        gpus=gpus,
        available=holding.count,
        price_usd_per_hour=holding.price_usd_per_hour,
        divisible=False,
        disk_usd_per_gb_month=0.0,
        disk_included_gb=0.0,
        unfit_for=frozenset(),
        held=True,
    )


def standing_of(plan: Plan, holdings: Sequence[Holding]) -> StandingDeployment:
    """What of the plan stands on these machines.

    Where fewer machines of a key are held than the plan has, the first ones stand: they cannot be told apart.
    Replicas that have lost a machine are gone; rentals on which nothing runs are no part of it.
    """
    have = {holding.key: holding for holding in holdings}
    places = _places(plan.rentals, have)
    order = list(dict.fromkeys(key for key, _ in places.values()))
    rentals = tuple(_held_rental(plan.rentals, have[key]) for key in order)
    position = {key: index for index, key in enumerate(order)}
    replicas = [_moved(replica, places, position) for replica in plan.replicas]
    standing = [replica for replica in replicas if replica is not None]
    gone = frozenset(replica.id for replica in plan.replicas) - {replica.id for replica in standing}
    return StandingDeployment(rentals, tuple(standing), plan.routing, plan.kv_transfers, gone).without_idle_machines()


def _places(
    rentals: Sequence[Rental], have: Mapping[HoldingKey, Holding]
) -> dict[tuple[int, int], tuple[HoldingKey, int]]:
    """Returns (rental, machine) of the plan -> (key, which machine of it), for those that are held.

    What was held when the plan was made is, before what it only wished for.
    """
    seen: dict[HoldingKey, int] = defaultdict(int)
    places = {}
    for index, rental in sorted(enumerate(rentals), key=lambda numbered: not numbered[1].held):
        key = holding_key(rental)
        for machine in range(rental.count):
            if key in have and seen[key] < have[key].count:
                places[index, machine] = (key, seen[key])
                seen[key] += 1
    return places


def _held_rental(rentals: Sequence[Rental], holding: Holding) -> Rental:
    like = next(rental for rental in rentals if holding_key(rental) == holding.key)
    count, price = holding.count, holding.price_usd_per_hour
    return replace(like, count=count, price_usd_per_hour=price, storage_gb=0.0, storage_usd_per_hour=0.0, held=True)


def _moved(
    replica: Replica,
    places: Mapping[tuple[int, int], tuple[HoldingKey, int]],
    position: Mapping[HoldingKey, int],
) -> Replica | None:
    stages: list[Stage] = []
    for stage in replica.stages:
        place = places.get((stage.rental, stage.machine))
        if place is None:
            return None
        stages.append(replace(stage, rental=position[place[0]], machine=place[1]))
    return replace(replica, stages=tuple(stages))
