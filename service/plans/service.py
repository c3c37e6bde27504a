"""Plans of a problem as one kind of plans: what is admitted, and what is stored of it.

Problems are to be within the service's limits, without files, and their names known. All of it is said before a plan
is queued, so that a caller who does not wait hears it too.
"""

import asyncio
from datetime import datetime
from typing import Any, Final
from uuid import uuid4

from sutler.service.db.asynchronous import reading
from sutler.service.documents.calibration import CalibrationFile
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.errors import FieldProblem, short_repr
from sutler.service.plans.plan_requests import PlanKind
from sutler.service.plans.repository import PLANS, Order
from sutler.service.profiles.references import with_calibration
from sutler.service.settings import ServiceSettings
from sutler.service.translation.to_problem import check_names, to_problem
from sutler.service.web.caller import Caller
from sutler.service.web.state import Services


def admit(document: ProblemDocument, settings: ServiceSettings, *, now: datetime) -> None:
    """Checks a problem. Raises DocumentError, UnknownNameError, NoMarketDataError for an empty market of its own."""
    problems = [*_over_limits(document, settings), *_files(document)]
    if problems:
        raise DocumentError(problems)
    if document.market.offers is None:
        check_names(document)
    else:
        to_problem(document, folder=None, now=now)


def _over_limits(document: ProblemDocument, settings: ServiceSettings) -> list[FieldProblem]:
    workloads = sum(len(model.workloads or ()) for model in document.models)
    return [
        *over_limit("models", len(document.models), settings.most_models, "SUTLER_MOST_MODELS"),
        *over_limit("models[].workloads", workloads, settings.most_workloads, "SUTLER_MOST_WORKLOADS"),
        *over_limit(
            "solver.time_limit_s", document.solver.time_limit_s, settings.longest_solve_s, "SUTLER_LONGEST_SOLVE_S"
        ),
    ]


def over_limit(field: str, value: float, most: float, variable: str) -> list[FieldProblem]:
    """What is wrong with a value above what this service takes, as the variable sets it; empty where nothing is."""
    if value <= most:
        return []
    return [FieldProblem(field, f"{value:g}", f"this service takes at most {most:g} ({variable})")]


def _files(document: ProblemDocument) -> list[FieldProblem]:
    remedy = "paths are for the command line only: give the content itself"
    paths = [(f"models[{i}].trace.file", m.trace.file) for i, m in enumerate(document.models) if m.trace is not None]
    if isinstance(document.market.offers, str):
        paths.append(("market.offers", document.market.offers))
    if isinstance(document.throughput.calibration, CalibrationFile):
        paths.append(("throughput.calibration.file", document.throughput.calibration.file))
    return [FieldProblem(field, short_repr(path), remedy) for field, path in paths]


def order_of(document: ProblemDocument, caller: Caller) -> Order:
    """A plan for this problem; what the caller left out stays left out."""
    problem: dict[str, Any] = document.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return Order(uuid4(), problem, document.objective.kind, caller.principal.actor, caller.request_id)


async def check(services: Services, document: ProblemDocument) -> None:
    """Checks a problem and its calibration. Raises DocumentError, UnknownNameError, NoMarketDataError."""
    async with reading(services.engine) as connection:
        known = await with_calibration(connection, document)
    await asyncio.to_thread(admit, known, services.settings, now=services.now())


PLAN: Final = PlanKind(
    table=PLANS,
    question=ProblemDocument,
    asked="problem",
    plan=PlanDocument,
    check=check,
    order=order_of,
    time_limit_s=lambda document: document.solver.time_limit_s,
)
