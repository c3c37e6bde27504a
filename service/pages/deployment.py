"""One deployment: what runs, why, and what next; and the two things to do about it: carry out, and replan."""

import asyncio
from collections.abc import Iterator
from http import HTTPStatus
from typing import Annotated, Any, Final, Literal, cast

import yaml
from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.asynchronous import reading
from sutler.service.deployments import service as deployments
from sutler.service.deployments.diff.schema import DiffDocument
from sutler.service.deployments.diff.service import diff_of
from sutler.service.deployments.history import service as history
from sutler.service.deployments.history.endpoints import stretch
from sutler.service.deployments.holdings import service as holdings
from sutler.service.deployments.parameters import Name, Revision
from sutler.service.deployments.rates import service as rates
from sutler.service.deployments.replanning import repository as decisions
from sutler.service.deployments.repository import Deployment
from sutler.service.deployments.schemas import DeploymentResource
from sutler.service.deployments.showing import resource
from sutler.service.deployments.traffic import service as traffic
from sutler.service.deployments.traffic.schemas import TrafficResource
from sutler.service.deployments.watch_schema import DecisionResource
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem_parts import SloDocument
from sutler.service.export import FORMATS, ExportFormat, exported
from sutler.service.pages.charts import cost_chart, latency_chart, traffic_chart
from sutler.service.pages.fleet import machines_of, routes_of
from sutler.service.pages.forms import Fields
from sutler.service.pages.rendering import rendered, with_query
from sutler.service.pages.route import Looking, Page, Planning, Service
from sutler.service.plans.parsed import parsed
from sutler.service.plans.plan_responses import page_of
from sutler.service.plans.repository import PLANS
from sutler.service.plans.resources import SERVES, PlanSummary
from sutler.service.web.errors import ConflictError, NotFoundError
from sutler.service.web.state import Services

router = APIRouter(prefix="/ui/deployments", route_class=Page, include_in_schema=False)
LISTED: Final = 30  # chosen: of revisions and decisions; the API has all
MOST_CHARTS: Final = 8
RANGES: Final = ("6h", "1d", "7d", "30d")
Done = Literal["", "replanning", "carried-out"]


@router.get("/{name}")
async def show_deployment(
    request: Request, services: Service, looking: Looking, name: Name, done: Annotated[Done, Query()] = ""
) -> Response:
    """The page."""
    async with reading(services.engine) as connection:
        deployment = await deployments.found(connection, name)
        shown = await resource(connection, deployment, services.now())
        plan = await _plan_of(connection, deployment)
        listed = await PLANS.page(connection, limit=LISTED, deployment_id=deployment.id)
        decided = await decisions.decisions(connection, deployment.id, limit=LISTED, before=None)
        seen = await traffic.traffic(connection, deployment, now=services.now())
        learnt = await rates.shown(connection, deployment, now=services.now())
    held = await holdings.shown(services, name)
    serves = plan is not None and plan.status in SERVES
    diff = await _to_do(services, shown, serves=serves)
    return rendered(
        request,
        "deployment.html",
        session=looking,
        deployment=shown,
        plan=plan,
        serves=serves,
        machines=machines_of(plan, held.missing if held.reported else ()) if plan else (),
        routes=routes_of(plan) if plan else (),
        bands=_bands(plan) if plan else {},
        limits=list(limits_of(plan, seen)) if plan else (),
        traffic=seen,
        rates=learnt,
        holdings=held,
        diff=diff,
        timeline=timeline_of(page_of(listed, LISTED).items, decided),
        done=done,
    )


async def _plan_of(connection: AsyncConnection, deployment: Deployment) -> PlanDocument | None:
    """The plan that holds; None before there is one."""
    record = None if deployment.plan_id is None else await PLANS.find(connection, deployment.plan_id)
    return None if record is None or record.document is None else await parsed(record.id, record.document)


