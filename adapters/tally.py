"""From the tally of rows to the poll: what was told of stock, types in places, names made of several parts."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from sutler.adapters.base import LONGEST_NAME, Coverage, Offer, Poll, RejectedRow
from sutler.adapters.errors import FetchError, Outcome, RowError
from sutler.adapters.http import Answer, HttpClient
from sutler.adapters.rows import Collected
from sutler.adapters.stated_waits import wait_after
from sutler.adapters.values import optional_identifier, raw_json, short

LIST_FEED: Final = "list"
STOCK_FEED: Final = "stock"


@dataclass(slots=True)
class Told:
    """What an answer said of the stock in one feed, part by part: a part is what one row speaks of.

    A part whose stock could not be read is unknown, which is not the same as none: its offers are left as they are.
    """

    feed: str = STOCK_FEED
    parts: set[str] = field(default_factory=set)
    has_unknown: bool = False

    def add(self, part: str) -> None:
        """The row of this part said what is for rent, or that nothing is."""
        self.parts.add(part)

    def doubt(self, error: RowError | None = None) -> None:
        """A row did not tell its stock. One of a GPU that is not known has no offers that could be lost."""
        self.has_unknown |= error is None or error.reason != "unknown_gpu"

    def covered(self) -> tuple[Coverage, ...]:
        """The whole feed, or only the parts that were told where others are unknown."""
        if self.has_unknown:
            return tuple(Coverage(feed_of(self.feed, part), None, 1) for part in sorted(self.parts))
        return (Coverage(self.feed, None, len(self.parts)),)


def feed_of(feed: str, part: str) -> str:
    """The feed of one part; it ends in "/", so that it is no prefix of another part's."""
    return f"{feed}/{part}/"


def poll_of(
    collected: Collected,
    *,
    covered: tuple[Coverage, ...],
    outcome: Outcome = "ok",
    detail: str = "",
    http_status: int | None = 200,
) -> Poll:
    """The poll of an answer that was read; `kept` counts offers with something for rent, not list prices."""
    offers = tuple(collected.offers.values())
    return Poll(
        outcome=outcome,
        offers=offers,
        kept=sum(offer.available > 0 for offer in offers),
        rejected=tuple(collected.rejected),
        not_available=dict(collected.not_available),
        flags=dict(collected.flags),
        covered=covered,
        http_status=http_status,
        detail=detail,
    )


def poll_of_types(
    collected: Collected, *told: Told, outcome: Outcome = "ok", failure: FetchError | None = None
) -> Poll:
    """The poll of a cloud that lists types: their stock, as far as it was told, and their list prices."""
    prices = sum(offer.available == 0 for offer in collected.offers.values())
    stock = tuple(coverage for each in told for coverage in each.covered())
    return poll_of(
        collected,
        covered=(*stock, Coverage(LIST_FEED, None, prices)),
        outcome=outcome if stock else "prices_only",
        detail=str(failure) if failure else "",
    )


def as_asked(poll: Poll, http: HttpClient, answers: Sequence[Answer], failure: FetchError | None = None) -> Poll:
    """The poll with what the asking adds to its answers: requests, and the wait that was asked for."""
    wait_s, is_stated = wait_after([answer.stated_wait_s for answer in answers], failure)
    return replace(poll, wait_s=wait_s, wait_is_stated=is_stated, requests=http.requests_sent)


def reject(collected: Collected, row: object, error: RowError, *parts: str | None) -> None:
    """Keeps the row as it came, under an id of these parts; with one of them unknown it has none."""
    known = [part for part in parts if part is not None]
    row_id = _shortened("/".join(known)) if known and len(known) == len(parts) else None
    collected.rejected.append(RejectedRow(row_id, error.reason, str(error), raw_json(row)))


def stated_id(row: object, name: str) -> str | None:
    """An id in what may be no row at all."""
    return optional_identifier(row, name) if isinstance(row, dict) else None


def _shortened(row_id: str) -> str:
    """As long as a name may be, and still another for each row."""
    if len(row_id) <= LONGEST_NAME:
        return row_id
    digest = hashlib.blake2b(row_id.encode("utf-8", errors="replace"), digest_size=8).hexdigest()
    return f"{row_id[: LONGEST_NAME - len(digest) - 1]}#{digest}"


def somewhere(listed: Offer, *, offer_id: str, feed: str, place: str, site: str | None, region: str | None) -> Offer:
    """A listed type where at least one is for rent. Raises RowError.

    Types of one GPU in one `place` may be cut from the same cards, so they are slices of one machine.
    """
    return replace(
        listed,
        offer_id=offer_id,
        feed=feed,
        available=1,
        availability_basis="lower_bound",
        machine_id=joined(place, listed.gpu),
        site=site,
        region=region,
    )


def state_machine_sizes(collected: Collected) -> None:
    """Gives each machine that offers name the size of the largest offer on it.

    For clouds that say of each size only that there is some: sizes of one GPU in one place may be cut from the same
    cards. What is sure is one machine of the largest size, of which the offers are alternative slices.
    """
    largest: dict[str, int] = {}
    for offer in collected.offers.values():
        if offer.machine_id is not None:
            largest[offer.machine_id] = max(offer.gpus, largest.get(offer.machine_id, 0))
    for key, offer in collected.offers.items():
        if offer.machine_id is not None:
            collected.offers[key] = replace(offer, machine_gpus=largest[offer.machine_id])


def joined(*parts: str) -> str:
    """`region/model/8x`. Raises RowError (bad_shape) where it is longer than a name may be."""
    name = "/".join(parts)
    if len(name) > LONGEST_NAME:
        raise RowError("bad_shape", f"{short(name)} is longer than {LONGEST_NAME} characters")
    return name
