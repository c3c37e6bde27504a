"""From rows to the poll of clouds that list types: their list prices, and the stock that was told of, place by place.

A type is listed once at its price (`list_offer`) and once more wherever some of it is for rent (`somewhere`).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from sutler.adapters.base import LONGEST_NAME, Contract, Coverage, Offer, Poll, PriceBand
from sutler.adapters.errors import FetchError, Outcome, RowError
from sutler.adapters.http import HttpAnswer, HttpClient
from sutler.adapters.rows import Collected
from sutler.adapters.stated_waits import wait_after
from sutler.adapters.values import checked_price, short

LIST_FEED: Final = "list"
STOCK_FEED: Final = "stock"


@dataclass(slots=True)
class Told:
    """What an answer said of the stock in one feed, part by part: a part is what one row speaks of.

    A part whose stock could not be read is unknown, which is not the same as none: its offers are left as they are.
    """

    collected: Collected
    feed: str = STOCK_FEED
    parts: set[str] = field(default_factory=set)
    has_unknown: bool = False

    def add(self, *part: str) -> None:
        """The row of this part said what is for rent, or that nothing is."""
        self.parts.add("/".join(part))

    def doubt(self, error: RowError | None = None) -> None:
        """A row did not tell its stock. One of a GPU that is not known has no offers that could be lost."""
        self.has_unknown |= error is None or error.reason != "unknown_gpu"

    @contextmanager
    def rejecting(self, row: object, *parts: str | None) -> Iterator[None]:
        """Rejects the row, under an id of these parts, for a RowError inside; its stock is in doubt then."""
        try:
            yield
        except RowError as error:
            self.collected.reject(row, error, *parts)
            self.doubt(error)

    def covered(self) -> tuple[Coverage, ...]:
        """The whole feed, or only the parts that were told where others are unknown."""
        if self.has_unknown:
            return tuple(Coverage(feed_of(self.feed, part), None, 1) for part in sorted(self.parts))
        return (Coverage(self.feed, None, len(self.parts)),)


def feed_of(feed: str, *part: str) -> str:
    """The feed of one part; it ends in "/", so that it is no prefix of another part's."""
    return "/".join([feed, *part, ""])


def poll_of_types(
    collected: Collected, *told: Told, outcome: Outcome = "ok", failure: FetchError | None = None
) -> Poll:
    """The poll of a cloud that lists types: their stock, as far as it was told, and their list prices."""
    _state_machine_sizes(collected)
    prices = sum(offer.available == 0 for offer in collected.offers.values())
    stock = [coverage for each in told for coverage in each.covered()]
    listed = Coverage(LIST_FEED, None, prices)
    return collected.poll(*stock, listed, outcome=outcome if stock else "prices_only", failure=failure)


def as_asked(poll: Poll, http: HttpClient, answers: Sequence[HttpAnswer], failure: FetchError | None = None) -> Poll:
    """The poll with what the asking adds to its answers: requests, and the wait that was asked for."""
    wait_s, is_stated = wait_after([answer.stated_wait_s for answer in answers], failure)
    return replace(poll, wait_s=wait_s, wait_is_stated=is_stated, requests=http.requests_sent)


def list_offer(
    *name: str,
    size: tuple[str, int],
    usd_per_hour: float,
    price_field: str,
    band: PriceBand,
    contract: Contract = "on_demand",
    feed: str = LIST_FEED,
) -> Offer:
    """A type of this size (GPU slug and count) at its list price, which `price_field` states. Raises RowError."""
    gpu, gpus = size
    return Offer(
        offer_id=joined(LIST_FEED, *name),
        feed=feed,
        gpu=gpu,
        gpus=gpus,
        available=0,
        availability_basis="list",
        price_usd_per_hour=checked_price(usd_per_hour, gpus=gpus, band=band, name=price_field),
        contract=contract,
    )


def somewhere(listed: Offer, provider: str, place: str, region: str | None, *, offer_id: str, feed: str) -> Offer:
    """A listed type where at least one is for rent; a place without a region is no site. Raises RowError.

    Types of one GPU in one `place` may be cut from the same cards, so they are slices of one machine.
    """
    return replace(
        listed,
        offer_id=offer_id,
        feed=feed,
        available=1,
        availability_basis="lower_bound",
        site=None if region is None else joined(provider, place),
        machine_id=joined(place, listed.gpu),
        region=region,
    )


def _state_machine_sizes(collected: Collected) -> None:
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
