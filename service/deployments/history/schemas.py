"""Costs and traffic over time, as callers get them."""

from datetime import datetime

from pydantic import Field

from sutler.service.web.resource import Resource


class CostResource(Resource):
    """What was to be paid at an instant."""

    at: datetime
    """The instant."""
    planned_usd_per_hour: float
    """USD per hour of the plans that held."""
    held_usd_per_hour: float | None
    """USD per hour of what was reported as rented; null: no deployment had reported anything by then."""
    deployments: int
    """Deployments that had a plan."""
    reported_deployments: int
    """Deployments that had reported what is rented: what the others held is not in `held_usd_per_hour`."""


class CostStepResource(Resource):
    """A plan that came to hold."""

    at: datetime
    """When."""
    deployment: str
    """Of which deployment."""
    revision: int
    """Which of its plans."""
    usd_per_hour: float
    """USD per hour of all its rentals."""
    reason: str | None
    """Why it came; null: it was asked for."""


class CostsResource(Resource):
    """What deployments cost over a stretch of time.

    Of deployments that were deleted, plans and reports count until then. What was held and never reported is not
    known, nor since when it was: a report counts from when it came.
    """

    deployment: str | None
    """Its name; null: all of them."""
    since: datetime
    """Begin."""
    until: datetime
    """End."""
    planned_usd: float
    """USD for the whole time, by the plans that held."""
    held_usd: float | None
    """USD for the whole time, by what was reported; null: nothing ever was."""
    items: list[CostResource]
    """At equal distances, begin and end included."""
    steps: list[CostStepResource]
    """Plans that came to hold meanwhile, the newest 200, by time."""


class ModelTrafficPoint(Resource):
    """A stretch of time."""

    at: datetime
    """Its begin."""
    seen_rps: float | None
    """Requests per second that were told of, over the parts that somebody told of; null: nobody told of any."""
    planned_rps: float | None
    """Requests per second that the plan was for that held at its begin; null: there was none, or no rates were
    stated. Of a model that sleeps: what it wakes to."""
    latencies: dict[str, float] = Field(
        default={},
        description="What engines that are read told of, for eight days. In seconds, the largest of all readings:"
        " the quantile of all requests is at most that. And shares of the requests that kept limits.",
    )


class ModelTrafficHistory(Resource):
    """One model."""

    model: str
    """Its name."""
    items: list[ModelTrafficPoint]
    """By time, in steps of `step_s`."""


class TrafficHistoryResource(Resource):
    """What a deployment's models were asked over time, beside what was planned for."""

    deployment: str
    """Its name."""
    since: datetime
    """Begin, on a quarter of an hour."""
    step_s: float
    """Seconds of each point: quarters of an hour, or several."""
    models: list[ModelTrafficHistory]
    """By model."""
