"""Collecting what rows of an answer become: offers kept once, rows rejected with a reason, rows not for rent."""

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from sutler.adapters.base import LONGEST_NAME, Contract, Coverage, Offer, Poll, RejectedRow
from sutler.adapters.errors import FetchError, Outcome, RowError
from sutler.adapters.values import Row, as_row, raw_json


@dataclass(slots=True)
class Collected:
    """The tally of one poll, over all its answers."""

    offers: dict[tuple[str, Contract], Offer] = field(default_factory=dict)
    rejected: list[RejectedRow] = field(default_factory=list)
    not_available: Counter[str] = field(default_factory=Counter)
    flags: Counter[str] = field(default_factory=Counter)
    _letters: set[str] = field(default_factory=set)

    def is_new(self, row: object) -> bool:
        """Whether the same row, to the letter, was not there before; what is no object always is."""
        letters = raw_json(row)
        is_known = isinstance(row, dict) and letters in self._letters
        self._letters.add(letters)
        return not is_known

    def read(self, row: object, offer_of: Callable[[Row], Offer | str], *parts: str | None) -> bool:
        """Keeps the offer that a row is, or counts the cause why it is none; rejected under an id of these parts.

        Returns whether the row could be read.
        """
        try:
            found = offer_of(as_row(row))
        except RowError as error:
            self.reject(row, error, *parts)
            return False
        if isinstance(found, Offer):
            self.keep(found)
        else:
            self.not_available[found] += 1
        return True

    def keep(self, offer: Offer) -> None:
        """Keeps an offer. Of two with one key the dearer stays, and the conflict is flagged."""
        earlier = self.offers.get(offer.key)
        if earlier is not None and earlier.price_usd_per_hour != offer.price_usd_per_hour:
            self.flags["duplicate_conflict"] += 1
        if earlier is None or earlier.price_usd_per_hour < offer.price_usd_per_hour:
            self.offers[offer.key] = offer

    def reject(self, row: object, error: RowError, *parts: str | None) -> None:
        """Keeps the row as it came, under an id of these parts; with one of them unknown it has none."""
        known = [part for part in parts if part is not None]
        row_id = _shortened("/".join(known)) if known and len(known) == len(parts) else None
        self.rejected.append(RejectedRow(row_id, error.reason, str(error), raw_json(row)))

    def poll(
        self,
        *covered: Coverage,
        outcome: Outcome = "ok",
        failure: FetchError | None = None,
        detail: str = "",
        http_status: int | None = 200,
    ) -> Poll:
        """The poll of answers that were read; `kept` counts offers with something for rent, not list prices."""
        offers = tuple(self.offers.values())
        return Poll(
            outcome=outcome,
            offers=offers,
            kept=sum(offer.available > 0 for offer in offers),
            rejected=tuple(self.rejected),
            not_available=dict(self.not_available),
            flags=dict(self.flags),
            covered=covered,
            http_status=http_status,
            detail=str(failure) if failure else detail,
        )


def _shortened(row_id: str) -> str:
    """Cuts the id to the length of a name, and still makes another for each row."""
    if len(row_id) <= LONGEST_NAME:
        return row_id
    digest = hashlib.blake2b(row_id.encode("utf-8", errors="replace"), digest_size=8).hexdigest()
    return f"{row_id[: LONGEST_NAME - len(digest) - 1]}#{digest}"
