"""RunPod's REST API v2: the catalogue of GPU types, asked per cloud for machines with 1, 2, 4 and 8 free GPUs.

https://docs.runpod.io/api-reference-v2 . Per user 60 requests a minute and 3,000 an hour; a poll makes up to four per
cloud and stops as soon as nothing is in stock at a size, since a larger one cannot be either.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

from sutler.adapters.base import PriceBand
from sutler.adapters.errors import FetchError, RowError
from sutler.adapters.http import HttpClient, Refusal, message_of, wrong_shape
from sutler.adapters.runpod import listing
from sutler.adapters.runpod.listing import SOMEWHERE, Cause, Cloud, Listing
from sutler.adapters.runpod.tally import Tally
from sutler.adapters.values import Row, above_zero, flag, inside, number, optional_identifier, short, whole

CATALOG_PATH: Final = "/v2/catalog/gpus"
COUNTS: Final = (1, 2, 4, 8)
LONGEST_DATA_CENTER_ID: Final = 64  # chosen with LONGEST_TYPE_ID: ids of both stay within a name


def ask(http: HttpClient, cloud: Cloud, tally: Tally, *, price_band: PriceBand) -> None:
    """Asks for ever larger machines, as long as there are any. Raises FetchError."""
    for count in COUNTS:
        tally.check_patience()
        # `include` and `product` need each other: with one of them the API answers 400.
        params = {"include": "AVAILABILITY", "product": "POD", "cloud": cloud, "count": str(count)}
        answer = http.get(CATALOG_PATH, params=params, classify=_own_meaning)
        tally.heed(answer)
        rows = inside(answer.data, "gpus")
        if not isinstance(rows, list):
            raise wrong_shape("RunPod: the answer has no list of gpus", http_status=answer.status)
        if not read(rows, tally, cloud=cloud, count=count, price_band=price_band):
            break
    tally.cloud(cloud).is_complete = True


def _own_meaning(refusal: Refusal) -> FetchError | None:
    if refusal.status not in {401, 403}:
        return None
    return listing.key_refused(message_of(refusal), http_status=refusal.status)


def read(rows: Iterable[object], tally: Tally, *, cloud: Cloud, count: int, price_band: PriceBand) -> bool:
    """Adds one answer, to the question for machines with `count` free GPUs, to the tally; whether it has any."""
    tally.cloud(cloud).largest_read = count

    def listing_of(row: Row, _: bool) -> Listing:
        return _listing(row, cloud.lower(), count, price_band)

    return tally.read(cloud, rows, listing_of)


def _listing(row: Row, side: str, count: int, band: PriceBand) -> Listing:
    """Raises RowError."""
    type_id, gpu = listing.identified(row, memory_field="memory")
    told = partial(Listing, type_id=type_id, gpu=gpu)
    cause = listing.why_not_offered(row, side)
    if cause is not None:
        return told(cause=cause)
    if row.get("availability") is None:
        price = _usd_per_gpu_hour(row, side, band)
        return told(usd_per_gpu_hour=price, cause="unknown_stock", is_silent=True)
    places, cause = _places(row)
    if not places:
        return told(usd_per_gpu_hour=listing.if_readable(lambda: _usd_per_gpu_hour(row, side, band)), cause=cause)
    most_gpus = _most_gpus(row, side)
    return told(
        usd_per_gpu_hour=_usd_per_gpu_hour(row, side, band),
        gpus_at=dict.fromkeys(places, min(count, most_gpus or count)),
        most_gpus=most_gpus,
        cuda_max=_cuda_max(row),
    )


def _places(row: Row) -> tuple[list[str], Cause | None]:
    """The data centres with stock, or SOMEWHERE when none is listed; with nothing in stock, why.

    Entries that name no data centre are passed over as long as another does. Raises RowError (bad_shape).
    """
    cause = listing.why_not_in_stock(row, "availability")
    centers = row.get("dataCenters")
    if cause is not None or centers is None or centers == []:
        return ([] if cause else [SOMEWHERE]), cause
    if not isinstance(centers, list):
        raise RowError("bad_shape", f"dataCenters: {short(centers)} is no list")
    causes = {
        name: listing.why_not_in_stock(center, "availability")
        for center in centers
        if (name := optional_identifier(center, "id")) and _is_a_name(name)
    }
    if not causes:
        raise RowError("bad_shape", f"dataCenters: {short(centers)} names none")
    places = [name for name, why in causes.items() if why is None]
    if places:
        return places, None
    return [], "unknown_stock" if "unknown_stock" in causes.values() else "no_stock"


def _is_a_name(data_center: str) -> bool:
    return len(data_center) <= LONGEST_DATA_CENTER_ID and data_center.isprintable()


def _most_gpus(row: Row, side: str) -> int | None:
    """The largest machine; 0 contradicts stock and says nothing. Raises RowError (bad_number)."""
    most = row.get("maxCount")
    found = whole(most, side) if isinstance(most, dict) else None
    return found if found is not None and found > 0 else None


def _cuda_max(row: Row) -> float | None:
    """The newest CUDA version that machines of this size can be had with; None where none is stated."""
    versions = row.get("cudaVersions")
    had = [each for each in versions if flag(each, "available")] if isinstance(versions, list) else []
    return max((found for each in had if (found := above_zero(each, "version", "cuda_max"))), default=None)


def _usd_per_gpu_hour(row: Row, side: str, band: PriceBand) -> float:
    """The list price. Raises RowError."""
    prices = row.get("price")
    if prices is not None and not isinstance(prices, dict):
        raise RowError("bad_shape", f"price: {short(prices)} is no object")
    return listing.list_price(number(prices or {}, side), f"price.{side}", band)
