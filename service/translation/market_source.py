"""Which offers a problem may use: a snapshot, or the store's market, without what its filter drops.

Nothing left is a NoMarketDataError: an empty market is never planned with. Offers that were last seen too long ago
are left out, or used if the problem says so, and the plan's notes name their providers.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sutler.service.documents.errors import DocumentError, NoMarketDataError
from sutler.service.documents.market import MarketDocument, OfferDocument, ProviderUsed
from sutler.service.documents.problem_parts import ExcludeDocument, FilterDocument, MarketSourceDocument
from sutler.service.documents.reading import read_document
from sutler.service.documents.validation import validate
from sutler.service.errors import FieldProblem
from sutler.service.translation.fitness import Fitness, RuleOutcome
from sutler.service.translation.offers import USUAL_DISK_USD_PER_GB_MONTH, has_unknown_storage_price
from sutler.service.translation.stated_supply import in_regions, shortened, with_stated
from sutler.service.translation.stored_market import MarketStore, StoredMarket
from sutler.solver.catalog.entries import Precision
from sutler.solver.outlook.interruptions import LearntRate

STORE_MAX_AGE_S: Final = 900.0  # chosen: some failed polls do not empty a market, and prices are recent
STALE: Final = "filter.max_age_s"

Test = Callable[[OfferDocument], bool]


@dataclass(frozen=True, slots=True)
class _Seen:
    """Offers and when they were seen."""

    taken_at: datetime
    offers: tuple[OfferDocument, ...]


Snapshot = MarketDocument | StoredMarket | _Seen
"""The store's market is one without its checks: what polls brought was checked when it was stored."""


@dataclass(frozen=True, slots=True)
class FilteredMarket:
    """The offers that count: (position in the snapshot, offer). `path` is what the snapshot is called in errors.

    `unfit_for`: models, by name and precision, that offers cannot serve; `rules`: what made others unfit for all.
    `stock`: what the problem states and the filter lets pass, with all the machines that each entry speaks of.
    `interruptions`: how often rented machines were taken away, as far as a store knows.
    """

    path: str
    taken_at: datetime
    offers: tuple[tuple[int, OfferDocument], ...]
    notes: tuple[str, ...]
    providers: tuple[ProviderUsed, ...] = ()
    unfit_for: Mapping[tuple[str, str, str], frozenset[tuple[str, Precision]]] = field(default_factory=dict)
    rules: tuple[RuleOutcome, ...] = ()
    stock: tuple[OfferDocument, ...] = ()
    is_of_store: bool = False
    interruptions: tuple[LearntRate, ...] = ()

    def age_s(self, now: datetime) -> float:
        """Seconds since the snapshot; 0 for one whose clock runs ahead of ours."""
        return max(0.0, (now - self.taken_at).total_seconds())


def read_market(
    source: MarketSourceDocument,
    *,
    folder: Path | None,
    now: datetime,
    fitness: Fitness,
    store: MarketStore | None = None,
    may_be_empty: bool = False,
) -> FilteredMarket:
    """The filtered market that a problem names; paths are relative to `folder` (None: paths are refused).

    Raises NoMarketDataError when there is nothing to plan with, unless it `may_be_empty`; DocumentError when the
    snapshot is wrong.
    """
    if source.offers is not None:
        path, snapshot = _snapshot(source.offers, folder)
        return _filtered(path, snapshot, source, now, fitness, may_be_empty=may_be_empty)
    if store is None:
        remedy = "name a snapshot file in market.offers, or give a whole snapshot there (`sutler schema market`)"
        raise NoMarketDataError("market.offers: no offers are named", remedy)
    market = store.polled(source.filter.providers) if source.live else store.stored()
    return _of_store(market, source, now, fitness, may_be_empty=may_be_empty)


def resolve_path(text: str, folder: Path | None, *, field: str) -> Path:
    """A path of a document, relative to the document's folder; raises DocumentError where files are not allowed."""
    if folder is None:
        raise path_refused(field, text)
    return folder / Path(text).expanduser()


