"""Verda (formerly DataCrunch): instance types, and where they can be rented (https://api.verda.com/v1/docs).

A poll takes a token for the client's id and secret (OAuth2 client credentials), then asks for the types with prices
in USD and for the availability of on-demand and of spot instances. Prices are text, per instance; `gpu_memory` is
that of all its GPUs. A type named at a location is a lower bound of one; types of one GPU at one location, on demand
or spot, may share their cards, so they are alternative slices of one machine. Without either availability only list
prices are left; a type in another currency is never converted.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from sutler.adapters import credentials, tally, values
from sutler.adapters.base import MOST_GPUS, Offer, Poll, PriceBand
from sutler.adapters.config import Provider, ProviderConfig
from sutler.adapters.errors import FetchError, Outcome, RowError, SetupError, TryLaterError
from sutler.adapters.gpu_names import identify
from sutler.adapters.http import Classify, HttpAnswer, HttpClient, of_shape, wrong_shape
from sutler.adapters.rows import Collected
from sutler.adapters.values import Row

NAME: Final = "verda"
SECRETS: Final = ("client_id", "client_secret")
TOKEN_PATH: Final = "/v1/oauth2/token"
TYPES_PATH: Final = "/v1/instance-types"
AVAILABILITY_PATH: Final = "/v1/instance-availability"
CURRENCY: Final = "usd"

RentedAs = Literal["on_demand", "interruptible"]
IS_SPOT: Final[Mapping[RentedAs, str]] = {"on_demand": "false", "interruptible": "true"}
PRICE_FIELDS: Final[Mapping[RentedAs, str]] = {"on_demand": "price_per_hour", "interruptible": "spot_price"}


def fetch(config: ProviderConfig, http: HttpClient) -> Poll:
    """Asks for a token, then for types and availability. Raises FetchError."""
    credentials.require(config, NAME, *SECRETS)
    refused = credentials.refused(NAME, *SECRETS)
    headers = {"Authorization": f"Bearer {_token(config, http)}"}
    types = http.get(TYPES_PATH, params={"currency": CURRENCY}, headers=headers, classify=refused)
    stock, answers, failure = _stock(http, headers, refused)
    found = parse(types.data, stock, price_band=config.price_band, failure=failure)
    return tally.as_asked(found, http, [types, *answers], failure)


def _token(config: ProviderConfig, http: HttpClient) -> str:
    """An access token, which from then on is blanked out like the other secrets."""
    body = {"grant_type": "client_credentials", **{name: config.secret(name) for name in SECRETS}}
    # https://www.rfc-editor.org/rfc/rfc6749#section-5.2: a client that is not known is refused with 400 or 401.
    refused = credentials.refused(NAME, *SECRETS, statuses=frozenset({400, 401, 403}))
    answer = http.post(TOKEN_PATH, body, classify=refused)
    token = values.inside(answer.data, "access_token")
    if not isinstance(token, str) or not token or not token.isascii() or not token.isprintable() or " " in token:
        raise wrong_shape("Verda sent no usable access_token", http_status=answer.status)
    http.secrets = (*http.secrets, token)
    return token


def _stock(
    http: HttpClient, headers: Mapping[str, str], refused: Classify
) -> tuple[dict[RentedAs, Any], list[HttpAnswer], FetchError | None]:
    """What each availability says, the answers, and the failure that matters most.

    After a wait that Verda states nothing more is asked. Raises SetupError where both refuse the key.
    """
    stock: dict[RentedAs, Any] = {}
    answers: list[HttpAnswer] = []
    failures: list[FetchError] = []
    for contract, is_spot in IS_SPOT.items():
        try:
            answer = http.get(AVAILABILITY_PATH, params={"isSpot": is_spot}, headers=headers, classify=refused)
            stock[contract] = _locations(answer.data)
            answers.append(answer)
        except FetchError as error:
            failures.append(error)
            if isinstance(error, TryLaterError) and error.wait_is_stated:
                break
    if len(failures) == len(IS_SPOT) and all(failure.outcome == "auth_error" for failure in failures):
        raise failures[0]
    return stock, answers, max(failures, key=_patience, default=None)


def _patience(failure: FetchError) -> tuple[bool, float]:
    return failure.wait_is_stated, failure.wait_s or 0.0


def _locations(data: Any) -> list[Any]:
    return of_shape(data, list, sent=data, cloud="Verda", what="a list of locations")


@dataclass(slots=True)
class Places:
    """What one availability says: locations by instance type, and the locations that could be read."""

    told: tally.Told
    by_type: dict[str, list[str]] = field(default_factory=dict)
    read: list[str] = field(default_factory=list)


def parse(
    types: Any, stock: Mapping[RentedAs, Any], *, price_band: PriceBand, failure: FetchError | None = None
) -> Poll:
    """What the types and the availability lists in `stock`, by contract, say together.

    Raises AnswerError (bad_shape) for anything but lists, and SetupError where no price is in USD.
    """
    of_shape(types, list, sent=types, cloud="Verda", what="a list of instance types")
    _check_currency(types)
    collected = Collected()
    names = {values.optional_identifier(row, "instance_type") for row in types} - {None}
    places = {contract: _places(contract, _locations(rows), names, collected) for contract, rows in stock.items()}
    for row in types:
        if collected.is_new(row):
            _collect(row, places, collected, price_band)
    told = [found.told for found in places.values()]
    outcome: Outcome = "ok" if len(stock) == len(IS_SPOT) else "partial"
    return tally.poll_of_types(collected, *told, outcome=outcome, failure=failure)


def _check_currency(types: list[Any]) -> None:
    """Verda may answer in the account's currency: then every price is useless."""
    stated = {values.text(row, "currency") for row in types} - {None}
    if stated and all(str(currency).lower() != CURRENCY for currency in stated):
        shown = ", ".join(sorted(str(currency) for currency in stated))[:80]
        detail = f"verda quotes in {shown} although asked for {CURRENCY}: set the account's currency to USD"
        raise SetupError("config_error", detail)


