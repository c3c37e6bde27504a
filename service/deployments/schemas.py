"""Deployments as callers send and get them."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any, Self
from uuid import UUID

from pydantic import Field, model_validator

from sutler.service.deployments.calendar import MOST_EVENTS, EventDocument, unknown_models
from sutler.service.deployments.watch_schema import WatchResource, WatchSummary
from sutler.service.documents.fields import Document, Fraction, Name, PositiveFraction, Seconds, UsdPerHour, reject
from sutler.service.documents.problem import LOADS, ProblemDocument
from sutler.service.errors import FieldProblem
from sutler.service.plans.resources import PlanStatus, ProgressResource
from sutler.service.web.resource import Resource

NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
DeploymentName = Annotated[str, Field(pattern=NAME_PATTERN, max_length=63)]


class SleepDocument(Document):
    """Which models may sleep: without requests no machines are rented for them, until there are some again."""

    models: Annotated[tuple[Name, ...], Field(strict=False, min_length=1)] | None = None
    """Names of the models that may; null: all."""
    after_s: Annotated[float, Field(ge=60, le=604_800)] = 3600.0
    """Seconds throughout which reports must have said that there were no requests; silence says nothing."""


class SharedBudgetDocument(Document):
    """Money that several deployments spend together: those whose policies name it."""

    name: DeploymentName
    """1 to 63 lower-case letters, digits and hyphens."""
    usd_per_hour: UsdPerHour
    """USD per hour of all of them; where they state several amounts, the lowest counts."""


class PolicyDocument(Document):
    """When a new plan is issued without being asked for, and how steady plans are to be.

    Every change is charged what it costs: machines are paid while they start, old ones until the new ones serve.
    """

    automatic: bool = True
    """Issue plans by itself; false: watch and say what would be done, until `/replan` asks for it."""
    rate_drift_fraction: Annotated[float, Field(gt=0, le=10)] = 0.2
    """Change of a model's request rate that calls for a new plan (objectives with a load to carry)."""
    mix_drift: PositiveFraction = 0.2
    """Change of a model's mix of workloads that calls for one: half the sum of the changes of their shares."""
    priority: Annotated[int, Field(ge=-1000, le=1000)] = 0
    """Where machines or money are short: deployments with a higher one are planned first, also on machines that those
    with a lower one only plan to rent. What is reported as held is never taken away."""
    budget: SharedBudgetDocument | None = None
    """Money that this deployment spends together with others; it is planned within what these leave."""
    at_least_stated: bool = False
    """Plan for no fewer requests than the problem states, however few are seen: for traffic that is yet to come."""
    window_s: Seconds = 120.0
    """Seconds of traffic that drift is judged by; more where these hold too few requests to tell."""
    calendar: Annotated[tuple[EventDocument, ...], Field(strict=False, max_length=MOST_EVENTS)] = ()
    """Events that bring more requests: machines are ordered so that they serve when one begins."""
    shrink_after_s: Annotated[float, Field(ge=0, le=604_800)] = 10_800.0
    """Seconds for which traffic must have been lower before capacity is given up; growth counts at once."""
    sleep: SleepDocument | None = None
    """Rent nothing for models without requests; null: a plan serves all models at all times."""
    lead_quantile: Annotated[float, Field(ge=0.5, lt=1)] | None = 0.9
    """Where traffic is climbing: how surely what it comes to by the time that a new machine serves is to be carried,
    as a probability. Null: machines are ordered only for what is there."""
    season: bool = True
    """Whether what usually comes soon, as it did at this time of past days or weeks, is ordered for as a climb is."""
    most_growth_factor: Annotated[float, Field(ge=1, le=100)] = 4.0
    """Times what is there that is ordered for a climb at most."""
    refine_s: Seconds = 1800.0
    """Seconds of calm after which a plan is looked over without any drift."""
    cooldown_s: Annotated[float, Field(ge=0, le=604_800)] = 900.0
    """Seconds between two plans that change machines at least, unless the current one cannot carry its load."""
    most_stopped_fraction: PositiveFraction | None = None
    """Share of the GPUs that serve which one plan stops, or whose engines it starts anew, at most; one replica in any
    case. Null: as many as is best."""
    most_started_machines: Annotated[int, Field(ge=1, le=1_000_000)] | None = None
    """Machines that one plan newly rents at most, unless lost ones are replaced or the load calls for more."""
    most_started_usd_per_hour: Annotated[float, Field(gt=0, le=1e7)] | None = None
    """USD per hour of such machines."""
    horizon_s: Seconds = 14_400.0
    """Seconds for which what a change brings is counted on."""
    payback_s: Seconds = 3600.0
    """Seconds within which every change has to pay for itself."""
    urgent_payback_s: Seconds = 120.0
    """The same where machines are lost or traffic has drifted: what cannot wait changes as little as it can."""
    max_age_s: Seconds | None = None
    """Seconds after which a plan is made anew in any case."""
    carry_out_s: Annotated[float, Field(ge=0, le=86_400)] = 600.0
    """Seconds after a plan is issued in which its machines that leave the market are taken to be rented by you."""
    settle_s: Annotated[float, Field(ge=0, le=86_400)] = 600.0
    """Seconds for which a lower price or a new offer must have held before anything is moved for it."""
    avoid_lost_s: Annotated[float, Field(ge=0, le=86_400)] = 900.0
    """Seconds for which nothing is rented where machines were lost, unless the load can be carried in no other way;
    twice as long each time that it fails again, a day at most. 0: rent there again at once."""
    least_gain_fraction: Fraction = 0.05
    """Share of what the fleet costs within the horizon that a change must bring, net of its own cost."""
    startup_s: Annotated[float, Field(ge=0, le=86_400)] = 90.0
    """Seconds until a new machine's engine serves, without the download of the weights."""
    download_gb_per_s: Annotated[float, Field(gt=0, le=1000)] = 0.25
    """GB per second at which a new machine fetches the weights, where its offer does not state its connection."""
    restart_s: Annotated[float, Field(ge=0, le=86_400)] = 60.0
    """Seconds for which the GPUs of an engine that is started anew on a machine that stays do not serve."""
    drain_s: Annotated[float, Field(ge=0, le=86_400)] = 30.0
    """Seconds for which a machine is still paid after its last request."""
    min_rental_s: Annotated[float, Field(ge=0, le=31_622_400)] = 0.0
    """Seconds that a rental is paid for at least."""
    learn_rates: bool = False
    """Plan with what the engines' own metrics say of their rates (`feeds`, `/rates`), between 0.5 and 1.5 times the
    estimates; false: it is only shown."""
    validate_plans: bool = False
    """Replay random arrivals on every plan before it is issued. The first is corrected until it keeps its limits, as
    `sutler plan --validate` does; later ones count on what that found, and say what they miss."""


