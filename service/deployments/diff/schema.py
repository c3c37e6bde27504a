"""What one plan changes about another: machines to keep, start and stop, traffic to re-route, priced, in order.

Phases: 1 start the new machines, their engines, and check them; 2 re-route; 3 stop what nothing is sent to any more.
Engines on kept machines that are started anew belong to phase 2: away with their traffic, restart, check, back.
"""

from typing import Annotated, Final, Literal

from pydantic import Field

from sutler.service.documents.fields import Document
from sutler.service.documents.market import ContractName

DIFF_SCHEMA: Final = "sutler/diff/v1"
START: Final = 1
REROUTE: Final = 2
STOP: Final = 3


class MachineChange(Document):
    """Machines of one offer, which are interchangeable."""

    key: str
    """provider/offer_id/contract/4xGPU, percent-encoded: the same in every plan."""
    provider: str
    """Who rents them out."""
    offer_id: str
    """The provider's id."""
    contract: ContractName
    """As in the market snapshot."""
    gpu: str
    """Slug of the GPU."""
    gpus: int
    """GPUs of one machine."""
    count: Annotated[int, Field(ge=1)]
    """Machines."""
    usd_per_hour: float
    """USD per hour of all of them."""
    reason: str
    """Why."""
    phase: Literal[1, 2, 3] | None
    """1 start and check, 2 re-route, 3 stop; null: there is nothing to do."""
    machines: tuple[str, ...]
    """Their keys as in the plan's Terraform outputs: of the new plan; of what is stopped, of the one before."""
    replicas: tuple[str, ...]
    """Ids of the new plan's replicas that run on them."""


class KeptMachines(MachineChange):
    """Machines that stay rented, at the new plan's prices."""

    restart: tuple[str, ...]
    """Those of `replicas` whose engine is started anew: the model, its layout or its settings are others."""


class StartedMachines(MachineChange):
    """Machines to rent."""


class StoppedMachines(MachineChange):
    """Machines to give back, at the prices of the plan before or, in none of the plans, at what is paid."""

    held: bool
    """False: the plan before rents them, but they are not among the holdings, so there is nothing to stop."""


class Reroute(Document):
    """One workload whose requests go elsewhere, by replica key as in the plan's Terraform outputs."""

    key: str
    """model/workload, percent-encoded; with /decode, where it goes on from prefill replicas."""
    model: str
    """The caller's name of the model."""
    workload: str
    """Name of the workload."""
    before: dict[str, float]
    """Share of its requests by replica; an engine that runs on has its new key here too. Empty: a new workload."""
    after: dict[str, float]
    """Share of its requests by replica. Empty: the workload is no longer served."""
    replica_ids: dict[str, str]
    """The id in the new plan of each replica in `after`."""
    moved_fraction: float
    """Share of its requests that go to another replica than before."""
    usd_per_hour: float
    """0: requests cost nothing, machines do."""
    reason: str
    """Why."""
    phase: Literal[1, 2, 3] | None
    """2: after the new machines serve, before the old ones stop."""


class CapacityStep(Document):
    """What runs while one step is taken, measured against the new plan's load."""

    phase: Literal[1, 2, 3]
    """1 while the new machines start, 2 while requests move and engines start anew, 3 once the rest has stopped."""
    restart: tuple[str, ...]
    """Ids of the new plan's replicas that start anew together in this step; the next comes once they serve."""
    carried_fraction: float
    """Share of each workload's requests, as the new plan serves them, that what runs meanwhile carries; at most 1."""


class CostChange(Document):
    """USD per hour of all machines of a plan."""

    before: float
    """Of the plan before; 0 without one."""
    after: float
    """Of the new plan."""
    change: float
    """The difference; negative: cheaper."""


class DiffDocument(Document):
    """What to do about the machines and routes of one plan to have those of another."""

    schema_: Literal["sutler/diff/v1"] = Field(alias="schema")
    """Version of this format."""
    from_: int | None = Field(alias="from")
    """Revision of the plan before; null: nothing was planned before."""
    to: int
    """Revision of the new plan."""
    reason: str
    """Why there is a new plan."""
    usd_per_hour: CostChange
    """What it changes about the cost."""
    keep: Annotated[tuple[KeptMachines, ...], Field(strict=False)]
    """Machines that stay."""
    start: Annotated[tuple[StartedMachines, ...], Field(strict=False)]
    """Machines to rent, first of all."""
    stop: Annotated[tuple[StoppedMachines, ...], Field(strict=False)]
    """Machines to give back, last of all."""
    reroute: Annotated[tuple[Reroute, ...], Field(strict=False)]
    """Workloads that go elsewhere, in between."""
    capacity: Annotated[tuple[CapacityStep, ...], Field(strict=False)] = ()
    """The steps in their order, with what is carried during each: restarts are in the order whose lowest share is
    highest. Rates of engines that go are the new plan's where it has their like, else those of the plan before; an
    engine on machines that are gone carries nothing. Empty in diffs of versions before this field."""
