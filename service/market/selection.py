"""What people ask of the market on the command line or in a query: which offers, since when."""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from difflib import get_close_matches
from typing import Any, Final, get_args

from sutler.adapters.base import Contract
from sutler.adapters.gpu_names import known_gpus
from sutler.adapters.registry import PROVIDERS
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.market import OfferDocument
from sutler.service.translation.stated_supply import in_regions
from sutler.service.translation.stored_market import StoredMarket

CONTRACTS: Final = get_args(Contract)
_AGO: Final = re.compile(r"([0-9]{1,6}(?:\.[0-9]+)?)\s*([smhdw])(?: ago)?", re.ASCII)
CLOCK_TOLERANCE: Final = timedelta(minutes=1)  # chosen: a caller's clock may be so much ahead of ours
LONGEST_DURATION_S: Final = 366 * 86_400.0  # chosen: what is for rent is not foretold for longer
_UNITS_S: Final = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferFilter:
    """Offers that are wanted, in the words of people; an empty collection wants all.

    Raises DocumentError and UnknownNameError for words that mean nothing.
    """

    gpus: Collection[str]
    providers: Sequence[str]
    regions: Sequence[str]
    contracts: Collection[str]
    most_usd_per_gpu_hour: float | None
    max_age_s: float | None
    list_prices: bool

    def __post_init__(self) -> None:
        plain = {
            "gpus": frozenset(map(gpu_slug, self.gpus)),
            "providers": provider_names(self.providers),
            "regions": tuple(name.lower() for name in self.regions),
            "contracts": frozenset(map(contract_named, self.contracts)),
        }
        for name, values in plain.items():
            object.__setattr__(self, name, values)

    def of_market(self, market: StoredMarket) -> StoredMarket:
        """The wanted offers, the cheapest GPU-hour first."""
        cheapest_first = sorted(self.among(market), key=lambda offer: (usd_per_gpu_hour(offer), offer.key))
        return replace(market, offers=tuple(cheapest_first))

    def among(self, market: StoredMarket) -> Iterator[OfferDocument]:
        """The wanted offers, as they come."""
        return (offer for offer in market.offers if self._wants(offer, market.taken_at))

    def without(self, field: str) -> "OfferFilter":
        """The same, but for one of its collections, which then wants all."""
        free: dict[str, Any] = {field: ()}
        return replace(self, **free)

    def _wants(self, offer: OfferDocument, at: datetime) -> bool:
        age_s = (at - (offer.observed_at or at)).total_seconds()
        return (
            (self.list_prices or offer.availability_basis != "list")
            and (not self.gpus or offer.gpu in self.gpus)
            and (not self.providers or offer.provider in self.providers)
            and (not self.regions or in_regions(offer.region, self.regions))
            and (not self.contracts or offer.contract in self.contracts)
            and (self.most_usd_per_gpu_hour is None or usd_per_gpu_hour(offer) <= self.most_usd_per_gpu_hour)
            and (self.max_age_s is None or age_s <= self.max_age_s)
        )


def usd_per_gpu_hour(offer: OfferDocument) -> float:
    return offer.price_usd_per_hour / offer.gpus


def gpu_slug(name: str) -> str:
    """The slug that a name means. Raises UnknownNameError."""
    plain = name.strip().lower()
    if plain in known_gpus():
        return plain
    from sutler.solver.catalog import resolve_gpu

    return resolve_gpu(name, field="GPU").slug


def provider_names(names: Sequence[str]) -> tuple[str, ...]:
    """Returns the clouds' own names. Raises DocumentError for a name that no cloud has."""
    plain = tuple(name.strip().lower() for name in names)
    unknown = [name for name in plain if name not in PROVIDERS]
    if unknown:
        near = get_close_matches(unknown[0], list(PROVIDERS), n=1)
        hint = f"did you mean {near[0]}? " if near else ""
        remedy = f"is no cloud that can be polled; {hint}there are {', '.join(PROVIDERS)}"
        raise DocumentError.of("provider", remedy, value=unknown[0])
    return plain


def contract_named(name: str) -> str:
    """Returns the contract that a word means. Raises DocumentError."""
    plain = name.strip().lower().replace("-", "_")
    plain = "interruptible" if plain == "spot" else plain
    if plain not in CONTRACTS:
        raise DocumentError.of("contract", f"must be {', '.join(CONTRACTS)}", value=name)
    return plain


def duration_s(text: str, *, field: str) -> float:
    """Seconds of a length of time such as 90s, 10m, 2h, 3d, 1w, of a year at most. Raises DocumentError."""
    found = _AGO.fullmatch(text.strip())
    seconds = 0.0 if found is None else float(found[1]) * _UNITS_S[found[2]]
    if not 0 < seconds <= LONGEST_DURATION_S:
        raise DocumentError.of(field, "must be a length of time up to a year, such as 10m, 2h, 3d", value=text)
    return seconds


def instant(text: str, *, field: str, now: datetime) -> datetime:
    """A time in RFC 3339, or how long ago: 90s, 30m, 2h, 3d, 1w. Raises DocumentError."""
    ago = _AGO.fullmatch(text.strip())
    try:
        found = utc_of(text.strip()) if ago is None else now - timedelta(seconds=float(ago[1]) * _UNITS_S[ago[2]])
    except (ValueError, OverflowError):
        remedy = "must be a time with its zone, such as 2026-11-20T12:00:00Z, or how long ago: 30m, 2h, 3d"
        raise DocumentError.of(field, remedy, value=text) from None
    if found > now + CLOCK_TOLERANCE:
        raise DocumentError.of(field, f"is in the future: it is {now:%Y-%m-%dT%H:%M:%SZ} now", value=text)
    return found


def utc_of(text: str) -> datetime:
    """The time that RFC 3339 says. Raises ValueError, also where no zone is said or UTC has no such day."""
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return found.astimezone(UTC)
    except OverflowError:
        pass
    raise ValueError(text)