class StandingProblem(Document):
    """A problem and when it is planned anew."""

    problem: ProblemDocument
    """What is to be planned."""
    policy: PolicyDocument = PolicyDocument()
    """When to plan anew."""

    @model_validator(mode="after")
    def _check_models(self) -> Self:
        models = [model.name for model in self.problem.models]
        reject([*unknown_models(self.policy.calendar, models), *self._wrong_sleep(models)])
        return self

    def _wrong_sleep(self, models: Sequence[str]) -> Iterator[FieldProblem]:
        if self.policy.sleep is None:
            return
        for name in self.policy.sleep.models or ():
            if name not in models:
                yield FieldProblem("policy.sleep.models", repr(name), f"is no model of the problem: {sorted(models)}")
        if self.problem.objective.kind not in LOADS:
            remedy = f"takes a load to carry: set objective.kind to {' or '.join(LOADS)}, or leave it out"
            yield FieldProblem("policy.sleep", self.problem.objective.kind, remedy)


class NewDeploymentDocument(StandingProblem):
    """A standing problem with a name."""

    name: DeploymentName
    """1 to 63 lower-case letters, digits and hyphens."""


class DeploymentDocument(StandingProblem):
    """A standing problem; its name is in the path."""

    name: DeploymentName | None = None
    """If given, as in the path."""


