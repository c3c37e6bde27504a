"""Every call of the API that the clients make: what to send, and how its answer is read. Nothing is sent here."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeAlias, TypeVar
from urllib.parse import quote
from uuid import UUID, uuid4

from pydantic import BaseModel

from sutler.service.client.errors import RefusedError
from sutler.service.client.replies import Reply, read
from sutler.service.deployments.diff.schema import DiffDocument
from sutler.service.deployments.history.schemas import CostsResource, TrafficHistoryResource
from sutler.service.deployments.holdings.schemas import HoldingsResource
from sutler.service.deployments.rates.schemas import RatesResource
from sutler.service.deployments.schemas import DeploymentResource, DeploymentSummary, PolicyDocument, WokenResource
from sutler.service.deployments.traffic.schemas import AcceptedResource, TrafficResource
from sutler.service.deployments.watch_schema import DecisionResource
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.estimate import EstimateDocument
from sutler.service.documents.market import OfferDocument
from sutler.service.documents.plan import PlanDocument
from sutler.service.market.resources import (
    HistoryPage,
    InterruptionsPage,
    OutlookPage,
    PollResource,
    ProviderResource,
)
from sutler.service.plans.resources import PENDING, PlanJobResource, PlanSummary
from sutler.service.studies.resources import StudyJobResource

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)
Job: TypeAlias = PlanJobResource | StudyJobResource  # what is there while something is being made

JSON: Final = "application/json"
PAGE: Final = 200  # items of a list asked for at once: the most that the service gives
WAIT_S: Final = 30.0  # chosen: one call waits so long, well within what proxies let pass
JOBS: Final[Mapping[str, type[Job]]] = {
    "sutler/plan-job/v1": PlanJobResource,
    "sutler/study-job/v1": StudyJobResource,
}


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request. `wait_s`: how long the service may keep its caller waiting; `can_repeat`: whether sending it
    twice does nothing twice."""

    method: str
    path: str
    read: Callable[[Reply], T]
    params: Mapping[str, Any] = field(default_factory=dict)
    content: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    wait_s: float = 0.0
    can_repeat: bool = True


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a list; `next` leads to the following one."""

    items: tuple[T, ...]
    next: str | None


def get(
    path: str, read: Callable[[Reply], T], *, wait_s: float = 0.0, params: Mapping[str, Any] | None = None
) -> Call[T]:
    """What is there; parameters that are None are left out."""
    waits = {"wait_s": wait_s} if wait_s else {}
    given = {name: value for name, value in {**(params or {}), **waits}.items() if value is not None}
    return Call("GET", path, read, params=given, wait_s=wait_s)


def sending(
    method: str, path: str, read: Callable[[Reply], T], body: object | None = None, *, can_repeat: bool = True
) -> Call[T]:
    """A call with a body, if there is any. Raises DocumentError."""
    if body is None:
        return Call(method, path, read, can_repeat=can_repeat)
    return Call(method, path, read, content=_json(body), headers={"Content-Type": JSON}, can_repeat=can_repeat)


def deployment_path(name: str, rest: str = "") -> str:
    """The path of a deployment, or of what is below it."""
    return f"/v1/deployments/{quote(name, safe='')}{f'/{rest}' if rest else ''}"


def asked_for(path: str, question: Mapping[str, Any], model: type[M]) -> Call[M | Job]:
    """Asks for a plan or a study without waiting for it; the key makes a repeated request the same one."""
    headers = {"Content-Type": JSON, "Prefer": "respond-async", "Idempotency-Key": str(uuid4())}
    return Call("POST", path, _of_or_job(model), content=_json(question), headers=headers)


def made_at(url: str, model: type[M], *, wait_s: float = 0.0) -> Call[M | Job]:
    """What was asked for, or its job."""
    return get(url, _of_or_job(model), wait_s=wait_s)


def plan_at(plan_id: UUID | str) -> Call[PlanDocument | Job]:
    return made_at(f"/v1/plans/{plan_id}", PlanDocument)


def plan_deleted(plan_id: UUID | str) -> Call[None]:
    """Is not repeated: where the answer was lost, the second one would be that there is no such plan."""
    return sending("DELETE", f"/v1/plans/{plan_id}", _nothing, can_repeat=False)


def estimated(question: Mapping[str, Any]) -> Call[EstimateDocument]:
    return sending("POST", "/v1/estimates", _of(EstimateDocument), question)


def plans(cursor: str | None) -> Call[Page[PlanSummary]]:
    return _page("/v1/plans", PlanSummary, cursor)


def deployments(cursor: str | None) -> Call[Page[DeploymentSummary]]:
    return _page("/v1/deployments", DeploymentSummary, cursor)


def offers(cursor: str | None, **wanted: Any) -> Call[Page[OfferDocument]]:
    return _page("/v1/offers", OfferDocument, cursor, **wanted)


def costs(name: str | None, **wanted: Any) -> Call[CostsResource]:
    return get("/v1/costs" if name is None else f"{deployment_path(name)}/costs", _of(CostsResource), params=wanted)


def traffic_history(name: str, **wanted: Any) -> Call[TrafficHistoryResource]:
    return get(f"{deployment_path(name)}/traffic/history", _of(TrafficHistoryResource), params=wanted)


def history(gpus: Sequence[str], **wanted: Any) -> Call[HistoryPage]:
    return get("/v1/offers/history", _of(HistoryPage), params={"gpu": [*gpus], **wanted})


def providers(cursor: str | None) -> Call[Page[ProviderResource]]:
    return _page("/v1/providers", ProviderResource, cursor)


def polls(name: str, cursor: str | None) -> Call[Page[PollResource]]:
    return _page(f"/v1/providers/{quote(name, safe='')}/polls", PollResource, cursor)


def outlook(**wanted: Any) -> Call[OutlookPage]:
    return get("/v1/offers/outlook", _of(OutlookPage), params=wanted)


def interruptions(**wanted: Any) -> Call[InterruptionsPage]:
    return get("/v1/offers/interruptions", _of(InterruptionsPage), params=wanted)


def deployment(name: str) -> Call[DeploymentResource]:
    return get(deployment_path(name), _of(DeploymentResource))


def applied(
    name: str, problem: Mapping[str, Any], policy: PolicyDocument | Mapping[str, Any] | None
) -> Call[DeploymentResource]:
    given = policy.model_dump(exclude_unset=True) if isinstance(policy, PolicyDocument) else policy
    body = {"problem": problem, **({} if given is None else {"policy": given})}
    return sending("PUT", deployment_path(name), _of(DeploymentResource), body)


def deleted(name: str) -> Call[None]:
    """Is not repeated: where the answer was lost, the second one would be that there is no such deployment."""
    return sending("DELETE", deployment_path(name), _nothing, can_repeat=False)


def current_plan(name: str, *, after: int | None, wait_s: float) -> Call[PlanDocument | None]:
    return get(deployment_path(name, "plan"), _plan_if_any, wait_s=wait_s, params={"after": after})


def plan_of_revision(name: str, revision: int) -> Call[PlanDocument]:
    return get(deployment_path(name, f"plans/{revision}"), _of(PlanDocument))


def diff(name: str, revision: int, since: int | None) -> Call[DiffDocument]:
    return get(deployment_path(name, f"plans/{revision}/diff"), _of(DiffDocument), params={"from": since})


def replanned(name: str) -> Call[PlanJobResource]:
    """May be sent twice: while a plan is being made, that one is the answer."""
    return sending("POST", deployment_path(name, "replan"), _of(PlanJobResource))


def woken(name: str, models: Sequence[str]) -> Call[WokenResource]:
    """May be sent twice: it asks for what is there then."""
    body = {"models": [*models]} if models else {}
    return sending("POST", deployment_path(name, "wake"), _of(WokenResource), body)


def acknowledged(name: str, revision: int) -> Call[HoldingsResource]:
    """May be sent twice: it says what is."""
    return sending("POST", deployment_path(name, "holdings/ack"), _of(HoldingsResource), {"revision": revision})


def holdings(name: str) -> Call[HoldingsResource]:
    return get(deployment_path(name, "holdings"), _of(HoldingsResource))


def held(name: str, machines: Sequence[Mapping[str, Any]]) -> Call[HoldingsResource]:
    return sending("PUT", deployment_path(name, "holdings"), _of(HoldingsResource), {"holdings": [*machines]})


def observed(name: str, observation: Mapping[str, Any]) -> Call[AcceptedResource]:
    """May be sent twice: the same sent again counts once."""
    return sending("POST", deployment_path(name, "observations"), _of(AcceptedResource), observation)


def traffic(name: str) -> Call[TrafficResource]:
    return get(deployment_path(name, "traffic"), _of(TrafficResource))


def rates(name: str) -> Call[RatesResource]:
    return get(deployment_path(name, "rates"), _of(RatesResource))


def rates_forgotten(name: str) -> Call[None]:
    """May be sent twice: it forgets what was learnt until then."""
    return sending("DELETE", deployment_path(name, "rates"), _nothing)


def decisions(name: str, cursor: str | None) -> Call[Page[DecisionResource]]:
    return _page(deployment_path(name, "decisions"), DecisionResource, cursor)


def finished(found: M | Job) -> M | None:
    """What was asked for, or None while it is being made. Raises RefusedError for why there will be none."""
    if not isinstance(found, PlanJobResource | StudyJobResource):
        return found
    if found.status in PENDING:
        return None
    problem = found.problem or {}
    detail = str(problem.get("detail", f"it is {found.status}"))
    raise RefusedError(int(problem.get("status", 500)), detail, kind=str(problem.get("type", "")))


def _page(path: str, model: type[M], cursor: str | None, **wanted: Any) -> Call[Page[M]]:
    def page(reply: Reply) -> Page[M]:
        data = reply.data
        return Page(tuple(read(model, json.dumps(item)) for item in data["items"]), data["next"])

    return get(path, page, params={"limit": PAGE, "cursor": cursor, **wanted})


def _of(model: type[M]) -> Callable[[Reply], M]:
    return lambda reply: reply.read(model)


def _of_or_job(model: type[M]) -> Callable[[Reply], M | Job]:
    def read(reply: Reply) -> M | Job:
        job = JOBS.get(reply.data.get("schema"))
        return reply.read(model) if job is None else reply.read(job)

    return read


def _plan_if_any(reply: Reply) -> PlanDocument | None:
    return reply.read(PlanDocument) if reply.body else None


def _nothing(reply: Reply) -> None:
    return None


def _json(body: object) -> bytes:
    """JSON has no infinity and no NaN, but YAML has. Raises DocumentError."""
    try:
        return json.dumps(body, allow_nan=False).encode()
    except ValueError:
        raise DocumentError.of("FILE", "holds a number that is infinite or none: give finite numbers") from None