def path_refused(field: str, text: str) -> DocumentError:
    """Returns what callers of the API hear of a path."""
    return DocumentError.of(field, "paths are for the command line only: give the content itself", value=text)


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


def _of_store(
    market: StoredMarket, source: MarketSourceDocument, now: datetime, fitness: Fitness, *, may_be_empty: bool
) -> FilteredMarket:
    """Filters the store's market; what is stale has a default here. List prices only tell what stated stock costs."""
    if not may_be_empty and not source.stock and all(offer.availability_basis == "list" for offer in market.offers):
        known = ", ".join(market.last_seen) or "none of the providers"
        reason = f"market: the store has no offers ({known} answered so far)"
        raise NoMarketDataError(reason, "run `sutler market poll`, or name a snapshot file in market.offers")
    wanted = source.filter.model_copy(update={"max_age_s": source.filter.max_age_s or STORE_MAX_AGE_S})
    source = source.model_copy(update={"filter": wanted})
    now = max(now, market.taken_at)
    view = _filtered(
        "store: ",
        market,
        source,
        now,
        fitness,
        may_be_empty=may_be_empty,
        with_list_prices=False,
        taken=market.taken,
    )
    polled = [offer.observed_at or market.taken_at for _, offer in view.offers if not _is_stated(offer)]
    notes = (*view.notes, *_taken_note(market.taken))
    taken_at = min(polled, default=market.taken_at)
    return replace(view, notes=notes, taken_at=taken_at, is_of_store=True, interruptions=market.interruptions)


def _filtered(
    path: str,
    snapshot: Snapshot,
    source: MarketSourceDocument,
    now: datetime,
    fitness: Fitness,
    *,
    may_be_empty: bool,
    with_list_prices: bool = True,
    taken: int = 0,
) -> FilteredMarket:
    """`taken`: of how many offers other deployments have machines, which are not in the snapshot any more."""
    wanted, kept, stale, dropped = source.filter, [], [], Counter[str]()
    unfit_for: dict[tuple[str, str, str], frozenset[tuple[str, Precision]]] = {}
    tests = _tests(wanted, snapshot, now)
    stated = with_stated(
        snapshot.offers, source, is_fresh=lambda offer: wanted.stale == "flag" or tests[STALE](offer)
    )
    listed = stated.offers if with_list_prices else [o for o in stated.offers if o.availability_basis != "list"]
    snapshot = _Seen(snapshot.taken_at, tuple(listed))
    for position, offer in enumerate(snapshot.offers):
        reason = next((name for name, passes in tests.items() if not passes(offer)), None)
        if reason == STALE:
            stale.append(offer)
        if reason is None or (reason == STALE and wanted.stale == "flag"):
            rule, models = fitness.unmet(offer)
            reason = None if rule is None else f"filter.fit.{rule}"
            if models:
                unfit_for[offer.key] = models
        if reason is None:
            kept.append((position, offer))
        else:
            dropped[reason] += 1
    if not kept and not may_be_empty:
        raise _nothing_left(snapshot, dropped, now, taken)
    ages = _Ages(snapshot.taken_at, now)
    used = [offer for _, offer in kept]
    notes = (
        *_count_note(len(kept), dropped),
        *stated.notes,
        *_filter_notes(wanted, snapshot),
        *_exclusion_notes(wanted.exclude, snapshot),
        *_reliability_note(wanted, used),
        *_storage_note(used),
        *ages.stale_notes(stale, wanted),
        *_clock_note(snapshot, now),
    )
    providers = ages.providers(snapshot.offers, used, stale)
    stock = tuple(offer for offer in stated.stock if all(passes(offer) for passes in tests.values()))
    return FilteredMarket(
        path,
        snapshot.taken_at,
        tuple(kept),
        notes,
        providers,
        unfit_for,
        tuple(fitness.outcomes.values()),
        stock,
    )


def _is_stated(offer: OfferDocument) -> bool:
    return offer.availability_basis == "stated"