class CurrentPlanResource(Resource):
    """The plan that holds."""

    id: UUID
    """Identity of the plan."""
    revision: int
    """Counts the deployment's plans."""
    status: PlanStatus
    """As in the plan."""
    cost_usd_per_hour: float | None
    """USD per hour of all rentals."""
    issued_at: datetime
    """When it was there."""
    url: str
    """Where it is; the deployment's `/plan` is always the current one."""

    @classmethod
    def of(
        cls, id: UUID, revision: int, status: PlanStatus, cost_usd_per_hour: float | None, issued_at: datetime
    ) -> "CurrentPlanResource":
        url, cost = f"/v1/plans/{id}", cost_usd_per_hour
        return cls(id=id, revision=revision, status=status, cost_usd_per_hour=cost, issued_at=issued_at, url=url)


class PendingPlanResource(Resource):
    """The plan that is being made."""

    id: UUID
    """Identity of the plan."""
    status: PlanStatus
    """queued or running."""
    progress: ProgressResource | None
    """Of the running solve."""
    url: str
    """Where it will be."""


class LastFailureResource(Resource):
    """Why the newest attempt brought no plan."""

    id: UUID
    """Identity of the plan that was to be."""
    status: PlanStatus
    """failed or cancelled."""
    problem: dict[str, Any] | None
    """What went wrong and what to do (RFC 9457)."""
    finished_at: datetime | None
    """When."""


class DeploymentResource(Resource):
    """A standing problem with its plans."""

    id: UUID
    """Identity; a deployment that is deleted and made again has another."""
    name: str
    """Unique."""
    version: int
    """Counts the changes of problem and policy."""
    problem: dict[str, Any]
    """As given."""
    policy: PolicyDocument
    """With the defaults."""
    created_at: datetime
    """When it was made."""
    updated_at: datetime
    """When problem or policy changed last."""
    plan: CurrentPlanResource | None
    """The plan that holds; null before the first."""
    latest: CurrentPlanResource | None
    """The newest plan, also where it serves nothing and therefore does not hold."""
    pending: PendingPlanResource | None
    """The plan that is being made."""
    last_failure: LastFailureResource | None
    """Unless a plan came after it."""
    watch: WatchResource | None
    """What the last look at it found; null before the first."""


class DeploymentSummary(Resource):
    """One line of a list of deployments."""

    id: UUID
    """Identity."""
    name: str
    """Unique."""
    version: int
    """Counts the changes of problem and policy."""
    revision: int
    """Plans so far."""
    plan_id: UUID | None
    """The plan that holds."""
    plan: CurrentPlanResource | None
    """The same with its revision, its cost and its age; null before the first."""
    pending: PlanStatus | None = None
    """queued or running: of the plan that is being made; null: none is."""
    models: tuple[str, ...] = ()
    """Names of the models that it serves."""
    objective: str | None = None
    """Kind of the objective of the plan that holds."""
    relative_gap: float | None = None
    """Of the plan that holds: |bound - value| / |value|."""
    held_usd_per_hour: float | None = None
    """USD per hour of all that was reported as rented; null where nothing ever was."""
    watch: WatchSummary | None
    """What the last look at it found; null before the first."""
    created_at: datetime
    """When it was made."""
    updated_at: datetime
    """When problem or policy changed last."""
    url: str
    """Where it is."""


class WakeDocument(Document):
    """Which models are to be served that sleep."""

    models: Annotated[tuple[Name, ...], Field(strict=False, min_length=1)] | None = None
    """Their names; null: all."""


class WokenResource(Resource):
    """Models that are to be served; their plan is made at once."""

    deployment: str
    """Its name."""
    models: tuple[str, ...]
    """Names of the models."""
    at: datetime
    """Since when they count as asked for; without a request they sleep again after `policy.sleep.after_s`."""
