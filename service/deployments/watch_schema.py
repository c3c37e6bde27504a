"""What callers see of a watched deployment and of what was decided about it."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from pydantic import Field

from sutler.service.web.resource import Resource

Status = Literal["calm", "kept", "waiting", "short", "manual", "blind"]
Feed = Literal["none", "silent", "thin", "live"]


class DriftResource(Resource):
    """One thing that has moved since the plan was made."""

    kind: str
    """lost, gone, scarce, shared, dearer, rate, mix, size, rates, sleep, wake, refinement, age or asked."""
    detail: str
    """In words, with the figures."""
    value: float
    """How far; in the unit of the words."""
    threshold: float
    """Beyond which it counts."""


class AvoidedResource(Resource):
    """A place where machines were lost of late, and where nothing is rented meanwhile."""

    place: str
    """In words: a machine, a host, the machines of one GPU in a region, or a provider under one contract."""
    until: datetime
    """Until when, unless more is lost there. Doubled each time that it fails again (`policy.avoid_lost_s`)."""
    machines: int
    """Machines that were lost there the last time."""


class CarryOutResource(Resource):
    """How far the plan that holds is carried out, by what was reported as rented."""

    revision: int
    """The plan that holds."""
    issued_at: datetime
    """Since when it does."""
    state: Literal["unreported", "met", "unmet", "overdue"]
    """unreported: nobody has said what is rented; met: all that the plan rents is; unmet: not yet; overdue: not, for
    longer than `policy.carry_out_s`."""
    planned_machines: int
    """Machines that the plan rents."""
    missing_machines: int | None
    """Those of them that are not held; null where it was never said what is rented."""
    held_machines_not_planned: int | None
    """Machines that are held and not in the plan; null where it was never said what is rented."""


class WatchSummary(Resource):
    """What the last look at a deployment found, in short."""

    status: Status
    """As in the deployment's `watch`, like all that follows."""
    detail: str = ""
    """Why."""
    feed: Feed
    """Whether the traffic is seen."""
    load_multiple: float | None = None
    """Largest multiple of the load that what runs carries."""
    drifts: Annotated[tuple[DriftResource, ...], Field(strict=False)] = ()
    """What has moved."""
    looked_at: datetime | None
    """When it was looked at last."""
    carry_out: CarryOutResource | None = None
    """How far the plan that holds is carried out, now; null where it serves nothing."""


class WatchResource(Resource):
    """What the last look at a deployment found."""

    status: Status
    """calm: nothing has moved; kept: something has, but no change is worth it; waiting: for the end of the cool-down;
    short: the load is not carried, and no fleet on the market would; manual: a change is worth it, and
    `policy.automatic` is off; blind: it could not look."""
    detail: str
    """Why."""
    feed: Feed
    """Whether the traffic is seen: none: nothing was ever reported; silent: nothing is any more; thin: too few
    requests to tell. Without a live feed, plans are for the traffic that was stated or seen last."""
    holdings: Literal["reported", "never"]
    """Whether it was ever said what is rented; never: offers of the plan that leave the market count as gone."""
    load_multiple: float | None
    """Largest multiple of the load that what runs carries; null where only the mix counts, or nothing has moved."""
    drifts: list[DriftResource]
    """What has moved."""
    avoided: tuple[AvoidedResource, ...] = Field((), strict=False)
    """Where machines were lost of late, as of the last look, the first to be free again first."""
    budget: str = ""
    """What is amiss with the budget that it shares with others (`policy.budget`), in words; empty: nothing."""
    looked_at: datetime | None
    """When it was looked at last."""
    next_look_at: datetime | None
    """When it will be at the latest; sooner if something happens."""
    holdings_reported_at: datetime | None
    """When it was last said what is rented."""
    carry_out: CarryOutResource | None = None
    """How far the plan that holds is carried out, now and not at the last look; null where it serves nothing."""


class OptionResource(Resource):
    """Something that could be done, valued against going on as before."""

    kind: Literal["keep", "reroute", "relayout", "refleet"]
    """keep: nothing; reroute: other shares; relayout: other replicas on these machines; refleet: other machines."""
    capacity_rps: float
    """Requests per second that it carries: of the whole mix or, of a load, at most that."""
    load_multiple: float | None
    """Largest multiple of the load that it carries."""
    usd_per_hour: float
    """USD per hour of its machines."""
    benefit_usd_per_hour: float
    """What it saves, or carries more at what capacity is worth, per hour."""
    switching_usd: float
    """What it costs to change over to it."""
    net_usd: float
    """Benefit within the policy's horizon, less the change."""
    break_even_s: float | None
    """Seconds until it has paid for itself; null: never."""
    machines_started: int
    """Machines to rent."""
    machines_stopped: int
    """Machines to give back."""
    replicas_restarted: int
    """Engines to start anew on machines that stay."""
    replicas_recapped: int = 0
    """Replicas that run on with other power caps."""
    replicas_bent: int = 0
    """Replicas that run on in the other phase, prefill or decode, by routing alone."""


class DecisionResource(Resource):
    """What was decided about a deployment, and why."""

    id: UUID
    """Identity."""
    at: datetime
    """When."""
    basis_revision: int | None
    """The plan that held."""
    revision: int | None
    """The plan that was issued; null: the other was kept."""
    chosen: Literal["keep", "reroute", "relayout", "refleet"]
    """Which of the options."""
    reason: str
    """Why, priced."""
    drifts: list[DriftResource] = Field(description="What had moved.")
    options: list[OptionResource] = Field(description="What was considered, the least disruptive first.")
