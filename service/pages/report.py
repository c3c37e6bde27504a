"""One page for who pays: what runs, what it costs and saves, how sure that is, what is at risk. It prints."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from http import HTTPStatus
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.asynchronous import reading
from sutler.service.deployments import repository
from sutler.service.deployments import service as deployments
from sutler.service.deployments.history import service as history
from sutler.service.deployments.parameters import Name
from sutler.service.deployments.replanning import repository as decisions
from sutler.service.documents.comparison import ComparedStrategy, ComparisonDocument
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.studies import ComparisonQuestion
from sutler.service.documents.validation import validate
from sutler.service.pages.asking import asked
from sutler.service.pages.rendering import rendered
from sutler.service.pages.route import Looking, Page, Planning, Service
from sutler.service.plans.parsed import parsed
from sutler.service.plans.repository import PLANS, PlanRecord
from sutler.service.plans.resources import SERVES
from sutler.service.studies.service import COMPARISON, first_answer
from sutler.service.web.errors import ConflictError
from sutler.service.wording.words import percent, price

router = APIRouter(prefix="/ui/report", route_class=Page, include_in_schema=False)
HOURS_PER_MONTH: Final = 730.0
ONE_TYPE: Final = "homogeneous/*"  # rivals that rent one type of GPU
COSTS_OVER: Final = timedelta(days=30)
INSTEAD: Final = {
    "max_throughput": "as much served for the same money",
    "min_power": "fewer watts for the same load",
    "min_makespan": "sooner done for the same money",
}
"""What a ratio is of, where nothing is saved in money."""
LISTED: Final = 6  # of decisions; the page is one sheet
Revision = Annotated[int | None, Query(ge=1, le=2**31 - 1)]


@router.get("")
async def choose(request: Request, services: Service, looking: Looking) -> Response:
    """Which deployment it is to be about."""
    async with reading(services.engine) as connection:
        listed = await repository.every(connection)
    serving = [one for one in listed if one.plan and one.plan.status in SERVES]
    return rendered(request, "reports.html", session=looking, listed=serving)


@router.get("/{name}")
async def show_report(
    request: Request, services: Service, looking: Looking, name: Name, revision: Revision = None
) -> Response:
    """The page; with its revision in the address it stays about the same plan."""
    async with reading(services.engine) as connection:
        deployment = await deployments.found(connection, name)
        record = await _plan_of(connection, name, revision)
        decided = await decisions.decisions(connection, deployment.id, limit=LISTED, before=None)
        until = services.now()
        paid = await history.costs(connection, since=until - COSTS_OVER, until=until, points=61, name=name)
    study = await first_answer(
        services, COMPARISON, question_of(record), since=record.finished_at or record.created_at
    )
    plan = await parsed(record.id, record.document or "")
    comparison = None
    if study is not None and study.document is not None:
        comparison = await asyncio.to_thread(ComparisonDocument.model_validate_json, study.document)
    return rendered(
        request,
        "report.html",
        session=looking,
        name=name,
        record=record,
        plan=plan,
        study=study,
        comparison=comparison,
        fleets=by_worth(comparison) if comparison else (),
        saved=saved_by(comparison) if comparison else None,
        instead=INSTEAD.get(plan.objective.kind, ""),
        risks=list(risks_of(plan)),
        gpus=gpus_of(plan),
        paid=paid,
        levels=[point.planned_usd_per_hour if point.deployments else None for point in paid.items],
        decided=decided,
        hours_per_month=HOURS_PER_MONTH,
    )


@router.post("/{name}/savings")
async def ask_savings(
    request: Request, services: Service, acting: Planning, name: Name, revision: Revision = None
) -> Response:
    """Has the savings of a revision worked out, once: behind all plans that are waited for."""
    async with reading(services.engine) as connection:
        record = await _plan_of(connection, name, revision)
    await asked(request, services, COMPARISON, question_of(record), acting, instead_of="")
    return RedirectResponse(f"/ui/report/{name}?revision={record.revision}", HTTPStatus.SEE_OTHER)


async def _plan_of(connection: AsyncConnection, name: str, revision: int | None) -> PlanRecord:
    """Raises NotFoundError, and ConflictError for a plan that serves nothing."""
    deployment = await deployments.found(connection, name)
    if revision is not None:
        record: PlanRecord | None = await deployments.plan_of(connection, deployment, revision)
    else:
        record = await PLANS.find(connection, deployment.plan_id) if deployment.plan_id else None
    if record is None or record.document is None or record.status not in SERVES:
        raise ConflictError(f"{name} has no plan that serves, so there is nothing to report: replan it")
    return record


def question_of(record: PlanRecord) -> ComparisonQuestion:
    """What fleets of one type of GPU would cost for the same problem."""
    return validate(ComparisonQuestion, {"plan_id": str(record.id), "only": [ONE_TYPE]})


def by_worth(comparison: ComparisonDocument) -> list[ComparedStrategy]:
    """Sutler and its rivals, the best first; those without a plan last."""
    first, *rivals = comparison.strategies
    return [first, *sorted(rivals, key=lambda one: (one.ratio_to_sutler is None, one.ratio_to_sutler or 0.0))]


def saved_by(comparison: ComparisonDocument) -> dict[str, Any] | None:
    """What sutler's plan saves against the best fleet of one type that the market has; None where there is none.

    Money where both carry the same load, else how many times better it is. `proven_usd_per_hour`: against no fleet of
    one type is less saved; None where one of them is not bounded.
    """
    rivals = [one for one in by_worth(comparison)[1:] if not one.own_market]
    best = next((one for one in rivals if one.ratio_to_sutler is not None), None)
    ours = comparison.strategies[0].objective
    if best is None or best.objective is None or best.objective.value is None or ours is None or ours.value is None:
        return None
    saved = proven = None
    if comparison.objective == "min_cost":
        saved = best.objective.value - ours.value
        open_ones = [one for one in rivals if one.status in ("optimal", "feasible", "unknown")]
        bounds = [one.objective.bound if one.objective else None for one in open_ones]
        known = [bound for bound in bounds if bound is not None]
        proven = max(0.0, min(known) - ours.value) if len(known) == len(bounds) else None
    return {"best": best, "usd_per_hour": saved, "proven_usd_per_hour": proven, "ratio": best.ratio_to_sutler}


def gpus_of(plan: PlanDocument) -> Counter[str]:
    """How many GPUs of each type it rents."""
    found: Counter[str] = Counter()
    for rental in plan.rentals:
        found[rental.gpu] += rental.gpus * rental.count
    return found


def risks_of(plan: PlanDocument) -> Iterator[tuple[float, str]]:
    """What could go wrong, by the money that it is about, USD per hour, the most first."""
    return iter(sorted(_risks(plan), key=lambda one: -one[0]))


def _risks(plan: PlanDocument) -> Iterator[tuple[float, str]]:
    total = plan.cost_usd_per_hour or 0.0
    by_provider: Counter[str] = Counter()
    for rental in plan.rentals:
        by_provider[rental.provider] += rental.price_usd_per_hour * rental.count  # type: ignore[assignment]
    if total and by_provider:
        provider, usd = by_provider.most_common(1)[0]
        yield usd, f"{percent(usd / total)} of the money goes to one provider, {provider}"
    spot = sum(one.price_usd_per_hour * one.count for one in plan.rentals if one.contract == "interruptible")
    if spot:
        yield spot, f"{price(spot)} $/h are spot machines, which may be taken away"
    low = plan.robustness
    if low is not None and low.load_multiple_at_low is not None and low.load_multiple_at_low < 1:
        lacking = 1 - low.load_multiple_at_low
        yield lacking * total, f"at the low end of every rate's band {percent(lacking)} of the load is not carried"
    worst = plan.losses[0] if plan.losses else None
    if worst is not None and worst.carried_fraction < 1:
        left = percent(worst.carried_fraction)
        lost = (1 - worst.carried_fraction) * total
        yield lost, f"without {worst.kind} {worst.name}, {left} of the load is still carried"
    for used in plan.market.providers:
        if used.stale:
            yield 0.0, f"{used.provider} had not answered for a while when this was planned"
