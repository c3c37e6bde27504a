"""`sutler.Client`: a running service, called from Python."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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


class Client:
    """One service and one caller; close it, or use it in a `with` statement.

    `url` and `key` unset: SUTLER_URL and SUTLER_KEY, else the service of this machine without a key. What can be
    sent twice without harm is tried again, `retries` times at most, where the service is away or asks for patience.
    Every method raises a ServiceError: UnreachableError, RefusedError (with `status`, `slug` and `wrong`) or
    AnswerError.
    """

    def __init__(self, url: str | None = None, key: str | None = None, *, retries: int = MOST_RETRIES) -> None:
        self._retries = retries
        self._http = httpx.Client(**options_of(url, key))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connections."""
        self._http.close()

    def plan(
        self,
        problem: Given,
        *,
        changes: Changes | None = None,
        folder: str | Path | None = None,
        timeout_s: float | None = None,
    ) -> PlanDocument:
        """The service's plan of a problem, as `sutler.plan` has them; what it takes from files is sent along.

        Raises TimeoutError where there is none after `timeout_s`.
        """
        question = inlined(problem, folder, changes)
        return self._made("/v1/plans", question, PlanDocument, timeout_s)

    def get_plan(self, plan_id: UUID | str) -> PlanDocument | Job:
        """A plan, or where it is while it is being made."""
        return self._send(calls.plan_at(plan_id))

    def delete_plan(self, plan_id: UUID | str) -> None:
        """Deletes a plan that no deployment stands on, nor any simulation that is kept."""
        self._send(calls.plan_deleted(plan_id))

    def plans(self) -> Iterator[PlanSummary]:
        """All plans, the newest first."""
        return self._all(calls.plans)

    def what_if(
        self,
        problem: Given | None = None,
        variants: Sequence[Changes] = (),
        *,
        deployment: str | None = None,
        plan_id: UUID | str | None = None,
        folder: str | Path | None = None,
        timeout_s: float | None = None,
    ) -> WhatIfDocument:
        """Plans of a problem, or of that of a deployment or plan, as it is and for each variant, side by side."""
        question = {**about_problem(problem, folder, deployment, plan_id), "variants": [*map(dict, variants)]}
        return self._made("/v1/what-ifs", question, WhatIfDocument, timeout_s)

    def compare(
        self,
        problem: Given | None = None,
        *,
        only: Sequence[str] = (),
        deployment: str | None = None,
        plan_id: UUID | str | None = None,
        folder: str | Path | None = None,
        timeout_s: float | None = None,
    ) -> ComparisonDocument:
        """The same problem planned by other strategies as well, or by those that are named."""
        question = {**about_problem(problem, folder, deployment, plan_id), "only": [*only]}
        return self._made("/v1/comparisons", question, ComparisonDocument, timeout_s)

    def simulate(
        self,
        plan: PlanDocument | None = None,
        *,
        deployment: str | None = None,
        plan_id: UUID | str | None = None,
        timeout_s: float | None = None,
        **options: Any,
    ) -> SimulationResource:
        """Requests sent through a plan, one by one; `options` are those of the API: duration_s, traces, seed, ..."""
        question = {**about_plan(plan, deployment, plan_id), **options}
        return self._made("/v1/simulations", question, SimulationResource, timeout_s)

    def estimate(self, model: str, gpu: str, **options: Any) -> EstimateDocument:
        """What one configuration should do; `options` are those of `sutler.estimate`."""
        return self._send(calls.estimated({"model": model, "gpu": gpu, **options}))

    def deployments(self) -> Iterator[DeploymentSummary]:
        """All deployments, by name."""
        return self._all(calls.deployments)

    def deployment(self, name: str) -> DeploymentResource:
        """A deployment, with what the last look at it found."""
        return self._send(calls.deployment(name))

    def apply(
        self,
        name: str,
        problem: Given,
        *,
        policy: PolicyDocument | Mapping[str, Any] | None = None,
        folder: str | Path | None = None,
    ) -> DeploymentResource:
        """Makes a deployment or changes it; the same again does nothing."""
        return self._send(calls.applied(name, inlined(problem, folder), policy))

    def delete_deployment(self, name: str) -> None:
        """Deletes a deployment; its plans stay, and what is rented stays rented."""
        self._send(calls.deleted(name))

    def current_plan(
        self, name: str, *, after: int | None = None, timeout_s: float | None = 0
    ) -> PlanDocument | None:
        """The plan that holds, or the next one `after` a revision, once it is there; None where `timeout_s` is over.

        `timeout_s` None: waits for as long as it takes.
        """
        with suppress(TimeoutError):
            return self._until(
                lambda wait_s: calls.current_plan(name, after=after, wait_s=wait_s),
                _itself,
                timeout_s,
            )
        return None

    def plan_of_revision(self, name: str, revision: int) -> PlanDocument:
        """One plan of a deployment."""
        return self._send(calls.plan_of_revision(name, revision))

    def diff(self, name: str, revision: int, *, since: int | None = None) -> DiffDocument:
        """What to keep, start, re-route and stop for a plan where plan `since` was; unset: the one before."""
        return self._send(calls.diff(name, revision, since))

    def replan(self, name: str) -> PlanJobResource:
        """Plans anew, now; while a plan is being made, that one is it."""
        return self._send(calls.replanned(name))

    def wake(self, name: str, *models: str) -> WokenResource:
        """Has models served that sleep; no `models`: all."""
        return self._send(calls.woken(name, models))

    def acknowledge(self, name: str, revision: int) -> HoldingsResource:
        """Says that this plan is carried out: what it rents is what is rented. Refused where another one holds."""
        return self._send(calls.acknowledged(name, revision))

    def holdings(self, name: str) -> HoldingsResource:
        """What is rented, as was said last."""
        return self._send(calls.holdings(name))

    def set_holdings(self, name: str, machines: Sequence[Mapping[str, Any]]) -> HoldingsResource:
        """Says what is rented now, all of it; losses are what is missing."""
        return self._send(calls.held(name, machines))

    def observe(self, name: str, observation: Mapping[str, Any]) -> AcceptedResource:
        """Reports traffic that was seen; the same sent again counts once."""
        return self._send(calls.observed(name, observation))

    def traffic(self, name: str) -> TrafficResource:
        """The traffic of each model and workload as it is known."""
        return self._send(calls.traffic(name))

    def rates(self, name: str) -> RatesResource:
        """What was learnt of how fast its engines are."""
        return self._send(calls.rates(name))

    def forget_rates(self, name: str) -> None:
        """Forgets that, and has it learnt anew."""
        self._send(calls.rates_forgotten(name))

    def decisions(self, name: str) -> Iterator[DecisionResource]:
        """What was decided about the plan, the newest first."""
        return self._all(lambda cursor: calls.decisions(name, cursor))

    def costs(self, name: str | None = None, **wanted: Any) -> CostsResource:
        """What a deployment costs over time, or all of them; `wanted` as in the API: since, until, points."""
        return self._send(calls.costs(name, **wanted))

    def traffic_history(self, name: str, **wanted: Any) -> TrafficHistoryResource:
        """What its models were asked over time; `wanted` as in the API: since, until, points."""
        return self._send(calls.traffic_history(name, **wanted))

    def offers(self, **wanted: Any) -> Iterator[OfferDocument]:
        """What is for rent as stored; `wanted` as in the API: gpu, provider, region, contract, q, sort, as_of, ..."""
        return self._all(lambda cursor: calls.offers(cursor, **wanted))

    def history(self, *gpus: str, **wanted: Any) -> HistoryPage:
        """GPUs for rent and their price over time, of each in `series` where there are several; `wanted` as in the
        API: contract, provider, since, until, points."""
        return self._send(calls.history(gpus, **wanted))

    def providers(self) -> Iterator[ProviderResource]:
        """The clouds, each with its last poll."""
        return self._all(calls.providers)

    def polls(self, name: str) -> Iterator[PollResource]:
        """The polls of a cloud, the newest first."""
        return self._all(lambda cursor: calls.polls(name, cursor))

    def outlook(self, **wanted: Any) -> OutlookPage:
        """How likely offers are still there when you come; `wanted` as in the API: gpu, within and so on."""
        return self._send(calls.outlook(**wanted))

    def interruptions(self, **wanted: Any) -> InterruptionsPage:
        """How often rented machines are taken away; `wanted` as in the API: gpu, provider, contract."""
        return self._send(calls.interruptions(**wanted))

    def ask(self, call: Call[T]) -> T:
        """Sends any call of service/client/calls.py. Raises ServiceError."""
        return self._send(call)

    def _made(self, path: str, question: dict[str, Any], model: type[M], timeout_s: float | None) -> M:
        asked = self._send(calls.asked_for(path, question, model))
        done: Callable[[M | Job], M | None] = calls.finished
        found = done(asked)
        if found is not None:
            return found
        url = asked.url if isinstance(asked, Job) else path
        return self._until(lambda wait_s: calls.made_at(url, model, wait_s=wait_s), done, timeout_s)

    def _send(self, call: Call[T]) -> T:
        patience = Patience(self._retries)
        while True:
            try:
                return call.read(self._once(call))
            except ServiceError as error:
                wait_s = patience.wait_s(error, can_repeat=call.can_repeat)
                if wait_s is None:
                    raise
            time.sleep(wait_s)

    def _once(self, call: Call[Any]) -> Reply:
        try:
            answer = self._http.request(timeout=timeout_of(call), **request_of(call))
        except httpx.HTTPError as error:
            raise unreachable(self._http.base_url, error) from None
        return checked(Reply(answer.status_code, answer.content), answer.headers.get("Retry-After", ""))

    def _until(
        self,
        call: Callable[[float], Call[U]],
        done: Callable[[U], T | None],
        timeout_s: float | None,
    ) -> T:
        """What `done` makes of an answer, asked for again until it is something. Raises TimeoutError."""
        end = None if timeout_s is None else time.monotonic() + timeout_s
        while True:
            left_s = WAIT_S if end is None else end - time.monotonic()
            found = done(self._send(call(max(0.0, min(WAIT_S, left_s)))))
            if found is not None:
                return found
            if end is not None and time.monotonic() >= end:
                raise TimeoutError(f"no plan after {timeout_s:g} s")

    def _all(self, page: Callable[[str | None], Call[Page[T]]]) -> Iterator[T]:
        found = self._send(page(None))
        yield from found.items
        while found.next is not None:
            found = self._send(page(found.next))
            yield from found.items


def _itself(plan: PlanDocument | None) -> PlanDocument | None:
    return plan
