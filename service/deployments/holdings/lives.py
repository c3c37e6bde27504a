"""What reports of holdings tell of the lives of rented machines. Pure.

A machine is *lost* if it is held no more although the plan that holds wants it; else it was given back, or its rental
ended by itself.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sutler.service.deployments.holdings.comparison import beyond, counted
from sutler.service.deployments.holdings.schemas import HoldingDocument, MachineKey


@dataclass(frozen=True, slots=True)
class Loss:
    """Machines that were lost, where they were as far as that is known, and when that was reported."""

    provider: str
    offer_id: str
    contract: str
    gpu: str
    machine_id: str | None
    host_id: str | None
    region: str | None
    at: datetime
    count: int


@dataclass(frozen=True, slots=True)
class Ends:
    """Machines of one kind that are held no more: `lost` of `count` were."""

    count: int
    lost: int


def ends(
    earlier: Iterable[HoldingDocument],
    holdings: Iterable[HoldingDocument],
    wanted: Iterable[HoldingDocument],
    now: datetime,
) -> dict[MachineKey, Ends]:
    """What went between two reports, by what the plan wants."""
    earlier, holdings = tuple(earlier), tuple(holdings)
    missing = counted(beyond(wanted, holdings))
    expired = counted(h for h in earlier if h.expires_at is not None and h.expires_at <= now)
    return {
        key: Ends(gone, max(0, min(gone, missing[key]) - expired[key]))
        for key, gone in counted(beyond(earlier, holdings)).items()
    }
