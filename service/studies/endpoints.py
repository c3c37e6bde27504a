"""`/v1/what-ifs`, `/v1/comparisons`, `/v1/simulations`: asked for, waited for and kept like plans."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query

from sutler.service.auth.dependency import Reader, Service
from sutler.service.db.asynchronous import reading
from sutler.service.documents.examples import CHAT
from sutler.service.plans.plan_endpoints import Described, router_of
from sutler.service.plans.plan_requests import PlanKind
from sutler.service.plans.plan_responses import page_of
from sutler.service.studies.resources import StudyStatus, StudySummary
from sutler.service.studies.service import COMPARISON, SIMULATION, WHAT_IF
from sutler.service.web.links import links_to
from sutler.service.web.paging import Cursor, Limit, Page, before_of
from sutler.service.web.problems import responses

HOW = (
    "\n\nNo plan is issued and none replaces another. It comes after all plans that are waited for. What was asked\n"
    "before is answered from the store while the market is as it was then. Waits for the answer; with\n"
    "`Prefer: respond-async`, or `Prefer: wait=SECONDS`, follow `Location`."
)


async def _list(
    kind: PlanKind[Any, Any],
    services: Service,
    _reader: Reader,
    limit: Limit = 50,
    cursor: Cursor = None,
    status: Annotated[StudyStatus | None, Query(description="Only those with this status.")] = None,
) -> Page[StudySummary]:
    before = before_of(cursor)
    async with reading(services.engine) as connection:
        found = await kind.table.page(connection, limit=limit + 1, before=before, status=status)
    return page_of(found, limit)


def _router(kind: PlanKind[Any, Any], tag: str, what: str, **examples: Any) -> APIRouter:
    """`what` says what is done, for the OpenAPI document."""
    noun = kind.noun
    operations = (f"get_{kind.operation}", f"get_{kind.operation}_question", f"cancel_{kind.operation}")
    described = Described(
        create=what + HOW,
        get=f"The {noun}, or what became of it so far.",
        cancel=f"Stop making a {noun} that is queued or running.",
        get_asked=f"What the {noun} answers, with the problem or plan that it was asked about.",
        links=links_to("plan_id", *operations),
        get_asked_operation=operations[1],
        names_others=True,
    )
    router = router_of(kind, described, **examples)
    router.add_api_route(
        "",
        partial(_list, kind),
        methods=["GET"],
        name=f"list_{tag.replace('-', '_')}",
        description=f"All {tag}, the newest first.",
        response_model=Page[StudySummary],
        responses=responses(401, 403, 422, 429, 503),
    )
    return router


what_ifs = _router(
    WHAT_IF,
    "what-ifs",
    "Plan a problem as it is and with some things changed, side by side.",
    budgets={"problem": CHAT, "variants": [{"budget_usd_per_hour": 3}, {"models.*.precision": "fp8"}]},
)
comparisons = _router(
    COMPARISON,
    "comparisons",
    "Plan a problem with sutler and with other strategies, with the same rates.",
    families={"problem": CHAT, "only": ["homogeneous/*"]},
)
simulations = _router(
    SIMULATION,
    "simulations",
    "Send requests through a plan one by one: rates, latencies, goodput and how busy each replica is.",
    of_a_deployment={"deployment": "chat", "duration_s": 60},
)
