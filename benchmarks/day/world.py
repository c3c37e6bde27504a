"""The simulated world: what is rented, what of it serves, what it costs. A state machine without clock or chance.

Terms, all of them the deployment's policy: a machine is paid from the moment it is ordered, at the price of that
moment for as long as it is kept, and serves `startup_s` and the download of the weights later. A change has two
phases: what is new is started; when all of it serves, the routing is switched, and what is no longer wanted is paid
for another `drain_s`, or until its shortest rental is over. Until the switch the old routing holds, and new machines
that serve already take what spills over from it. Engines that are started anew on a machine that stays do not serve
for `restart_s` after the switch. A change is finished before the next is begun. A machine that is lost stops serving
and being paid at that moment; one that was for rent and is not any more when it is ordered is never there.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.day.fleet import Fleet, Lease
from benchmarks.day.market import ForRent, OfferKey, Rented
from benchmarks.day.serving import serve

FloatArray = NDArray[np.float64]
HOUR_S: Final = 3600.0

Speeds = Callable[[str, int, float | None], FloatArray]
"""(GPU, tensor-parallel size, GB/s inside the machine) -> [buckets] requests/s that an engine sustains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What changes take; the fields of the policy, and the size of the weights."""

    startup_s: float
    download_gb_per_s: float
    restart_s: float
    drain_s: float
    min_rental_s: float
    weights_gb: float
    utilisation_fraction: float

    def starts_in_s(self, offer: ForRent) -> float:
        return self.startup_s + self.weights_gb / (offer.offer.inet_down_gb_per_s or self.download_gb_per_s)


@dataclass(slots=True)
class Machine:
    """A rental, from the order to the last payment."""

    number: int
    lease: Lease
    rented: ForRent
    ordered_s: float
    serves_s: float
    released_s: float = math.inf
    ends_s: float = math.inf
    is_lost: bool = False

    @property
    def held(self) -> Rented:
        return Rented(self.rented.machine, self.lease.gpus, self.rented.offer.gpu_ids)


@dataclass(frozen=True, slots=True)
class Running:
    """An engine on the machine of this number."""

    machine: int
    tensor_parallel: int
    shares: tuple[float, ...]
    serves_s: float


@dataclass(frozen=True, slots=True)
class Change:
    """A fleet on its way: the machine of each of its leases."""

    fleet: Fleet
    machines: tuple[int, ...]
    ready_s: float


@dataclass(frozen=True, slots=True)
class Span:
    """What happened in a time in which nothing changed; rates in requests/s."""

    begin_s: float
    end_s: float
    arriving_rps: float
    served_rps: float
    capacity_rps: float
    usd_per_hour: float
    idle_machines: int
    idle_gpus: int

    @property
    def length_s(self) -> float:
        return self.end_s - self.begin_s


@dataclass(slots=True)
class World:
    """`lost_at`: the moment at which what is rented since a moment is lost; infinite if it never is."""

    terms: Terms
    speeds: Speeds
    lost_at: Callable[[ForRent, float], float]
    now_s: float = 0.0
    machines: list[Machine] = field(default_factory=list)
    running: tuple[Running, ...] = ()
    change: Change | None = None
    spans: list[Span] = field(default_factory=list)
    known: dict[OfferKey, ForRent] = field(default_factory=dict)
    started: int = 0
    stopped: int = 0
    lost: int = 0

    @property
    def rented(self) -> tuple[Machine, ...]:
        """The machines that are ours and meant to stay so."""
        return tuple(m for m in self.machines if m.released_s > self.now_s and not m.is_lost)

    @property
    def taken(self) -> tuple[Rented, ...]:
        """What of the market's machines is ours, those that drain included."""
        return tuple(m.held for m in self.machines if m.ends_s > self.now_s)

    def begin(self, fleet: Fleet, offers: Iterable[ForRent]) -> None:
        """The day begins with this fleet up and serving."""
        self._take_up(fleet, offers, starts_at_once=True)
        self.started = 0

    def order(self, fleet: Fleet, offers: Iterable[ForRent]) -> None:
        """Begins a change.

        Raises ValueError while another is under way, and for a lease of what never was for rent.
        """
        if self.change is not None:
            raise ValueError("a change is under way: finish it first")
        self._take_up(fleet, offers, starts_at_once=False)

    def advance(self, to_s: float, arriving_rps: FloatArray) -> None:
        """Lives until `to_s` with these arrivals [buckets]."""
        while self.now_s < to_s:
            end_s = min([to_s, *(moment for moment in self._moments() if moment > self.now_s)])
            self.spans.append(self._span(end_s, arriving_rps))
            self.now_s = end_s
            self._lose()
            if self.change is not None and self.change.ready_s <= self.now_s:
                self._switch(self.change)

    def _moments(self) -> Iterator[float]:
        if self.change is not None:
            yield self.change.ready_s
        for machine in self.machines:
            if machine.ends_s > self.now_s:
                yield from (machine.serves_s, machine.released_s, machine.ends_s)
                yield self.lost_at(machine.rented, machine.ordered_s)
        for engine in self.running:
            yield engine.serves_s

    def _lose(self) -> None:
        for machine in self.machines:
            if machine.ends_s > self.now_s and self.lost_at(machine.rented, machine.ordered_s) <= self.now_s:
                self.lost += machine.released_s > self.now_s
                machine.is_lost, machine.ends_s = True, self.now_s
        if self.change is not None:
            waiting = [m.serves_s for m in self._of(self.change.machines) if not m.is_lost]
            ready_s = max([self.now_s, *waiting])
            self.change = Change(self.change.fleet, self.change.machines, ready_s)

    def _of(self, numbers: Iterable[int]) -> Iterator[Machine]:
        return (self.machines[number] for number in numbers)

    def _take_up(self, fleet: Fleet, offers: Iterable[ForRent], *, starts_at_once: bool) -> None:
        for_rent: dict[OfferKey, ForRent] = {each.key: each for each in offers}
        self.known |= for_rent
        free = list(self.rented)
        numbers = []
        for lease in fleet.machines:
            same = next((machine for machine in free if machine.lease.kind == lease.kind), None)
            if same is None:
                same = self._start(lease, for_rent, starts_at_once=starts_at_once)
            else:
                free.remove(same)
            numbers.append(same.number)
        ready_s = max([self.now_s, *(machine.serves_s for machine in self._of(numbers))])
        self.change = Change(fleet, tuple(numbers), ready_s)
        if ready_s <= self.now_s:
            self._switch(self.change)

    def _start(self, lease: Lease, for_rent: dict[OfferKey, ForRent], *, starts_at_once: bool) -> Machine:
        offer = for_rent.get(lease.offer)
        if offer is None:
            return self._missing(lease)
        wait_s = 0.0 if starts_at_once else self.terms.starts_in_s(offer)
        machine = Machine(len(self.machines), lease, offer, self.now_s, self.now_s + wait_s)
        self.machines.append(machine)
        self.started += 1
        return machine

    def _missing(self, lease: Lease) -> Machine:
        """Somebody else has it, or it has failed; the rest of the order is carried out."""
        if lease.offer not in self.known:
            raise ValueError(f"{lease.provider}/{lease.offer_id}: was never for rent")
        now_s = self.now_s
        machine = Machine(
            len(self.machines), lease, self.known[lease.offer], now_s, now_s, now_s, now_s, is_lost=True
        )
        self.machines.append(machine)
        return machine

    def _switch(self, change: Change) -> None:
        """The second phase: the new routing, and the end of what it does not use."""
        kept = set(change.machines)
        before = Counter((engine.machine, engine.tensor_parallel) for engine in self.running)
        self.running = tuple(self._engines(change, before))
        for machine in self.rented:
            if machine.number not in kept:
                self.stopped += 1
                machine.released_s = self.now_s
                machine.ends_s = max(self.now_s + self.terms.drain_s, machine.ordered_s + self.terms.min_rental_s)
        self.change = None

    def _engines(self, change: Change, before: Counter[tuple[int, int]]) -> Iterator[Running]:
        """Those that ran already in the same shape on the same machine go on; others of old machines restart."""
        hosts = {engine.machine for engine in self.running}
        for engine in change.fleet.engines:
            number = change.machines[engine.machine]
            shape = (number, engine.tensor_parallel)
            serves_s = self.now_s
            if before[shape] > 0:
                before[shape] -= 1
            elif number in hosts:
                serves_s = self.now_s + self.terms.restart_s
            yield Running(number, engine.tensor_parallel, engine.shares, serves_s)

    def _joining(self) -> Iterator[Running]:
        """The engines on new machines of a change that is under way; no share is theirs yet."""
        if self.change is None:
            return
        old = {engine.machine for engine in self.running}
        for engine in self.change.fleet.engines:
            number = self.change.machines[engine.machine]
            if number not in old:
                yield Running(
                    number, engine.tensor_parallel, (0.0,) * len(engine.shares), self.machines[number].serves_s
                )

    def _span(self, end_s: float, arriving_rps: FloatArray) -> Span:
        known = (*self.running, *self._joining())
        up = [e for e in known if e.serves_s <= self.now_s and not self.machines[e.machine].is_lost]
        shares = np.array([engine.shares for engine in up])
        rates = np.array([self._speed(engine) for engine in up])
        paid = [machine for machine in self.machines if machine.ends_s > self.now_s]
        idle = [m for m in paid if m.serves_s > self.now_s or m.released_s <= self.now_s]
        served = serve(arriving_rps, shares, rates, utilisation_fraction=self.terms.utilisation_fraction)
        return Span(
            self.now_s,
            end_s,
            float(arriving_rps.sum()),
            served.rps,
            served.capacity_rps,
            sum(machine.lease.price_usd_per_hour for machine in paid),
            len(idle),
            sum(machine.lease.gpus for machine in idle),
        )

    def _speed(self, engine: Running) -> FloatArray:
        machine = self.machines[engine.machine]
        return self.speeds(machine.lease.gpu, engine.tensor_parallel, machine.rented.offer.intra_machine_gb_per_s)


def usd(spans: Sequence[Span]) -> float:
    """What all of it cost."""
    return sum(span.usd_per_hour * span.length_s / HOUR_S for span in spans)
