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
from sutler.service.db.queue import Queue
from sutler.service.deployments import issuing
from sutler.service.deployments import repository as deployments
from sutler.service.deployments.diff.difference import difference
from sutler.service.deployments.holdings.repository import counts, reported
from sutler.service.deployments.holdings.schemas import HoldingDocument
from sutler.service.deployments.replanning import repository
from sutler.service.deployments.replanning.evaluate import Prepared, Verdict, conclude, is_too_little, prepare
from sutler.service.deployments.replanning.facts import Facts
from sutler.service.deployments.replanning.load import at_least_stated, has_same_workloads
from sutler.service.deployments.replanning.market_view import MarketView
from sutler.service.deployments.replanning.memory import remembered
from sutler.service.deployments.replanning.repository import NewDecision, Watched
from sutler.service.deployments.replanning.state import State
from sutler.service.deployments.schemas import PolicyDocument
from sutler.service.deployments.traffic.service import traffic_of
from sutler.service.documents.fields import finite
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.plans import repository as plans
from sutler.service.plans.resources import SERVES
from sutler.service.profiles.references import with_calibration
from sutler.service.simulation.questions import ValidationQuestion
from sutler.service.translation.from_plan import issue_plan
from sutler.service.web.problem import problem_of
from sutler.service.webhooks.service import announce
from sutler.service.workers.errors import StoppingError
from sutler.service.workers.solver_process import SolverProcess
from sutler.solver.plan import Plan
from sutler.solver.problem import Problem
from sutler.solver.replanning import Consideration, Considered, ReplanOption

T = TypeVar("T")

logger = logging.getLogger("sutler.replanning")

