"""What-ifs, comparisons and simulations as three kinds of plans: what is admitted, and what is stored of it."""

import asyncio
import hashlib
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from typing import Any, Final, TypeVar, cast
from uuid import UUID, uuid4

from pydantic import BaseModel
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.comparing.sweeping import Range
from sutler.service.db.api_tables import StudyRow
from sutler.service.db.asynchronous import reading
from sutler.service.deployments import service as deployments
from sutler.service.documents.changes import Changes, changed
from sutler.service.documents.comparison import ComparisonDocument
from sutler.service.documents.errors import DocumentError, NoMarketDataError
from sutler.service.documents.fields import Document
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.studies import (
    AboutDocument,
    ComparisonQuestion,
    OfProblemDocument,
    SimulationQuestion,
    StudyQuestion,
    WhatIfQuestion,
)
from sutler.service.documents.validation import of_json, validate
from sutler.service.documents.what_if import WhatIfDocument
from sutler.service.errors import FieldProblem
from sutler.service.plans import service as plans
from sutler.service.plans.plan_requests import PlanKind, stored
from sutler.service.plans.plan_table import PlanTable
from sutler.service.plans.repository import PLANS
from sutler.service.plans.service import over_limit
from sutler.service.simulation.schemas import SimulationResource
from sutler.service.studies.questions import UNEXPLAINED
from sutler.service.studies.repository import COMPARISONS, SIMULATIONS, WHAT_IFS, StudyOrder, first_of, remembered
from sutler.service.studies.resources import StudyKind
from sutler.service.web.caller import CLI, Caller
from sutler.service.web.errors import ConflictError
from sutler.service.web.state import Services

Q = TypeVar("Q", bound=AboutDocument)

SIMULATION_S: Final = 60.0  # chosen: an hour of 20,000 requests takes under a second


def variant_of(problem: ProblemDocument, changes: Changes) -> ProblemDocument:
    """A problem with other values, to be planned beside others. Raises DocumentError."""
    plain = problem.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return validate(ProblemDocument, changed(plain, {**UNEXPLAINED, **changes}))


async def _resolved(services: Services, question: Q) -> Q:
    """The question with what it names in place of the name. Raises NotFoundError, ConflictError."""
    async with reading(services.engine) as connection:
        if isinstance(question, SimulationQuestion):
            return question if question.plan else await _of_plan(connection, question)
        assert isinstance(question, OfProblemDocument)
        return question if question.problem else await _of_problem(connection, question)


async def _of_problem(connection: AsyncConnection, question: Any) -> Any:
    if question.deployment is not None:
        problem = (await deployments.found(connection, question.deployment)).problem
    else:
        await stored(connection, PLANS, question.plan_id)
        problem = json.loads(await PLANS.asked(connection, question.plan_id, "problem") or "null")
    return _about(question, problem=validate(ProblemDocument, problem))


async def _of_plan(connection: AsyncConnection, question: Any) -> Any:
    plan_id = question.plan_id
    if question.deployment is not None:
        plan_id = (await deployments.found(connection, question.deployment)).plan_id
        if plan_id is None:
            raise ConflictError(f"{question.deployment} has no plan yet: wait for its first one")
    record = await stored(connection, PLANS, plan_id)
    if record.document is None:
        raise ConflictError(f"plan {plan_id} is {record.status}: only a plan that is there can be simulated")
    return _about(question, plan=await asyncio.to_thread(PlanDocument.model_validate_json, record.document))


def _about(question: Any, **what: BaseModel) -> Any:
    return question.model_copy(update={"deployment": None, "plan_id": None, **what})


async def _check_what_if(services: Services, question: WhatIfQuestion) -> None:
    assert question.problem is not None
    settings, count = services.settings, len(question.variants)
    problems = over_limit("variants", count, settings.most_variants, "SUTLER_MOST_VARIANTS")
    if problems:
        raise DocumentError(problems)
    await plans.check(services, question.problem)
    for number, changes in enumerate(question.variants):
        try:
            with suppress(NoMarketDataError):  # which is an answer
                await plans.check(services, variant_of(question.problem, changes))
        except DocumentError as error:
            found = error.problems
            raise DocumentError(
                FieldProblem(f"variants[{number}]: {p.field}", p.value, p.remedy) for p in found
            ) from None


