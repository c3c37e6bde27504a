"""Hyperstack: GPU stocks by region, model and machine size, and a price book (https://docs.hyperstack.cloud).

Stocks count how many machines of each size would fit now: {"1x": 396, "2x": 197, "4x": 98, "8x": 45}. All sizes draw
on the same cards, so adding them up would count a card once per size. Going from the largest size down, only the
machines beyond what fits into the larger ones are stated: 45 of 8, 98 - 2 x 45 = 8 of 4, 197 - 98 = 1 of 2 and 2 of 1
above, which together are the 396 cards that can be rented at once. Each is divisible, since every smaller size fits
into it.

Prices are those of the price book, USD per GPU and hour under the model's name. A model ending in "-spot" is
interruptible; whether it draws on the cards of the model without that ending is not documented, so it is taken to.
Both together are never stated as more than the larger of the two stocks: some machines are stated one by one and for
both contracts (`machine_id` says that they are the same), the others on demand, and of the spot stock beyond those
only what the stock on demand does not have.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from sutler.adapters import credentials, tally, values
from sutler.adapters.base import MOST_AVAILABLE, MOST_GPUS, AvailabilityBasis, Offer, Poll, PriceBand
from sutler.adapters.config import Provider, ProviderConfig, key_in
from sutler.adapters.errors import RowError
from sutler.adapters.gpu_names import identify
from sutler.adapters.http import HttpClient, of_shape, wrong_shape
from sutler.adapters.rows import Collected
from sutler.adapters.values import Row

NAME: Final = "hyperstack"
STOCKS_PATH: Final = "/v1/core/stocks"
PRICES_PATH: Final = "/v1/pricebook"
SPOT_ENDING: Final = "-spot"
# Chosen: each is an offer of its own, and a plan that takes all of them finds others at the next poll.
MOST_FOR_BOTH_CONTRACTS: Final = 8
# The documents name the price book and not its shape; the vendor's client reads a list of {name, value}.
PRICE_LIST_FIELDS: Final = ("pricebook", "data", "prices", "items", "resources")
PRICE_FIELDS: Final = ("value", "price")
_SIZE: Final = re.compile(r"([1-9][0-9]?)\s*x", re.IGNORECASE | re.ASCII)
_AT_LEAST: Final = re.compile(r"([0-9]{1,9})\s*(\+?)", re.ASCII)


def fetch(config: ProviderConfig, http: HttpClient) -> Poll:
    """Asks for stocks, then for prices. Raises FetchError."""
    credentials.require(config, NAME, "api_key")
    refused = credentials.refused(NAME, "api_key")
    stocks = http.get(STOCKS_PATH, classify=refused)
    prices = http.get(PRICES_PATH, classify=refused)
    return tally.as_asked(parse(stocks.data, prices.data, price_band=config.price_band), http, [stocks, prices])


def parse(stocks: Any, pricebook: Any, *, price_band: PriceBand) -> Poll:
    """What stocks and price book say together. Raises AnswerError (bad_shape) for other shapes."""
    regions = of_shape(
        values.inside(stocks, "stocks"), list, sent=stocks, cloud="Hyperstack", what="a list of stocks"
    )
    prices = _price_rows(pricebook)
    collected = Collected()
    told = tally.Told(collected)
    for region, models in _regions(regions, told):
        stocks = [_stock(region, model, prices, told, price_band) for model in models]
        for offer in _in_region(region, [stock for stock in stocks if stock is not None]):
            collected.keep(offer)
    return tally.poll_of_types(collected, told)


def _price_rows(pricebook: Any) -> Mapping[str, Row]:
    """Rows of the price book by lower-case name; most of them are no GPUs, so they are read only when asked for."""
    rows = pricebook
    if isinstance(pricebook, dict):
        rows = next((pricebook[name] for name in PRICE_LIST_FIELDS if isinstance(pricebook.get(name), list)), None)
        if rows is None:
            rows = [_named(name, value) for name, value in pricebook.items()]
    if not isinstance(rows, list) or (rows and not any(_price_name(row) for row in rows)):
        raise wrong_shape(f"Hyperstack sent {values.short(pricebook)} in place of a price book", http_status=200)
    return {name: row for row in rows if (name := _price_name(row))}


def _named(name: str, value: Any) -> Any:
    if isinstance(value, dict):
        return {"name": name, **value}
    return {"name": name, "value": value} if isinstance(value, int | float | str) else None


def _price_name(row: Any) -> str | None:
    if not isinstance(row, dict) or not any(field in row for field in PRICE_FIELDS):
        return None
    return (values.text(row, "name") or "").lower() or None


def _regions(rows: list[Any], told: tally.Told) -> Iterator[tuple[str, list[Any]]]:
    """Regions with their GPU models; stocks of other things are passed over."""
    for value in rows:
        kind = values.text(value, "stock-type") or values.text(value, "stock_type") or "GPU"
        with told.rejecting(value, values.optional_identifier(value, "region"), kind):
            row = values.as_row(value)
            if kind.upper() != "GPU":
                continue
            models = row.get("models")
            region = values.identifier(row, "region")
            if not isinstance(models, list):
                raise RowError("bad_shape", f"models: {values.short(models)} is no list")
            yield region, models


@dataclass(frozen=True, slots=True)
class Stock:
    """What a region has of a model: machines by their number of GPUs, no card counted twice."""

    name: str
    listed: Offer
    basis: AvailabilityBasis
    machines: Mapping[int, int]

    @property
    def gpus(self) -> int:
        return sum(size * count for size, count in self.machines.items())


def _stock(
    region: str, model: object, prices: Mapping[str, Row], told: tally.Told, price_band: PriceBand
) -> Stock | None:
    """What a row says, its list price kept; None without a price, which what is not for rent does not need."""
    collected = told.collected
    with told.rejecting({"region": region, "model": model}, region, values.optional_identifier(model, "model")):
        row = values.as_row(model)
        name = values.identifier(row, "model")
        gpu = identify(_without_spot(name), provider=NAME)
        basis, machines = _machines(row)
        for size in machines:
            tally.joined(region, name, f"{size}x", str(MOST_FOR_BOTH_CONTRACTS))
        if not machines:
            collected.not_available["no_stock"] += 1
        listed = None
        with suppress(RowError) if not machines else nullcontext():
            listed = _list_offer(name, gpu, prices.get(name.lower()), price_band)
            collected.keep(listed)
        told.add(region, name)
        return None if listed is None else Stock(name, listed, basis, machines)
    return None


def _without_spot(model: str) -> str:
    return model[: -len(SPOT_ENDING)] if model.lower().endswith(SPOT_ENDING) else model


def _machines(row: Row) -> tuple[AvailabilityBasis, dict[int, int]]:
    """Machines by their number of GPUs, no card counted twice, and how they are known. Raises RowError."""
    configurations = row.get("configurations")
    counts = _counts(configurations) if isinstance(configurations, dict) else {}
    if counts:
        return "count", _beyond_larger(counts)
    stated = _AT_LEAST.fullmatch(str(row.get("available", "")).strip())
    if stated is None:
        shown = f"configurations: {values.short(configurations)} has no sizes"
        raise RowError("bad_number", f"{shown}, and available: {values.short(row.get('available'))} is no count")
    gpus = min(int(stated[1]), MOST_AVAILABLE)
    return "lower_bound", {1: gpus} if gpus else {}


def _counts(configurations: Row) -> dict[int, int]:
    """How many machines of each size fit; sizes that cannot be read are passed over. Raises RowError."""
    counts: dict[int, int] = {}
    for name in configurations:
        size = _SIZE.fullmatch(name.strip())
        fitting = values.whole(configurations, name) if size else None
        if size is None or fitting is None:
            continue
        if not 0 <= fitting <= MOST_AVAILABLE or int(size[1]) > MOST_GPUS:
            raise RowError("bad_number", f"configurations.{size[0]}: {fitting} machines cannot be")
        counts[int(size[1])] = fitting
    return counts


def _beyond_larger(counts: Mapping[int, int]) -> dict[int, int]:
    """Counts of each size the machines beyond those that fit into the larger ones already stated."""
    stated: dict[int, int] = {}
    for size in sorted(counts, reverse=True):
        beyond = counts[size] - sum(machines * (larger // size) for larger, machines in stated.items())
        if beyond > 0:
            stated[size] = beyond
    return stated


def _list_offer(name: str, gpu: str, price_row: Row | None, price_band: PriceBand) -> Offer:
    """One GPU of the model at its list price. Raises RowError."""
    field = next((field for field in PRICE_FIELDS if (price_row or {}).get(field) is not None), None)
    per_gpu = values.number(price_row, field) if price_row is not None and field is not None else None
    if per_gpu is None:
        raise RowError("no_on_demand_price", f"the price book has no price for {values.short(name)}")
    return tally.list_offer(
        name,
        size=(gpu, 1),
        usd_per_hour=per_gpu,
        price_field=f"pricebook.{field}",
        band=price_band,
        contract="interruptible" if _without_spot(name) != name else "on_demand",
    )


def _in_region(region: str, stocks: list[Stock]) -> Iterator[Offer]:
    """Yields what can be rented, with the machines that two models may share stated as such."""
    on_demand = {stock.name.lower(): stock for stock in stocks if _without_spot(stock.name) == stock.name}
    spot = {_without_spot(stock.name).lower(): stock for stock in stocks if _without_spot(stock.name) != stock.name}
    for name, stock in on_demand.items():
        other = spot.pop(name, None)
        shared = _shared(stock.machines, other.machines) if other else {}
        yield from _one_by_one(region, name, stock, shared)
        yield from _counted(region, stock, _without(shared, stock.machines))
        if other:
            yield from _one_by_one(region, name, other, shared)
            beyond = _at_most(other.gpus - stock.gpus, _without(shared, other.machines))
            yield from _counted(region, other, beyond)
    for stock in spot.values():
        yield from _counted(region, stock, stock.machines)


def _shared(some: Mapping[int, int], others: Mapping[int, int]) -> dict[int, int]:
    """The machines by size that are stated for both, the largest first."""
    left, found = MOST_FOR_BOTH_CONTRACTS, {}
    for size in sorted(some.keys() & others.keys(), reverse=True):
        found[size] = min(left, some[size], others[size])
        left -= found[size]
    return found


def _without(shared: Mapping[int, int], machines: Mapping[int, int]) -> dict[int, int]:
    return {size: count - shared.get(size, 0) for size, count in machines.items()}


def _at_most(gpus: int, machines: Mapping[int, int]) -> dict[int, int]:
    """As many of these machines as have no more GPUs than that, the largest first."""
    found: dict[int, int] = {}
    for size in sorted(machines, reverse=True):
        found[size] = max(0, min(machines[size], gpus // size))
        gpus -= found[size] * size
    return found


def _one_by_one(region: str, model: str, stock: Stock, machines: Mapping[int, int]) -> Iterator[Offer]:
    for size, count in machines.items():
        for number in range(1, count + 1):
            yield replace(
                _of_size(region, stock, size),
                offer_id=tally.joined(region, stock.name, f"{size}x", str(number)),
                available=1,
                machine_id=tally.joined(region, model, f"{size}x", str(number)),
                machine_gpus=size,
            )


def _counted(region: str, stock: Stock, machines: Mapping[int, int]) -> Iterator[Offer]:
    for size, count in machines.items():
        if count > 0:
            yield replace(_of_size(region, stock, size), available=count)


def _of_size(region: str, stock: Stock, size: int) -> Offer:
    return replace(
        stock.listed,
        offer_id=tally.joined(region, stock.name, f"{size}x"),
        feed=tally.feed_of(tally.STOCK_FEED, region, stock.name),
        gpus=size,
        availability_basis=stock.basis,
        price_usd_per_hour=round(stock.listed.price_usd_per_hour * size, 6),
        divisible=size > 1,
        site=tally.joined(NAME, region),
        region=region,
    )


PROVIDER: Final = Provider(
    name=NAME,
    title="Hyperstack",
    base_url="https://infrahub-api.nexgencloud.com",
    fetch=fetch,
    headers=key_in("api_key"),
    least_poll_interval_s=30.0,
)
