"""Makes one plan: take it up, read the market, solve, store. To make it twice stores it once (attempts.py)."""

import asyncio
import logging
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.api_tables import PlanRow
from sutler.service.db.notices import notify, plan_topic
from sutler.service.deployments import issuing
from sutler.service.deployments import repository as deployments
from sutler.service.deployments.diff.difference import difference
from sutler.service.deployments.replanning.verdict import Verdict, instead, issuable
from sutler.service.deployments.repository import Deployment
from sutler.service.deployments.schemas import PolicyDocument
from sutler.service.deployments.sharing.taken import Purse, SharedStore, Taken, purse_from, taken_from
from sutler.service.documents.errors import NoMarketDataError
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.plans import claims, repository
from sutler.service.plans.claims import Claimed
from sutler.service.plans.repository import PLANS
from sutler.service.plans.resources import SERVES
from sutler.service.profiles.references import with_calibration
from sutler.service.simulation.questions import ValidationQuestion
from sutler.service.simulation.validation import HALVINGS, MOST_ROUNDS
from sutler.service.translation.from_plan import issue_plan
from sutler.service.translation.stored_market import MarketStore
from sutler.service.translation.to_problem import Translation, to_problem
from sutler.service.workers.attempts import Attempts, limit_s
from sutler.service.workers.replan_job import Looker, Replan
from sutler.solver.plan import Plan
from sutler.solver.planner import nothing_for_rent
from sutler.solver.problem import Problem as SolverProblem
from sutler.solver.replanning import proven_by

MOST_SOLVES: Final = 1 + 2 * MOST_ROUNDS + HALVINGS

logger = logging.getLogger("sutler.solving")


@dataclass(frozen=True, slots=True)
class Claim(Claimed):
    """A plan of a problem that a worker has taken up."""

    problem: dict[str, Any]
    deployment_id: UUID | None


