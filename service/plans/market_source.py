"""Which offers a problem may use: the snapshot it names, without what its filter drops.

Nothing left is a NoMarketDataError: an empty market is never planned with.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from service.plans.documents import read_document
from service.plans.errors import DocumentError, FieldProblem, NoMarketDataError
from service.plans.market_schema import MarketDocument, OfferDocument
from service.plans.problem_schema import FilterDocument, MarketSourceDocument
from service.plans.validation import validate

Test = Callable[[OfferDocument], bool]


@dataclass(frozen=True, slots=True)
class MarketView:
    """The offers that count: (position in the snapshot, offer). `path` is what the snapshot is called in errors."""

    path: str
    taken_at: datetime
    offers: tuple[tuple[int, OfferDocument], ...]
    notes: tuple[str, ...]

    def age_s(self, now: datetime) -> float:
        """Seconds since the snapshot; 0 for one whose clock runs ahead of ours."""
        return max(0.0, (now - self.taken_at).total_seconds())


def read_market(source: MarketSourceDocument, *, folder: Path | None, now: datetime) -> MarketView:
    """The filtered snapshot that a problem names; paths are relative to `folder` (None: paths are refused).

    Raises NoMarketDataError when there is nothing to plan with, DocumentError when the snapshot is wrong.
    """
    if source.live:
        raise NoMarketDataError("market.live: no provider is configured", "name a snapshot file in market.offers")
    if source.offers is None:
        remedy = "name a snapshot file in market.offers, or give a whole snapshot there (`sutler schema market`)"
        raise NoMarketDataError("market.offers: no offers are named", remedy)
    path, snapshot = _snapshot(source.offers, folder)
    return _filtered(path, snapshot, source.filter, now)


def resolve_path(text: str, folder: Path | None, *, field: str) -> Path:
    """A path of a document, relative to the document's folder; raises DocumentError where files are not allowed."""
    if folder is None:
        raise DocumentError.of(field, "paths are for the command line only: give the content itself", value=text)
    return folder / Path(text).expanduser()


def _snapshot(offers: str | MarketDocument, folder: Path | None) -> tuple[str, MarketDocument]:
    if isinstance(offers, MarketDocument):
        return "market.offers.", offers
    path = resolve_path(offers, folder, field="market.offers")
    prefix = f"{path.name}: "
    data = read_document(path, field="market.offers")
    try:
        return prefix, validate(MarketDocument, data)
    except DocumentError as error:
        raise DocumentError(FieldProblem(prefix + p.field, p.value, p.remedy) for p in error.problems) from None


def _filtered(path: str, snapshot: MarketDocument, wanted: FilterDocument, now: datetime) -> MarketView:
    kept, dropped = [], Counter[str]()
    tests = _tests(wanted, snapshot, now)
    for position, offer in enumerate(snapshot.offers):
        reason = next((name for name, passes in tests.items() if not passes(offer)), None)
        if reason is None:
            kept.append((position, offer))
        else:
            dropped[reason] += 1
    if not kept:
        raise _nothing_left(snapshot, dropped, now)
    notes = (*_count_note(len(kept), dropped), *_reliability_note(wanted, (o for _, o in kept)))
    return MarketView(path, snapshot.taken_at, tuple(kept), (*notes, *_clock_note(snapshot, now)))


def _tests(wanted: FilterDocument, snapshot: MarketDocument, now: datetime) -> dict[str, Test]:
    """The filter as named tests, in the order in which a dropped offer is counted."""
    providers = {name.lower() for name in wanted.providers}
    regions = tuple(name.lower() for name in wanted.regions)
    least = wanted.min_reliability_fraction
    oldest = wanted.max_age_s

    def age_s(offer: OfferDocument) -> float:
        return (now - (offer.observed_at or snapshot.taken_at)).total_seconds()

    return {
        "available": lambda offer: offer.available > 0 and _has_free_gpus(offer),
        "filter.providers": lambda offer: not providers or offer.provider.lower() in providers,
        "filter.regions": lambda offer: not regions or _in_regions(offer.region, regions),
        "filter.gpus": lambda offer: not wanted.gpus or offer.gpu in wanted.gpus,
        "filter.contracts": lambda offer: not wanted.contracts or offer.contract in wanted.contracts,
        "filter.min_reliability_fraction": lambda offer: (
            least is None or offer.reliability_fraction is None or offer.reliability_fraction >= least
        ),
        "filter.max_age_s": lambda offer: oldest is None or age_s(offer) <= oldest,
    }


def _has_free_gpus(offer: OfferDocument) -> bool:
    """A slice that is larger than what is left of its machine cannot be rented now."""
    return offer.divisible or offer.machine_gpus is None or offer.gpus <= offer.machine_gpus


def _in_regions(region: str | None, wanted: tuple[str, ...]) -> bool:
    """`us` holds for US and for US-TX."""
    return region is not None and any(f"{region.lower()}-".startswith(f"{name}-") for name in wanted)


def _nothing_left(snapshot: MarketDocument, dropped: Counter[str], now: datetime) -> NoMarketDataError:
    counts = ", ".join(f"{reason} {count}" for reason, count in dropped.items())
    age = (now - snapshot.taken_at).total_seconds()
    total = len(snapshot.offers)
    reason = f"market: none of {total} offers is left (dropped by {counts}; the snapshot is {age:.0f} s old)"
    if set(dropped) == {"filter.max_age_s"}:
        return NoMarketDataError(reason, "take a fresh snapshot, or raise market.filter.max_age_s")
    return NoMarketDataError(reason, "loosen market.filter, or take a fresh snapshot of more providers")


def _count_note(kept: int, dropped: Counter[str]) -> Iterable[str]:
    if dropped:
        counts = ", ".join(f"{reason} {count}" for reason, count in dropped.items())
        yield f"{kept} of {kept + dropped.total()} offers count; dropped by {counts}."


def _reliability_note(wanted: FilterDocument, kept: Iterable[OfferDocument]) -> Iterable[str]:
    if wanted.min_reliability_fraction is not None:
        unknown = sum(offer.reliability_fraction is None for offer in kept)
        if unknown:
            yield f"{unknown} offers whose provider states no reliability passed min_reliability_fraction."


def _clock_note(snapshot: MarketDocument, now: datetime) -> Iterable[str]:
    if snapshot.taken_at > now:
        yield "The snapshot is dated after this plan; its age counts as 0."
