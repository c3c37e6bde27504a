"""What the answers of one RunPod poll add up to, in either of its APIs.

RunPod counts nothing. It says per GPU type, cloud and data centre how scarce machines with k free GPUs are, so that
the largest k with anything in stock is a lower bound: one machine has k free. Each such place is one offer, divisible
and available once. Feeds of the secure cloud, those of the community cloud being alike:

    secure/<type>/<data centre>            offers
    at_least/secure/<type>/<data centre>   offers of a poll that did not learn of the larger sizes
    list/secure/<type>/                    list prices, with nothing known to be for rent
    spot/secure/<type>/<data centre>       the same machines as interruptible, which only GraphQL has a price of

When count=1 was answered and a larger count was not, the smaller bound is true, but it may be worse than what an
earlier poll knew. It is therefore said in a feed of its own, beside the earlier offer, which is neither shrunk nor
closed and grows stale; both name one machine (`machine_id`), so that their GPUs are not counted twice. Every later
poll covers that feed, and a whole one empties it.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from sutler.adapters.base import Coverage, Offer, Poll, RejectedRow
from sutler.adapters.errors import FetchError, Outcome, RowError, TryLaterError
from sutler.adapters.http import HttpAnswer
from sutler.adapters.runpod.listing import SOMEWHERE, Cause, Cloud, Listing, may_have_offers, type_id_of
from sutler.adapters.stated_waits import longest_wait_s, wait_after
from sutler.adapters.values import Row, as_row, raw_json, within


@dataclass(slots=True)
class GpuTypeTally:
    """One GPU type in one cloud; `in_stock` is the last row that told of any, which is that of the largest size."""

    gpu: str
    gpus_at: dict[str, int] = field(default_factory=dict)
    prices: set[float] = field(default_factory=set)
    cause: Cause | None = None
    most_gpus: int | None = None
    is_divisible: bool = True
    is_price_contradicted: bool = False
    in_stock: Listing | None = None

    def add(self, listing: Listing) -> None:
        """Adds a row; of several sizes at one place the largest holds."""
        for place, gpus in listing.gpus_at.items():
            self.gpus_at[place] = max(gpus, self.gpus_at.get(place, 0))
        if listing.usd_per_gpu_hour is not None:
            self.prices.add(listing.usd_per_gpu_hour)
        self.cause = self.cause or listing.cause
        self.most_gpus = listing.most_gpus or self.most_gpus
        self.is_divisible = self.is_divisible and listing.is_divisible
        self.is_price_contradicted |= listing.is_price_contradicted
        if listing.gpus_at:
            self.in_stock = listing

    @property
    def places(self) -> dict[str, int]:
        """A size that is free SOMEWHERE is free at one of the places that are named, if any is."""
        named = {place: gpus for place, gpus in self.gpus_at.items() if place != SOMEWHERE}
        return named or self.gpus_at

    @property
    def has_known_stock(self) -> bool:
        """Whether some row said what there is of it, or that there is nothing, in words that are documented."""
        return bool(self.gpus_at) or self.cause in {"no_stock", "not_offered"}

    @property
    def has_known_price(self) -> bool:
        """Whether its list price is known, or that it has none here."""
        return bool(self.prices) or self.cause == "not_offered"


@dataclass(slots=True)
class CloudTally:
    """One cloud: `largest_read` is the largest machine that was asked for and answered.

    `is_complete` once nothing larger is left to ask. `doubted`: types with a silent or unreadable row, or left out by
    a later answer, so that there may be more of them. `tells_spot`: spot prices are asked for. `strangers`: names of
    no known GPU; `has_nameless_rows` when rows could be of any type.
    """

    cloud: Cloud
    types: dict[str, GpuTypeTally] = field(default_factory=dict)
    largest_read: int = 0
    is_complete: bool = False
    has_words: bool = False
    tells_spot: bool = False
    has_nameless_rows: bool = False
    doubted: set[str] = field(default_factory=set)
    strangers: set[str] = field(default_factory=set)

    @property
    def side(self) -> str:
        return self.cloud.lower()

    @property
    def has_only_prices(self) -> bool:
        return not self.has_words and any(type_id in self.doubted for type_id in self.types)

    @property
    def has_unknown_types(self) -> bool:
        """Whether rows may be of any type: with more names strange than known, it is the names that have changed."""
        return self.has_nameless_rows or len(self.strangers) > len(self.types)

    def add(self, listing: Listing) -> None:
        self.types.setdefault(listing.type_id, GpuTypeTally(listing.gpu)).add(listing)
        if listing.is_silent:
            self.doubted.add(listing.type_id)
        self.has_words |= not listing.is_silent and listing.cause != "not_offered"

    def read(self, heard: Collection[str], unreadable: Iterable[str | None]) -> None:
        """Ends an answer that told of the types in `heard`, and in which rows of `unreadable` types were rejected.

        What it should have told and did not is in doubt: a type that is known from an earlier answer, or whose row
        came and could not be read.
        """
        for type_id in {*self.types, *unreadable}.difference(heard):
            if type_id is None:
                self.has_nameless_rows = True
            elif type_id in self.types or may_have_offers(type_id):
                self.doubted.add(type_id)
            else:
                self.strangers.add(type_id)

    def is_settled(self, type_id: str) -> bool:
        """Whether none of the type's places can have more free GPUs than were seen."""
        found, is_doubtful = self.types[type_id], type_id in self.doubted
        if self.is_complete and not is_doubtful:
            return True
        least_open = 1 if is_doubtful else self.largest_read
        return all(gpus < least_open or gpus == found.most_gpus for gpus in found.places.values())

    def offers(self) -> Iterator[Offer]:
        for type_id, found in self.types.items():
            if not found.prices:
                continue
            price = max(found.prices)
            for place, gpus in sorted(found.places.items()):
                offer = self._offer(type_id, found, place, gpus, price)
                yield offer
                yield from self._spot(type_id, found.in_stock, offer)
            yield Offer(
                offer_id=f"{type_id}/{self.side}/list",
                feed=f"list/{self.side}/{type_id}/",
                gpu=found.gpu,
                gpus=1,
                available=0,
                price_usd_per_hour=price,
                contract="on_demand",
                availability_basis="list",
            )

    def _offer(self, type_id: str, found: GpuTypeTally, place: str, gpus: int, usd_per_gpu_hour: float) -> Offer:
        machine = "/".join(part for part in (type_id, self.side, place) if part)
        is_settled = self.is_settled(type_id)
        stock = found.in_stock or Listing(type_id=type_id, gpu=found.gpu)
        return Offer(
            offer_id=machine if is_settled else f"{machine}/at_least",
            feed=f"{'' if is_settled else 'at_least/'}{self.side}/{type_id}/{place}",
            gpu=found.gpu,
            gpus=gpus,
            available=1,
            price_usd_per_hour=round(usd_per_gpu_hour * gpus, 6),
            contract="on_demand",
            availability_basis="lower_bound",
            divisible=found.is_divisible,
            machine_id=machine,
            site=f"runpod/{place}" if place else None,
            region=place or None,
            ram_gb=within("ram_gb", (stock.ram_gb_per_gpu or 0.0) * gpus) or None,
            cpu_cores=within("cpu_cores", (stock.cpu_cores_per_gpu or 0.0) * gpus) or None,
            cuda_max=stock.cuda_max,
        )

    def _spot(self, type_id: str, stock: Listing | None, offer: Offer) -> Iterator[Offer]:
        """Yields the same machine as interruptible, where it has such a price and its size is sure."""
        if stock is not None and stock.spot_usd_per_gpu_hour is not None and self.is_settled(type_id):
            price = round(stock.spot_usd_per_gpu_hour * offer.gpus, 6)
            feed = f"spot/{offer.feed}"
            yield replace(offer, feed=feed, contract="interruptible", price_usd_per_hour=price)

    def covered(self) -> Iterator[Coverage]:
        """Yields what is covered: only the list prices where nothing is known of stock."""
        priced = {type_id for type_id, found in self.types.items() if found.has_known_price}
        yield from self._covered(f"list/{self.side}/", priced, read={t for t in priced if self.types[t].prices})
        if self.has_only_prices:
            return
        read = {type_id for type_id, found in self.types.items() if found.has_known_stock}
        settled = {type_id for type_id in self.types if type_id not in self.doubted and self.is_settled(type_id)}
        yield from self._covered(f"{self.side}/", settled, read=read)
        if self.tells_spot:
            yield from self._covered(f"spot/{self.side}/", settled, read=read)
        told = {type_id for type_id, found in self.types.items() if type_id not in self.doubted or found.gpus_at}
        yield from self._covered(f"at_least/{self.side}/", told, read=read)

    def _covered(self, prefix: str, known: Collection[str], *, read: Collection[str]) -> Iterator[Coverage]:
        """Yields the whole feed, or type by type where of some types too little is known to close their offers.

        `read`: the types of which something of this feed could be read.
        """
        if not self.has_unknown_types and {*self.types, *self.doubted} <= set(known):
            yield Coverage(prefix, rows_read=len(read))
            return
        for type_id in self.types:
            if type_id in known:
                yield Coverage(f"{prefix}{type_id}/", rows_read=int(type_id in read))