@dataclass(frozen=True, slots=True)
class Maker(Attempts[Claim]):
    """Makes plans; `looker` knows what runs already."""

    looker: Looker

    plans = PLANS
    claim = Claim

    async def fail(self, connection: AsyncConnection, claimed: Claim, failure: dict[str, Any]) -> None:
        deployment = await issuing.locked(connection, claimed.deployment_id)
        if not await claims.fail(connection, PlanRow, claimed, failure, self.now()):
            return
        if deployment is not None:
            await issuing.failed(connection, self.queue, deployment, claimed.id, failure)
        await notify(connection, plan_topic(claimed.id))

    async def make_and_store(self, claimed: Claim) -> None:
        """Again where other deployments took machines of the plan while it was made; they have theirs now."""
        while not await self._made_and_stored(claimed):
            logger.info("plan %s: another deployment took machines of it: it is made anew", claimed.id)

    async def _made_and_stored(self, claimed: Claim) -> bool:
        replan = await self.patiently(lambda: self._replan(claimed))
        made = await (self._made_anew(claimed) if replan is None else self._made_of(claimed, replan))
        stated = await self.patiently(
            lambda: asyncio.to_thread(self.market.with_chances, made.plan, made.translation)
        )
        made = replace(made, plan=stated)
        if not await self.persist(claimed, lambda connection: self._finish(connection, claimed, made)):
            return False
        logger.info("plan %s: %s in %.2f s", claimed.id, made.plan.status, made.plan.solver.seconds)
        return True

    async def _replan(self, claimed: Claim) -> Replan | None:
        """Where a fleet runs already, the plan starts from it; None where none does, or of no deployment."""
        if claimed.deployment_id is None:
            return None
        return await self.looker.asked(claimed.deployment_id)

    async def _made_anew(self, claimed: Claim) -> "Made":
        document = validate(ProblemDocument, claimed.problem)
        known = await self.persist(claimed, lambda connection: with_calibration(connection, document))
        taken, purse = await self.persist(claimed, lambda connection: self._shared(connection, claimed, document))
        if purse is not None:
            known = purse.of(known)
        read_at, translation = await self.patiently(lambda: self._translated(claimed, known, taken))
        if not translation.problem.offers:
            nothing = self._issued(claimed, nothing_for_rent(translation.problem), translation)
            return Made(nothing, translation, read_at, taken, purse)
        time_limit_s = document.solver.time_limit_s
        if await self._is_validated(claimed):
            issued = await self._replayed(claimed, translation, None, time_limit_s=MOST_SOLVES * time_limit_s)
            return Made(issued, translation, read_at, taken, purse)
        plan = await self._solved(claimed, translation.problem, time_limit_s=time_limit_s)
        return Made(self._issued(claimed, plan, translation), translation, read_at, taken, purse)

    async def _shared(
        self, connection: AsyncConnection, claimed: Claim, document: ProblemDocument
    ) -> tuple[Taken | None, Purse | None]:
        """What other deployments have taken, and what they leave of a shared budget; None: the plan is of no
        deployment, or on a market of its own; or there is no such budget."""
        if claimed.deployment_id is None:
            return None, None
        now = self.now()
        tenants = await self.looker.tenants.all(connection, now)
        deployment = await deployments.find_by_id(connection, claimed.deployment_id)
        budget = None if deployment is None else validate(PolicyDocument, deployment.policy).budget
        purse = purse_from(tenants, claimed.deployment_id, budget, project=claimed.project)
        is_own = document.market.offers is not None
        return None if is_own else taken_from(tenants, claimed.deployment_id, now), purse

    async def _is_validated(self, claimed: Claim) -> bool:
        """As the policy of the plan's deployment says."""
        if claimed.deployment_id is None:
            return False
        deployment_id = claimed.deployment_id
        deployment = await self.persist(claimed, lambda connection: deployments.find_by_id(connection, deployment_id))
        return deployment is not None and validate(PolicyDocument, deployment.policy).validate_plans

    async def _replayed(
        self, claimed: Claim, translation: Translation, plan: Plan | None, *, time_limit_s: float
    ) -> PlanDocument:
        asked, longest_s = ValidationQuestion(translation, claimed.id, self.now(), plan), limit_s(time_limit_s)
        return await self.solved(claimed, lambda solver, seen: solver.validate(asked, seen.add, limit_s=longest_s))

    def _issued(self, claimed: Claim, plan: Plan, translation: Translation) -> PlanDocument:
        return issue_plan(plan, translation, plan_id=claimed.id, created_at=self.now())

    async def _made_of(self, claimed: Claim, replan: Replan) -> "Made":
        """The best change of the running fleet, and the proof of how good any fleet could be."""
        verdict = await self.looker.verdict(replan.prepared)
        replan = replace(replan, prepared=verdict.prepared)
        optimum = await self._solved(
            claimed, replan.problem, time_limit_s=replan.prepared.problem.solver.time_limit_s
        )
        best = issuable(optimum, replan.prepared)
        if verdict.plan is not None:
            plan = proven_by(verdict.plan, best, replan.problem)
        else:
            plan, verdict = best, instead(verdict, best)
        if replan.facts.policy.validate_plans:
            time_limit_s = replan.problem.options.time_limit_s
            issued = await self._replayed(claimed, verdict.translation, plan, time_limit_s=time_limit_s)
        else:
            issued = self._issued(claimed, plan, verdict.translation)
        facts = replan.facts
        return Made(issued, verdict.translation, facts.now, facts.taken, facts.purse, replan, verdict)

    async def _translated(
        self, claimed: Claim, document: ProblemDocument, taken: Taken | None
    ) -> tuple[datetime, Translation]:
        """With the market as it was at that time, which is empty where others have all that there is."""
        now, market = self.now(), self.market.of(claimed.project)

        def translated(store: MarketStore, *, may_be_empty: bool = False) -> Translation:
            return to_problem(document, folder=None, now=now, store=store, may_be_empty=may_be_empty)

        if taken is None or not taken.claims:
            return now, await asyncio.to_thread(translated, market)
        store = SharedStore(market, taken)
        try:
            return now, await asyncio.to_thread(translated, store)
        except NoMarketDataError:
            await asyncio.to_thread(translated, market)  # raises where others do not matter
            return now, await asyncio.to_thread(translated, store, may_be_empty=True)

    async def _solved(self, claimed: Claim, problem: SolverProblem, *, time_limit_s: float) -> Plan:
        longest_s = limit_s(time_limit_s)
        return await self.solved(claimed, lambda solver, seen: solver.solve(problem, seen.add, limit_s=longest_s))

    async def _finish(self, connection: AsyncConnection, claimed: Claim, made: "Made") -> bool:
        """Whether it could be: other deployments may have taken machines of the plan."""
        deployment = await issuing.locked(connection, claimed.deployment_id)
        if deployment and not await self.looker.is_free(connection, deployment, made.taken, made.purse, made.plan):
            return False
        now = self.now()
        revision = None if deployment is None else deployment.revision + 1
        issued = made.plan.model_copy(update={"created_at": now, "revision": revision or 1})
        columns = repository.made(issued)
        await self.finish(connection, claimed, now=now, market_read_at=made.read_at, revision=revision, **columns)
        if deployment is not None:
            await self._issue(connection, deployment, claimed, made, issued)
        return True

    async def _issue(
        self, connection: AsyncConnection, deployment: Deployment, claimed: Claim, made: "Made", issued: PlanDocument
    ) -> None:
        """With what it changes about the plan that held before, which is what it was made from."""
        before = None if made.replan is None else made.replan.facts.plan
        holdings = None if made.replan is None else made.replan.facts.holdings
        diff = (
            difference(before, issued, reason=made.reason, held=holdings, of_running=made.replan is not None)
            if issued.status in SERVES
            else None
        )
        problem = claimed.problem if made.replan is None else made.replan.problem_json()
        content = None if diff is None else diff.model_dump_json(by_alias=True)
        await repository.explain(connection, claimed.id, problem=problem, reason=made.reason, diff=content)
        await issuing.issue(connection, self.queue, deployment, issued, reason=made.reason, diff=diff)
        if made.replan is not None and made.verdict is not None:
            await self.looker.note_asked(connection, made.replan, made.verdict, issued.revision)


@dataclass(frozen=True, slots=True)
class Made:
    """A plan, what it was made from, and when; `replan` and `verdict` where a fleet ran already.

    `taken`: what other deployments had taken by then, and `purse`: what they left of a budget; None: there was
    nothing to share.
    """

    plan: PlanDocument
    translation: Translation
    read_at: datetime
    taken: Taken | None = None
    purse: Purse | None = None
    replan: Replan | None = None
    verdict: Verdict | None = None

    @property
    def reason(self) -> str:
        if self.verdict is None or self.verdict.decision is None:
            return "the first plan"
        return f"asked for: {self.verdict.decision.reason}"
