"""A plan as the simulated world carries it out: machines to rent, engines on them, and where each bucket goes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

from benchmarks.day.market import OfferKey
from sutler.adapters.base import Contract
from sutler.solver.replanning.holding import HoldingKey

NO_SHARE: Final = 0.0


@dataclass(frozen=True, slots=True)
class Lease:
    """One machine of a plan. `price_usd_per_hour` is for all its GPUs, storage included."""

    provider: str
    offer_id: str
    contract: Contract
    gpu: str
    gpus: int
    price_usd_per_hour: float

    @property
    def offer(self) -> OfferKey:
        return self.provider, self.offer_id, self.contract

    @property
    def kind(self) -> HoldingKey:
        """Machines of one kind are the same thing under two plans."""
        return *self.offer, self.gpus


@dataclass(frozen=True, slots=True)
class Engine:
    """A replica inside one machine (an index into the fleet's). `shares` [buckets]: its part of each bucket."""

    machine: int
    tensor_parallel: int
    shares: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Fleet:
    """What a plan wants."""

    machines: tuple[Lease, ...]
    engines: tuple[Engine, ...]

    @property
    def usd_per_hour(self) -> float:
        return sum(machine.price_usd_per_hour for machine in self.machines)

    @property
    def gpus(self) -> int:
        return sum(machine.gpus for machine in self.machines)


class Planned(Protocol):
    """A plan as the solver has it, or as its document: their rentals and replicas read alike."""

    @property
    def rentals(self) -> Sequence[Any]: ...

    @property
    def replicas(self) -> Sequence[Any]: ...


def fleet_of(plan: Planned, shares: dict[str, dict[str, float]], buckets: Sequence[str]) -> Fleet:
    """`shares`: by bucket, the fraction of each replica.

    Raises ValueError for a replica of several stages: the day's problem asks for none.
    """
    first: list[int] = []
    machines: list[Lease] = []
    for rental in plan.rentals:
        first.append(len(machines))
        machines += [
            Lease(
                rental.provider,
                rental.offer_id,
                rental.contract,
                rental.gpu,
                rental.gpus,
                rental.price_usd_per_hour,
            )
        ] * rental.count
    engines = []
    for replica in plan.replicas:
        if len(replica.stages) != 1:
            raise ValueError(f"{replica.id}: has {len(replica.stages)} stages; the simulated day knows one")
        stage = replica.stages[0]
        own = tuple(shares.get(bucket, {}).get(replica.id, NO_SHARE) for bucket in buckets)
        engines.append(Engine(first[stage.rental] + stage.machine, stage.tensor_parallel, own))
    return Fleet(tuple(machines), tuple(engines))
