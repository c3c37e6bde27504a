"""What a look at a deployment starts from, read from the store in one go; all that follows is computed from it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sutler.service.deployments.holdings.lives import Loss
from sutler.service.deployments.holdings.schemas import HoldingDocument
from sutler.service.deployments.rates.applying import NOTHING, Lesson
from sutler.service.deployments.replanning.memory import Memory
from sutler.service.deployments.schemas import PolicyDocument
from sutler.service.deployments.sharing.taken import Purse, Taken
from sutler.service.deployments.traffic.window import ModelTraffic
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.translation.mapping import mapped
from sutler.service.translation.stored_market import MarketStore
from sutler.service.translation.to_problem import largest_download_gb
from sutler.solver.plan import Rental
from sutler.solver.problem import Offer
from sutler.solver.replanning import HoldingKey, Switching

OfferKey = tuple[str, str, str]
"""(provider, offer_id, contract)."""


def key_of(machines: Offer | Rental) -> OfferKey:
    """Which offer it is, or is rented by."""
    return (machines.provider, machines.offer_id, machines.contract)


@dataclass(frozen=True, slots=True)
class Settled:
    """An offer over the time that a change must hold: its highest and lowest price, and the least of it for rent."""

    high_usd_per_gpu_hour: float
    low_usd_per_gpu_hour: float
    available: int


@dataclass(frozen=True, slots=True)
class Facts:
    """All that a look knows.

    `problem` is the deployment's, `planned` the one that the current plan was made for. `reported` None: what is
    rented was never said, and the plan is taken to be wished for, not rented. `holdings` is what of it does not end
    before anything could take its place. `held_before`: the most machines that were reported since the plan was
    issued. `settled` None: the market has no history (a snapshot), so that all of it counts. `known`: offers that
    were rented, as they were last for rent, since many leave the market with that. `is_behind`: there is a newer
    plan, which serves nothing; what is asked for now is not what runs was made for. `taken`: what `market` lacks
    because other deployments have it; None: it has no other. `losses`: what was lost of late, the first first.
    `woken`: when a model last woke, or was asked to; `asleep`: models that are not to be served now.
    `usual_rps`: of those of which more usually comes soon.
    `purse`: a budget that it shares. `given_up_for`: why machines of the plan that are not held are not counted on
    any more; empty: they are. `lesson`: what engines have told of their rates; `problem` rests on it where the policy
    says so.
    """

    problem: ProblemDocument
    planned: ProblemDocument
    plan: PlanDocument
    issued_at: datetime
    policy: PolicyDocument
    reported: tuple[HoldingDocument, ...] | None
    holdings: tuple[HoldingDocument, ...] | None
    holdings_at: datetime | None
    held_before: Mapping[HoldingKey, int]
    traffic: Mapping[str, ModelTraffic]
    market: MarketStore | None
    settled: Mapping[OfferKey, Settled] | None
    known: Mapping[OfferKey, Offer]
    market_version: int
    memory: Memory
    now: datetime
    is_asked: bool = False
    is_behind: bool = False
    taken: Taken | None = None
    losses: tuple[Loss, ...] = ()
    woken: Mapping[str, datetime] = field(default_factory=dict)
    asleep: frozenset[str] = frozenset()
    usual_rps: Mapping[str, float] = field(default_factory=dict)
    purse: Purse | None = None
    given_up_for: str = ""
    lesson: Lesson = NOTHING

    @property
    def carried_out_at(self) -> datetime:
        """When the plan is taken to be carried out."""
        return self.issued_at + timedelta(seconds=self.policy.carry_out_s)

    def climbing_to(self, within_s: float) -> dict[str, float]:
        """Requests/s in so many seconds, by model, of those whose traffic is climbing."""
        quantile, found = self.policy.lead_quantile, {}
        for name, traffic in self.traffic.items():
            comes_to = [self.usual_rps[name]] if self._is_rising(name) else []
            if quantile is not None and traffic.trend is not None and traffic.last_at is not None:
                since_s = max(0.0, (self.now - traffic.last_at).total_seconds())
                comes_to.append(traffic.trend.rps(since_s + within_s, quantile))
            if comes_to:
                found[name] = min(max(comes_to), self.policy.most_growth_factor * traffic.rate_rps)
        return found

    def is_climbing(self, name: str) -> bool:
        """Whether more of a model is to come, as its traffic shows, or as it usually does."""
        return self.traffic[name].trend is not None or self._is_rising(name)

    def _is_rising(self, name: str) -> bool:
        seen = self.traffic[name]
        return seen.state == "live" and self.usual_rps.get(name, 0.0) > seen.rate_rps

    @property
    def lead_s(self) -> float:
        """Seconds until a machine that is ordered now serves: start-up and download."""
        return mapped(Switching, self.policy).start_s(largest_download_gb(self.problem))

    @property
    def ahead(self) -> timedelta:
        """How long before an event machines are ordered: until they serve, and a window more."""
        return timedelta(seconds=self.lead_s + self.policy.window_s)

    @property
    def waking(self) -> frozenset[str]:
        """Models that the plan lets sleep, and that are to be served now."""
        slept = {one.model for one in self.plan.sleeping}
        return frozenset(model.name for model in self.problem.models if model.name in slept) - self.asleep

    @property
    def all_sleep(self) -> bool:
        """Whether no model is to be served now."""
        return all(model.name in self.asleep for model in self.problem.models)

    @property
    def calm_since(self) -> datetime:
        """When the fleet was last sought."""
        return min(self.now, max(self.issued_at, self.memory.searched_at or self.issued_at))

    @property
    def cooling_until(self) -> datetime | None:
        """Until when nothing is changed for money; None: it may be. It counts from the last change of machines, since
        traffic may be routed anew at any time. What was ordered for a climb that goes on no more is withdrawn after a
        window."""
        cooldown_s = self.policy.cooldown_s
        if self._was_for_a_climb:
            cooldown_s = min(cooldown_s, self.policy.window_s)
        until = self.changed_at + timedelta(seconds=cooldown_s)
        return until if self.changed_at <= self.now < until and not self.is_asked else None

    @property
    def changed_at(self) -> datetime:
        """When a plan last changed machines."""
        return self.memory.changed_at or self.issued_at

    @property
    def _was_for_a_climb(self) -> bool:
        """Whether the plan is for more than was ever seen, and nothing climbs any more."""
        return bool(self.memory.before_climb) and not any(map(self.is_climbing, self.traffic))