async def _check_comparison(services: Services, question: ComparisonQuestion) -> None:
    assert question.problem is not None
    await plans.check(services, question.problem)
    range_of(question)


async def _check_simulation(services: Services, question: SimulationQuestion) -> None:
    assert question.plan is not None
    if not question.plan.replicas:
        remedy = f"{question.plan.in_words} runs nothing: there is nothing to simulate"
        raise DocumentError.of("plan.replicas", remedy, value=())


def range_of(question: ComparisonQuestion) -> Range | None:
    """Other budgets or loads that are asked for. Raises DocumentError."""
    sweep = question.sweep
    return None if sweep is None else Range(sweep.points, sweep.first, sweep.last)


def _order(kind: StudyKind, question: Document, caller: Caller) -> StudyOrder:
    asked = question.model_dump(mode="json", by_alias=True, exclude_unset=True)
    digest = hashlib.sha256(f"{kind} {json.dumps(asked, sort_keys=True)}".encode()).digest()
    problem = asked.get("problem") or asked["plan"]
    objective = problem["objective"]["kind"]
    return StudyOrder(
        uuid4(), kind, asked, digest, objective, created_by=caller.principal.actor, request_id=caller.request_id
    )


def _kind(
    kind: StudyKind,
    table: PlanTable[Any],
    question: type[Any],
    answer: type[Document],
    check: Callable[[Services, Any], Awaitable[None]],
    time_limit_s: Callable[[Any], float],
) -> PlanKind[Any, Any]:
    return PlanKind(
        table=table,
        question=question,
        asked="asked",
        plan=answer,
        check=check,
        order=partial(_order, kind),
        time_limit_s=time_limit_s,
        resolve=_resolved,
        remembered=lambda connection, order, now: remembered(connection, table, order, now),
    )


def longest_s(question: StudyQuestion) -> float:
    """How long the answer may be searched for, with all its solves at their limits."""
    if isinstance(question, SimulationQuestion):
        return SIMULATION_S
    limit_s = 30.0 if question.problem is None else question.problem.solver.time_limit_s
    if isinstance(question, WhatIfQuestion):
        return limit_s * (1 + len(question.variants))
    return limit_s * STRATEGIES * (1 + (0 if question.sweep is None else question.sweep.points))


STRATEGIES: Final = 30  # the paper's case with its six types of GPU has 28
QUESTIONS: Final[dict[StudyKind, type[StudyQuestion]]] = {
    "what-if": WhatIfQuestion,
    "comparison": ComparisonQuestion,
    "simulation": SimulationQuestion,
}
WHAT_IF: Final = _kind("what-if", WHAT_IFS, WhatIfQuestion, WhatIfDocument, _check_what_if, longest_s)
COMPARISON: Final = _kind(
    "comparison", COMPARISONS, ComparisonQuestion, ComparisonDocument, _check_comparison, longest_s
)
SIMULATION: Final = _kind(
    "simulation", SIMULATIONS, SimulationQuestion, SimulationResource, _check_simulation, longest_s
)


async def first_answer(services: Services, kind: PlanKind[Any, Any], question: Any, *, since: datetime) -> Any:
    """What became of the question when it was first asked since then, whatever has become of the market.

    None where it never was. Raises NotFoundError, ConflictError.
    """
    order = await _as_asked_now(services, kind, question)
    async with reading(services.engine) as connection:
        return await first_of(connection, kind.table, order, since)


async def is_answer_to(services: Services, kind: PlanKind[Any, Any], study_id: UUID, question: Any) -> bool:
    """Whether the study was of this question, as what it names stands now. Raises NotFoundError, ConflictError."""
    order = await _as_asked_now(services, kind, question)
    async with reading(services.engine) as connection:
        same = (StudyRow.id == study_id, StudyRow.digest == order.digest)
        return await kind.table.newest(connection, *same) is not None


async def _as_asked_now(services: Services, kind: PlanKind[Any, Any], question: Any) -> StudyOrder:
    resolved = await _resolved(services, question)
    return cast(StudyOrder, await asyncio.to_thread(kind.order, resolved, CLI))


def asked_again(kind: StudyKind, asked: dict[str, Any]) -> StudyQuestion:
    """The question as it was stored."""
    return of_json(QUESTIONS[kind], asked)
