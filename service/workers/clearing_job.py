"""Machines that are planned on and not held yet go to those for whom they are worth most, all at once.

Every deployment is planned by itself, on what the others leave: the first to come has the first choice. A moment
later those whose plans are still to be carried out are cleared together (solver/clearing.py), by priority and then by
prices; who gets other machines is looked at anew on what the rest leave. Their plans are issued in one transaction,
or none is, where anything has changed meanwhile: so no machine is in two current plans at any time. As it only ever
serves more or costs clearly less, and begins only where plans or holdings have changed, it comes to an end.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID, uuid4

from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.engine import translated
from sutler.service.db.errors import DatabaseError
from sutler.service.db.projects import enter
from sutler.service.deployments import repository as deployments
from sutler.service.deployments.replanning.facts import Facts
from sutler.service.deployments.replanning.preparing import PreparedLook
from sutler.service.deployments.replanning.repository import WatchedDeployment
from sutler.service.deployments.replanning.verdict import Verdict, first_step, instead, issuable
from sutler.service.deployments.sharing import repository as sharing
from sutler.service.deployments.sharing.taken import OfferKey, Rented, Tenant, purse_from, taken_from
from sutler.service.documents.plan import PlanDocument
from sutler.service.plans import repository as plans
from sutler.service.translation.from_plan import issue_plan
from sutler.service.workers.errors import SolverLostError, StoppingError
from sutler.service.workers.replan_job import SLACK_S, Looker
from sutler.solver.clearing import LEAST_GAIN, Claimant, Clearing, Fleet, Machines
from sutler.solver.planner import nothing_for_rent
from sutler.solver.problem import Problem

TIME_LIMIT_S: Final = 60.0  # chosen: twenty deployments take a quarter of it
PATIENCE: Final = timedelta(seconds=30)  # chosen: who come together are cleared together; few plans take longer
MOST: Final = 50  # chosen: what is more keeps what it plans on, so that a clearing ends within its time
GIVEN_UP: Final = "what is not held yet is shared out"

logger = logging.getLogger("sutler.clearing")


class _VoidError(Exception):
    """Something has changed meanwhile."""


@dataclass(frozen=True, slots=True)
class _Wish:
    """A deployment that may get other machines than it plans on."""

    tenant: Tenant
    watched: WatchedDeployment
    claimant: Claimant

    @property
    def id(self) -> UUID:
        return self.tenant.deployment_id


@dataclass(frozen=True, slots=True)
class _Issue:
    """A plan that is to be issued."""

    wish: _Wish
    facts: Facts
    verdict: Verdict
    document: PlanDocument


@dataclass(slots=True)
class Clearer:
    """One worker's part; of all workers one clears at a time."""

    looker: Looker
    _seen: object = None
    _calm: object = None
    _lost: object = None

    async def clear(self, connection: AsyncConnection) -> None:
        """Clears the market, where plans or holdings have changed since the last time. Raises DatabaseError."""
        if not await sharing.is_only_one(connection):
            return
        known = await sharing.plans_and_holdings(connection)
        if known == self._calm:
            return
        now = self.looker.now()
        tenants = await self.looker.tenants.all(connection, now)
        if not any(tenant.is_open(now) for tenant in tenants):
            self._calm = known
        seen = _state_of(tenants, now)
        if seen == self._seen or await sharing.is_planning(connection, now - PATIENCE):
            return
        try:
            with translated():
                async with connection.begin_nested():
                    await self._clear(connection, {tenant.deployment_id: tenant for tenant in tenants}, now)
        except DatabaseError:
            raise
        except (StoppingError, _VoidError) as void:
            logger.info("this clearing is void: %s", void)
            return
        except SolverLostError as lost:
            logger.warning("the market could not be cleared: %s", lost)
            if self._lost != seen:  # once more: it may have been killed
                self._lost = seen
                return
        except Exception:
            logger.exception("the market could not be cleared")
        self._seen = seen

    async def _clear(self, connection: AsyncConnection, tenants: dict[UUID, Tenant], now: datetime) -> None:
        closed: set[UUID] = set()
        while True:
            wishing = [t for t in tenants.values() if t.is_open(now) and t.deployment_id not in closed]
            wishing = sorted(wishing, key=lambda t: (t.priority, t.issued_at), reverse=True)[:MOST]
            wishing.sort(key=lambda t: t.issued_at)
            if not wishing or (len(wishing) == 1 and not wishing[0].lack_fraction):
                return
            wishes, unfit = await self._wishes(wishing, tenants)
            if not unfit:
                fleets = await self._fleets(wishes, tenants)
                issues, unfit, after = await self._planned(wishes, fleets, tenants)
            if not unfit:
                await self._issue(connection, issues, after)
                return
            closed |= unfit

    async def _wishes(
        self, wishing: Sequence[Tenant], tenants: Mapping[UUID, Tenant]
    ) -> tuple[list[_Wish], set[UUID]]:
        """What each could be given on a market on which none of them plans; and who seems to rent its machines just
        now, since they are not for rent any more, or cannot be looked at."""
        free = {**tenants, **{tenant.deployment_id: tenant.renting((), 0.0) for tenant in wishing}}
        wishes, unfit = [], set()
        for tenant in wishing:
            watched = await self.looker.watched(tenant.deployment_id)
            if watched is None or (watched.version, watched.plan_id) != (tenant.version, tenant.plan_id):
                raise _VoidError(f"{tenant.name} has changed")
            try:
                facts = await self.looker.facts(watched, given_up_for=GIVEN_UP, others=tuple(free.values()))
                step = await asyncio.to_thread(first_step, facts)
            except DatabaseError:
                raise
            except Exception as error:
                logger.info("%s cannot be looked at, and keeps what it plans on: %s", tenant.name, error)
                unfit.add(tenant.deployment_id)
                continue
            assert isinstance(step, PreparedLook)  # what is given up is always considered
            problem, budget = step.question.problem, tenant.policy.budget
            planned = _planned_fleet(tenant, problem)
            if not problem.models or (planned is None and tenant.wanted()):  # all sleep, or it seems to rent them
                unfit.add(tenant.deployment_id)
                continue
            purse = None if budget is None else _purse(tenant, budget.name)
            stated = step.assessed.stated
            claimant = Claimant(_beside_held(problem), planned, tenant.priority, purse, stated)
            wishes.append(_Wish(tenant, watched, claimant))
        return wishes, unfit

    async def _fleets(self, wishes: Sequence[_Wish], tenants: Mapping[UUID, Tenant]) -> Sequence[Fleet | None]:
        free = {**tenants, **{wish.id: wish.tenant.renting((), 0.0) for wish in wishes}}
        purses = {}
        for wish in wishes:
            tenant = wish.tenant
            purse = purse_from(free.values(), wish.id, tenant.policy.budget, project=tenant.project)
            if purse is not None:
                purses[_purse(tenant, purse.name)] = max(0.0, purse.left_usd_per_hour - purse.standing_usd_per_hour)
        clearing = Clearing(tuple(wish.claimant for wish in wishes), purses, TIME_LIMIT_S)
        return await self.looker.ask_solver(
            lambda solver: solver.clear(clearing, limit_s=1.5 * TIME_LIMIT_S + SLACK_S)
        )

    async def _planned(
        self, wishes: Sequence[_Wish], fleets: Sequence[Fleet | None], tenants: Mapping[UUID, Tenant]
    ) -> tuple[list[_Issue], set[UUID], dict[UUID, Tenant]]:
        """The plans of those who get other machines, the highest priority first; who has none without its machines,
        though it holds some already, or a dearer one than it was to have; and all deployments as they are then."""
        moved = [
            (wish, fleet)
            for wish, fleet in zip(wishes, fleets, strict=True)
            if _machines(fleet) != _machines(wish.claimant.planned)
        ]
        after = {**tenants, **{wish.id: _with_fleet(wish.tenant, fleet) for wish, fleet in moved}}
        issues: list[_Issue] = []
        for wish, fleet in sorted(moved, key=lambda one: (-one[0].tenant.priority, one[1] is None)):
            others = {**after, wish.id: wish.tenant.renting((), 0.0)}
            takers = _takers(wish, fleet, moved)
            why = _why(wish, takers)
            facts = await self.looker.facts(wish.watched, given_up_for=why, others=tuple(others.values()))
            verdict = await self.looker.verdict(await asyncio.to_thread(first_step, facts))
            if verdict.plan is not None:
                document = await self.looker.document(facts, verdict, verdict.plan)
            elif wish.tenant.held or not wish.tenant.wanted():
                return [], {wish.id}, after
            else:
                verdict, document = await self._without_fleet(verdict, why)
            after[wish.id] = _with_document(wish.tenant, document)
            if _counted(after[wish.id].rentals) == _counted(wish.tenant.wanted()):
                continue  # there is nothing to issue
            cost = after[wish.id].planned_usd_per_hour - (wish.tenant.held_usd_per_hour or 0.0)
            most = None if fleet is None else fleet.usd_per_hour * (1 + LEAST_GAIN)
            is_outranked = any(one.priority > wish.tenant.priority for one in takers)
            if most is not None and cost > most and not is_outranked:
                return [], {wish.id}, after  # what it would be given does not suit it; else this might go on and on
            issues.append(_Issue(wish, facts, verdict, document))
        return issues, set(), after

    async def _without_fleet(self, verdict: Verdict, why: str) -> tuple[Verdict, PlanDocument]:
        """The plan of one that is left without machines: it says what would have to give."""
        problem = verdict.prepared.question.problem
        limit_s = 1.5 * problem.options.time_limit_s + SLACK_S
        best = nothing_for_rent(problem)
        if problem.offers:
            best = await self.looker.ask_solver(lambda solver: solver.solve(problem, lambda _: None, limit_s=limit_s))
        verdict = instead(verdict, issuable(best, verdict.prepared))
        assert verdict.decision is not None
        verdict = replace(verdict, decision=replace(verdict.decision, reason=f"{why}; {verdict.decision.reason}"))
        return verdict, issue_plan(best, verdict.translation, plan_id=uuid4(), created_at=self.looker.now())

    async def _issue(
        self, connection: AsyncConnection, issues: Sequence[_Issue], after: Mapping[UUID, Tenant]
    ) -> None:
        """All, or none."""
        locked = {}
        for issue in sorted(issues, key=lambda one: one.wish.id):
            watched = issue.wish.watched
            found = await deployments.find_by_id(connection, watched.deployment_id, lock=True)
            if found is None or (found.version, found.plan_id) != (watched.version, watched.plan_id):
                raise _VoidError(f"{watched.name} has changed")
            if await plans.pending_of(connection, found.id) is not None:
                raise _VoidError(f"{watched.name} is being planned")
            if not await self.looker.holds(connection, found, issue.facts):
                raise _VoidError(f"{watched.name} holds other machines")
            locked[found.id] = found
        await sharing.lock(connection)
        now = self.looker.now()
        for issue in issues:
            made = issue.wish.watched, issue.facts, issue.verdict, issue.document
            await enter(connection, issue.wish.watched.project)
            await self.looker.issue(connection, locked[issue.wish.id], *made, now=now)
        for issue in issues:
            deployment = locked[issue.wish.id]
            taken = taken_from(after.values(), deployment.id, now)
            budget = issue.wish.tenant.policy.budget
            purse = purse_from(after.values(), deployment.id, budget, project=deployment.project)
            if not await self.looker.is_free(connection, deployment, taken, purse, issue.document):
                raise _VoidError(f"others took machines or money of {deployment.name}")


