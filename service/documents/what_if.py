"""The what-if document: one problem planned as it is and with some things changed, side by side.

Units: requests/s, seconds, USD per hour, watts (TDP or cap). Keys are only ever added, never changed or taken away.
"""

from typing import Any, Literal

from pydantic import Field

from sutler.service.documents.fields import Document, Timestamp
from sutler.service.documents.plan import ConflictDocument, MarketUsed, ObjectiveResult, RentalDocument

VariantStatus = Literal["optimal", "feasible", "infeasible", "unknown", "no_market_data"]


class VariantDocument(Document):
    """The problem with some things changed, and what its plan would be."""

    changes: dict[str, Any]
    """New values by path, as `{"budget_usd_per_hour": 20}`; empty: the problem as it is."""
    status: VariantStatus
    """As in a plan; `no_market_data`: nothing is left to plan with."""
    reason: str | None
    """Why there is nothing to plan with; null where there is."""
    objective: ObjectiveResult | None
    """How good its plan is, with the bound; null where there was nothing to plan with."""
    better_fraction: float | None
    """How much better it is than the problem as it is, relative to that, whichever way the objective goes; below 0 it
    is worse. Null where one of the two has no plan, or they seek different things."""
    throughput_rps: float | None = None
    """Requests/s of all models."""
    makespan_s: float | None = None
    """Seconds; min_makespan only."""
    load_multiple: float | None = None
    """Largest multiple of the given load that the fleet carries."""
    cost_usd_per_hour: float | None = None
    """USD per hour of all rentals."""
    power_watts: float | None = None
    """What all rented GPUs may draw: their TDP, or their caps."""
    usd_per_million_tokens: float | None = None
    """Input and output tokens together."""
    gpus: dict[str, int] = Field(default={})
    """How many GPUs it rents, by slug."""
    rentals: tuple[RentalDocument, ...] = ()
    """What it rents."""
    replicas: int = 0
    """How many replicas run on them."""
    conflicts: tuple[ConflictDocument, ...] = ()
    """What has to give where it is infeasible."""
    seconds: float = 0.0
    """How long it was searched for."""
    notes: tuple[str, ...] = ()
    """How the input was read, where that is unlike the problem as it is."""


class WhatIfDocument(Document):
    """Plans of one problem with one thing or another changed. None of them is issued, and none replaces a plan."""

    schema_: Literal["sutler/what-if/v1"] = Field(alias="schema")
    """Version of this format."""
    created_at: Timestamp
    """When they were made."""
    base: VariantDocument
    """The problem as it is."""
    variants: tuple[VariantDocument, ...]
    """In the order asked for."""
    market: MarketUsed | None
    """The market of the problem as it is; null where it had nothing to plan with."""
    version: str
    """Version of sutler."""
    notes: tuple[str, ...]
    """How the input was read."""
