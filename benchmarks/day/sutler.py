"""Sutler's own policy: the looks of the service, with facts from the simulated world in the place of its store.

Every poll brings a look, as a poll or an observation does in the service: what is rented, the traffic of the last
hour minute by minute, the market with what of it has settled, and the memory of the look before.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import numpy as np

from benchmarks.day.fleet import Fleet, fleet_of
from benchmarks.day.losses import PROVIDERS
from benchmarks.day.market import ForRent, left_over
from benchmarks.day.planning import NAME, Planner, document_of, instant
from benchmarks.day.policies import Sight
from benchmarks.day.simulation import POLL_S, Setting
from benchmarks.day.traffic import Day
from benchmarks.day.world import Machine
from sutler.service.deployments.holdings.lives import Loss
from sutler.service.deployments.holdings.schemas import HoldingDocument
from sutler.service.deployments.replanning.facts import Facts, OfferKey, Settled
from sutler.service.deployments.replanning.memory import Memory
from sutler.service.deployments.replanning.shared_market import SeenMarket
from sutler.service.deployments.replanning.standing_machines import reported
from sutler.service.deployments.replanning.verdict import Verdict, look
from sutler.service.deployments.schemas import PolicyDocument
from sutler.service.deployments.traffic.planned import shapes, stated_rps
from sutler.service.deployments.traffic.service import LONGEST_WINDOWS
from sutler.service.deployments.traffic.window import ModelTraffic, Observation, model_traffic
from sutler.service.documents.market import MarketDocument
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.translation.from_plan import issue_plan
from sutler.service.translation.stored_market import StoredMarket
from sutler.service.translation.to_problem import to_problem
from sutler.solver import solve
from sutler.solver.problem import Offer
from sutler.solver.replanning import HoldingKey, consider

_ID: Final = UUID(int=0)  # plans are told apart by their revision here


@dataclass(slots=True)
class SutlerPolicy:
    """Keeps one deployment; `plan` is the current one and `planned` the problem that it was made for.

    `reasons` collects why plans were issued: (seconds into the day, reason).
    """

    setting: Setting
    policy: PolicyDocument
    problem: ProblemDocument
    planned: ProblemDocument
    plan: PlanDocument
    issued_s: float = 0.0
    memory: Memory = field(default_factory=lambda: Memory(revision=1))
    reasons: list[tuple[float, str]] = field(default_factory=list)
    looks: Counter[str] = field(default_factory=Counter)
    held_before: dict[HoldingKey, int] = field(default_factory=dict)
    losses: tuple[Loss, ...] = ()
    _held: tuple[Machine, ...] = ()

    def decide(self, sight: Sight) -> Fleet | None:
        facts = self._facts(sight)
        verdict = look(facts, consider)
        considered = verdict.considered
        self.looks["searched" if considered and considered.searched else "considered" if considered else "calm"] += 1
        if verdict.plan is None:
            self.memory = verdict.memory
            return None
        return self._issued(verdict, sight.at_s)

    def _issued(self, verdict: Verdict, at_s: float) -> Fleet:
        assert verdict.plan is not None
        assert verdict.decision is not None
        revision = self.plan.revision + 1
        self.plan = issue_plan(
            verdict.plan, verdict.translation, plan_id=_ID, created_at=instant(at_s), revision=revision
        )
        self.planned, self.issued_s = verdict.problem, at_s
        self.memory = verdict.memory.after_issue(revision)
        self.held_before = {each.key: each.count for each in reported(tuple(_holdings(self._held)))}
        self.reasons.append((at_s, verdict.decision.reason))
        return _fleet(self.plan, self.setting.planner)

    def _facts(self, sight: Sight) -> Facts:
        offers = tuple(document_of(each) for each in sight.offers)
        now = instant(sight.at_s)
        seen = dict.fromkeys(PROVIDERS, now)  # one that fails still answers, that it has nothing
        holdings = tuple(_holdings(sight.rented))
        for each in reported(holdings):
            self.held_before[each.key] = max(each.count, self.held_before.get(each.key, 0))
        self.losses += tuple(_loss(machine, now) for machine in self._held if machine.is_lost)
        self._held = sight.rented
        return Facts(
            problem=self.problem,
            planned=self.planned,
            plan=self.plan,
            issued_at=instant(self.issued_s),
            policy=self.policy,
            reported=holdings,
            holdings=holdings,
            holdings_at=now - timedelta(seconds=1),
            held_before=dict(self.held_before),
            traffic={NAME: self._traffic(sight)},
            market=SeenMarket(StoredMarket(now, offers, seen)),
            settled=self._settled(sight),
            known={m.rented.key: Offer(**_fields(m.rented)) for m in sight.rented},
            market_version=self._market_version(sight.at_s),
            memory=self.memory,
            now=now,
            losses=self.losses,
        )

    def _traffic(self, sight: Sight) -> ModelTraffic:
        (model,) = self.planned.models
        return model_traffic(
            NAME,
            shapes(model),
            list(_observations(sight.day, sight.at_s, since_s=max(0.0, sight.at_s - self._reach_s))),
            now=instant(sight.at_s),
            window_s=self.policy.window_s,
            longest_s=LONGEST_WINDOWS * self.policy.window_s,
            planned_rps=stated_rps(model),
            lull_s=self.policy.shrink_after_s,
        )

    @property
    def _reach_s(self) -> float:
        return max(LONGEST_WINDOWS * self.policy.window_s, self.policy.shrink_after_s)

    def _settled(self, sight: Sight) -> dict[OfferKey, Settled]:
        """Offers that every poll within `settle_s` had, with the highest and lowest price of a GPU."""
        first_s = max(0.0, sight.at_s - self.policy.settle_s)
        polls = [self.setting.market.offers(float(at)) for at in np.arange(sight.at_s, first_s - 1.0, -POLL_S)]
        prices: dict[OfferKey, list[float]] = {}
        for poll in polls:
            for each in poll:
                prices.setdefault(each.key, []).append(each.offer.price_usd_per_hour / each.offer.gpus)
        return {key: Settled(max(p), min(p), 1) for key, p in prices.items() if len(p) == len(polls)}

    def _market_version(self, at_s: float) -> int:
        """Gives another number after every poll that brought another market than the one before."""
        offers = self.setting.market.offers
        before = self.memory.market_version
        if before is not None and offers(at_s) == offers(at_s - POLL_S):
            return before
        return round(at_s / POLL_S) + 1


def sutler_policy(setting: Setting, policy: PolicyDocument) -> tuple[SutlerPolicy, Fleet]:
    """The policy with its first plan: that for the mean traffic of the day, on the market at midnight."""
    planner = setting.planner
    rates = np.array([bucket.rate_rps for bucket in planner.buckets])
    offers = tuple(document_of(each) for each in left_over(setting.market.offers(0.0), ()))
    stated = planner.document(rates)
    on_market = planner.document(rates, market=MarketDocument(taken_at=instant(0.0), offers=offers))
    translation = to_problem(on_market, folder=None, now=instant(0.0))
    plan = issue_plan(solve(translation.problem), translation, plan_id=_ID, created_at=instant(0.0))
    return SutlerPolicy(setting, policy, stated, stated, plan), _fleet(plan, planner)


def _fleet(plan: PlanDocument, planner: Planner) -> Fleet:
    return fleet_of(plan, {route.workload: route.fractions for route in plan.routing}, planner.names)


def _holdings(rented: Iterable[Machine]) -> Iterator[HoldingDocument]:
    alike = Counter((machine.lease, machine.rented.key) for machine in rented)
    for (lease, _), count in alike.items():
        yield HoldingDocument(
            provider=lease.provider,
            offer_id=lease.offer_id,
            gpu=lease.gpu,
            gpus=lease.gpus,
            count=count,
            price_usd_per_hour=lease.price_usd_per_hour,
            contract=lease.contract,
        )


def _loss(machine: Machine, now: datetime) -> Loss:
    lease, offer = machine.lease, machine.rented.offer
    where = offer.machine_id, offer.host_id, offer.region
    return Loss(lease.provider, lease.offer_id, lease.contract, lease.gpu, *where, at=now, count=1)


def _fields(rented: ForRent) -> dict[str, Any]:
    return document_of(rented).model_dump(include=set(Offer.__slots__))


def _observations(day: Day, at_s: float, *, since_s: float) -> Iterator[Observation]:
    """Makes one observation per slice of the day."""
    for begin_s in np.arange(since_s, at_s, day.slice_s):
        end_s = float(begin_s) + day.slice_s
        counts = day.counts(float(begin_s), end_s)
        yield Observation(
            model=NAME,
            source="simulation",
            started_at=instant(float(begin_s)),
            ended_at=instant(end_s),
            requests=float(counts.sum()),
            buckets=tuple(
                (bucket.input_tokens, bucket.output_tokens, float(count))
                for bucket, count in zip(day.buckets, counts, strict=True)
                if count > 0
            ),
        )
