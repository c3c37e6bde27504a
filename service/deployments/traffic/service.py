"""Observations: checked against the deployment, stored, and what is known of the traffic with them."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from typing import Final
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.deployments.repository import Deployment, touch
from sutler.service.deployments.schemas import PolicyDocument
from sutler.service.deployments.traffic import repository, season_repository
from sutler.service.deployments.traffic.planned import shapes, stated_rps, with_planned_rates
from sutler.service.deployments.traffic.quiet import quiet
from sutler.service.deployments.traffic.schemas import (
    AcceptedResource,
    ModelTrafficResource,
    ObservationDocument,
    TrafficResource,
)
from sutler.service.deployments.traffic.season import quarters_wanted, usually_comes_to
from sutler.service.deployments.traffic.slices import observations_of
from sutler.service.deployments.traffic.window import ModelTraffic, Observation, model_traffic
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.problem_parts import ModelDocument
from sutler.service.documents.validation import validate

AHEAD: Final = timedelta(minutes=1)  # chosen: clocks that are in step differ by less
OLDEST: Final = timedelta(days=1)  # chosen: a sender that was cut off for a night still catches up
SLACK_S: Final = 600.0  # the newest observation ends before now
LONGEST_WINDOWS: Final = 30.0  # of window_s, chosen: an hour by default, since thin traffic takes time to be known
LONGEST_S: Final = 7 * 86_400.0  # as policy.shrink_after_s at most; what is older is not kept (repository.KEPT)


async def observe(
    connection: AsyncConnection, deployment: Deployment, document: ObservationDocument, *, now: datetime
) -> AcceptedResource:
    """Counts what was observed, once, and has the deployment looked at. Raises DocumentError."""
    problem = validate(ProblemDocument, deployment.problem)
    stated = _model(problem, document.model)
    begin, _ = check_times(document, now)
    told_until = None
    if document.requests is not None:
        told_until = await repository.last_end(
            connection, deployment.id, model=document.model, source=document.source, before=begin
        )
    observations = observations_of(document, told_until=told_until)
    digest = sha256(document.model_dump_json().encode()).digest()
    duplicate = await repository.is_known(connection, deployment.id, observations[-1], digest=digest)
    added = 0.0
    if not duplicate:
        added = await repository.add(connection, deployment.id, observations, digest=digest, now=now)
        await touch(connection, deployment.id)
    policy = validate(PolicyDocument, deployment.policy)
    [model] = await _planned(connection, deployment, [stated])
    of_models = await traffic_of(connection, deployment.id, [model], policy, now=now)
    return AcceptedResource(
        model=model.name,
        accepted_requests=added,
        duplicate=duplicate,
        traffic=_shown(of_models[model.name], model),
    )


async def traffic(connection: AsyncConnection, deployment: Deployment, *, now: datetime) -> TrafficResource:
    """What is known of the traffic of all its models."""
    problem = validate(ProblemDocument, deployment.problem)
    policy = validate(PolicyDocument, deployment.policy)
    planned = await _planned(connection, deployment, problem.models)
    of_models = await traffic_of(connection, deployment.id, planned, policy, now=now)
    latencies = await repository.newest_latencies(
        connection, deployment.id, models=list(of_models), since=_since(policy, now)
    )
    models = [_shown(of_models[model.name], model, latencies.get(model.name)) for model in planned]
    return TrafficResource(deployment=deployment.name, models=models)


async def _planned(
    connection: AsyncConnection, deployment: Deployment, stated: Sequence[ModelDocument]
) -> list[ModelDocument]:
    """The models with the rates that the plan that holds was made for; without one, as stated."""
    found = [] if deployment.plan_id is None else await repository.planned_models(connection, deployment.plan_id)
    planned = {model.name: model for model in (validate(ModelDocument, one) for one in found)}
    return [with_planned_rates(model, planned.get(model.name)) for model in stated]


async def traffic_of(
    connection: AsyncConnection,
    deployment_id: UUID,
    models: Sequence[ModelDocument],
    policy: PolicyDocument,
    *,
    now: datetime,
) -> dict[str, ModelTraffic]:
    """What is known of each model's traffic under the policy's window."""
    names = [model.name for model in models]
    found = await repository.recent(connection, deployment_id, models=names, since=_since(policy, now))
    return await asyncio.to_thread(known, models, found, policy, now=now)


async def usual_rps(
    connection: AsyncConnection,
    deployment_id: UUID,
    models: Sequence[str],
    *,
    now: datetime,
    ahead: timedelta,
    quantile: float,
) -> dict[str, float]:
    """Requests/s by model that are not exceeded with that probability, where usually more comes within `ahead`."""
    wanted = quarters_wanted(now, ahead)
    rates = await season_repository.rates(connection, deployment_id, models=models, quarters=wanted)
    found = {name: usually_comes_to(known, now=now, ahead=ahead, quantile=quantile) for name, known in rates.items()}
    return {name: rps for name, rps in found.items() if rps is not None}


def known(
    models: Sequence[ModelDocument], found: Sequence[Observation], policy: PolicyDocument, *, now: datetime
) -> dict[str, ModelTraffic]:
    """What is known of each model's traffic from what was found of all of them. Pure; much of it takes a while."""
    by_model: dict[str, list[Observation]] = defaultdict(list)
    for observation in found:
        by_model[observation.model].append(observation)
    traffic = {
        model.name: model_traffic(
            model.name,
            shapes(model),
            by_model[model.name],
            now=now,
            window_s=policy.window_s,
            longest_s=_longest_s(policy),
            planned_rps=stated_rps(model),
            lull_s=policy.shrink_after_s,
        )
        for model in models
    }
    if policy.sleep is None:
        return traffic
    return {
        name: replace(one, quiet=quiet(by_model[name], now=now, window_s=policy.window_s))
        for name, one in traffic.items()
    }


