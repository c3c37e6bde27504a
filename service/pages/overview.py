"""All deployments: is anything wrong, and what does it cost?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from sutler.service.db.asynchronous import reading
from sutler.service.deployments import repository
from sutler.service.deployments.history import service as history
from sutler.service.deployments.history.endpoints import stretch
from sutler.service.deployments.schemas import DeploymentSummary
from sutler.service.deployments.showing import summary
from sutler.service.operation.health import readiness
from sutler.service.pages.charts import cost_chart
from sutler.service.pages.rendering import rendered, with_query
from sutler.service.pages.route import Looking, Page, Service
from sutler.service.plans.resources import SERVES
from sutler.service.web.state import Services
from sutler.service.wording.words import counted

router = APIRouter(prefix="/ui", route_class=Page, include_in_schema=False)
MOST_SHOWN: Final = 1_000  # chosen: more rows than anybody reads; a filter finds the others
RANGES: Final = ("1d", "7d", "30d")
Shown = Literal["all", "needs you", "calm"]


@dataclass(frozen=True, slots=True)
class Need:
    """Something that a person should look at, and how much it matters: the least first."""

    deployment: str
    rank: int
    words: str


@dataclass(frozen=True, slots=True)
class Row:
    """A deployment and what it needs, the most pressing first."""

    deployment: DeploymentSummary
    needs: tuple[Need, ...]

    @property
    def order(self) -> tuple[int, str]:
        """Rows sort by need, then by name."""
        return (min((need.rank for need in self.needs), default=99), self.deployment.name)

    @property
    def status(self) -> str:
        """What the last look found, where there is a plan to look after."""
        plan, watch = self.deployment.plan, self.deployment.watch
        if plan is None:
            return "new"
        if plan.status not in SERVES:
            return plan.status
        return "new" if watch is None else watch.status


@router.get("")
async def show_overview(
    request: Request,
    services: Service,
    looking: Looking,
    q: Annotated[str, Query(max_length=200)] = "",
    show: Shown = "all",
) -> Response:
    """The page."""
    found = await all_of(services)
    rows = sorted((Row(one, tuple(needs_of(one))) for one in found), key=lambda row: row.order)
    words = q.lower().split()
    shown = [row for row in rows if is_wanted(row, words, show)]
    return rendered(
        request,
        "overview.html",
        session=looking,
        rows=shown[:MOST_SHOWN],
        found=len(shown),
        total=len(rows),
        needs=sorted((need for row in rows for need in row.needs), key=lambda need: (need.rank, need.deployment)),
        planned_usd=sum(one.plan.cost_usd_per_hour or 0.0 for one in found if one.plan),
        held_usd=held_usd(found),
        unreported=sum(1 for one in found if one.plan and one.held_usd_per_hour is None),
        q=q,
        show=show,
        checks=await readiness(services),
    )


@router.get("/costs")
async def show_costs(
    request: Request, services: Service, looking: Looking, since: Annotated[str, Query(max_length=40)] = "7d"
) -> Response:
    """What all deployments cost over time, and the plans that changed it."""
    begin, end = stretch(services, since, None)
    async with reading(services.engine) as connection:
        paid = await history.costs(connection, since=begin, until=end, points=169)
    return rendered(
        request,
        "costs.html",
        session=looking,
        paid=paid,
        chart=cost_chart(paid),
        since=since,
        ranges={choice: with_query(request, since=choice) for choice in RANGES},
    )


async def all_of(services: Services) -> list[DeploymentSummary]:
    """Every deployment, by name."""
    async with reading(services.engine) as connection:
        listed = await repository.every(connection)
    return [summary(one, services.now()) for one in listed]


def needs_of(deployment: DeploymentSummary) -> Iterator[Need]:
    """What a person should look at."""
    name, plan, watch = deployment.name, deployment.plan, deployment.watch
    if plan is None and deployment.pending is None:
        yield Need(name, 0, "has no plan, and none is being made")
    if plan is not None and plan.status not in SERVES:
        yield Need(name, 0, f"its plan is {plan.status}: nothing is served")
    if watch is None or plan is None or plan.status not in SERVES:
        return
    if watch.status == "short":
        yield Need(name, 1, f"falls short: {watch.detail}")
    if watch.status == "blind":
        yield Need(name, 1, f"cannot be looked after: {watch.detail}")
    carried_out = watch.carry_out
    if carried_out is not None and carried_out.state == "overdue":
        missing = counted(carried_out.missing_machines or 0, "machine")
        yield Need(name, 2, f"revision {carried_out.revision} is overdue: {missing} missing")
    if watch.status == "manual":
        yield Need(name, 3, f"a change is worth it and waits for you: {watch.detail}")
    if watch.feed == "silent":
        yield Need(name, 4, "its traffic is no longer reported, so changes of it cannot be seen")


def is_wanted(row: Row, words: Sequence[str], show: Shown) -> bool:
    """Whether the filters let a row through: each word is in its name or one of its models."""
    text = " ".join((row.deployment.name, row.status, *row.deployment.models)).lower()
    return all(word in text for word in words) and show in ("all", "needs you" if row.needs else "calm")


def held_usd(found: Sequence[DeploymentSummary]) -> float | None:
    """USD per hour of all that was reported as rented; None where nobody has reported anything."""
    known = [one.held_usd_per_hour for one in found if one.held_usd_per_hour is not None]
    return sum(known) if known else None
