"""Does it hold under real requests? A deployment's plan, simulated request by request, one run beside another."""

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Final
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response

from sutler.service.db.asynchronous import reading
from sutler.service.deployments import repository
from sutler.service.documents.fields import PRINTABLE_OR_NONE
from sutler.service.documents.studies import SimulationQuestion
from sutler.service.documents.validation import validate
from sutler.service.pages.asking import asked, study_of
from sutler.service.pages.charts import COLOURS
from sutler.service.pages.forms import Fields
from sutler.service.pages.parameters import name_in, number_of
from sutler.service.pages.rendering import rendered
from sutler.service.pages.route import Looking, Page, Planning, Service
from sutler.service.plans.resources import SERVES
from sutler.service.simulation.schemas import METRIC_WORDS, SimulationResource
from sutler.service.studies.service import SIMULATION, is_answer_to

router = APIRouter(prefix="/ui/simulation", route_class=Page, include_in_schema=False)
Words = Annotated[str, Query(max_length=300, pattern=PRINTABLE_OR_NONE)]
SETTINGS: Final = ("load_multiple", "duration_s", "seed", "routing", "roles", "scheduling", "lose")
ROUTINGS: Final = ("round_robin", "random", "least_loaded")
ROLES: Final = ("fixed", "mixed_pool", "opportunistic")
SCHEDULINGS: Final = ("chunked", "prefill_first")
USUAL: Final = {"load_multiple": "1", "duration_s": "300", "seed": "0"}


@router.get("")
async def show_simulation(
    request: Request,
    services: Service,
    looking: Looking,
    deployment: Words = "",
    study: Words = "",
    beside: Words = "",
) -> Response:
    """The page."""
    async with reading(services.engine) as connection:
        names = await repository.names(connection, statuses=SERVES)
    found, other = await study_of(services, SIMULATION, study), await study_of(services, SIMULATION, beside)
    runs = [(title, one.answer) for title, one in (("this run", found), ("the other", other)) if one and one.answer]
    name = deployment or (names[0] if names else "")
    is_stale = False
    if name and found and found.answer:
        question = _question(name, request.query_params)
        is_stale = not await is_answer_to(services, SIMULATION, found.record.id, question)
    return rendered(
        request,
        "simulation.html",
        session=looking,
        names=names,
        name=name,
        is_stale=is_stale,
        given={key: request.query_params.get(key, USUAL.get(key, "")) for key in SETTINGS},
        routings=ROUTINGS,
        roles=ROLES,
        schedulings=SCHEDULINGS,
        study=found,
        other=other if other and other.answer else None,
        charts=list(charts_of(runs)) if found and found.answer else (),
        metrics=METRIC_WORDS,
    )


@router.post("")
async def ask_simulation(request: Request, services: Service, acting: Planning, fields: Fields) -> Response:
    """Asks, in place of what this page asked before."""
    name = name_in(fields, "deployment")
    question = _question(name, fields)
    study = await asked(request, services, SIMULATION, question, acting, instead_of=fields.get("pending", ""))
    kept = {key: fields[key] for key in (*SETTINGS, "beside") if fields.get(key)}
    there = urlencode({"deployment": name, **kept, "study": str(study)})
    return RedirectResponse(f"/ui/simulation?{there}", HTTPStatus.SEE_OTHER)


def _question(name: str, given: Mapping[str, str]) -> SimulationQuestion:
    wanted: dict[str, Any] = {"deployment": name}
    for key in ("load_multiple", "duration_s"):
        if (number := number_of(given, key)) is not None:
            wanted[key] = number
    if (seed := number_of(given, "seed", least=0.0)) is not None:
        wanted["seed"] = int(seed)
    wanted.update({key: given[key] for key in ("routing", "roles", "scheduling", "lose") if given.get(key)})
    return validate(SimulationQuestion, wanted)


def charts_of(
    runs: Sequence[tuple[str, SimulationResource]],
) -> Iterator[tuple[str, dict[str, Any], list[list[Any]], list[str]]]:
    """For each latency: how many of the requests were within how many seconds, of each model and run."""
    for metric, words in METRIC_WORDS.items():
        curves = list(_curves(runs, metric))
        if curves:
            rows = [[p, *(dict(points).get(p) for _, points in curves)] for p in _percentiles(curves)]
            limits = {
                limit.seconds
                for _, run in runs
                for one in run.models
                for limit in one.limits
                if limit.metric == metric
            }
            yield words, _option(curves, sorted(limits)), rows, ["% of requests", *(name for name, _ in curves)]


Curve = tuple[str, list[tuple[int, float]]]


def _curves(runs: Sequence[tuple[str, SimulationResource]], metric: str) -> Iterator[Curve]:
    for title, run in runs:
        for one in run.models:
            known: Mapping[str, float | None] = getattr(one, metric).percentiles_s
            points = [(int(name.removeprefix("p")), at_s) for name, at_s in known.items() if at_s is not None]
            if points:
                yield (one.model if len(runs) == 1 else f"{one.model}, {title}"), points


def _percentiles(curves: Sequence[Curve]) -> list[int]:
    return sorted({percentile for _, points in curves for percentile, _ in points})


def _option(curves: Sequence[Curve], limits: Sequence[float]) -> dict[str, Any]:
    marks = {"silent": True, "symbol": "none", "data": [{"xAxis": limit_s} for limit_s in limits]}
    return {
        "aria": {"enabled": False},
        "color": list(COLOURS),
        "tooltip": {"trigger": "item", "renderMode": "richText"},
        "legend": {"top": 0, "type": "scroll"},
        "grid": {"left": 45, "right": 20, "top": 36, "bottom": 40},
        "xAxis": {"type": "log", "name": "s", "nameLocation": "middle", "nameGap": 26},
        "yAxis": {"type": "value", "max": 100},
        "series": [
            {
                "name": name,
                "type": "line",
                "step": "end",
                "data": [[max(at_s, 1e-4), percentile] for percentile, at_s in points],
                **({"markLine": marks} if place == 0 and limits else {}),
            }
            for place, (name, points) in enumerate(curves)
        ],
    }
