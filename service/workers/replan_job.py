"""Looks with a database and a clock: facts are read, the solver asked, what comes of it stored in one transaction.

A plan is issued under the deployment's row lock, only if that is still the deployment that was looked at, with the
plan that was looked at, and nothing else under way: so each decision is issued once, however many look at the same
time, and a look that dies leaves nothing behind but its being due.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar
from uuid import UUID, uuid4

from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from sutler.service.db.asynchronous import begun, reading
from sutler.service.db.errors import DatabaseError
from sutler.service.db.projects import across, of_project
from sutler.service.db.queue import Queue
from sutler.service.deployments import issuing
from sutler.service.deployments import repository as deployments
from sutler.service.deployments.diff.difference import difference
from sutler.service.deployments.holdings.lives_repository import losses
from sutler.service.deployments.holdings.repository import counts, documents_of, machines_by_key, reported
from sutler.service.deployments.holdings.schemas import HoldingDocument
from sutler.service.deployments.rates.service import lesson
from sutler.service.deployments.replanning import repository
from sutler.service.deployments.replanning.avoiding import REMEMBERED
from sutler.service.deployments.replanning.facts import Facts
from sutler.service.deployments.replanning.load import carries_load, has_same_workloads
from sutler.service.deployments.replanning.memory import remembered
from sutler.service.deployments.replanning.preparing import PreparedLook
from sutler.service.deployments.replanning.repository import WatchedDeployment
from sutler.service.deployments.replanning.shared_market import SharedMarket
from sutler.service.deployments.replanning.verdict import State, Verdict, first_step, next_step
from sutler.service.deployments.schemas import PolicyDocument
from sutler.service.deployments.sharing import repository as sharing
from sutler.service.deployments.sharing.repository import Tenants
from sutler.service.deployments.sharing.taken import (
    Purse,
    SharedStore,
    Taken,
    Tenant,
    purse_from,
    taken_from,
)
from sutler.service.deployments.traffic.service import traffic_of, usual_rps
from sutler.service.deployments.watch_schema import (
    AvoidedResource,
    DecisionResource,
    DriftResource,
    OptionResource,
    Status,
)
from sutler.service.documents.fields import finite
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.plans import repository as plans
from sutler.service.plans.resources import SERVES
from sutler.service.profiles.references import replaced, with_calibration
from sutler.service.simulation.questions import ValidationQuestion
from sutler.service.translation.from_plan import issue_plan
from sutler.service.translation.mapping import mapped
from sutler.service.web.problem import problem_of
from sutler.service.webhooks.service import announce
from sutler.service.workers.errors import StoppingError
from sutler.service.workers.solver_process import SolverProcess
from sutler.solver.plan import Conflict, Plan
from sutler.solver.problem import Problem
from sutler.solver.replanning import Consideration, Considered, ReplanOption

T = TypeVar("T")

logger = logging.getLogger("sutler.replanning")

BLIND_S: Final = 60.0  # chosen: what keeps it from looking rarely passes sooner, and a poll brings a look in any case
WORTH_TELLING: Final = 2  # failures in a row: one may be a passing weakness
SLACK_S: Final = 30.0  # beyond a solve's own limit, for what it does not count


@dataclass(frozen=True, slots=True)
class Looker:
    """What a worker looks at deployments with; `solvers` are the processes that are free for it."""

    engine: AsyncEngine
    queue: Queue
    market: SharedMarket
    tenants: Tenants
    solvers: "asyncio.Queue[SolverProcess]"
    now: Callable[[], datetime]
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask_for_looks(self, connection: AsyncConnection) -> None:
        """Puts what is due into the queue."""
        await repository.overtake(connection)
        for deployment_id, is_urgent in await repository.due(connection, self.now()):
            await self.queue.look(connection, deployment_id, is_urgent=is_urgent)

    async def look(self, deployment_id: UUID) -> None:
        """Looks once. Raises DatabaseError: the deployment is then still due."""
        watched = await self.watched(deployment_id)
        if watched is None:
            return
        try:
            facts = await self.facts(watched)
            verdict = await self.verdict(await asyncio.to_thread(first_step, facts))
            document = None if verdict.plan is None else await self.document(facts, verdict, verdict.plan)
            await self._store(watched, facts, verdict, document)
        except DatabaseError:
            raise
        except StoppingError:
            return  # it is still due
        except Exception as error:
            await self._store_blindness(watched, error)

    async def watched(self, deployment_id: UUID) -> WatchedDeployment | None:
        async with reading(across(self.engine)) as connection:
            return await repository.watched(connection, deployment_id)

    async def facts(
        self,
        watched: WatchedDeployment,
        *,
        is_asked: bool = False,
        given_up_for: str = "",
        others: Sequence[Tenant] | None = None,
    ) -> Facts:
        """Reads what a look starts from. `others`: other deployments as they are to be; None: as they are.

        Raises DatabaseError, DocumentError.
        """
        policy = validate(PolicyDocument, watched.policy)
        problem = validate(ProblemDocument, watched.problem)
        planned = validate(ProblemDocument, watched.planned)
        plan = PlanDocument.model_validate_json(watched.document)
        now, held = self.now(), documents_of(watched.holdings)
        async with reading(of_project(self.engine, watched.project)) as connection:
            problem = await with_calibration(connection, problem)
            models = planned.models if has_same_workloads(planned, problem) else problem.models
            traffic = await traffic_of(connection, watched.deployment_id, models, policy, now=now)
            is_shared = problem.market.offers is None
            if others is None:
                shares = is_shared or policy.budget is not None
                tenants = self.tenants.all if is_asked or watched.is_touched else self.tenants.lately
                others = await tenants(connection, now) if shares else ()
            taken = taken_from(others, watched.deployment_id, now) if is_shared else None
            lost = await losses(connection, watched.deployment_id, since=now - REMEMBERED, is_shared=is_shared)
            learning = await lesson(
                connection, watched.deployment_id, watched.learnt, problem=problem, plan=plan, policy=policy, now=now
            )
        market, settled, known, version = None, None, {}, 0
        if is_shared:
            version = watched.market_version
            market, settled = await asyncio.to_thread(
                self.market.seen,
                version=version,
                settle_s=policy.settle_s,
                now=now,
                project=watched.project,
            )
            rented = {(r.provider, r.offer_id, str(r.contract)) for r in plan.rentals}
            rented |= {h.key[:3] for h in held or ()}
            known = await asyncio.to_thread(self.market.known, rented)
        lead = timedelta(seconds=policy.startup_s + policy.drain_s)
        facts = Facts(
            problem=replaced(problem, learning.calibration)
            if policy.learn_rates and learning.calibration
            else problem,
            planned=planned,
            plan=plan,
            issued_at=watched.issued_at,
            policy=policy,
            reported=held,
            holdings=_lasting(held, now + lead),
            holdings_at=watched.holdings_at,
            held_before=machines_by_key(watched.held_before),
            traffic=traffic,
            market=None if market is None or taken is None else SharedStore(market, taken),
            settled=settled,
            known=known,
            market_version=version,
            memory=remembered(watched.memory, revision=watched.revision),
            now=now,
            is_asked=is_asked,
            is_behind=watched.newest_revision > watched.revision,
            taken=taken,
            losses=lost,
            woken={name: datetime.fromisoformat(at) for name, at in watched.woken.items()},
            purse=purse_from(others, watched.deployment_id, policy.budget, project=watched.project),
            given_up_for=given_up_for,
            lesson=learning,
        )
        return replace(facts, usual_rps=await self._usual_rps(watched, facts))

    async def _usual_rps(self, watched: WatchedDeployment, facts: Facts) -> dict[str, float]:
        """Requests/s by model that more usually comes to by the time that what is ordered now serves."""
        quantile = facts.policy.lead_quantile
        if not facts.policy.season or quantile is None or not carries_load(facts.problem):
            return {}
        models = list(facts.traffic)
        async with reading(of_project(self.engine, watched.project)) as connection:
            return await usual_rps(
                connection, watched.deployment_id, models, now=facts.now, ahead=facts.ahead, quantile=quantile
            )

    async def asked(self, deployment_id: UUID) -> "Replan | None":
        """What a plan that was asked for starts from; None where no plan that serves holds yet.

        Raises what the problem raises.
        """
        watched = await self.watched(deployment_id)
        if watched is None or watched.status not in SERVES:
            return None
        step = await asyncio.to_thread(first_step, await self.facts(watched, is_asked=True))
        assert isinstance(step, PreparedLook)  # what is asked for is always considered
        return Replan(watched, step)

    async def note_asked(
        self, connection: AsyncConnection, replan: "Replan", verdict: Verdict, revision: int
    ) -> None:
        """Notes a decision that was asked for in the log of decisions."""
        if verdict.decision is not None:
            decision = _logged(replan.watched, verdict, revision, now=self.now())
            await repository.add_decision(connection, replan.watched.deployment_id, decision)

    async def verdict(self, step: PreparedLook | Verdict) -> Verdict:
        """What a look comes to that has come this far. Raises what the problem or the solver raises."""
        while isinstance(step, PreparedLook):
            step = await asyncio.to_thread(next_step, step, await self._considered(step.question))
        return step

    async def _considered(self, question: Consideration) -> Considered:
        limit_s = 1.5 * question.problem.options.time_limit_s + SLACK_S
        return await self.ask_solver(lambda solver: solver.consider(question, lambda progress: None, limit_s=limit_s))

    async def document(self, facts: Facts, verdict: Verdict, plan: Plan) -> PlanDocument:
        """The plan as it is issued, but for its revision; replayed where the policy asks for it."""
        translation, now = verdict.translation, self.now()
        if not facts.policy.validate_plans or not plan.replicas:
            issued = issue_plan(plan, translation, plan_id=uuid4(), created_at=now)
        else:
            question = ValidationQuestion(translation, uuid4(), now, plan)
            limit_s = translation.problem.options.time_limit_s + SLACK_S
            issued = await self.ask_solver(
                lambda solver: solver.validate(question, lambda progress: None, limit_s=limit_s)
            )
        return await asyncio.to_thread(self.market.with_chances, issued, translation)

    async def ask_solver(self, ask: Callable[[SolverProcess], Coroutine[Any, Any, T]]) -> T:
        """What a free solver process answers, unless this worker ends."""
        solver = await self.solvers.get()
        asking = asyncio.ensure_future(ask(solver))
        stopping = asyncio.ensure_future(self.stopping.wait())
        try:
            await asyncio.wait({asking, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not asking.done():
                raise StoppingError
            return asking.result()
        finally:
            for task in (asking, stopping):
                task.cancel()
            await asyncio.wait({asking, stopping})
            self.solvers.put_nowait(solver)

    async def _store(
        self, watched: WatchedDeployment, facts: Facts, verdict: Verdict, document: PlanDocument | None
    ) -> None:
        async with begun(of_project(self.engine, watched.project)) as connection:
            deployment = await deployments.find_by_id(connection, watched.deployment_id, lock=True)
            if deployment is None:
                return
            if (deployment.version, deployment.plan_id) != (watched.version, watched.plan_id):
                logger.info("%s has changed meanwhile: this look is void", watched.name)
                return
            if await plans.pending_of(connection, deployment.id) is not None:
                return
            if not await self.holds(connection, deployment, facts):
                logger.info("%s: what is held has changed meanwhile: this look is void", watched.name)
                return
            if document is not None and not await self.is_free(
                connection, deployment, facts.taken, facts.purse, document
            ):
                logger.info("%s: another deployment took machines or money: this look is void", watched.name)
                return
            await self.issue(connection, deployment, watched, facts, verdict, document, now=self.now())

    async def holds(self, connection: AsyncConnection, deployment: deployments.Deployment, facts: Facts) -> bool:
        """Whether it still holds what it held when it was looked at."""
        return _same_machines((await reported(connection, deployment.id)).holdings, facts.reported)

    async def issue(
        self,
        connection: AsyncConnection,
        deployment: deployments.Deployment,
        watched: WatchedDeployment,
        facts: Facts,
        verdict: Verdict,
        document: PlanDocument | None,
        *,
        now: datetime,
    ) -> None:
        """Stores what a look has come to, and issues its plan, if there is one."""
        issued = None
        if document is not None:
            issued = await self._issue(connection, deployment, facts, verdict, document, now=now)
            logger.info("%s: revision %d: %s", watched.name, issued, verdict.state.detail)
        await self._note(connection, watched, facts, verdict, issued, now=now)
        if verdict.alert:
            await self._announce(connection, watched, verdict.state.status, verdict.alert, verdict.state.conflicts)

    async def is_free(
        self,
        connection: AsyncConnection,
        deployment: deployments.Deployment,
        taken: Taken | None,
        purse: Purse | None,
        document: PlanDocument,
    ) -> bool:
        """Whether no other deployment has taken more of what the plan would newly rent, or of the money for it, than
        what was known; until the end of the transaction none can. No `taken`: the plan is on a market of its own."""
        budget = validate(PolicyDocument, deployment.policy).budget
        if taken is None and budget is None:
            return True
        await sharing.lock(connection)
        now = self.now()
        tenants = await self.tenants.all(connection, now)
        is_there = taken is None or taken_from(tenants, deployment.id, now).of(document) <= taken.of(document)
        money = purse_from(tenants, deployment.id, budget, project=deployment.project)
        return is_there and (money is None or money.pays(document, purse))

    async def _issue(
        self,
        connection: AsyncConnection,
        deployment: deployments.Deployment,
        facts: Facts,
        verdict: Verdict,
        document: PlanDocument,
        *,
        now: datetime,
    ) -> int:
        assert verdict.decision is not None
        revision, reason = deployment.revision + 1, verdict.decision.reason
        document = document.model_copy(update={"created_at": now, "revision": revision})
        diff = None
        if document.status in SERVES:
            diff = difference(facts.plan, document, reason=reason, held=facts.holdings, of_running=True)
        await plans.add_finished(
            connection,
            document,
            problem=verdict.problem.model_dump(mode="json", by_alias=True, exclude_unset=True),
            created_by="scheduler",
            deployment_id=deployment.id,
            deployment_name=deployment.name,
            now=now,
            reason=reason,
            diff=None if diff is None else diff.model_dump_json(by_alias=True),
        )
        gives_up = bool(facts.given_up_for)
        await issuing.issue(connection, self.queue, deployment, document, reason=reason, diff=diff, gives_up=gives_up)
        return revision

    async def _note(
        self,
        connection: AsyncConnection,
        watched: WatchedDeployment,
        facts: Facts,
        verdict: Verdict,
        issued: int | None,
        *,
        now: datetime,
    ) -> None:
        memory, look_at = verdict.memory, verdict.look_at
        if issued is not None and verdict.prepared.facts.waking:
            await deployments.wake(connection, watched.deployment_id, verdict.prepared.facts.waking, now)
        if issued is not None:
            memory = memory.after_issue(issued)
            look_at = now + timedelta(seconds=facts.policy.refine_s)
        await repository.looked(
            connection,
            watched,
            at=now,
            look_at=look_at,
            state=stored_state(verdict.state),
            market_version=facts.market_version,
            memory=memory.model_dump(mode="json"),
            learnt=facts.lesson.stored,
        )
        has_searched = verdict.considered is not None and verdict.considered.searched
        if verdict.decision is not None and (issued is not None or (verdict.drifts and has_searched)):
            decision = _logged(watched, verdict, issued, now=now)
            await repository.add_decision(connection, watched.deployment_id, decision)

    async def _store_blindness(self, watched: WatchedDeployment, error: Exception) -> None:
        """Tells what keeps it from looking, and has it tried again after a while."""
        problem = problem_of(error)
        if problem.kind.status == 500:
            logger.error("%s: %s", watched.name, error, exc_info=error)
        now = self.now()
        async with begun(of_project(self.engine, watched.project)) as connection:
            before = await repository.record(connection, watched.deployment_id)
            known = {} if before is None else before.state
            failures = known.get("failures", 0) + 1
            if failures == WORTH_TELLING:
                detail = f"blind: it cannot be looked at: {problem.detail}"
                await self._announce(connection, watched, "blind", detail)
            await repository.looked(
                connection,
                watched,
                at=now,
                look_at=now + timedelta(seconds=BLIND_S),
                state={**known, "status": "blind", "detail": problem.detail, "drifts": [], "failures": failures},
                market_version=watched.market_version,
            )

    async def _announce(
        self,
        connection: AsyncConnection,
        watched: WatchedDeployment,
        state: Status,
        detail: str,
        conflicts: Sequence[Conflict] = (),
    ) -> None:
        problems = [asdict(conflict) for conflict in conflicts]
        data = {"deployment": watched.name, "state": state, "detail": detail, "problems": problems}
        await announce(connection, self.queue, event="deployment.attention", data=data)


@dataclass(frozen=True, slots=True)
class Replan:
    """A plan that is asked for while another holds, and what there is to consider for it."""

    watched: WatchedDeployment
    prepared: PreparedLook

    @property
    def facts(self) -> Facts:
        return self.prepared.facts

    @property
    def problem(self) -> Problem:
        """The whole problem, what stands included, with its alternatives.

        Its solution proves another plan: what that fleet is worth at low rates would say nothing of this one.
        """
        problem = self.prepared.question.problem
        return replace(
            problem,
            objective=replace(problem.objective, give_up_fraction=0.0),
            options=replace(self.prepared.translation.problem.options, robustness=False),
        )

    def problem_json(self) -> dict[str, Any]:
        """The problem as it is stored, with the traffic that the plan was made for."""
        return self.prepared.whole_problem.model_dump(mode="json", by_alias=True, exclude_unset=True)


def stored_state(state: State) -> dict[str, Any]:
    """What a look has found, as it is kept as JSON."""
    avoided = [AvoidedResource(place=str(a.place), until=a.until, machines=a.machines) for a in state.avoided]
    told = [one.model_dump(mode="json") for one in avoided]
    return {**asdict(state), "load_multiple": finite(state.load_multiple), "avoided": told}


def _lasting(holdings: tuple[HoldingDocument, ...] | None, until: datetime) -> tuple[HoldingDocument, ...] | None:
    """The holdings without what ends before anything could take its place."""
    if holdings is None:
        return None
    return tuple(h for h in holdings if h.expires_at is None or h.expires_at > until)


def _same_machines(one: Sequence[HoldingDocument] | None, other: Sequence[HoldingDocument] | None) -> bool:
    """Whether the machines are the same, whatever they cost by now, and until when."""
    return one == other or (one is not None and other is not None and counts(one) == counts(other))


def _logged(watched: WatchedDeployment, verdict: Verdict, issued: int | None, *, now: datetime) -> DecisionResource:
    """A verdict as a row of the log of decisions."""
    assert verdict.decision is not None
    return DecisionResource(
        id=uuid4(),
        at=now,
        basis_revision=watched.revision,
        revision=issued,
        chosen=verdict.decision.chosen.kind if issued is not None else "keep",
        reason=verdict.decision.reason,
        drifts=[DriftResource(**asdict(drift)) for drift in verdict.drifts],
        options=[] if verdict.considered is None else [_option(o) for o in verdict.considered.options],
    )


def _option(option: ReplanOption) -> OptionResource:
    """What an option comes to, without its plan."""
    return mapped(
        OptionResource,
        option,
        usd_per_hour=option.cost_usd_per_hour,
        switching_usd=option.change.usd,
        break_even_s=option.break_even_s,
        machines_started=option.change.started,
        machines_stopped=option.change.stopped,
        replicas_restarted=option.change.restarted,
        replicas_recapped=option.change.recapped,
        replicas_bent=option.change.bent,
    )
