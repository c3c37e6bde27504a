"""Where machines were lost of late, and until when nothing is rented there again. Pure.

Nothing of this is stored: it follows from the losses, told in the order in which they were reported. A place that
fails again soon after it was tried again is avoided for twice as long, and so on; one that has held for several times
as long as it was avoided begins anew.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from sutler.service.deployments.holdings.lives import Loss
from sutler.solver.problem import Offer

LEAST: Final = 2  # chosen: so many of a host or a pool must go at about the same time, as one may be an accident
# Chosen: of several pools of a provider in one report. Of 50 machines that each go once in twelve hours, three go in
# the same five minutes by chance once or twice a day.
MANY: Final = 3
LONGEST: Final = timedelta(days=1)  # chosen: a market of another day is another market
FORGIVEN_AFTER: Final = 4  # chosen: times as long as it was avoided, without a loss
REMEMBERED: Final = LONGEST * (1 + FORGIVEN_AFTER)
"""What was lost before tells nothing of now."""


@dataclass(frozen=True, slots=True)
class Place:
    """A machine, all machines of a host, those of one GPU in one region under one contract, or all of a provider's
    under one contract. Fields that are None are not told apart, but for a pool's region, which may be unknown."""

    kind: Literal["machine", "host", "pool", "provider"]
    provider: str
    contract: str | None = None
    gpu: str | None = None
    region: str | None = None
    machine_id: str | None = None
    host_id: str | None = None

    def has(self, offer: Offer) -> bool:
        """Whether an offer is of it."""
        if offer.provider != self.provider:
            return False
        if self.kind == "machine":
            return offer.machine_id == self.machine_id
        if self.kind == "host":
            return offer.host_id == self.host_id
        if self.kind == "provider":
            return offer.contract == self.contract
        return (offer.contract, offer.gpu, offer.region) == (self.contract, self.gpu, self.region)

    def __str__(self) -> str:
        if self.kind == "machine":
            return f"machine {self.machine_id} of {self.provider}"
        if self.kind == "host":
            return f"host {self.host_id} of {self.provider}"
        if self.kind == "provider":
            return f"{self.provider} {self.contract}"
        return " ".join(filter(None, (self.provider, self.contract, self.gpu, self.region and f"in {self.region}")))


@dataclass(frozen=True, slots=True)
class Avoided:
    """A place where nothing is rented until then; so many machines were lost there the last time."""

    place: Place
    until: datetime
    machines: int


@dataclass(slots=True)
class _BackOff:
    length: timedelta
    until: datetime
    machines: int


class _Places:
    """The losses so far, as places that are avoided."""

    def __init__(self, first: timedelta) -> None:
        self._first = first
        self.known: dict[Place, _BackOff] = {}
        self._lately: dict[Place, list[tuple[datetime, int]]] = defaultdict(list)
        self._reported: dict[Place, list[Loss]] = defaultdict(list)
        self._many_at: dict[Place, datetime] = {}

    def lose(self, loss: Loss) -> None:
        pool = Place("pool", loss.provider, loss.contract, loss.gpu, loss.region)
        if loss.machine_id is not None:
            self._hit(Place("machine", loss.provider, machine_id=loss.machine_id), loss.at, loss.count)
        if loss.host_id is not None:
            self._hit_if_many(Place("host", loss.provider, host_id=loss.host_id), loss, LEAST)
        # An interruption of one of many alike tells of all: that there is no room for them.
        is_alike = loss.machine_id is None and loss.contract == "interruptible"
        if self._hit_if_many(pool, loss, 1 if is_alike else LEAST):
            self._many_at[pool] = loss.at
        pools = [
            place
            for place, at in self._many_at.items()
            if (place.provider, place.contract) == (loss.provider, loss.contract) and loss.at < at + self._first
        ]
        everything = Place("provider", loss.provider, loss.contract)
        before = [one for one in self._reported[everything] if one.at == loss.at]
        together = self._reported[everything] = [*before, loss]
        if len(pools) >= LEAST or _are_many(before):
            self._hit(everything, loss.at, loss.count)
        elif _are_many(together):
            self._hit(everything, loss.at, sum(one.count for one in together))

    def _hit_if_many(self, place: Place, loss: Loss, least: int) -> bool:
        """One loss is enough where more went before and that is not forgiven. Returns whether there were many."""
        known = self.known.get(place)
        since = loss.at - self._first
        lately = [(at, count) for at, count in self._lately[place] if at >= since]
        self._lately[place] = lately = [*lately, (loss.at, loss.count)]
        machines = sum(count for _, count in lately)
        if known is not None and not self._is_forgiven(known, loss.at):
            self._hit(place, loss.at, loss.count)
        elif machines >= least:
            self._hit(place, loss.at, machines)
        return machines >= least

    def _hit(self, place: Place, at: datetime, machines: int) -> None:
        """While a place is avoided it is for longer, but no lesson is learnt twice."""
        known = self.known.get(place)
        if known is None or self._is_forgiven(known, at):
            self.known[place] = _BackOff(self._first, at + self._first, machines)
        elif at < known.until:
            known.until, known.machines = at + known.length, known.machines + machines
        else:
            length = min(2 * known.length, LONGEST)
            self.known[place] = _BackOff(length, at + length, machines)

    def _is_forgiven(self, known: _BackOff, at: datetime) -> bool:
        return at >= known.until + FORGIVEN_AFTER * known.length


def _are_many(losses: Sequence[Loss]) -> bool:
    """Whether losses of one report tell of all of their provider."""
    kinds = {(one.gpu, one.region) for one in losses}
    return len(kinds) >= LEAST and sum(one.count for one in losses) >= MANY


def avoided(losses: Iterable[Loss], now: datetime, *, first_s: float) -> tuple[Avoided, ...]:
    """The places to be avoided now, the first to be free again first; `first_s`: for how long at first, 0: never."""
    if first_s == 0:
        return ()
    places = _Places(timedelta(seconds=first_s))
    for loss in losses:
        places.lose(loss)
    found = [Avoided(place, one.until, one.machines) for place, one in places.known.items() if now < one.until]
    return tuple(sorted(found, key=lambda one: (one.until, str(one.place))))


def is_freed(losses: Iterable[Loss], since: datetime, until: datetime, *, first_s: float) -> bool:
    """Whether the time of a place has ended meanwhile."""
    return bool({one.place for one in avoided(losses, since, first_s=first_s) if one.until <= until})


def left_out(offer: Offer, places: Iterable[Avoided]) -> bool:
    """Whether an offer is of a place that is avoided."""
    return any(one.place.has(offer) for one in places)