def _places(contract: RentedAs, rows: list[Any], names: Collection[str | None], collected: Collected) -> Places:
    """A location that cannot be read costs only itself, but leaves open what is there."""
    places = Places(tally.Told(collected, contract))
    for row in rows:
        with places.told.rejecting(row, contract, values.optional_identifier(row, "location_code")):
            location = values.identifier(values.as_row(row), "location_code")
            for name in _names_at(row, names):
                places.by_type.setdefault(name, []).append(location)
            places.read.append(location)
    return places


def _names_at(row: Row, names: Collection[str | None]) -> list[str]:
    """The types for rent at a location. Raises RowError for no list of names, or where no type has one of them."""
    found = row.get("availabilities")
    if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
        raise RowError("bad_shape", f"availabilities: {values.short(found)} is no list of names")
    stripped = [name.strip() for name in found]
    if stripped and names and not any(name in names for name in stripped):
        raise RowError("bad_shape", f"availabilities: {values.short(found)} names no instance type")
    return stripped


def _collect(value: object, places: Mapping[RentedAs, Places], collected: Collected, price_band: PriceBand) -> None:
    try:
        row = values.as_row(value)
        name = values.identifier(row, "instance_type")
        size = _size(row)
    except RowError as error:
        collected.reject(value, error, values.optional_identifier(value, "instance_type"))
        for found in places.values():
            found.told.doubt(error)
        return
    if size is None or (places and not any(name in found.by_type for found in places.values())):
        collected.not_available["no_capacity" if size else "no_gpu"] += 1
    if size is not None:
        _collect_contracts(name, size, row, places, collected, price_band)


def _collect_contracts(
    name: str,
    size: tuple[str, int],
    row: Row,
    places: Mapping[RentedAs, Places],
    collected: Collected,
    price_band: PriceBand,
) -> None:
    """Collects each way to rent the type on its own; one that is not for rent needs no price."""
    errors: list[RowError] = []
    for contract in PRICE_FIELDS:
        found = places.get(contract) or Places(tally.Told(collected, contract))
        locations = found.by_type.get(name, [])
        try:
            listed = _list_offer(name, size, row, contract, price_band)
            for offer in (listed, *(_at(place, listed, name) for place in locations)):
                collected.keep(offer)
        except RowError as error:
            if locations:
                errors.append(error)
                found.told.doubt(error)
                continue
        for place in found.read:
            found.told.add(place, name)
    if errors:
        collected.reject(row, errors[0], name)


def _size(row: Row) -> tuple[str, int] | None:
    """GPU slug and count, or None for a type without a GPU. Raises RowError."""
    gpu_row = values.as_row(row.get("gpu"))
    if values.whole(gpu_row, "number_of_gpus") == 0:
        return None
    gpus = values.count(gpu_row, "number_of_gpus", most=MOST_GPUS)
    return _gpu(row, gpu_row, gpus), gpus


def _list_offer(name: str, size: tuple[str, int], row: Row, contract: RentedAs, price_band: PriceBand) -> Offer:
    """The type at its list price. Raises RowError, also for a price in another currency."""
    currency, field = values.text(row, "currency"), PRICE_FIELDS[contract]
    price = values.number(row, field)
    if price is None or (currency is not None and currency.lower() != CURRENCY):
        shown = "is missing" if price is None else f"{price:g} is in {values.short(currency)}, not in {CURRENCY}"
        raise RowError("no_on_demand_price", f"{field}: {shown}")
    listed = tally.list_offer(
        name,
        size=size,
        usd_per_hour=price,
        price_field=field,
        band=price_band,
        contract=contract,
        feed=f"{tally.LIST_FEED}/{contract}",
    )
    return replace(
        listed,
        ram_gb=values.above_zero(row.get("memory"), "size_in_gigabytes", "ram_gb"),
        cpu_cores=values.above_zero(row.get("cpu"), "number_of_cores", "cpu_cores"),
    )


def _gpu(row: Row, gpu_row: Row, gpus: int) -> str:
    """ "8x H100 SXM5 80GB" without its count, checked against the memory of all GPUs."""
    described = values.text(gpu_row, "description") or ""
    counted, _, rest = described.partition("x ")
    memory_row = row.get("gpu_memory")
    total_gb = values.nonnegative(memory_row, "size_in_gigabytes") if isinstance(memory_row, dict) else None
    return identify(
        rest if counted.strip().isdecimal() else described,
        provider=NAME,
        memory_gb=None if total_gb is None else total_gb / gpus,
    )


def _at(location: str, listed: Offer, name: str) -> Offer:
    feed = tally.feed_of(listed.contract, location, name)
    return tally.somewhere(listed, NAME, location, location, offer_id=tally.joined(name, location), feed=feed)


PROVIDER: Final = Provider(
    name=NAME,
    title="Verda",
    base_url="https://api.verda.com",
    fetch=fetch,
    secrets=SECRETS,
    least_poll_interval_s=30.0,
)
