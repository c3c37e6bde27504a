"""What every adapter speaks: offers kept, rows rejected and why, and how the poll as a whole went.

What a poll does not speak
of (`Poll.covered`) stays as it was: a failed poll has no coverage, so it can never empty a market.
"""

import re
import reprlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, Literal

from sutler.adapters.errors import Outcome, Reason, RowError

Contract = Literal["on_demand", "interruptible", "reserved"]
AvailabilityBasis = Literal["count", "lower_bound", "list"]

USABLE_OUTCOMES: Final = frozenset({"ok", "partial", "prices_only"})
LONGEST_NAME: Final = 200  # characters, as the market snapshot takes them
UNPRINTABLE: Final = re.compile(r"[\u0000-\u001f\u007f-\u009f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
MOST_GPUS: Final = 64  # no cloud rents out a larger machine
# Limits of the market snapshot: far beyond any offer, they only keep out what is no figure.
MOST_GPUS_OF_AN_OFFER: Final = 1024
MOST_AVAILABLE: Final = 10_000
DEAREST_USD_PER_HOUR: Final = 1e7
LARGEST_STORED_CARD_ID: Final = 2**63 - 1  # what a database column of eight bytes holds
# What the market snapshot takes: outside of these it could not be read back from the store.
OFFER_LIMITS: Final[Mapping[str, tuple[float, float]]] = {
    "gpus": (1, MOST_GPUS_OF_AN_OFFER),
    "available": (0, MOST_AVAILABLE),
    "machine_gpus": (1, MOST_GPUS_OF_AN_OFFER),
    "reliability_fraction": (0, 1),
    "intra_machine_gb_per_s": (0, 1e6),
    "inter_machine_gb_per_s": (0, 1e6),
    "disk_gb": (0, 1e9),
    "disk_included_gb": (0, 1e9),
    "disk_usd_per_gb_month": (0, 1e4),
    "inet_down_gb_per_s": (0, 1e6),
    "inet_up_gb_per_s": (0, 1e6),
    "inet_down_usd_per_gb": (0, 1e3),
    "inet_up_usd_per_gb": (0, 1e3),
    "ram_gb": (0, 1e6),
    "cpu_cores": (0, 1e5),
    "compute_capability": (0, 1000),
    "cuda_max": (0, 1000),
    "open_ports": (0, 65_536),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """Something for rent, in the terms of the market snapshot contract; bandwidths are 10^9 bytes/s, one direction.

    `feed` is the part of the provider's market that the offer belongs to, as a path (`on_demand`,
    `secure/NVIDIA A40`); a poll says which feeds it covers. `availability_basis` says how `available` is known:
    counted by the cloud, a lower bound derived from what it says, or a list price with nothing known to be for rent
    (`available` 0). An offer that the market snapshot would refuse is a RowError (bad_number or bad_shape). Only
    users state a price of 0 (snapshot_file.py): `checked_price`, which clouds' prices go through, takes none.

    None says that the cloud states nothing, which is neither good nor bad. `ram_gb` and `cpu_cores` are what comes
    with the offer, not with the whole machine; of a divisible offer with all its GPUs. `disk_usd_per_gb_month` None:
    storage above `disk_included_gb` costs something unknown. `listed_until`: the rental ends then at the latest.
    `is_verified`: whether the cloud has checked the host; clouds that own their machines have.
    """

    offer_id: str
    feed: str
    gpu: str
    gpus: int
    available: int
    price_usd_per_hour: float
    contract: Contract
    availability_basis: AvailabilityBasis = "count"
    divisible: bool = False
    machine_id: str | None = None
    machine_gpus: int | None = None
    gpu_ids: tuple[int, ...] | None = None
    site: str | None = None
    region: str | None = None
    reliability_fraction: float | None = None
    intra_machine_gb_per_s: float | None = None
    inter_machine_gb_per_s: float | None = None
    disk_gb: float | None = None
    disk_included_gb: float = 0.0
    disk_usd_per_gb_month: float | None = None
    inet_down_gb_per_s: float | None = None
    inet_up_gb_per_s: float | None = None
    inet_down_usd_per_gb: float | None = None
    inet_up_usd_per_gb: float | None = None
    host_id: str | None = None
    is_verified: bool | None = None
    listed_until: datetime | None = None
    ram_gb: float | None = None
    cpu_cores: float | None = None
    compute_capability: float | None = None
    cuda_max: float | None = None
    open_ports: int | None = None

    def __post_init__(self) -> None:
        for name in ("offer_id", "gpu", "machine_id", "host_id", "site", "region"):
            _check_name(name, getattr(self, name))
        for name, (least, most) in OFFER_LIMITS.items():
            _check_range(name, getattr(self, name), least, most)
        if not 0 <= self.price_usd_per_hour <= DEAREST_USD_PER_HOUR:
            detail = f"is not from 0 to {DEAREST_USD_PER_HOUR:g}"
            raise RowError("bad_number", f"price_usd_per_hour: {self.price_usd_per_hour:g} {detail}")
        if self.machine_id is not None and self.available > 1:
            raise RowError(
                "bad_number", f"available: {self.available} of one machine: with machine_id it is at most 1"
            )
        _check_cards(self.gpu_ids, self.gpus)

    @property
    def key(self) -> tuple[str, Contract]:
        """Unique within a provider."""
        return (self.offer_id, self.contract)


@dataclass(frozen=True, slots=True)
class RejectedRow:
    """A row that could not become an offer: `raw` is its JSON, `detail` names the field and the value.

    `offer_id` is the same from poll to poll and another for each row; None where the row names nothing to go by.
    """

    offer_id: str | None
    reason: Reason
    detail: str
    raw: str


@dataclass(frozen=True, slots=True)
class Coverage:
    """A poll speaks of all offers whose feed starts with `feed_prefix`: those absent from it are gone.

    An answer that was cut at its limit speaks only of prices up to `up_to_usd_per_hour`, for the whole offer.
    `rows_read` counts the rows that said something of this feed, kept or not for rent, in a feed of list prices those
    with a price: none of them after many is suspect.
    """

    feed_prefix: str = ""
    up_to_usd_per_hour: float | None = None
    rows_read: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """What one poll of a cloud brought.

    `kept` counts what people count at that cloud (offers; GPU types where a cloud lists types). `rejected_by_reason`
    comes from `rejected`; `not_available` counts rows that are not for rent now, by cause. `wait_s`: do not poll
    again before that many seconds have passed (None: the usual interval); `wait_is_stated` where the cloud said so,
    and not only the client's own backoff.
    """

    outcome: Outcome
    offers: tuple[Offer, ...] = ()
    kept: int = 0
    rejected: tuple[RejectedRow, ...] = ()
    not_available: Mapping[str, int] = field(default_factory=dict)
    flags: Mapping[str, int] = field(default_factory=dict)
    covered: tuple[Coverage, ...] = ()
    http_status: int | None = None
    wait_s: float | None = None
    wait_is_stated: bool = False
    detail: str = ""
    requests: int = 0

    @property
    def is_usable(self) -> bool:
        """Whether the poll says anything about the market."""
        return self.outcome in USABLE_OUTCOMES

    @property
    def rejected_by_reason(self) -> dict[str, int]:
        return dict(Counter(row.reason for row in self.rejected))


@dataclass(frozen=True, slots=True)
class PriceBand:
    """The USD per GPU and hour that can be meant; what lies outside is a slip of the cloud or of its host.

    Chosen: the cheapest cards are let for some cents, the dearest for less than ten dollars.
    """

    least_usd_per_gpu_hour: float = 0.01
    most_usd_per_gpu_hour: float = 50.0


USUAL_PRICE_BAND: Final = PriceBand()


def _check_name(field_name: str, value: str | None) -> None:
    if value is not None and (not 0 < len(value) <= LONGEST_NAME or UNPRINTABLE.search(value)):
        detail = f"{reprlib.repr(value)} is not a name of 1 to {LONGEST_NAME} printable characters"
        raise RowError("bad_shape", f"{field_name}: {detail}")


def _check_range(field_name: str, value: float | None, least: float, most: float) -> None:
    if value is not None and not least <= value <= most:
        raise RowError("bad_number", f"{field_name}: {reprlib.repr(value)} is not from {least:g} to {most:g}")


def _check_cards(cards: tuple[int, ...] | None, gpus: int) -> None:
    if cards is None:
        return
    if len(cards) != gpus or len(set(cards)) != gpus:
        raise RowError("bad_shape", f"gpu_ids: {reprlib.repr(cards)} does not name {gpus} cards, each once")
    if not 0 <= min(cards) <= max(cards) <= LARGEST_STORED_CARD_ID:
        raise RowError("bad_number", f"gpu_ids: {reprlib.repr(cards)} is not from 0 to {LARGEST_STORED_CARD_ID}")
