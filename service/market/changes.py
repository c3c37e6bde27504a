"""What a poll changes in the store: which offers end, which begin. Pure; the store is handed in as what it holds.

An offer's state is what planning reads of it, measured figures rounded, so that noise writes no rows: reliability to
0.001, bandwidths and disk to two digits, lines to the internet, RAM and ports to one.
"""

import hashlib
import json
import math
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

from sutler.adapters.base import Coverage, Offer, Poll, RejectedRow

RELIABILITY_DIGITS: Final = 3
MEASURED_DIGITS: Final = 2
COARSE_DIGITS: Final = 1
MOST_OFFERS_PER_ROW: Final = 10  # a row that says "none" may end so many offers of a feed: a type in all its places
LISTING_STEP_S: Final = 3600.0  # chosen: an end that is stated as time left wanders by seconds from poll to poll
LONGEST_RAW_CHARACTERS: Final = 65_536  # chosen: whole rows are kept, and a cloud gone wrong cannot fill the disk


@dataclass(frozen=True, slots=True)
class OpenOffer:
    """What the store holds as for rent: `row` is its row."""

    row: int
    offer_id: str
    contract: str
    feed: str
    price_usd_per_hour: float
    state: bytes


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows to end, offers to begin; `suspected` are feeds whose emptiness the next poll has to confirm."""

    ended: tuple[int, ...]
    begun: tuple[tuple[Offer, bytes], ...]
    covered: tuple[Coverage, ...]
    suspected: tuple[str, ...]


def changes(poll: Poll, held: Collection[OpenOffer], *, suspected_before: Collection[str]) -> Changes:
    """Compares what `poll` says with what is held.

    An answer that leaves nothing of a feed that has offers, with no readable row or next to none, is not believed the
    first time: the feed stays as it is, and only a second such answer in a row empties it. Where there were rows and
    none could be read, the API has changed rather than the market, and no repetition makes that an empty market.
    """
    suspected = tuple(c.feed_prefix for c in poll.covered if _is_suspect(c, poll, held))
    confirmed = () if poll.rejected else tuple(feed for feed in suspected if feed in suspected_before)
    believed = tuple(c for c in poll.covered if c.feed_prefix not in suspected or c.feed_prefix in confirmed)
    held_by_key = {(offer.offer_id, offer.contract): offer for offer in held}
    ended, begun, seen = [], [], set()
    for offer in poll.offers:
        state = state_of(offer)
        if offer.key in seen:  # an adapter's slip: the first counts, as one row per key is all the store can hold
            continue
        before = held_by_key.get(offer.key)
        seen.add(offer.key)
        if before is None or before.state != state:
            begun.append((offer, state))
            ended.extend([before.row] if before else [])
    gone = (o.row for o in held if (o.offer_id, o.contract) not in seen and _is_covered(o, believed))
    still_suspected = tuple(feed for feed in suspected if feed not in confirmed)
    return Changes((*ended, *gone), tuple(begun), believed, still_suspected)


def _is_suspect(coverage: Coverage, poll: Poll, held: Iterable[OpenOffer]) -> bool:
    """Whether nothing is left of a feed, while hardly anything was said of what it had."""
    if any(offer.feed.startswith(coverage.feed_prefix) for offer in poll.offers):
        return False
    had = sum(offer.feed.startswith(coverage.feed_prefix) for offer in held)
    return had > MOST_OFFERS_PER_ROW * coverage.rows_read


def _is_covered(offer: OpenOffer, covered: Iterable[Coverage]) -> bool:
    return any(
        offer.feed.startswith(c.feed_prefix)
        and (c.up_to_usd_per_hour is None or offer.price_usd_per_hour <= c.up_to_usd_per_hour)
        for c in covered
    )


def state_of(offer: Offer) -> bytes:
    """Returns a digest of what planning reads, 16 bytes."""
    read = (
        offer.feed,
        offer.gpu,
        offer.gpus,
        offer.available,
        offer.availability_basis,
        round(offer.price_usd_per_hour, 6),
        offer.divisible,
        offer.machine_id,
        offer.machine_gpus,
        offer.gpu_ids,
        offer.site,
        offer.region,
        None if offer.reliability_fraction is None else round(offer.reliability_fraction, RELIABILITY_DIGITS),
        _measured(offer.intra_machine_gb_per_s),
        _measured(offer.inter_machine_gb_per_s),
        _measured(offer.disk_gb),
        round(offer.disk_included_gb, 3),
        None if offer.disk_usd_per_gb_month is None else round(offer.disk_usd_per_gb_month, 6),
        _measured(offer.inet_down_gb_per_s, COARSE_DIGITS),
        _measured(offer.inet_up_gb_per_s, COARSE_DIGITS),
        offer.inet_down_usd_per_gb,
        offer.inet_up_usd_per_gb,
        offer.host_id,
        offer.is_verified,
        None if offer.listed_until is None else round(offer.listed_until.timestamp() / LISTING_STEP_S),
        _measured(offer.ram_gb, COARSE_DIGITS),
        _measured(offer.cpu_cores, COARSE_DIGITS),
        offer.compute_capability,
        offer.cuda_max,
        _measured(offer.open_ports, COARSE_DIGITS),
    )
    return hashlib.blake2b(json.dumps(read).encode(), digest_size=16).digest()


def _measured(value: float | None, digits: int = MEASURED_DIGITS) -> float | None:
    """Rounds down to so many digits: 812.4 to two is 810."""
    if not value:
        return value
    unit = 10.0 ** (math.floor(math.log10(value)) - digits + 1)
    return round(math.floor(value / unit) * unit, 12)


@dataclass(frozen=True, slots=True)
class RejectedKey:
    """What makes a rejected row the same from poll to poll: its id, or else its content, and the reason."""

    row_key: str
    reason: str


def rejected_by_key(rejected: Iterable[RejectedRow]) -> dict[RejectedKey, RejectedRow]:
    """Returns distinct rejected rows; of several with one key the first."""
    found: dict[RejectedKey, RejectedRow] = {}
    for row in rejected:
        digest = hashlib.blake2b(row.raw.encode(), digest_size=16).hexdigest()
        found.setdefault(RejectedKey(row.offer_id or f"#{digest}", row.reason), row)
    return found
