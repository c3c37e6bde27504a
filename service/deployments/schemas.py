"""Deployments as callers send and get them."""

from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from service.plans.fields import Document, Fraction, Seconds
from service.plans.problem_schema import ProblemDocument
from service.plans.resources import PlanStatus, ProgressResource, Resource

NAME_PATTERN = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
DeploymentName = Annotated[str, Field(pattern=NAME_PATTERN, max_length=63)]


class PolicyDocument(Document):
    """When a new plan is to be made without being asked for, and how steady plans are to be.

    It is kept with the deployment; until replanning is there, only a changed problem and `/replan` bring a plan.
    """

    rate_drift_fraction: Annotated[float, Field(gt=0, le=10)] = 0.2
    """Change of a model's request rate that calls for a new plan."""
    mix_drift: Fraction = 0.2
    """Change of a model's mix of workloads that calls for one: half the sum of the changes of their shares."""
    window_s: Seconds = 120.0
    """Seconds of traffic that drift is judged by."""
    refine_s: Seconds = 1800.0
    """Seconds after which a plan is looked over without any drift."""
    cooldown_s: Seconds = 300.0
    """Seconds between two plans at least, unless what is rented is lost."""
    horizon_s: Seconds = 3600.0
    """Seconds over which the cost of a change has to pay off."""
    max_age_s: Seconds | None = None
    """Seconds after which a plan is no longer good at all."""


class NewDeploymentDocument(Document):
    """A standing problem with a name."""

    name: DeploymentName
    """1 to 63 lower-case letters, digits and hyphens."""
    problem: ProblemDocument
    """What is to be planned."""
    policy: PolicyDocument = PolicyDocument()
    """When to plan anew."""


class DeploymentDocument(Document):
    """A standing problem; its name is in the path."""

    name: DeploymentName | None = None
    """If given, as in the path."""
    problem: ProblemDocument
    """What is to be planned."""
    policy: PolicyDocument = PolicyDocument()
    """When to plan anew."""


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
    url: str
    """Where it is; the deployment's `/plan` is always the current one."""


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
    created_at: datetime
    """When it was made."""
    updated_at: datetime
    """When problem or policy changed last."""
    url: str
    """Where it is."""
