"""`sutler.AsyncClient`: `Client`, for programs that asyncio runs; what each method does is said there."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from uuid import UUID

import httpx
from pydantic import BaseModel

from sutler.service.client import calls
from sutler.service.client.calls import WAIT_S, Call, Job, Page
from sutler.service.client.connection import options_of, request_of, timeout_of, unreachable
from sutler.service.client.errors import ServiceError
from sutler.service.client.replies import Reply, checked
from sutler.service.client.retries import MOST_RETRIES, Patience
from sutler.service.client.synchronous import Client
from sutler.service.deployments.diff.schema import DiffDocument
from sutler.service.deployments.history.schemas import CostsResource, TrafficHistoryResource
from sutler.service.deployments.holdings.schemas import HoldingsResource
from sutler.service.deployments.rates.schemas import RatesResource
from sutler.service.deployments.schemas import DeploymentResource, DeploymentSummary, PolicyDocument, WokenResource
from sutler.service.deployments.traffic.schemas import AcceptedResource, TrafficResource
from sutler.service.deployments.watch_schema import DecisionResource
from sutler.service.documents.changes import Changes
from sutler.service.documents.comparison import ComparisonDocument
from sutler.service.documents.estimate import EstimateDocument
from sutler.service.documents.market import OfferDocument
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.what_if import WhatIfDocument
from sutler.service.library.problems import Given, about_plan, about_problem, inlined
from sutler.service.market.resources import (
    HistoryPage,
    InterruptionsPage,
    OutlookPage,
    PollResource,
    ProviderResource,
)
from sutler.service.plans.resources import PlanJobResource, PlanSummary
from sutler.service.simulation.schemas import SimulationResource

T = TypeVar("T")
U = TypeVar("U")
M = TypeVar("M", bound=BaseModel)


class AsyncClient:
    """`Client` with methods that are awaited, and lists that are read with `async for`."""

    def __init__(self, url: str | None = None, key: str | None = None, *, retries: int = MOST_RETRIES) -> None:
        self._retries = retries
        self._http = httpx.AsyncClient(**options_of(url, key))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def plan(
        self,
        problem: Given,
        *,
        changes: Changes | None = None,
        folder: str | Path | None = None,
        timeout_s: float | None = None,
    ) -> PlanDocument:
        question = await asyncio.to_thread(inlined, problem, folder, changes)
        return await self._made("/v1/plans", question, PlanDocument, timeout_s)

    async def get_plan(self, plan_id: UUID | str) -> PlanDocument | Job:
        return await self._send(calls.plan_at(plan_id))

    async def delete_plan(self, plan_id: UUID | str) -> None:
        await self._send(calls.plan_deleted(plan_id))

    def plans(self) -> AsyncIterator[PlanSummary]:
        return self._all(calls.plans)

    async def what_if(
        self,
        problem: Given | None = None,
        variants: Sequence[Changes] = (),
        *,
        deployment: str | None = None,
        plan_id: UUID | str | None = None,
        folder: str | Path | None = None,
        timeout_s: float | None = None,
    ) -> WhatIfDocument:
        question = {**about_problem(problem, folder, deployment, plan_id), "variants": [*map(dict, variants)]}
        return await self._made("/v1/what-ifs", question, WhatIfDocument, timeout_s)

    async def compare(
        self,
        problem: Given | None = None,
        *,
        only: Sequence[str] = (),
        deployment: str | None = None,
        plan_id: UUID | str | None = None,
        folder: str | Path | None = None,
        timeout_s: float | None = None,
    ) -> ComparisonDocument:
        question = {**about_problem(problem, folder, deployment, plan_id), "only": [*only]}
        return await self._made("/v1/comparisons", question, ComparisonDocument, timeout_s)

    async def simulate(
        self,
        plan: PlanDocument | None = None,
        *,
        deployment: str | None = None,
        plan_id: UUID | str | None = None,
        timeout_s: float | None = None,
        **options: Any,
    ) -> SimulationResource:
        question = {**about_plan(plan, deployment, plan_id), **options}
        return await self._made("/v1/simulations", question, SimulationResource, timeout_s)

    async def estimate(self, model: str, gpu: str, **options: Any) -> EstimateDocument:
        return await self._send(calls.estimated({"model": model, "gpu": gpu, **options}))

    def deployments(self) -> AsyncIterator[DeploymentSummary]:
        return self._all(calls.deployments)

    async def deployment(self, name: str) -> DeploymentResource:
        return await self._send(calls.deployment(name))

    async def apply(
        self,
        name: str,
        problem: Given,
        *,
        policy: PolicyDocument | Mapping[str, Any] | None = None,
        folder: str | Path | None = None,
    ) -> DeploymentResource:
        return await self._send(calls.applied(name, await asyncio.to_thread(inlined, problem, folder), policy))

    async def delete_deployment(self, name: str) -> None:
        await self._send(calls.deleted(name))

    async def current_plan(
        self, name: str, *, after: int | None = None, timeout_s: float | None = 0
    ) -> PlanDocument | None:
        with suppress(TimeoutError):
            return await self._until(
                lambda wait_s: calls.current_plan(name, after=after, wait_s=wait_s),
                _itself,
                timeout_s,
            )
        return None

    async def plan_of_revision(self, name: str, revision: int) -> PlanDocument:
        return await self._send(calls.plan_of_revision(name, revision))

    async def diff(self, name: str, revision: int, *, since: int | None = None) -> DiffDocument:
        return await self._send(calls.diff(name, revision, since))

    async def replan(self, name: str) -> PlanJobResource:
        return await self._send(calls.replanned(name))

    async def wake(self, name: str, *models: str) -> WokenResource:
        return await self._send(calls.woken(name, models))

    async def acknowledge(self, name: str, revision: int) -> HoldingsResource:
        return await self._send(calls.acknowledged(name, revision))

    async def holdings(self, name: str) -> HoldingsResource:
        return await self._send(calls.holdings(name))

    async def set_holdings(self, name: str, machines: Sequence[Mapping[str, Any]]) -> HoldingsResource:
        return await self._send(calls.held(name, machines))

    async def observe(self, name: str, observation: Mapping[str, Any]) -> AcceptedResource:
        return await self._send(calls.observed(name, observation))

    async def traffic(self, name: str) -> TrafficResource:
        return await self._send(calls.traffic(name))

    async def rates(self, name: str) -> RatesResource:
        return await self._send(calls.rates(name))

    async def forget_rates(self, name: str) -> None:
        await self._send(calls.rates_forgotten(name))

    def decisions(self, name: str) -> AsyncIterator[DecisionResource]:
        return self._all(lambda cursor: calls.decisions(name, cursor))

    async def costs(self, name: str | None = None, **wanted: Any) -> CostsResource:
        """What a deployment costs over time, or all of them; `wanted` as in the API: since, until, points."""
        return await self._send(calls.costs(name, **wanted))

    async def traffic_history(self, name: str, **wanted: Any) -> TrafficHistoryResource:
        """What its models were asked over time; `wanted` as in the API: since, until, points."""
        return await self._send(calls.traffic_history(name, **wanted))

    def offers(self, **wanted: Any) -> AsyncIterator[OfferDocument]:
        return self._all(lambda cursor: calls.offers(cursor, **wanted))

    async def history(self, *gpus: str, **wanted: Any) -> HistoryPage:
        return await self._send(calls.history(gpus, **wanted))

    def providers(self) -> AsyncIterator[ProviderResource]:
        return self._all(calls.providers)

    def polls(self, name: str) -> AsyncIterator[PollResource]:
        return self._all(lambda cursor: calls.polls(name, cursor))

    async def outlook(self, **wanted: Any) -> OutlookPage:
        """How likely offers are still there when you come; `wanted` as in the API: gpu, within and so on."""
        return await self._send(calls.outlook(**wanted))

    async def interruptions(self, **wanted: Any) -> InterruptionsPage:
        """How often rented machines are taken away; `wanted` as in the API: gpu, provider, contract."""
        return await self._send(calls.interruptions(**wanted))

    async def ask(self, call: Call[T]) -> T:
        return await self._send(call)

    async def _made(self, path: str, question: dict[str, Any], model: type[M], timeout_s: float | None) -> M:
        asked = await self._send(calls.asked_for(path, question, model))
        done: Callable[[M | Job], M | None] = calls.finished
        found = done(asked)
        if found is not None:
            return found
        url = asked.url if isinstance(asked, Job) else path
        return await self._until(lambda wait_s: calls.made_at(url, model, wait_s=wait_s), done, timeout_s)

    async def _send(self, call: Call[T]) -> T:
        patience = Patience(self._retries)
        while True:
            try:
                return call.read(await self._once(call))
            except ServiceError as error:
                wait_s = patience.wait_s(error, can_repeat=call.can_repeat)
                if wait_s is None:
                    raise
            await asyncio.sleep(wait_s)

    async def _once(self, call: Call[Any]) -> Reply:
        try:
            answer = await self._http.request(timeout=timeout_of(call), **request_of(call))
        except httpx.HTTPError as error:
            raise unreachable(self._http.base_url, error) from None
        return checked(Reply(answer.status_code, answer.content), answer.headers.get("Retry-After", ""))

    async def _until(
        self,
        call: Callable[[float], Call[U]],
        done: Callable[[U], T | None],
        timeout_s: float | None,
    ) -> T:
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = WAIT_S if end is None else end - time.monotonic()
            found = done(await self._send(call(max(0.0, min(WAIT_S, left_s)))))
            if found is not None:
                return found
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"no plan after {timeout_s:g} s")

    async def _all(self, page: Callable[[str | None], Call[Page[T]]]) -> AsyncIterator[T]:
        found = await self._send(page(None))
        while True:
            for item in found.items:
                yield item
            if found.next is None:
                return
            found = await self._send(page(found.next))


def _itself(plan: PlanDocument | None) -> PlanDocument | None:
    return plan


for _name, _method in vars(Client).items():
    if not _name.startswith("_"):
        getattr(AsyncClient, _name).__doc__ = _method.__doc__