async def _to_do(services: Services, shown: DeploymentResource, *, serves: bool) -> DiffDocument | None:
    """The steps to the plan that holds, unless they are done."""
    carried_out = shown.watch.carry_out if shown.watch else None
    if not serves or shown.plan is None or (carried_out is not None and carried_out.state == "met"):
        return None
    text = await diff_of(services, shown.name, shown.plan.revision)
    return await asyncio.to_thread(DiffDocument.model_validate_json, text)


def limits_of(plan: PlanDocument, seen: TrafficResource) -> Iterator[dict[str, Any]]:
    """Each latency limit, and, where a feed tells it, how the requests keep it."""
    latencies = {model.model: model.latencies for model in seen.models}
    for model in plan.models:
        owners = [(model.name, model.slo), *((f"{model.name}/{w.name}", w.slo) for w in model.workloads if w.slo)]
        for owner, slo in owners:
            for key, limit_s in _limits(slo):
                seen_s = latencies.get(model.name, {}).get(key) if owner == model.name else None
                yield {"owner": owner, "limit": key, "limit_s": limit_s, "seen_s": seen_s}


def _limits(slo: SloDocument | None) -> Iterator[tuple[str, float]]:
    for key in SloDocument.model_fields if slo else ():
        limit_s = getattr(slo, key)
        if limit_s is not None:
            yield key, limit_s


def _bands(plan: PlanDocument) -> dict[str, tuple[float, float]]:
    """How far off each replica's rates may be: the lowest and the highest end, as a multiple of the rate."""
    found: dict[str, tuple[float, float]] = {}
    for one in plan.evidence:
        if one.rps > 0:
            low, high = found.get(one.replica, (1.0, 1.0))
            found[one.replica] = min(low, one.low_rps / one.rps), max(high, one.high_rps / one.rps)
    return found


def timeline_of(plans: list[PlanSummary], decided: list[DecisionResource]) -> list[dict[str, Any]]:
    """Revisions and decisions by time, the newest first; a decision that issued a revision stands with it."""
    by_revision: dict[int | None, DecisionResource] = {one.revision: one for one in decided if one.revision}
    found: list[dict[str, Any]] = [
        {"at": plan.finished_at or plan.created_at, "plan": plan, "decision": by_revision.get(plan.revision)}
        for plan in plans
    ]
    issued = {plan.revision for plan in plans}
    found += [{"at": one.at, "plan": None, "decision": one} for one in decided if one.revision not in issued]
    return sorted(found, key=lambda one: one["at"], reverse=True)[:LISTED]


@router.get("/{name}/history")
async def show_history(
    request: Request,
    services: Service,
    looking: Looking,
    name: Name,
    since: Annotated[str, Query(max_length=40)] = "1d",
) -> Response:
    """Traffic and money over time, as charts and as tables."""
    begin, end = stretch(services, since, None)
    async with reading(services.engine) as connection:
        deployment = await deployments.found(connection, name)
        seen = await history.traffic_history(
            connection, deployment, since=begin, until=end, points=96, now=services.now()
        )
        paid = await history.costs(connection, since=begin, until=end, points=97, name=name)
    charts = [(f"Requests/s of {model.model}", *traffic_chart(model)) for model in seen.models[:MOST_CHARTS]]
    latencies = [(model.model, latency_chart(model)) for model in seen.models[:MOST_CHARTS]]
    charts += [(f"Latencies of {name}, s, at most", *found) for name, found in latencies if found is not None]
    charts.append(("$/h", *cost_chart(paid)))
    ranges = {choice: with_query(request, since=choice) for choice in RANGES}
    return rendered(
        request,
        "deployment_history.html",
        session=looking,
        name=name,
        charts=charts,
        since=since,
        ranges=ranges,
        left_out=[model.model for model in seen.models[MOST_CHARTS:]],
    )


@router.post("/{name}/replan")
async def replan(services: Service, acting: Planning, name: Name) -> Response:
    """Has a plan made, now; while one is being made, that is the one."""
    await deployments.replan(services, name, acting.caller)
    return RedirectResponse(f"/ui/deployments/{name}?done=replanning", HTTPStatus.SEE_OTHER)