def _purse(tenant: Tenant, name: str) -> str:
    """What a budget is called among those of all projects."""
    return f"{tenant.project}/{name}"


def _state_of(tenants: Iterable[Tenant], now: datetime) -> object:
    """All that a clearing depends on but the market, which every look follows by itself."""
    return [
        (t.deployment_id, t.version, t.plan_id, sorted(t.held.items()), round(t.lack_fraction, 2), t.is_open(now))
        for t in tenants
    ]


def _planned_fleet(tenant: Tenant, problem: Problem) -> Fleet | None:
    """What its plan is to rent yet; None: its plan serves nothing, or some of it is not for rent any more."""
    offers = {(o.provider, o.offer_id, str(o.contract)): o for o in problem.offers if not o.held}
    machines, usd = [], 0.0
    for one in tenant.wanted():
        offer = offers.get(one.key)
        if offer is None or one.count * one.gpus > offer.available * offer.gpus:
            return None
        usd += offer.price_usd_per_hour * one.gpus / offer.gpus * one.count
        machines.append(Machines(one.key, one.gpus, one.count, offer.machine_id))
    if not machines and tenant.lack_fraction >= 1:
        return None
    return Fleet(tuple(sorted(machines, key=lambda one: (one.key, one.gpus))), usd, tenant.lack_fraction)


