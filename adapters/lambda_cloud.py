"""Lambda: instance types with the regions that have some (https://docs.lambda.ai/api/cloud, instance-types).

Prices are whole cents per instance, its own disk included. A region in the list means at least one instance there: a
lower bound of 1. Types of one GPU in one region may share their cards, so they are alternative slices of one machine.
Every type also gives its list price, with nothing known to be for rent. Lambda has no spot market, and asks for at
most one request per second.
"""

import re
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any, Final

from sutler.adapters import credentials, tally, values
from sutler.adapters.base import MOST_GPUS, Offer, Poll, PriceBand
from sutler.adapters.config import Provider, ProviderConfig, bearer
from sutler.adapters.errors import RowError
from sutler.adapters.gpu_names import identify
from sutler.adapters.http import HttpClient, of_shape
from sutler.adapters.rows import Collected
from sutler.adapters.values import CENTS_PER_USD, Row

NAME: Final = "lambda"
TYPES_PATH: Final = "/api/v1/instance-types"
LEAST_REQUEST_INTERVAL_S: Final = 1.0  # what Lambda asks for
GB_PER_GIB: Final = 1.073741824
_COUNTED: Final = re.compile(r"(?:([0-9]{1,3})\s*x\s+)?(.+)", re.IGNORECASE | re.DOTALL)
_MEMORY: Final = re.compile(r"\(\s*([0-9]{1,4})\s*GB\b", re.IGNORECASE)


def fetch(config: ProviderConfig, http: HttpClient) -> Poll:
    """Asks once. Raises FetchError."""
    credentials.require(config, NAME, "api_key")
    refused = credentials.refused(NAME, "api_key")
    answer = http.get(TYPES_PATH, classify=refused, least_interval_s=LEAST_REQUEST_INTERVAL_S)
    return tally.as_asked(parse(answer.data, price_band=config.price_band), http, [answer])


def parse(data: Any, *, price_band: PriceBand) -> Poll:
    """What the types say. Raises AnswerError (bad_shape) where there is no object of types."""
    types = of_shape(values.inside(data, "data"), dict, sent=data, cloud="Lambda", what="its instance types")
    collected = Collected()
    told = tally.Told(collected)
    for name, entry in types.items():
        _collect(values.optional_identifier({"name": name}, "name"), entry, told, price_band)
    return tally.poll_of_types(collected, told)


def _collect(name: str | None, entry: object, told: tally.Told, price_band: PriceBand) -> None:
    """What is not for rent needs no price; a bad region costs only itself, but leaves open where the type is."""
    collected = told.collected
    with told.rejecting({"id": name, "type": entry}, name):
        if name is None:
            raise RowError("bad_shape", "data: a type has no name")
        row = values.as_row(entry)
        kind = values.as_row(row.get("instance_type"))
        size = _size(name, kind)
        regions = row.get("regions_with_capacity_available")
        cause = _why_not_for_rent(size, regions)
        if cause is not None:
            collected.not_available[cause] += 1
        if size is None:
            return
        with suppress(RowError) if cause else nullcontext():
            listed = _list_offer(name, size, kind, price_band)
            collected.keep(listed)
            if not _collect_regions(listed, name, regions, collected):
                told.doubt()
                return
        if cause == "unknown":
            told.doubt()
        else:
            told.add(name)


def _size(name: str, kind: Row) -> tuple[str, int] | None:
    """GPU slug and count, or None for a type without a GPU. Raises RowError."""
    gpus = values.whole(_specs(kind), "gpus")
    if gpus == 0 or (gpus is None and name.startswith("cpu_")):
        return None
    gpu, counted = _gpu(kind)
    return gpu, _count(gpus, counted)


def _specs(kind: Row) -> Row:
    specs = kind.get("specs")
    return specs if isinstance(specs, dict) else {}


def _why_not_for_rent(size: tuple[str, int] | None, regions: object) -> str | None:
    if size is None:
        return "no_gpu"
    if not isinstance(regions, list):
        return "unknown"
    return None if regions else "no_capacity"


def _list_offer(name: str, size: tuple[str, int], kind: Row, price_band: PriceBand) -> Offer:
    """The type at its list price. Raises RowError."""
    field = "price_cents_per_hour"
    usd_per_hour = values.stated(values.number(kind, field), field, "no_on_demand_price") / CENTS_PER_USD
    specs = _specs(kind)
    storage_gib = values.nonnegative(specs, "storage_gib")
    disk_gb = None if storage_gib is None else round(storage_gib * GB_PER_GIB, 3)
    listed = tally.list_offer(name, size=size, usd_per_hour=usd_per_hour, price_field=field, band=price_band)
    return replace(
        listed,
        disk_gb=disk_gb,
        disk_included_gb=disk_gb or 0.0,
        ram_gb=values.above_zero(specs, "memory_gib", "ram_gb", per=1 / GB_PER_GIB),
        cpu_cores=values.above_zero(specs, "vcpus", "cpu_cores"),
    )


def _collect_regions(listed: Offer, name: str, regions: object, collected: Collected) -> bool:
    """Whether all of the regions could be read."""
    rejected_before = len(collected.rejected)
    for region in regions if isinstance(regions, list) else ():
        try:
            collected.keep(_in_region(listed, name, values.as_row(region)))
        except RowError as error:
            collected.reject({"id": name, "region": region}, error, name, values.text(region, "name"))
    return len(collected.rejected) == rejected_before


def _gpu(row: Row) -> tuple[str, int | None]:
    """Slug and count of "8x H100 (80 GB SXM5)"; `gpu_description` where it names a GPU, else `description`."""
    described = [values.text(row, name) for name in ("gpu_description", "description")]
    name = next((words for words in described if words and words.upper() != "N/A"), None)
    match = _COUNTED.fullmatch(name or "")
    if match is None:
        raise RowError("bad_shape", "gpu_description: is missing")
    memory = _MEMORY.search(match[2])
    gpu = identify(match[2], provider=NAME, memory_gb=float(memory[1]) if memory else None)
    counts = [_COUNTED.fullmatch(words or "") for words in described]
    return gpu, next((int(found[1]) for found in counts if found and found[1]), None)


def _count(specified: int | None, counted: int | None) -> int:
    """Raises RowError where the two contradict each other or neither is there."""
    gpus = values.stated(counted if specified is None else specified, "specs.gpus")
    if not 1 <= gpus <= MOST_GPUS or counted not in {None, gpus}:
        described = "" if counted is None else f", and {counted} by the description"
        raise RowError("bad_number", f"specs.gpus: {gpus}{described}, must be one number from 1 to {MOST_GPUS}")
    return gpus


def _in_region(listed: Offer, name: str, region: Row) -> Offer:
    """The type as rentable in a region. Raises RowError."""
    place = values.text(region, "name")
    if place is None:
        raise RowError("bad_shape", f"regions_with_capacity_available: {values.short(region)} has no name")
    feed = tally.feed_of(tally.STOCK_FEED, name)
    return tally.somewhere(listed, NAME, place, place, offer_id=tally.joined(name, place), feed=feed)


PROVIDER: Final = Provider(
    name=NAME,
    title="Lambda",
    base_url="https://cloud.lambda.ai",
    fetch=fetch,
    headers=bearer,
    poll_interval_s=60.0,
    least_poll_interval_s=10.0,
)
