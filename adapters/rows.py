"""Collecting what rows of an answer become: offers kept once, rows rejected with a reason, rows not for rent."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from sutler.adapters.base import Contract, Offer, RejectedRow
from sutler.adapters.errors import RowError
from sutler.adapters.values import Row, is_row, optional_identifier, raw_json, short


@dataclass(slots=True)
class Collected:
    """The tally of one poll, over all its answers."""

    offers: dict[tuple[str, Contract], Offer] = field(default_factory=dict)
    rejected: list[RejectedRow] = field(default_factory=list)
    not_available: Counter[str] = field(default_factory=Counter)
    flags: Counter[str] = field(default_factory=Counter)

    def keep(self, offer: Offer) -> None:
        """Of two offers with one key the dearer stays, and the conflict is flagged."""
        earlier = self.offers.get(offer.key)
        if earlier is not None and earlier.price_usd_per_hour != offer.price_usd_per_hour:
            self.flags["duplicate_conflict"] += 1
        if earlier is None or earlier.price_usd_per_hour < offer.price_usd_per_hour:
            self.offers[offer.key] = offer

    def reject(self, row: object, error: RowError, *, id_field: str = "id") -> None:
        """Keeps the row as it came."""
        offer_id = optional_identifier(row, id_field) if isinstance(row, dict) else None
        self.rejected.append(RejectedRow(offer_id, error.reason, str(error), raw_json(row)))


def is_new(row: object, seen: dict[str, list[Any]], *, id_field: str = "id") -> bool:
    """Whether the same row, to the letter, was not there before; `seen` remembers by id."""
    if not isinstance(row, dict):
        return True
    letters = raw_json(row)
    alike = seen.setdefault(str(row.get(id_field))[:100], [])
    if letters in alike:
        return False
    alike.append(letters)
    return True


def as_row(value: object) -> Row:
    """Raises RowError (bad_shape) for anything but an object."""
    if not is_row(value):
        raise RowError("bad_shape", f"{short(value)} is no object")
    return value  # type: ignore[return-value]