def _beside_held(problem: Problem) -> Problem:
    """With what may be spent beside what is held."""
    if problem.budget_usd_per_hour is None:
        return problem
    held = sum(offer.price_usd_per_hour * offer.available for offer in problem.offers if offer.held)
    return replace(problem, budget_usd_per_hour=max(0.0, problem.budget_usd_per_hour - held))


def _counted(rentals: Iterable[Rented]) -> Counter[tuple[OfferKey, int]]:
    found: Counter[tuple[OfferKey, int]] = Counter()
    for one in rentals:
        found[one.key, one.gpus] += one.count
    return found


def _machines(fleet: Fleet | None) -> object:
    return None if fleet is None else fleet.machines


def _with_fleet(tenant: Tenant, fleet: Fleet | None) -> Tenant:
    if fleet is None:
        return tenant.renting((), 0.0)
    return tenant.renting([Rented(m.key, m.gpus, m.count, m.machine_id) for m in fleet.machines], fleet.usd_per_hour)


def _with_document(tenant: Tenant, plan: PlanDocument) -> Tenant:
    new = [rental for rental in plan.rentals if not rental.held]
    rented = [Rented((r.provider, r.offer_id, str(r.contract)), r.gpus, r.count, r.machine_id) for r in new]
    return tenant.renting(rented, sum(rental.price_usd_per_hour * rental.count for rental in new))


def _takers(wish: _Wish, fleet: Fleet | None, moved: Sequence[tuple[_Wish, Fleet | None]]) -> list[Tenant]:
    """Who gets what it planned on."""

    def keys(one: Fleet | None) -> set[OfferKey]:
        return set() if one is None else {machines.key for machines in one.machines}

    lost = keys(wish.claimant.planned) - keys(fleet)
    return [other.tenant for other, theirs in moved if other.id != wish.id and lost & keys(theirs)]


def _why(wish: _Wish, takers: Sequence[Tenant]) -> str:
    """Why it gets other machines, for people, who are told no names of other projects'."""
    if not takers:
        return "machines that others planned on and did not hold yet are shared out anew"
    mine = wish.tenant.priority
    ours = [t for t in takers if t.project == wish.tenant.project]
    told = [f"{t.name} (priority {t.priority}, here {mine})" if t.priority > mine else t.name for t in ours]
    theirs = len(takers) - len(ours)
    if theirs:
        told.append(f"{theirs} deployment{'s' * (theirs > 1)} of other projects")
    why = "" if any(one.priority > mine for one in takers) else ", for which they are worth more"
    return f"machines that were planned on and not held yet go to {', '.join(told)}{why}"
