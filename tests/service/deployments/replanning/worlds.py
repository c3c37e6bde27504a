"""A deployment that is looked at over hours, with the real solver: what the service does with its looks, without it.

The market's history is kept here as the store keeps it: an offer has settled if it was for rent all the time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from sutler.service.deployments.holdings.comparison import rented_by
from sutler.service.deployments.holdings.lives import Loss, ends
from sutler.service.deployments.holdings.schemas import HoldingDocument
from sutler.service.deployments.replanning.facts import Facts, OfferKey, Settled
from sutler.service.deployments.replanning.memory import Memory
from sutler.service.deployments.replanning.standing_machines import reported
from sutler.service.deployments.replanning.verdict import Verdict, look
from sutler.service.deployments.schemas import PolicyDocument
from sutler.service.deployments.traffic.window import ModelTraffic
from sutler.service.documents.market import OfferDocument
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.translation.from_plan import issue_plan
from sutler.solver.outlook.interruptions import LearntRate
from sutler.solver.problem import Offer
from sutler.solver.replanning import HoldingKey, consider
from tests.service.deployments.replanning.builders import (
    START,
    a_market,
    a_plan,
    a_policy,
    a_problem,
    an_offer_of,
    holdings_as_planned,
    seen_at,
    traffic,
)

POLL_S = 60.0


@dataclass
class World:
    """`offers` are for rent since the last `poll`; `rented`: every plan is carried out and reported at once."""

    policy: PolicyDocument
    problem: ProblemDocument
    plan: PlanDocument
    offers: tuple[OfferDocument, ...]
    rented: bool
    traffic: Mapping[str, ModelTraffic] = field(default_factory=traffic)
    now: datetime = START
    issued_at: datetime = START
    holdings: tuple[HoldingDocument, ...] | None = None
    holdings_at: datetime | None = None
    verdicts: list[Verdict] = field(default_factory=list)
    alerts: list[str] = field(default_factory=list)
    revisions: list[datetime] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.planned = self.problem
        self.memory = Memory(revision=1, market_version=1)
        self.held_before: dict[HoldingKey, int] = {}
        self.version = 1
        self.polled_at = self.now
        self.losses: tuple[Loss, ...] = ()
        self.interruptions: tuple[LearntRate, ...] = ()
        self.woken: dict[str, datetime] = {}
        self.usual_rps: dict[str, float] = {}
        self._known: dict[OfferKey, Offer] = {}
        self._history: list[tuple[datetime, tuple[OfferDocument, ...]]] = [
            (self.now - timedelta(days=1), self.offers)
        ]
        self.poll(*self.offers)
        if self.rented:
            self.reports(holdings_as_planned(self.plan))

    def passes(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    def poll(self, *offers: OfferDocument) -> None:
        """The market is these offers now; none: as it was."""
        self._known |= {offer.key: an_offer_of(offer) for offer in offers}
        if offers and offers != self.offers:
            self.offers, self.version = offers, self.version + 1
            self._history.append((self.now, offers))
        self.polled_at = self.now

    def reports(self, holdings: Sequence[HoldingDocument]) -> None:
        """What is rented, since the last poll."""
        gone = ends(self.holdings or (), holdings, rented_by(self.plan), self.now)
        for (provider, offer_id, contract, gpu, _gpus), over in gone.items():
            offer = self._known.get((provider, offer_id, contract))
            where = (None, None, None) if offer is None else (offer.machine_id, offer.host_id, offer.region)
            if over.lost:
                lost = Loss(provider, offer_id, contract, gpu, *where, at=self.now, count=over.lost)
                self.losses = (*self.losses, lost)
        self.holdings, self.holdings_at = tuple(holdings), self.now
        for each in reported(self.holdings):
            self.held_before[each.key] = max(each.count, self.held_before.get(each.key, 0))

    def facts(self, **others: Any) -> Facts:
        facts = Facts(
            problem=self.problem,
            planned=self.planned,
            plan=self.plan,
            issued_at=self.issued_at,
            policy=self.policy,
            reported=self.holdings,
            holdings=self.holdings,
            holdings_at=self.holdings_at,
            held_before=dict(self.held_before),
            traffic=self.traffic,
            market=seen_at(self.offers, self.polled_at, self.interruptions),
            settled=self.settled(),
            known=self._known,
            market_version=self.version,
            memory=self.memory,
            now=self.now,
            losses=self.losses,
            woken=self.woken,
            usual_rps=self.usual_rps,
        )
        return replace(facts, **others)

    def settled(self) -> dict[OfferKey, Settled]:
        since = self.now - timedelta(seconds=self.policy.settle_s)
        last_before = max(at for at, _ in self._history if at <= since or at == self._history[0][0])
        polls = [offers for at, offers in self._history if last_before <= at <= self.now]
        found = {}
        for offer in self.offers:
            past = [each for offers in polls for each in offers if each.key == offer.key]
            if len(past) == len(polls):
                prices = [each.price_usd_per_hour / each.gpus for each in past]
                found[offer.key] = Settled(max(prices), min(prices), min(each.available for each in past))
        return found

    def look(self, **others: Any) -> Verdict:
        """And what comes of it is carried out, as the policy and the world say."""
        facts = self.facts(**others)
        verdict = look(facts, consider)
        self.verdicts.append(verdict)
        self.memory = verdict.memory
        if verdict.alert:
            self.alerts.append(verdict.alert)
        if verdict.plan is not None:
            self._issue(verdict)
        return verdict

    def lives(self, polls: int, *markets: Sequence[OfferDocument], poll_s: float = POLL_S) -> None:
        """So many polls, each with the next of these markets, and a look after each."""
        for number in range(polls):
            self.passes(poll_s)
            self.poll(*(markets[number % len(markets)] if markets else ()))
            self.look()

    def _issue(self, verdict: Verdict) -> None:
        assert verdict.plan is not None
        revision = self.plan.revision + 1
        self.plan = issue_plan(
            verdict.plan,
            verdict.translation,
            plan_id=UUID(int=revision),
            created_at=self.now,
            revision=revision,
        )
        self.planned, self.issued_at = verdict.problem, self.now
        self.woken |= dict.fromkeys(verdict.prepared.facts.waking, self.now)
        self.memory = verdict.memory.after_issue(revision)
        self.held_before = {}
        self.revisions.append(self.now)
        if self.rented:
            self.reports(holdings_as_planned(self.plan))


def a_world(
    *offers: OfferDocument,
    rented: bool = True,
    problem: ProblemDocument | None = None,
    policy: Mapping[str, Any] | None = None,
    settled_in: bool = True,
) -> World:
    """A deployment with the best plan on these offers; `settled_in`: its first cool-down is over."""
    market = offers or a_market()
    planned = problem or a_problem()
    world = World(a_policy(**(policy or {})), planned, a_plan(planned, market), market, rented)
    if settled_in:
        world.passes(world.policy.cooldown_s + 1)
        world.poll()
    return world


def machines(world: World) -> dict[str, int]:
    """Of the current plan, by provider and offer."""
    found: dict[str, int] = {}
    for rental in world.plan.rentals:
        name = f"{rental.provider}/{rental.offer_id}"
        found[name] = found.get(name, 0) + rental.count
    return found
