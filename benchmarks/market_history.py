"""A month of a market, made up: intervals of offers over polls of one minute, drawn from a seed.

Offers come in three kinds: some stay for weeks as they are, many change every few hours, and the lively ones change
every few minutes, so often that all together make `CHANGES_PER_MINUTE`. Most changes are a new price; now and then an
offer disappears for a while and comes back under another id, as offers of machines do.
"""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sutler.adapters.base import Offer

CHANGES_PER_MINUTE: Final = 231.5  # 10^7 in 30 days
POLL_S: Final = 60.0
JITTER_S: Final = 3.0
STILL_SHARE: Final = 0.15
STILL_MINUTES: Final = 14 * 24 * 60.0
SLOW_SHARE: Final = 0.45
SLOW_MINUTES: Final = 4 * 60.0
GONE_SHARE: Final = 0.02  # of the changes
GONE_MINUTES: Final = 20.0
PRICE_STEP: Final = 0.02  # standard deviation of the logarithm
WIDEST_PRICE: Final = 0.5
OPEN: Final = np.iinfo(np.int32).max

Minutes = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Intervals:
    """Rows of the offer table, in the order in which they ended; `begins` and `ends` number polls.

    `slot` says which of the templates; `listing` how often it came back; `factor` what its price is multiplied with.
    """

    slot: Minutes
    begins: Minutes
    ends: Minutes
    listing: Minutes
    factor: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.slot)


@dataclass(frozen=True)
class History:
    """The polls of one provider, minute by minute up to `until`, and what they saw."""

    provider: str
    templates: tuple[Offer, ...]
    intervals: Intervals
    instants: tuple[datetime, ...]
    feeds: tuple[str, ...]

    @cached_property
    def begun(self) -> NDArray[np.int64]:
        """Counts by poll the rows it began."""
        return np.bincount(self.intervals.begins, minlength=len(self.instants))

    @cached_property
    def ended(self) -> NDArray[np.int64]:
        ends = self.intervals.ends
        return np.bincount(ends[ends != OPEN], minlength=len(self.instants))

    @cached_property
    def held(self) -> NDArray[np.int64]:
        """Counts by poll the offers for rent after it."""
        return np.cumsum(self.begun - self.ended)

    def offer(self, row: int) -> Offer:
        """The offer of an interval."""
        rows = self.intervals
        template = self.templates[int(rows.slot[row])]
        return replace(
            template,
            offer_id=offer_id(template, int(rows.listing[row])),
            price_usd_per_hour=price(template, float(rows.factor[row])),
        )

    def open_offers(self) -> tuple[Offer, ...]:
        """What is for rent after the last poll."""
        return tuple(self.offer(int(row)) for row in np.flatnonzero(self.intervals.ends == OPEN))


def offer_id(template: Offer, listing: int) -> str:
    return f"{template.offer_id}{listing:04d}"


def price(template: Offer, factor: float) -> float:
    return round(template.price_usd_per_hour * factor, 6)


def history(
    provider: str,
    templates: tuple[Offer, ...],
    *,
    minutes: int,
    until: datetime,
    changes_per_minute: float,
    seed: int,
) -> History:
    """One provider's polls during the `minutes` up to `until`."""
    random = np.random.default_rng(seed)
    seconds = np.arange(1 - minutes, 1) * POLL_S - random.uniform(0.0, JITTER_S, minutes)
    means = _mean_minutes(len(templates), changes_per_minute)
    drawn = [_slot(random, slot, mean, minutes) for slot, mean in enumerate(random.permutation(means))]
    slot, begins, ends, listing, factor = (np.concatenate(column) for column in zip(*drawn, strict=True))
    order = np.argsort(ends, kind="stable")
    return History(
        provider,
        templates,
        Intervals(slot[order], begins[order], ends[order], listing[order], factor[order]),
        tuple(until + timedelta(seconds=float(s)) for s in seconds),
        tuple(sorted({template.feed for template in templates})),
    )


def _mean_minutes(slots: int, changes_per_minute: float) -> NDArray[np.float64]:
    """How long each stays as it is, so that all change so often together."""
    still, slow = round(slots * STILL_SHARE), round(slots * SLOW_SHARE)
    lively = slots - still - slow
    left = changes_per_minute - still / STILL_MINUTES - slow / SLOW_MINUTES
    minutes = max(1.0, lively / left - GONE_SHARE * GONE_MINUTES) if left > 0 else SLOW_MINUTES
    return np.repeat([STILL_MINUTES, SLOW_MINUTES, minutes], [still, slow, lively])


def _slot(random: np.random.Generator, slot: int, mean: float, minutes: int) -> tuple[NDArray[np.generic], ...]:
    """One offer's intervals from the first poll to the last."""
    most = int(1.5 * minutes / mean) + 50
    is_gone = random.random(most) < GONE_SHARE
    stays = random.geometric(1.0 / mean, most)
    breaks = np.where(is_gone, random.geometric(1.0 / GONE_MINUTES, most), 0)
    ends = np.cumsum(stays + breaks) - breaks
    begins = np.concatenate([[0], (ends + breaks)[:-1]])
    count = int(np.searchsorted(begins, minutes))
    listing = np.concatenate([[0], np.cumsum(is_gone)[:-1]])
    steps = np.cumsum(random.normal(0.0, PRICE_STEP, most))
    factor = np.exp(WIDEST_PRICE * np.sin(steps))  # wanders, but not out of bounds
    ends = np.where(ends >= minutes, OPEN, ends)
    return (
        np.full(count, slot, np.int32),
        begins[:count].astype(np.int32),
        ends[:count].astype(np.int32),
        listing[:count].astype(np.int32),
        factor[:count],
    )