@dataclass(frozen=True, slots=True)
class _Ages:
    """How old offers are now; one that does not say when it was seen is as old as its snapshot."""

    taken_at: datetime
    now: datetime

    def seen_at(self, offer: OfferDocument) -> datetime:
        return (offer.observed_at or self.taken_at).astimezone(UTC)

    def age_s(self, offer: OfferDocument) -> float:
        return (self.now - self.seen_at(offer)).total_seconds()

    def stale_notes(self, stale: Sequence[OfferDocument], wanted: FilterDocument) -> Iterable[str]:
        by_provider = Counter(offer.provider for offer in stale)
        for provider, count in sorted(by_provider.items()):
            newest = max(self.seen_at(offer) for offer in stale if offer.provider == provider)
            when = f"{newest:%Y-%m-%d %H:%M:%S} UTC"
            said = f"{provider} is stale: {count} of its offers were last seen at {when} or before"
            treated = (
                "are left out" if wanted.stale == "exclude" else "count all the same (market.filter.stale: flag)"
            )
            yield f"{said} and {treated}; the limit, market.filter.max_age_s, is {wanted.max_age_s:g} s."

    def providers(
        self, offers: Iterable[OfferDocument], used: Iterable[OfferDocument], stale: Iterable[OfferDocument]
    ) -> tuple[ProviderUsed, ...]:
        """Says of each provider how many of its offers count, and when the newest of all was seen."""
        newest: dict[str, datetime] = {}
        for offer in offers:
            newest[offer.provider] = max(self.seen_at(offer), newest.get(offer.provider, self.seen_at(offer)))
        counts = Counter(offer.provider for offer in used)
        names_stale = {offer.provider for offer in stale}
        return tuple(
            ProviderUsed(provider=name, offers=counts[name], last_seen_at=newest[name], stale=name in names_stale)
            for name in sorted(newest)
        )


def _tests(wanted: FilterDocument, snapshot: Snapshot, now: datetime) -> dict[str, Test]:
    """What the filter asks for as named tests, in the order in which a dropped offer is counted."""
    providers = {name.lower() for name in wanted.providers}
    regions = tuple(name.lower() for name in wanted.regions)
    least = wanted.min_reliability_fraction
    oldest = wanted.max_age_s
    ages = _Ages(snapshot.taken_at, now)
    tests: dict[str, Test] = {"available": lambda offer: offer.available > 0 and _has_free_gpus(offer)}
    if providers:
        tests["filter.providers"] = lambda offer: offer.provider.lower() in providers
    if regions:
        tests["filter.regions"] = lambda offer: in_regions(offer.region, regions)
    if wanted.gpus:
        tests["filter.gpus"] = lambda offer: offer.gpu in wanted.gpus
    if wanted.contracts:
        tests["filter.contracts"] = lambda offer: offer.contract in wanted.contracts
    if least is not None:
        tests["filter.min_reliability_fraction"] = lambda offer: (
            offer.reliability_fraction is None or offer.reliability_fraction >= least
        )
    if wanted.exclude != ExcludeDocument():
        tests["filter.exclude"] = lambda offer: not any(_excluded_by(wanted.exclude, offer))
    tests[STALE] = lambda offer: oldest is None or _is_stated(offer) or ages.age_s(offer) <= oldest
    return tests


def _excluded_by(exclude: ExcludeDocument, offer: OfferDocument) -> Iterator[str]:
    """The names in the filter that leave an offer out."""
    provider, whole = offer.provider.lower(), f"{offer.provider}/{offer.offer_id}"
    yield from (f"providers: {name}" for name in exclude.providers if name.lower() == provider)
    yield from (f"regions: {name}" for name in exclude.regions if in_regions(offer.region, [name.lower()]))
    yield from (f"gpus: {name}" for name in exclude.gpus if name == offer.gpu)
    yield from (f"offers: {name}" for name in exclude.offers if name == whole)
    if offer.host_id is not None:
        host = {offer.host_id, f"{offer.provider}/{offer.host_id}"}
        yield from (f"hosts: {name}" for name in exclude.hosts if name in host)
    if offer.machine_id is not None:
        machine = f"{offer.provider}/{offer.machine_id}"
        yield from (f"machines: {name}" for name in exclude.machines if name == machine)