BLIND_S: Final = 60.0
WORTH_TELLING: Final = 2  # failures in a row
SLACK_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Looker:
    """What a worker looks at deployments with; `solvers` are the processes that are free for it."""

    engine: AsyncEngine
    queue: Queue
    market: MarketView
    solvers: "asyncio.Queue[SolverProcess]"
    now: Callable[[], datetime]
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask_for_looks(self, connection: AsyncConnection) -> None:
        """Puts what is due into the queue."""
        for deployment_id in await repository.due(connection, self.now()):
            await self.queue.look(connection, deployment_id)

    async def look(self, deployment_id: UUID) -> None:
        """One look. Raises DatabaseError: it is then still due."""
        async with reading(self.engine) as connection:
            watched = await repository.watched(connection, deployment_id)
            version = await repository.market_version(connection)
        if watched is None:
            return
        try:
            facts = await self.facts(watched, version)
            verdict = await self.verdict(facts)
            document = None if verdict.plan is None else await self._document(facts, verdict, verdict.plan)
            await self._store(watched, facts, verdict, document)
        except DatabaseError:
            raise
        except StoppingError:
            return  # it is still due
        except Exception as error:
            await self._store_blindness(watched, version, error)

    async def facts(self, watched: Watched, market_version: int, *, is_asked: bool = False) -> Facts:
        """Raises DatabaseError, DocumentError."""
        policy = validate(PolicyDocument, watched.policy)
        lead = timedelta(seconds=policy.startup_s + policy.drain_s)
        problem = validate(ProblemDocument, watched.problem)
        planned = validate(ProblemDocument, watched.planned)
        plan = PlanDocument.model_validate_json(watched.document)
        now = self.now()
        async with reading(self.engine) as connection:
            problem = await with_calibration(connection, problem)
            held = await reported(connection, watched.deployment_id)
            models = planned.models if has_same_workloads(planned, problem) else problem.models
            traffic = await traffic_of(connection, watched.deployment_id, models, policy, now=now)
        if policy.at_least_stated:
            stated = {model.name: model for model in problem.models}
            traffic = {
                name: at_least_stated(known, stated[name]) for name, known in traffic.items() if name in stated
            }
        keys = {(rental.provider, rental.offer_id, str(rental.contract)) for rental in plan.rentals}
        keys |= {(h.provider, h.offer_id, str(h.contract)) for h in held.holdings or ()}
        on_store = problem.market.offers is None
        seen = settled = None
        if on_store:
            seen, settled = await asyncio.to_thread(
                self.market.seen, version=market_version, settle_s=policy.settle_s, now=now
            )
        return Facts(
            problem=problem,
            planned=planned,
            plan=plan,
            issued_at=watched.issued_at,
            policy=policy,
            reported=held.holdings,
            holdings=_lasting(held.holdings, now + lead),
            holdings_at=held.at,
            held_before=watched.held_before_counts(),
            traffic=traffic,
            market=seen,
            settled=settled,
            known=await asyncio.to_thread(self.market.known, keys) if on_store else {},
            market_version=market_version if on_store else 0,
            memory=remembered(watched.memory, revision=watched.revision),
            now=now,
            is_asked=is_asked,
            is_behind=watched.newest_revision > watched.revision,
        )

    async def asked(self, deployment_id: UUID) -> "Replan | None":
        """What a plan that was asked for starts from; None where no plan that serves holds yet.

        Raises what the problem raises.
        """
        async with reading(self.engine) as connection:
            watched = await repository.watched(connection, deployment_id)
            version = await repository.market_version(connection)
        if watched is None or watched.status not in SERVES:
            return None
        facts = await self.facts(watched, version, is_asked=True)
        return Replan(watched, facts, await asyncio.to_thread(prepare, facts))

    async def concluded(self, replan: "Replan") -> Verdict:
        """Raises what the solver raises."""
        considered = None
        if replan.prepared.consideration is not None:
            considered = await self._considered(replan.prepared.consideration)
        return await asyncio.to_thread(conclude, replan.facts, replan.prepared, considered)

    async def note_asked(
        self, connection: AsyncConnection, replan: "Replan", verdict: Verdict, revision: int
    ) -> None:
        """The log of decisions has those that were asked for, too."""
        if verdict.decision is not None:
            decision = decision_of(replan.watched, verdict, revision, now=self.now())
            await repository.add_decision(connection, decision)

    async def verdict(self, facts: Facts) -> Verdict:
        """Raises what the problem or the solver raises."""
        prepared = await asyncio.to_thread(prepare, facts)
        considered = None
        if prepared.consideration is not None:
            considered = await self._considered(prepared.consideration)
            if is_too_little(prepared, considered):
                prepared = await asyncio.to_thread(prepare, facts, whole_market=True)
                assert prepared.consideration is not None  # as before, on more offers
                considered = await self._considered(prepared.consideration)
        return await asyncio.to_thread(conclude, facts, prepared, considered)

    async def _considered(self, consideration: Consideration) -> Considered:
        limit_s = 1.5 * consideration.problem.options.time_limit_s + SLACK_S
        return await self._asked(
            lambda solver: solver.consider(consideration, lambda progress: None, limit_s=limit_s)
        )

    async def _document(self, facts: Facts, verdict: Verdict, plan: Plan) -> PlanDocument:
        """What is issued, but for its revision; replayed where the policy asks for it."""
        translation, now = verdict.translation, self.now()
        if not facts.policy.validate_plans:
            return issue_plan(plan, translation, plan_id=uuid4(), created_at=now)
        question = ValidationQuestion(translation, uuid4(), now, plan)
        limit_s = translation.problem.options.time_limit_s + SLACK_S
        return await self._asked(lambda solver: solver.validate(question, lambda progress: None, limit_s=limit_s))

    async def _asked(self, ask: Callable[[SolverProcess], Coroutine[Any, Any, T]]) -> T:
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

    async def _store(self, watched: Watched, facts: Facts, verdict: Verdict, document: PlanDocument | None) -> None:
        now = self.now()
        async with begun(self.engine) as connection:
            deployment = await deployments.find_by_id(connection, watched.deployment_id, lock=True)
            if deployment is None:
                return
            if (deployment.version, deployment.plan_id) != (watched.version, watched.plan_id):
                logger.info("%s has changed meanwhile: this look is void", watched.name)
                return
            if await plans.pending_of(connection, deployment.id) is not None:
                return
            if not _same_machines((await reported(connection, deployment.id)).holdings, facts.reported):
                logger.info("%s: what is held has changed meanwhile: this look is void", watched.name)
                return
            issued = None
            if document is not None:
                issued = await self._issue(connection, deployment, facts, verdict, document, now=now)
            await self._note(connection, watched, facts, verdict, issued, now=now)
            if verdict.alert:
                await announce(
                    connection, self.queue, event="deployment.attention", data=_attention(watched, verdict)
                )
        if issued is not None:
            logger.info("%s: revision %d: %s", watched.name, issued, verdict.state.detail)

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
            diff=diff.model_dump_json(by_alias=True),
        )
        await issuing.issue(connection, self.queue, deployment, document, reason=reason, diff=diff)
        return revision

    async def _note(
        self,
        connection: AsyncConnection,
        watched: Watched,
        facts: Facts,
        verdict: Verdict,
        issued: int | None,
        *,
        now: datetime,
    ) -> None:
        memory, look_at = verdict.memory, verdict.look_at
        if issued is not None:
            memory = memory.after_issue(issued)
            look_at = now + timedelta(seconds=facts.policy.refine_s)
        await repository.looked(
            connection,
            watched.deployment_id,
            at=now,
            touches=watched.touches,
            market_version=facts.market_version,
            look_at=look_at,
            state=state_json(verdict.state),
            memory=memory.model_dump(mode="json"),
        )
        if verdict.decision is not None and (issued is not None or (verdict.drifts and _is_news(verdict))):
            await repository.add_decision(connection, decision_of(watched, verdict, issued, now=now))

    async def _store_blindness(self, watched: Watched, version: int, error: Exception) -> None:
        """What keeps it from looking is told, and tried again after a while."""
        problem = problem_of(error)
        if problem.kind.status == 500:
            logger.error("%s: %s", watched.name, error, exc_info=error)
        now = self.now()
        async with begun(self.engine) as connection:
            before = await repository.record(connection, watched.deployment_id)
            known = {} if before is None else before.state
            failures = known.get("failures", 0) + 1
            state = {**known, "status": "blind", "detail": problem.detail, "drifts": [], "failures": failures}
            if failures == WORTH_TELLING:
                await announce(
                    connection, self.queue, event="deployment.attention", data=_blindness(watched, problem.detail)
                )
            await repository.looked(
                connection,
                watched.deployment_id,
                at=now,
                touches=watched.touches,
                market_version=version,
                look_at=now + timedelta(seconds=BLIND_S),
                state=state,
                memory=None,
            )