@dataclass(slots=True)
class Tally:
    """One poll. Types count once, however many answers show them; a row of no type counts once per answer."""

    clouds: dict[Cloud, CloudTally] = field(default_factory=dict)
    rejected: dict[tuple[str, int], RejectedRow] = field(default_factory=dict)
    wait_s: float | None = None
    trouble: str = ""

    def cloud(self, cloud: Cloud) -> CloudTally:
        return self.clouds.setdefault(cloud, CloudTally(cloud))

    def read(
        self,
        cloud: Cloud,
        rows: Iterable[object],
        listing_of: Callable[[Row, bool], Listing],
        *,
        in_doubt: Collection[int] = (),
    ) -> bool:
        """Adds one answer; whether any row tells of stock. Of the rows `in_doubt`, by index, errors speak."""
        state, has_stock = self.cloud(cloud), False
        nameless: Counter[str] = Counter()
        heard: set[str] = set()
        unreadable: set[str | None] = set()
        for index, row in enumerate(rows):
            is_in_doubt = index in in_doubt
            if is_in_doubt and not type_id_of(row):
                unreadable.add(None)
                continue
            try:
                listing = listing_of(as_row(row), is_in_doubt)
            except RowError as error:
                unreadable.add(self._reject(row, error, nameless))
                unreadable.update({None} if is_in_doubt else ())  # its name may be what the error spoilt
            else:
                state.add(listing)
                heard.add(listing.type_id)
                has_stock |= bool(listing.gpus_at)
        state.read(heard, unreadable)
        return has_stock

    def _reject(self, row: object, error: RowError, nameless: Counter[str]) -> str | None:
        """Keeps the row and returns its type's id, if it has one.

        `nameless` counts the rows of this answer that have none, so that the next answer's are known again.
        """
        type_id, raw = type_id_of(row), raw_json(row)
        if type_id is None:
            nameless[raw] += 1
        rejected = RejectedRow(type_id, error.reason, str(error), raw)
        self.rejected.setdefault((type_id or raw, nameless[raw]), rejected)
        return type_id

    def heed(self, answer: HttpAnswer) -> None:
        """Remembers how long RunPod wants to be left alone after this answer."""
        self.wait_s = longest_wait_s([self.wait_s, answer.stated_wait_s])

    def check_patience(self) -> None:
        """Raises TryLaterError when RunPod said that the next request would be one too many."""
        if self.wait_s is not None:
            raise TryLaterError("RunPod: no requests are left in a rate window", http_status=200, wait_s=self.wait_s)

    def poll(self, *, requests_sent: int, failure: FetchError | None = None) -> Poll:
        """The poll; partial with a `failure` or a trouble beside the answers. Raises what failed before any."""
        if failure is not None and not self.clouds:
            raise failure
        wait_s, wait_is_stated = wait_after([self.wait_s], failure)
        return Poll(
            outcome="partial" if failure or self.trouble else self._outcome(),
            offers=tuple(offer for cloud in self.clouds.values() for offer in cloud.offers()),
            kept=len(self._kept_types()),
            rejected=tuple(self.rejected.values()),
            not_available=dict(self._not_available()),
            flags=self._flags(),
            covered=tuple(part for cloud in self.clouds.values() for part in cloud.covered()),
            http_status=200,
            wait_s=wait_s,
            wait_is_stated=wait_is_stated,
            detail=str(failure) if failure else self.trouble,
            requests=requests_sent,
        )

    def _outcome(self) -> Outcome:
        only_prices = [cloud.has_only_prices for cloud in self.clouds.values()]
        return "prices_only" if all(only_prices) else "partial" if any(only_prices) else "ok"

    def _kept_types(self) -> set[str]:
        return {type_id for cloud in self.clouds.values() for type_id, found in cloud.types.items() if found.gpus_at}

    def _not_available(self) -> Counter[str]:
        """Types that are for rent in no cloud; of several causes the one that says most about stock."""
        told = self._kept_types() | {type_id for type_id, _ in self.rejected}
        causes: dict[str, str] = {}
        for cloud in self.clouds.values():
            for type_id, found in cloud.types.items():
                is_unknown = cloud.has_only_prices and type_id in cloud.doubted
                if found.cause is None or is_unknown or type_id in told:
                    continue
                if causes.get(type_id, "not_offered") == "not_offered":
                    causes[type_id] = found.cause
        return Counter(causes.values())

    def _flags(self) -> dict[str, int]:
        found = [found for cloud in self.clouds.values() for found in cloud.types.values()]
        counts = {
            "duplicate_conflict": sum(len(one.prices) > 1 for one in found),
            "price_mismatch": sum(one.is_price_contradicted for one in found),
        }
        return {name: count for name, count in counts.items() if count}
