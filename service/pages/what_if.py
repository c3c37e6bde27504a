"""What if: a deployment's problem with other money, load, limits or places, beside what runs now."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response

from sutler.service.db.asynchronous import reading
from sutler.service.deployments import repository
from sutler.service.deployments import service as deployments
from sutler.service.deployments.repository import Listed
from sutler.service.documents.changes import Changes
from sutler.service.documents.fields import PRINTABLE_OR_NONE
from sutler.service.documents.problem import LOADS
from sutler.service.documents.studies import WhatIfQuestion
from sutler.service.documents.validation import validate
from sutler.service.documents.what_if import VariantDocument, WhatIfDocument
from sutler.service.market.selection import CONTRACTS
from sutler.service.market.service import MarketService
from sutler.service.pages.asking import asked, study_of
from sutler.service.pages.forms import Fields
from sutler.service.pages.parameters import name_in, number_of
from sutler.service.pages.rendering import rendered
from sutler.service.pages.route import Looking, Page, Planning, Service
from sutler.service.studies.service import WHAT_IF, is_answer_to

router = APIRouter(prefix="/ui/what-if", route_class=Page, include_in_schema=False)
Words = Annotated[str, Query(max_length=300, pattern=PRINTABLE_OR_NONE)]
PRECISIONS: Final = ("bf16", "fp8", "fp4", "int4")
FRONTIER: Final = (0.5, 0.75, 1.5, 2.0)  # multiples of the budget, or of the load where that is given
SETTINGS: Final = (
    *("budget", "load", "ttft_p90_s", "tpot_p90_s", "precision", "providers", "regions", "contracts", "seconds"),
    "frontier",
)
USUAL_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Slider:
    """A number to change: `value` is what stands, None: nothing does."""

    name: str
    words: str
    unit: str
    least: float
    most: float
    step: float
    value: float | None
    stands: float | None


@router.get("")
async def show_what_if(
    request: Request, services: Service, looking: Looking, deployment: Words = "", study: Words = ""
) -> Response:
    """The page: its address holds what was changed, and where the answer is."""
    async with reading(services.engine) as connection:
        names = await repository.names(connection)
        name = deployment or (names[0] if names else "")
        if name:
            await deployments.found(connection, name)
        base = await repository.listed(connection, name)
    found = await study_of(services, WHAT_IF, study)
    given = {key: request.query_params.get(key, "") for key in SETTINGS}
    is_stale = False
    if base and found and found.answer:
        question = _question(name, base.deployment.problem, given)
        is_stale = not await is_answer_to(services, WHAT_IF, found.record.id, question)
    return rendered(
        request,
        "what_if.html",
        session=looking,
        names=names,
        name=name,
        base=base,
        given=given,
        sliders=list(sliders_of(base, given)) if base else (),
        clouds=services.part(MarketService).settings.providers,
        contracts=CONTRACTS,
        precisions=PRECISIONS,
        study=found,
        is_stale=is_stale,
        columns=columns_of(base, found.answer) if base and found and found.answer else (),
        chart=chart_of(base, found.answer, given) if base and found and found.answer else None,
        give_way=list(give_way(request, found.answer)) if found and found.answer else (),
    )


@router.post("")
async def ask_what_if(request: Request, services: Service, acting: Planning, fields: Fields) -> Response:
    """Asks, in place of what this page asked before."""
    name = name_in(fields, "deployment")
    async with reading(services.engine) as connection:
        problem = (await deployments.found(connection, name)).problem
    question = _question(name, problem, fields)
    study = await asked(request, services, WHAT_IF, question, acting, instead_of=fields.get("study", ""))
    kept = {key: fields[key] for key in SETTINGS if fields.get(key)}
    there = urlencode({"deployment": name, **kept, "study": str(study)})
    return RedirectResponse(f"/ui/what-if?{there}", HTTPStatus.SEE_OTHER)


def _question(name: str, problem: Mapping[str, Any], given: Mapping[str, str]) -> WhatIfQuestion:
    return validate(WhatIfQuestion, {"deployment": name, "variants": variants_of(problem, given)})


def sliders_of(base: Listed, given: Mapping[str, str]) -> Iterator[Slider]:
    """What can be changed by a slider, from where the problem has it."""
    problem = base.deployment.problem
    stands = problem.get("budget_usd_per_hour")
    paid = base.plan.cost_usd_per_hour if base.plan else None
    most = max(4 * (stands or 0.0), 4 * (paid or 0.0), 10.0)
    yield Slider("budget", "Budget", "$/h", 0.1, round(most, 1), 0.1, number_of(given, "budget"), stands)
    if _workloads(problem):
        yield Slider("load", "Load", "×", 0.1, 5.0, 0.05, number_of(given, "load"), 1.0)
    for key, words, unit, most in (
        ("ttft_p90_s", "First token, p90", "s", 20.0),
        ("tpot_p90_s", "Per token, p90", "s", 0.5),
    ):
        limits = [limit for model in problem["models"] if (limit := model.get("slo", {}).get(key)) is not None]
        stands = min(limits) if limits else None
        highest = max(most, 2 * (stands or 0))
        yield Slider(key, words, unit, most / 100, highest, most / 200, number_of(given, key), stands)


def _workloads(problem: Mapping[str, Any]) -> list[tuple[int, int, float]]:
    """Places and rates of the workloads that state one."""
    return [
        (i, k, workload["rate_rps"])
        for i, model in enumerate(problem["models"])
        for k, workload in enumerate(model.get("workloads") or ())
        if workload.get("rate_rps")
    ]


def _names(given: Mapping[str, str], name: str) -> list[str]:
    return [word.strip() for word in given.get(name, "").split(",") if word.strip()]


def variants_of(problem: Mapping[str, Any], given: Mapping[str, str]) -> list[Changes]:
    """The change that was asked for, and, where a frontier was, the same at other budgets or loads."""
    wanted = changes_of(problem, given)
    found: list[Changes] = [wanted]
    if given.get("frontier"):
        found += [{**wanted, **_swept(problem, given, factor)} for factor in FRONTIER]
    return found


def changes_of(problem: Mapping[str, Any], given: Mapping[str, str]) -> Changes:
    """New values by path. Raises DocumentError."""
    changes: dict[str, Any] = {"solver.time_limit_s": min(60.0, number_of(given, "seconds") or USUAL_S)}
    budget, load = number_of(given, "budget"), number_of(given, "load")
    if budget is not None:
        changes["budget_usd_per_hour"] = budget
    if load is not None:
        changes.update(_loaded(problem, load))
    for key in ("ttft_p90_s", "tpot_p90_s"):
        limit_s = number_of(given, key)
        if limit_s is not None:
            changes[f"models.*.slo.{key}"] = limit_s
    if given.get("precision"):
        changes["models.*.precision"] = given["precision"]
    for key in ("providers", "regions", "contracts"):
        if names := _names(given, key):
            changes[f"market.filter.{key}"] = names
    return changes


def _loaded(problem: Mapping[str, Any], factor: float) -> Changes:
    return {f"models[{i}].workloads[{k}].rate_rps": rate * factor for i, k, rate in _workloads(problem)}


def _swept(problem: Mapping[str, Any], given: Mapping[str, str], factor: float) -> Changes:
    if problem["objective"]["kind"] in LOADS:
        return _loaded(problem, factor * (number_of(given, "load") or 1.0))
    budget = number_of(given, "budget") or problem.get("budget_usd_per_hour")
    return {} if budget is None else {"budget_usd_per_hour": factor * budget}


@dataclass(frozen=True, slots=True)
class Column:
    """A plan, or what would be one, in figures."""

    title: str
    status: str
    cost_usd_per_hour: float | None
    value: float | None
    bound: float | None
    relative_gap: float | None
    load_multiple: float | None
    usd_per_million_tokens: float | None
    gpus: Mapping[str, int]
    better_fraction: float | None = None
    reason: str | None = None


def columns_of(base: Listed, answer: WhatIfDocument) -> list[Column]:
    """What runs now, the problem as it is planned now, and with the change."""
    columns = []
    if base.plan is not None:
        gpus: Counter[str] = Counter()
        for rental in base.rentals:
            gpus[rental.gpu] += rental.gpus * rental.count
        watched = (base.state or {}).get("load_multiple")
        figures = (base.plan.cost_usd_per_hour, None, None, base.relative_gap, watched, None)
        columns.append(Column(f"revision {base.plan.revision}, which holds", base.plan.status, *figures, gpus))
    columns.append(_column("as it is, planned anew", answer.base))
    columns.append(_column("what if", answer.variants[0]))
    return columns


def _column(title: str, one: VariantDocument) -> Column:
    objective = one.objective
    return Column(
        title,
        one.status,
        one.cost_usd_per_hour,
        objective.value if objective else None,
        objective.bound if objective else None,
        objective.relative_gap if objective else None,
        one.load_multiple,
        one.usd_per_million_tokens,
        one.gpus,
        one.better_fraction,
        one.reason,
    )


def give_way(request: Request, answer: WhatIfDocument) -> Iterator[tuple[str, str, str | None]]:
    """Where the change cannot be planned: what has to give, and an address with the value that would do."""
    for one in answer.variants[0].conflicts:
        address = None
        if one.constraint == "budget":
            given = {key: value for key, value in request.query_params.items() if key != "study"}
            address = f"{request.url.path}?{urlencode({**given, 'budget': f'{one.needed + 0.005:.2f}'})}"
        yield one.constraint, one.remedy, address


def chart_of(
    base: Listed, answer: WhatIfDocument, given: Mapping[str, str]
) -> tuple[dict[str, Any], list[list[Any]], str] | None:
    """Value and proven bound over budgets or loads; None where nothing was swept."""
    if len(answer.variants) < 2:
        return None
    by_load = base.deployment.problem["objective"]["kind"] in LOADS
    at = _loads(given) if by_load else [_budget(one, base.deployment.problem) for one in answer.variants]
    rows = sorted(
        [place, one.objective.value, one.objective.bound]
        for place, one in zip(at, answer.variants, strict=False)
        if one.objective is not None
    )
    words = "load ×" if by_load else "budget $/h"
    option = {
        "aria": {"enabled": False},
        "color": ["#0072b2", "#d55e00"],
        "tooltip": {"trigger": "axis", "renderMode": "richText"},
        "legend": {"top": 0},
        "grid": {"left": 55, "right": 20, "top": 36, "bottom": 40},
        "xAxis": {"type": "value", "name": words, "nameLocation": "middle", "nameGap": 26},
        "yAxis": {"type": "value", "scale": True},
        "series": [
            {"name": "plan", "type": "line", "data": [[at, value] for at, value, _ in rows]},
            {
                "name": "no plan is better",
                "type": "line",
                "lineStyle": {"type": "dashed"},
                "data": [[at, bound] for at, _, bound in rows],
            },
        ],
    }
    return option, rows, words


def _loads(given: Mapping[str, str]) -> list[float]:
    """What the load was multiplied by, in the order of the variants."""
    asked = number_of(given, "load") or 1.0
    return [asked, *(asked * factor for factor in FRONTIER)]


def _budget(one: VariantDocument, problem: Mapping[str, Any]) -> float:
    return float(one.changes.get("budget_usd_per_hour") or problem.get("budget_usd_per_hour") or 0.0)
