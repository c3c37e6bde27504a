"""What changing a fleet costs, in USD: machines are paid while they start and while they drain.

A change has two phases, as in Cauchy (section 3.5.2): new machines start and are checked, traffic moves, then old
ones stop. So a machine that starts is paid for without serving, one that stops is paid for until the new ones serve,
and an engine that is started anew on a machine that stays leaves its GPUs idle meanwhile. Where clouds charge for it,
the download of the weights is paid once for each machine that starts.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from sutler.solver.market.pools import checkpoint_disk_gb, disk_needed_gb
from sutler.solver.plan import Plan, Rental, Replica, Stage
from sutler.solver.problem import Problem
from sutler.solver.replanning.standing import StandingDeployment
from sutler.solver.units import SECONDS_PER_HOUR
from sutler.solver.verify.view import OfferKey, offer_key


@dataclass(frozen=True, slots=True)
class Switching:
    """Seconds, and what capacity is worth.

    `usd_per_rps` is the value of one request/s for an hour where capacity is what is bought: what the fleet pays for
    it now. `weight`: how many times its plain cost a change has to pay for within `horizon_s`, and at least
    `needed_weight` times where what runs does not carry its load: what is added then is no reason to change the rest.
    `unserved_factor`: a request of a load that must be carried is worth that many times as much.
    """

    startup_s: float = 0.0
    download_gb_per_s: float = 0.25
    restart_s: float = 0.0
    drain_s: float = 0.0
    min_rental_s: float = 0.0
    horizon_s: float = 3600.0
    usd_per_rps: float = 0.0
    weight: float = 1.0
    needed_weight: float = 1.0
    unserved_factor: float = 10.0

    @property
    def horizon_h(self) -> float:
        return self.horizon_s / SECONDS_PER_HOUR

    def start_s(self, weights_gb: float, inet_down_gb_per_s: float | None = None) -> float:
        """The seconds until a new machine serves. Nothing takes any time where `startup_s` is 0."""
        if self.startup_s == 0:
            return 0.0
        return self.startup_s + weights_gb / (inet_down_gb_per_s or self.download_gb_per_s)

    def least_start_s(self, problem: Problem) -> float:
        """The same of the smallest model, over the fastest line of the market."""
        speeds = [offer.inet_down_gb_per_s or self.download_gb_per_s for offer in problem.offers]
        return self.start_s(min(disk_needed_gb(problem)), max(speeds))

    def start_usd(self, usd_per_hour: float, start_s: float) -> float:
        """The cost of a new machine: it does not serve yet, and may have to be paid for longer than it is needed."""
        return usd_per_hour * (start_s + max(0.0, self.min_rental_s - self.horizon_s)) / SECONDS_PER_HOUR

    def stop_usd(self, usd_per_hour: float, overlap_s: float) -> float:
        """The cost of an old machine: it runs until the new ones serve, and then drains."""
        return usd_per_hour * (overlap_s + self.drain_s) / SECONDS_PER_HOUR

    def restart_usd(self, usd_per_hour: float) -> float:
        """The cost of GPUs whose engine starts anew."""
        return usd_per_hour * self.restart_s / SECONDS_PER_HOUR


@dataclass(frozen=True, slots=True)
class FleetChange:
    """What a plan changes about the fleet: machines started and stopped, engines started anew, and what that costs.

    `ready_s`: until the last of it serves. At no cost, replicas run on: `recapped`, with other power caps; `bent`, in
    the other phase, which is a change of routing for engines that both send and receive keys and values.
    """

    started: int
    stopped: int
    restarted: int
    usd: float
    ready_s: float
    recapped: int = 0
    bent: int = 0

    @property
    def is_none(self) -> bool:
        return self.started == self.stopped == self.restarted == self.recapped == self.bent == 0

    @property
    def is_of_caps(self) -> bool:
        """Whether power caps are all that changes."""
        return self.recapped > 0 and self.started == self.stopped == self.restarted == self.bent == 0

    @property
    def is_of_phases(self) -> bool:
        """Whether all that changes, besides power caps, is which phase replicas take."""
        return self.bent > 0 and self.started == self.stopped == self.restarted == 0


def change_of(problem: Problem, standing: StandingDeployment, plan: Plan, switching: Switching) -> FleetChange:
    """Returns what leads from what stands to the plan. Engines of the same name run on."""
    offers = {offer_key(offer): offer for offer in problem.offers}
    models = {model.name: model for model in problem.models}
    start_usd, ready_s = 0.0, 0.0
    for index, rental in enumerate(plan.rentals):
        if not rental.held:
            here = [models[r.model].at(r.precision) for r in plan.replicas if _stands_on(r.stages, index)]
            weights = max(map(checkpoint_disk_gb, here), default=0.0)
            seconds = switching.start_s(weights, offers[offer_key(rental)].inet_down_gb_per_s)
            download_usd = weights * (offers[offer_key(rental)].inet_down_usd_per_gb or 0.0)
            start_usd += rental.count * (switching.start_usd(rental.price_usd_per_hour, seconds) + download_usd)
            ready_s = max(ready_s, seconds)
    stopped = _machines(standing.rentals)
    stopped.subtract(_machines(rental for rental in plan.rentals if rental.held))
    prices = {offer_key(rental): rental.price_usd_per_hour for rental in standing.rentals}
    stop_usd = sum(max(0, n) * switching.stop_usd(prices.get(key, 0.0), ready_s) for key, n in stopped.items())
    running = {replica.id: replica for replica in standing.replicas}
    anew = [r for r in plan.replicas if r.id not in running and any(plan.rentals[s.rental].held for s in r.stages)]
    restart_usd = sum(switching.restart_usd(_gpu_usd_per_hour(plan, replica.stages)) for replica in anew)
    return FleetChange(
        started=sum(rental.count for rental in plan.rentals if not rental.held),
        stopped=sum(max(0, count) for count in stopped.values()),
        restarted=len(anew),
        usd=start_usd + stop_usd + restart_usd,
        ready_s=max(ready_s, switching.restart_s if anew else 0.0),
        recapped=sum(r.id in running and _caps(r) != _caps(running[r.id]) for r in plan.replicas),
        bent=sum(r.id in running and r.role != running[r.id].role for r in plan.replicas),
    )


def _caps(replica: Replica) -> tuple[float | None, ...]:
    """The caps in whole watts, as they are set."""
    return tuple(None if s.power_cap_watts is None else round(s.power_cap_watts) for s in replica.stages)


def _stands_on(stages: Iterable[Stage], rental: int) -> bool:
    return any(stage.rental == rental for stage in stages)


def _machines(rentals: Iterable[Rental]) -> "Counter[OfferKey]":
    found: Counter[OfferKey] = Counter()
    for rental in rentals:
        found[offer_key(rental)] += rental.count
    return found


def _gpu_usd_per_hour(plan: Plan, stages: Iterable[Stage]) -> float:
    rented = [(plan.rentals[stage.rental], stage.gpus) for stage in stages]
    return sum(rental.price_usd_per_hour * gpus / rental.gpus for rental, gpus in rented)
