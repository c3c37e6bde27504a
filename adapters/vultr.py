"""Vultr: cloud GPU plans, and where they can be deployed now (https://www.vultr.com/api/).

A poll asks for the plans, then region by region for those that are available there; neither needs a key. Prices are
USD per hour and instance, its disk included; a region may have prices of its own. `locations` of a plan are where it
is offered at all, so they only tell which regions to ask. An available plan is a lower bound of one; plans of one GPU
in one region may share their cards, so they are alternative slices of one machine. A plan that can be deployed as
preemptible is interruptible as well. Plans with a part of a GPU are passed over, and so are bare metal plans, whose
availability would cost as many requests again.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from sutler.adapters import credentials, tally, values
from sutler.adapters.base import MOST_GPUS, Offer, Poll, PriceBand
from sutler.adapters.config import Provider, ProviderConfig, ProviderOption, bearer
from sutler.adapters.errors import FetchError, RowError
from sutler.adapters.gpu_names import identify, known_gpus
from sutler.adapters.http import HttpAnswer, HttpClient, of_shape
from sutler.adapters.rows import Collected
from sutler.adapters.values import Row

NAME: Final = "vultr"
PLANS_PATH: Final = "/v2/plans"
CLOUD_GPU: Final = "vcg"
MOST_PLANS: Final = "500"  # the most that one page may hold
MIB_PER_GB: Final = 1e9 / 2**20
LEAST_REQUEST_INTERVAL_S: Final = 1 / 30  # 30 requests per second and address
_REGION: Final = re.compile(r"[a-z0-9-]{2,40}", re.ASCII)  # regions are three letters; what is none makes no path

Rented = Literal["on_demand", "interruptible"]
# What says that a plan can be rented so, whether it can where that is not said, and the price.
WAYS: Final[Mapping[Rented, tuple[str, bool, str]]] = {
    "on_demand": ("deploy_ondemand", True, "hourly_cost"),
    "interruptible": ("deploy_preemptible", False, "hourly_cost_preemptible"),
}
REGIONS: Final = ProviderOption(
    "regions", choices=(), default="", help="which regions are asked, comma-separated; without it all with GPU plans"
)


@dataclass(frozen=True, slots=True)
class Stock:
    """Plans that are available, by the regions that answered; `is_whole`: every region did."""

    by_region: Mapping[str, Collection[str]]
    is_whole: bool = True


def fetch(config: ProviderConfig, http: HttpClient) -> Poll:
    """Asks for plans, then region by region until one fails. Raises FetchError where there are no plans."""
    refused = credentials.refused(NAME, "api_key")
    params = {"type": CLOUD_GPU, "per_page": MOST_PLANS}
    plans = http.get(PLANS_PATH, params=params, classify=refused)
    chosen = {name.strip() for name in config.text(REGIONS).split(",") if name.strip()}
    found: dict[str, Collection[str]] = {}
    answers: list[HttpAnswer] = [plans]
    failure: FetchError | None = None
    regions = sorted(region for region in _regions(_plans(plans.data)) if not chosen or region in chosen)
    try:
        for region in regions:
            answer = http.get(availability_path(region), params={"type": CLOUD_GPU}, classify=refused)
            found[region] = _available(answer.data)
            answers.append(answer)
            http.clock.sleep(LEAST_REQUEST_INTERVAL_S)
    except FetchError as error:
        failure = error
    poll = parse(plans.data, Stock(found, is_whole=failure is None), price_band=config.price_band, failure=failure)
    return tally.as_asked(poll, http, answers, failure)


def availability_path(region: str) -> str:
    """Where Vultr says which plans can be deployed in a region."""
    return f"/v2/regions/{region}/availability"


def _plans(data: Any) -> list[Any]:
    found = values.inside(data, "plans")
    plans: list[Any] = of_shape(found, list, sent=data, cloud="Vultr", what="a list of plans")
    return plans


def _available(data: Any) -> frozenset[str]:
    found = values.inside(data, "available_plans")
    names = of_shape(found, list, sent=data, cloud="Vultr", what="a list of available plans")
    return frozenset(name for name in names if isinstance(name, str))


def _regions(plans: list[Any]) -> set[str]:
    """Regions that plans name, as far as their names can stand in a path."""
    named = (values.inside(plan, "locations") for plan in plans)
    found = (region for regions in named if isinstance(regions, list) for region in regions)
    return {region for region in found if isinstance(region, str) and _REGION.fullmatch(region)}


def parse(data: Any, stock: Stock, *, price_band: PriceBand, failure: FetchError | None = None) -> Poll:
    """What plans and availability say together. Raises AnswerError (bad_shape) where there is no list of plans."""
    collected = Collected()
    told = tally.Told(collected)
    for row in _plans(data):
        if collected.is_new(row):
            _collect(row, stock, told, price_band)
    if not stock.is_whole:
        told.doubt()
    return tally.poll_of_types(collected, told, outcome="ok" if stock.is_whole else "partial", failure=failure)


def _collect(value: object, stock: Stock, told: tally.Told, price_band: PriceBand) -> None:
    """What is not for rent needs no price."""
    collected = told.collected
    with told.rejecting(value, values.optional_identifier(value, "id")):
        row = values.as_row(value)
        name = values.identifier(row, "id")
        size = _size(row)
        if size is None:
            collected.not_available["part_of_a_gpu"] += 1
            return
        regions = [region for region, available in stock.by_region.items() if name in available]
        if not regions:
            collected.not_available["no_capacity"] += 1
        for contract, (way, is_usual, _) in WAYS.items():
            is_rented_so = values.flag(row, way)
            if is_rented_so or (is_rented_so is None and is_usual):
                with nullcontext() if regions else suppress(RowError):
                    for offer in _offers(name, size, row, contract, regions, price_band):
                        collected.keep(offer)
        for region in stock.by_region:
            told.add(region, name)


def _size(row: Row) -> tuple[str, int] | None:
    """GPU slug and count, or None for a part of a GPU ("1/8"). Raises RowError.

    `gpu_vram_gb` is the memory of all GPUs; where their number is not stated, it is as many as have that memory.
    """
    name, stated = values.text(row, "gpu_type"), row.get("gpu_count")
    total_gb = values.nonnegative(row, "gpu_vram_gb") or None
    if isinstance(stated, str) and "/" in stated:
        return None
    gpus = values.number(row, "gpu_count")
    if gpus is None:
        gpus = values.stated(total_gb, "gpu_count") / known_gpus()[identify(name, provider=NAME)].memory_gb
        gpus = float(round(gpus))
    if gpus < 1:
        return None
    count = values.count({"gpu_count": gpus}, "gpu_count", most=MOST_GPUS)
    return identify(name, provider=NAME, memory_gb=None if total_gb is None else total_gb / count), count


def _offers(
    name: str, size: tuple[str, int], row: Row, contract: Rented, regions: list[str], price_band: PriceBand
) -> Iterator[Offer]:
    """The plan at its list price, and wherever it is available, at the price there. Raises RowError."""
    listed = _list_offer(name, size, row, contract, price_band)
    yield listed
    for region in regions:
        own = values.inside(row, "location_cost", region)
        there = _list_offer(name, size, {**row, **own}, contract, price_band) if isinstance(own, dict) else listed
        feed = tally.feed_of(tally.STOCK_FEED, region, name)
        yield tally.somewhere(there, NAME, region, region, offer_id=tally.joined(name, region), feed=feed)


def _list_offer(name: str, size: tuple[str, int], row: Row, contract: Rented, price_band: PriceBand) -> Offer:
    field = WAYS[contract][2]
    usd_per_hour = values.stated(values.number(row, field), field, "no_on_demand_price")
    listed = tally.list_offer(
        name, size=size, usd_per_hour=usd_per_hour, price_field=field, band=price_band, contract=contract
    )
    disk_gb = values.if_stated(row, "disk", "disk_gb")
    disks = values.above_zero(row, "disk_count", "gpus") or 1.0
    in_all_gb = None if disk_gb is None else values.within("disk_gb", disk_gb * disks)
    return replace(
        listed,
        disk_gb=in_all_gb,
        disk_included_gb=in_all_gb or 0.0,
        ram_gb=values.above_zero(row, "ram", "ram_gb", per=MIB_PER_GB),
        cpu_cores=values.above_zero(row, "vcpu_count", "cpu_cores"),
    )


PROVIDER: Final = Provider(
    name=NAME,
    title="Vultr",
    base_url="https://api.vultr.com",
    fetch=fetch,
    headers=bearer,
    needs_key=False,
    options=(REGIONS,),
    marks=(REGIONS.name,),
)