@dataclass(frozen=True, slots=True)
class Replan:
    """A plan that is asked for while another holds: the facts, and what there is to consider."""

    watched: Watched
    facts: Facts
    prepared: Prepared

    @property
    def problem(self) -> Problem:
        """The whole problem, what stands included, with its alternatives.

        Its solution proves another plan: what that fleet is worth at low rates would say nothing of this one.
        """
        assert self.prepared.consideration is not None  # what is asked for is always considered
        problem = self.prepared.consideration.problem
        return replace(
            problem,
            objective=replace(problem.objective, give_up_fraction=0.0),
            options=replace(self.prepared.translation.problem.options, robustness=False),
        )

    def problem_json(self) -> dict[str, Any]:
        """With the traffic that it was made for."""
        return self.prepared.problem.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _lasting(holdings: tuple[HoldingDocument, ...] | None, until: datetime) -> tuple[HoldingDocument, ...] | None:
    """What ends before anything could take its place is not counted on any more."""
    if holdings is None:
        return None
    return tuple(h for h in holdings if h.expires_at is None or h.expires_at > until)


def _same_machines(one: Sequence[HoldingDocument] | None, other: Sequence[HoldingDocument] | None) -> bool:
    """Whatever they cost by now, and until when."""
    return one == other or (one is not None and other is not None and counts(one) == counts(other))


def _is_news(verdict: Verdict) -> bool:
    return verdict.considered is not None and verdict.considered.searched


def decision_of(watched: Watched, verdict: Verdict, issued: int | None, *, now: datetime) -> NewDecision:
    """The row of the log."""
    assert verdict.decision is not None
    return NewDecision(
        id=uuid4(),
        deployment_id=watched.deployment_id,
        at=now,
        basis_revision=watched.revision,
        revision=issued,
        chosen=verdict.decision.chosen.kind if issued is not None else "keep",
        reason=verdict.decision.reason,
        drifts=[asdict(drift) for drift in verdict.drifts],
        options=[] if verdict.considered is None else [option_json(o) for o in verdict.considered.options],
    )


def state_json(state: State) -> dict[str, Any]:
    """As it is stored and shown."""
    return {
        "status": state.status,
        "detail": state.detail,
        "feed": state.feed,
        "holdings": state.holdings,
        "load_multiple": finite(state.load_multiple),
        "drifts": [asdict(drift) for drift in state.drifts],
        "conflicts": [asdict(conflict) for conflict in state.conflicts],
    }


def option_json(option: ReplanOption) -> dict[str, Any]:
    """What an option comes to, without its plan."""
    return {
        "kind": option.kind,
        "capacity_rps": option.capacity_rps,
        "load_multiple": finite(option.load_multiple),
        "usd_per_hour": option.cost_usd_per_hour,
        "benefit_usd_per_hour": option.benefit_usd_per_hour,
        "switching_usd": option.change.usd,
        "net_usd": option.net_usd,
        "break_even_s": option.break_even_s,
        "machines_started": option.change.started,
        "machines_stopped": option.change.stopped,
        "replicas_restarted": option.change.restarted,
        "replicas_recapped": option.change.recapped,
    }


def _attention(watched: Watched, verdict: Verdict) -> dict[str, Any]:
    return {
        "deployment": watched.name,
        "state": verdict.state.status,
        "detail": verdict.alert,
        "problems": [asdict(conflict) for conflict in verdict.state.conflicts],
    }


def _blindness(watched: Watched, detail: str) -> dict[str, Any]:
    alert = f"blind: it cannot be looked at: {detail}"
    return {"deployment": watched.name, "state": "blind", "detail": alert, "problems": []}