def _longest_s(policy: PolicyDocument) -> float:
    return min(LONGEST_WINDOWS * policy.window_s, LONGEST_S)


def _since(policy: PolicyDocument, now: datetime) -> datetime:
    """From when on observations are needed."""
    sleep_s = 0.0 if policy.sleep is None else policy.sleep.after_s
    return now - timedelta(seconds=max(_longest_s(policy), max(policy.shrink_after_s, sleep_s) + SLACK_S))


def check_times(document: ObservationDocument, now: datetime) -> tuple[datetime, datetime]:
    """When an observation begins and ends. Raises DocumentError for a time that cannot be meant."""
    if document.observed_at is not None:
        field, times = "observed_at", [document.observed_at]
    else:
        field, times = "requests[].at", [request.at for request in document.requests or ()]
    begin, end = min(times).astimezone(UTC), max(times).astimezone(UTC)
    if end > now + AHEAD:
        remedy = f"lies ahead of the service's clock, {now:%Y-%m-%dT%H:%M:%SZ}: set the clock of the sender"
        raise DocumentError.of(field, remedy, value=end.isoformat())
    if begin < now - OLDEST:
        raise DocumentError.of(field, "is more than a day ago: send what is newer", value=begin.isoformat())
    return begin, end


def _model(problem: ProblemDocument, name: str) -> ModelDocument:
    for model in problem.models:
        if model.name == name:
            return model
    known = ", ".join(model.name for model in problem.models)
    raise DocumentError.of("model", f"is none of the deployment's models: {known}", value=name)


def _shown(
    traffic: ModelTraffic, model: ModelDocument, latencies: Mapping[str, float] | None = None
) -> ModelTrafficResource:
    planned = {workload.name: workload.rate_rps or 0.0 for workload in model.workloads or ()}
    shown = {
        **asdict(traffic),
        "planned_rps": stated_rps(model),
        "workloads": [{**asdict(w), "planned_rps": planned.get(w.workload, 0.0)} for w in traffic.workloads],
        "latencies": latencies or {},
    }
    return ModelTrafficResource.model_validate(shown)
