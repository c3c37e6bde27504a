"""Shadeform: instance types of many clouds behind one key (https://docs.shadeform.ai/api-reference/instances).

Prices are whole cents per instance. A region that is said to be available is a lower bound of one instance; types of
one GPU in one cloud's region may share their cards, so they are alternative slices of one machine. Every type also
gives its list price. The cloud that rents the machine out is in `offer_id` and `site`. Some of those clouds
are ones that sutler polls directly: they are left out (resellers.py) unless the option `leave_out` says otherwise.
"""

from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any, Final

from sutler.adapters import credentials, tally, values
from sutler.adapters.base import MOST_GPUS, Offer, Poll, PriceBand
from sutler.adapters.config import Provider, ProviderConfig, ProviderOption, key_in
from sutler.adapters.errors import RowError
from sutler.adapters.gpu_names import identify
from sutler.adapters.http import HttpClient, of_shape
from sutler.adapters.resellers import OURS
from sutler.adapters.rows import Collected
from sutler.adapters.values import CENTS_PER_USD, Row

NAME: Final = "shadeform"
TYPES_PATH: Final = "/v1/instances/types"
NOTHING: Final = "none"
ANY_REGION: Final = "any"
LEAVE_OUT: Final = ProviderOption(
    "leave_out",
    choices=(NOTHING, *OURS),
    default=",".join(OURS),
    help="clouds whose offers are dropped because sutler polls them directly; none keeps all",
    several=True,
)


def fetch(config: ProviderConfig, http: HttpClient) -> Poll:
    """Asks once. Raises FetchError."""
    credentials.require(config, NAME, "api_key")
    leave_out = frozenset(config.chosen(LEAVE_OUT)) - {NOTHING}
    answer = http.get(TYPES_PATH, classify=credentials.refused(NAME, "api_key"))
    return tally.as_asked(parse(answer.data, leave_out=leave_out, price_band=config.price_band), http, [answer])


def parse(data: Any, *, price_band: PriceBand, leave_out: frozenset[str] = frozenset()) -> Poll:
    """What the types say. Raises AnswerError (bad_shape) where there is no list of them."""
    found = values.inside(data, "instance_types")
    types = of_shape(found, list, sent=data, cloud="Shadeform", what="a list of instance types")
    collected = Collected()
    told = tally.Told(collected)
    for row in types:
        if collected.is_new(row):
            _collect(row, leave_out, told, price_band)
    return tally.poll_of_types(collected, told)


def _collect(value: object, leave_out: frozenset[str], told: tally.Told, price_band: PriceBand) -> None:
    """What is not for rent needs no price."""
    collected = told.collected
    with told.rejecting(value, *_ids(value)):
        row = values.as_row(value)
        cloud, name = values.identifier(row, "cloud"), values.identifier(row, "shade_instance_type")
        if cloud.lower() in leave_out:
            collected.not_available["left_out"] += 1
            return
        size = _size(row)
        if size is None:
            collected.not_available["no_gpu"] += 1
            return
        regions, is_known = _regions(row, (cloud, name), collected)
        if not regions:
            collected.not_available["no_capacity" if is_known else "unknown"] += 1
        with nullcontext() if regions else suppress(RowError):
            listed = _list_offer(cloud, name, size, row, price_band)
            for offer in (listed, *(_in_region(region, listed, cloud, name) for region in regions)):
                collected.keep(offer)
        if is_known:
            told.add(cloud, name)
        else:
            told.doubt()


def _ids(value: object) -> tuple[str | None, ...]:
    return (values.optional_identifier(value, "cloud"), values.optional_identifier(value, "shade_instance_type"))


def _size(row: Row) -> tuple[str, int] | None:
    """GPU slug and count, or None for a type without a GPU. Raises RowError."""
    setup = _setup(row)
    if values.whole(setup, "num_gpus") == 0:
        return None
    gpus = values.count(setup, "num_gpus", most=MOST_GPUS)
    return _gpu(setup), gpus


def _setup(row: Row) -> Row:
    """The configuration; older answers repeat its fields beside it."""
    setup = row.get("configuration")
    return setup if isinstance(setup, dict) else row


def _gpu(setup: Row) -> str:
    """The slug of type and form together (`A100_80G` with `sxm4`), else of the type alone where the form agrees."""
    name, form = values.text(setup, "gpu_type"), (values.text(setup, "interconnect") or "").lower()
    memory_gb, nvlink = values.number(setup, "vram_per_gpu_in_gb"), values.flag(setup, "nvlink")
    if form and name is not None:
        with suppress(RowError):
            return identify(f"{name} {form}", provider=NAME, memory_gb=memory_gb)
    slug = identify(name, provider=NAME, memory_gb=memory_gb, nvlink=nvlink)
    if ("pcie" in form and "sxm" in slug) or ("sxm" in form and ("pcie" in slug or "nvl" in slug)):
        raise RowError("unknown_gpu", f"{values.short(name)} is {slug}, which does not exist as {values.short(form)}")
    return slug


def _regions(row: Row, ids: tuple[str, str], collected: Collected) -> tuple[list[str], bool]:
    """Regions that have some on demand, and whether all were told; an entry that cannot be read costs only itself.

    Entries may say how they are rented; the price of other ways than on demand is not documented.
    """
    entries = row.get("availability")
    if not isinstance(entries, list):
        return [], False
    regions, is_known = [], True
    for value in entries:
        try:
            entry = values.as_row(value)
            if (values.text(entry, "rental_type") or "on_demand").lower() != "on_demand":
                continue
            available, region = values.flag(entry, "available"), values.identifier(entry, "region")
        except RowError as error:
            place = values.optional_identifier(value, "region")
            collected.reject({"type": "/".join(ids), "availability": value}, error, *ids, place)
            is_known = False
            continue
        if available:
            regions.append(region)
        is_known = is_known and available is not None
    return regions, is_known


def _list_offer(cloud: str, name: str, size: tuple[str, int], row: Row, price_band: PriceBand) -> Offer:
    """The type at its list price. Raises RowError."""
    field = "hourly_price"
    usd_per_hour = values.stated(values.number(row, field), field, "no_on_demand_price") / CENTS_PER_USD
    listed = tally.list_offer(cloud, name, size=size, usd_per_hour=usd_per_hour, price_field=field, band=price_band)
    setup = _setup(row)
    return replace(
        listed,
        disk_gb=values.nonnegative(setup, "storage_in_gb"),
        ram_gb=values.above_zero(setup, "memory_in_gb", "ram_gb"),
        cpu_cores=values.above_zero(setup, "vcpus", "cpu_cores"),
    )


def _in_region(region: str, listed: Offer, cloud: str, name: str) -> Offer:
    offer_id, feed = tally.joined(cloud, region, name), tally.feed_of(tally.STOCK_FEED, cloud, name)
    place, one_region = tally.joined(cloud, region), None if region.lower() == ANY_REGION else region
    return tally.somewhere(listed, NAME, place, one_region, offer_id=offer_id, feed=feed)


PROVIDER: Final = Provider(
    name=NAME,
    title="Shadeform",
    base_url="https://api.shadeform.ai",
    fetch=fetch,
    headers=key_in("X-API-KEY"),
    options=(LEAVE_OUT,),
)