@router.get("/{name}/carry-out")
async def show_carry_out(request: Request, services: Service, looking: Looking, name: Name) -> Response:
    """What would be stored as rented, before it is."""
    held = await holdings.shown(services, name)
    async with reading(services.engine) as connection:
        plan = await _plan_of(connection, await deployments.found(connection, name))
    if plan is None or held.revision is None:
        raise ConflictError(f"{name} has no plan that serves, so there is nothing to carry out: replan it")
    if plan.revision != held.revision:
        raise ConflictError(f"revision {plan.revision} of {name} has just come: load the page again")
    return rendered(request, "carry_out.html", session=looking, name=name, plan=plan, holdings=held)


@router.post("/{name}/carry-out")
async def carry_out(services: Service, acting: Planning, fields: Fields, name: Name) -> Response:
    """Stores that the plan that was shown is carried out; another one that holds meanwhile is a conflict."""
    revision = fields.get("revision", "")
    if not revision.isdecimal() or len(revision) > 9:
        raise DocumentError.of("revision", "is a number: load the page again", value=revision[:20])
    await holdings.acknowledge(services, name, int(revision), acting.caller)
    return RedirectResponse(f"/ui/deployments/{name}?done=carried-out", HTTPStatus.SEE_OTHER)


@router.get("/{name}/revisions/{revision}")
async def show_revision(
    request: Request, services: Service, looking: Looking, name: Name, revision: Revision
) -> Response:
    """What a revision changed, why, and what else was considered."""
    async with reading(services.engine) as connection:
        deployment = await deployments.found(connection, name)
        record = await deployments.plan_of(connection, deployment, revision)
        decided = await decisions.decisions(connection, deployment.id, limit=200, before=None)
    if record.document is None:
        raise NotFoundError(f"revision {revision} of {name} is {record.status}: it has no plan to show")
    plan = await parsed(record.id, record.document)
    diff = None
    if plan.status in SERVES:
        text = await diff_of(services, name, revision)
        diff = await asyncio.to_thread(DiffDocument.model_validate_json, text)
    return rendered(
        request,
        "revision.html",
        session=looking,
        name=name,
        record=record,
        plan=plan,
        diff=diff,
        decision=next((one for one in decided if one.revision == revision), None),
    )


@router.get("/{name}/revisions/{revision}/files/{file}")
async def get_file(services: Service, _looking: Looking, name: Name, revision: Revision, file: str) -> Response:
    """The plan, its diff, or how to run it, to keep: as the API gives them."""
    async with reading(services.engine) as connection:
        deployment = await deployments.found(connection, name)
        record = await deployments.plan_of(connection, deployment, revision)
    if file == "diff":
        return _download(await diff_of(services, name, revision), "application/json", f"{name}-{revision}-diff.json")
    if record.document is None or file not in ("plan", *FORMATS):
        raise NotFoundError(f"there is no {file!r} of revision {revision}: plan, diff, {', '.join(FORMATS)}")
    if file == "plan":
        return _download(record.document, "application/json", f"{name}-{revision}.json")
    plan = await parsed(record.id, record.document)
    made = await asyncio.to_thread(exported, plan, cast(ExportFormat, file))
    return _download(made.content, made.media_type, made.filename)


def _download(text: str, media_type: str, filename: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{filename}"', "Cache-Control": "no-store"}
    return Response(text, media_type=media_type, headers=headers)


@router.get("/{name}/problem")
async def show_problem(request: Request, services: Service, looking: Looking, name: Name) -> Response:
    """The problem and the policy, as they were given."""
    async with reading(services.engine) as connection:
        deployment = await deployments.found(connection, name)
    given = {"name": name, "problem": deployment.problem, "policy": deployment.policy}
    text = str(yaml.safe_dump(given, sort_keys=False, allow_unicode=True, width=110))
    return rendered(request, "problem.html", session=looking, deployment=deployment, text=text)