def _filter_notes(wanted: FilterDocument, snapshot: Snapshot) -> Iterable[str]:
    """Says which names let nothing pass: beside names that do, a slip of the keyboard would go unseen."""
    providers = {offer.provider.lower() for offer in snapshot.offers}
    for name in wanted.providers:
        if name.lower() not in providers:
            yield f"market.filter.providers: {name} has no offers."
    for name in wanted.regions:
        if not any(in_regions(offer.region, [name.lower()]) for offer in snapshot.offers):
            yield f"market.filter.regions: there are no offers in {name}."


def _exclusion_notes(exclude: ExcludeDocument, snapshot: Snapshot) -> Iterable[str]:
    """Says which names leave nothing out: a slip of the keyboard would else go unseen."""
    given = [f"{kind}: {name}" for kind in ExcludeDocument.model_fields for name in getattr(exclude, kind)]
    met = {name for offer in snapshot.offers for name in _excluded_by(exclude, offer)} if given else set()
    for name in given:
        if name not in met:
            yield f"market.filter.exclude.{name} is none of the offers, and leaves nothing out."


def _has_free_gpus(offer: OfferDocument) -> bool:
    """Whether what is left of the machine is large enough: else the slice cannot be rented now."""
    return offer.divisible or offer.machine_gpus is None or offer.gpus <= offer.machine_gpus


def _nothing_left(snapshot: Snapshot, dropped: Counter[str], now: datetime, taken: int) -> NoMarketDataError:
    counts = ", ".join(f"{reason} {count}" for reason, count in dropped.items())
    age = (now - snapshot.taken_at).total_seconds()
    total = len(snapshot.offers)
    reason = f"market: none of {total} offers is left (dropped by {counts}"
    if set(dropped) == {STALE}:
        remedy = "poll (`sutler market poll`) or take a fresh snapshot, or raise market.filter.max_age_s"
        return NoMarketDataError(f"{reason}; the snapshot is {age:.0f} s old)", remedy, is_stale=True)
    has = ""
    if "filter.providers" in dropped:
        has = f" (the market has offers of {', '.join(sorted({offer.provider for offer in snapshot.offers}))})"
    if "filter.regions" in dropped:
        regions = sorted({offer.region for offer in snapshot.offers if offer.region is not None})
        has += f" (the market has offers in {shortened(regions) or 'no region that it names'})"
    rules = [name.rpartition(".")[2] for name in dropped if name.startswith("filter.fit.")]
    if rules:
        has += f" (market.filter.fit: {{{rules[0]}: off}} switches a rule off)"
    if taken:
        reason += f"; of {taken} other deployments of this service have machines, or are about to rent them"
    return NoMarketDataError(f"{reason})", f"loosen market.filter{has}, or take a fresh snapshot of more providers")


def _count_note(kept: int, dropped: Counter[str]) -> Iterable[str]:
    if dropped:
        counts = ", ".join(f"{reason} {count}" for reason, count in dropped.items())
        yield f"{kept} of {kept + dropped.total()} offers count; dropped by {counts}."


def _taken_note(taken: int) -> Iterable[str]:
    if taken:
        yield (
            f"{taken} offers count less than their clouds show, or not at all: other deployments of this service "
            "have those machines, or are about to rent them."
        )


def _reliability_note(wanted: FilterDocument, kept: Iterable[OfferDocument]) -> Iterable[str]:
    if wanted.min_reliability_fraction is not None:
        unknown = sum(offer.reliability_fraction is None for offer in kept)
        if unknown:
            yield f"{unknown} offers whose provider states no reliability passed min_reliability_fraction."


def _storage_note(used: Iterable[OfferDocument]) -> Iterable[str]:
    unknown = sum(map(has_unknown_storage_price, used))
    if unknown:
        yield (
            f"{unknown} offers state no price for their storage: {USUAL_DISK_USD_PER_GB_MONTH:g} $ per GB and month "
            "are counted, an estimate."
        )


def _clock_note(snapshot: Snapshot, now: datetime) -> Iterable[str]:
    if snapshot.taken_at > now:
        yield "The snapshot is dated after this plan; its age counts as 0."
