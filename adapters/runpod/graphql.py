"""RunPod's GraphQL API, deprecated and to be retired in early 2027: one query per cloud for all GPU types.

https://graphql-spec.runpod.io . It names no data centres here. A type with errors beside its data is unknown, not
gone. `maxGpuCount` is never asked for: one field that the API no longer has fails a whole query.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeGuard

from sutler.adapters.base import MOST_GPUS, PriceBand
from sutler.adapters.errors import FetchError, RowError, SetupError, TryLaterError
from sutler.adapters.http import HttpAnswer, HttpClient, Refusal, message_of, wrong_shape
from sutler.adapters.runpod import listing
from sutler.adapters.runpod.listing import SOMEWHERE, Cause, Cloud, Listing
from sutler.adapters.runpod.tally import Tally
from sutler.adapters.values import Row, above_zero, inside, number, short, text, whole

GRAPHQL_PATH: Final = "/graphql"
PRICE_TOLERANCE_FRACTION: Final = 0.2  # chosen: a list price and a lowest price further apart are worth a flag
_KEY_CODES: Final = frozenset({"UNAUTHENTICATED", "FORBIDDEN"})
_QUERY_CODES: Final = frozenset({"GRAPHQL_VALIDATION_FAILED", "GRAPHQL_PARSE_FAILED", "BAD_USER_INPUT"})
_LONGEST_MESSAGE: Final = 300  # chosen: a message stays readable in a log


@dataclass(frozen=True, slots=True)
class Fields:
    """What the fields of a GPU type are called for one cloud."""

    is_offered: str
    price: str
    most_gpus: str
    is_secure: str

    @property
    def spot_price(self) -> str:
        return self.price.replace("Price", "SpotPrice")


# Spot prices were taken out of RunPod's documents in May 2026, so the API may refuse them one day.
SPARE_OF_LOWEST_PRICE: Final = ("minimumBidPrice", "minVcpu", "minMemory")
FIELDS: Final[dict[Cloud, Fields]] = {
    "SECURE": Fields("secureCloud", "securePrice", "maxGpuCountSecureCloud", "true"),
    "COMMUNITY": Fields("communityCloud", "communityPrice", "maxGpuCountCommunityCloud", "false"),
}


def ask(http: HttpClient, cloud: Cloud, tally: Tally, *, price_band: PriceBand) -> None:
    """Asks once, and again without the fields that can be spared if one of them is refused. Raises FetchError."""
    tally.check_patience()
    try:
        answer = _answer(http, _query(cloud))
    except SetupError as error:
        if not any(name in str(error) for name in (FIELDS[cloud].spot_price, *SPARE_OF_LOWEST_PRICE)):
            raise
        answer = _answer(http, _query(cloud, with_spare=False))
    tally.heed(answer)
    errors = _errors(answer.data)
    if errors:
        tally.trouble = tally.trouble or f"RunPod answers in part: {_message(errors)}"
    rows = _gpu_types(answer.data)
    if rows is None:
        raise wrong_shape("RunPod: the answer has no list data.gpuTypes", http_status=answer.status)
    read(rows, errors, tally, cloud=cloud, price_band=price_band)


def _answer(http: HttpClient, query: str) -> HttpAnswer:
    return http.post(GRAPHQL_PATH, {"query": query}, classify=_own_meaning, check=_check_for_errors)


def _query(cloud: Cloud, *, with_spare: bool = True) -> str:
    """Writes the query for all GPU types, with what one free GPU of them costs in this cloud."""
    names = FIELDS[cloud]
    spare_of_type, spare = (f" {names.spot_price}", " ".join(SPARE_OF_LOWEST_PRICE)) if with_spare else ("", "")
    return (
        f"query {{ gpuTypes {{ id memoryInGb {names.is_offered} {names.price} {names.most_gpus}{spare_of_type} "
        f"lowestPrice(input: {{gpuCount: 1, secureCloud: {names.is_secure}}}) "
        f"{{ uninterruptablePrice stockStatus availableGpuCounts {spare} }} }} }}"
    )


def _own_meaning(refusal: Refusal) -> FetchError | None:
    """A query that does not fit the schema is a 400 with a list of errors."""
    errors = _errors(refusal.data)
    if refusal.status in {401, 403}:
        return listing.key_refused(_message(errors) if errors else message_of(refusal), http_status=refusal.status)
    if refusal.status == 400 and errors:
        return _refused(errors, http_status=400) or _query_refused(errors, http_status=400)
    return None


def _check_for_errors(answer: HttpAnswer) -> None:
    """An answer of status 200 may hold nothing but errors. Raises TryLaterError or SetupError."""
    errors = _errors(answer.data)
    if not errors or _gpu_types(answer.data) is not None:
        return
    refused = _refused(errors, http_status=answer.status)
    if refused is not None:
        raise refused
    detail = f"RunPod has no data: {_message(errors)}"
    raise TryLaterError(detail, http_status=answer.status, wait_s=answer.stated_wait_s)


def _refused(errors: Sequence[object], *, http_status: int) -> SetupError | None:
    """What the codes of GraphQL servers say of a key or a query."""
    codes = {_code(error) for error in errors}
    if codes & _KEY_CODES:
        return listing.key_refused(_message(errors), http_status=http_status)
    return _query_refused(errors, http_status=http_status) if codes & _QUERY_CODES else None


def _query_refused(errors: Sequence[object], *, http_status: int) -> SetupError:
    detail = f"RunPod refuses the query: {_message(errors)}; set SUTLER_RUNPOD_API=v2"
    return SetupError("config_error", detail, http_status=http_status)


def _errors(data: object) -> list[object]:
    """A list; a proxy may also send text or one object."""
    found = inside(data, "errors")
    if isinstance(found, list):
        return found
    return [found] if found else []


def _message(errors: Sequence[object]) -> str:
    first = errors[0]
    said = text(first if isinstance(first, dict) else {"message": first}, "message")
    return " ".join((said or "no message").split())[:_LONGEST_MESSAGE]


def _code(error: object) -> str | None:
    return text(inside(error, "extensions"), "code")


def _gpu_types(data: object) -> list[Any] | None:
    found = inside(data, "data", "gpuTypes")
    return found if isinstance(found, list) else None


def read(
    rows: Sequence[object], errors: Sequence[object], tally: Tally, *, cloud: Cloud, price_band: PriceBand
) -> None:
    """Adds one answer to the tally; rows that `errors` may be about are unknown where they say nothing."""
    state = tally.cloud(cloud)
    state.is_complete = state.has_words = state.tells_spot = True

    def listing_of(row: Row, is_in_doubt: bool) -> Listing:
        return _listing(row, FIELDS[cloud], price_band, is_in_doubt=is_in_doubt)

    tally.read(cloud, rows, listing_of, in_doubt=_in_doubt(errors, rows))


def _in_doubt(errors: Sequence[object], rows: Sequence[object]) -> set[int]:
    """The rows that errors point at; with an error that points at none, all that have no `lowestPrice`."""
    paths = [inside(error, "path") for error in errors]
    pointed_at = {path[1] for path in paths if _is_to_a_row(path, rows)}
    if all(_is_to_a_row(path, rows) for path in paths):
        return pointed_at
    empty = {index for index, row in enumerate(rows) if inside(row, "lowestPrice") is None}
    return pointed_at | empty


def _is_to_a_row(path: object, rows: Sequence[object]) -> TypeGuard[list[Any]]:
    if not isinstance(path, list) or len(path) < 2 or path[0] != "gpuTypes":
        return False
    return isinstance(path[1], int) and not isinstance(path[1], bool) and 0 <= path[1] < len(rows)


def _listing(row: Row, names: Fields, band: PriceBand, *, is_in_doubt: bool) -> Listing:
    """Raises RowError."""
    type_id, gpu = listing.identified(row, memory_field="memoryInGb")
    told = partial(Listing, type_id=type_id, gpu=gpu)
    if is_in_doubt or "lowestPrice" not in row:
        price_or_none = listing.if_readable(lambda: _usd_per_gpu_hour(row, names, band))
        cause: Cause | None = None if is_in_doubt else "unknown_stock"
        return told(usd_per_gpu_hour=price_or_none, cause=cause, is_silent=True)
    lowest = row["lowestPrice"]
    if lowest is not None and not isinstance(lowest, dict):
        raise RowError("bad_shape", f"lowestPrice: {short(lowest)} is no object")
    cause = listing.why_not_offered(row, names.is_offered)
    if cause is not None:
        return told(cause=cause)
    lowest = lowest or {}
    # Here null, in either place, means that nothing is free.
    cause = "no_stock" if lowest.get("stockStatus") is None else listing.why_not_in_stock(lowest, "stockStatus")
    if cause is not None:
        return told(usd_per_gpu_hour=listing.if_readable(lambda: _usd_per_gpu_hour(row, names, band)), cause=cause)
    sizes = _sizes(row, lowest, names)
    price = _usd_per_gpu_hour(row, names, band)
    lowest_price = number(lowest, "uninterruptablePrice")
    is_contradicted = lowest_price is not None and abs(lowest_price - price) > PRICE_TOLERANCE_FRACTION * price
    return told(
        usd_per_gpu_hour=price,
        gpus_at={SOMEWHERE: max(sizes)},
        most_gpus=max(sizes),
        is_divisible=min(sizes) == 1,
        is_price_contradicted=is_contradicted,
        spot_usd_per_gpu_hour=_spot_usd_per_gpu_hour(row, lowest, names, band),
        cpu_cores_per_gpu=above_zero(lowest, "minVcpu", "cpu_cores"),
        ram_gb_per_gpu=above_zero(lowest, "minMemory", "ram_gb"),
    )


def _sizes(row: Row, lowest: Row, names: Fields) -> list[int]:
    """The machines, by free GPUs, that can be had: one GPU where none is listed. Raises RowError."""
    listed = lowest.get("availableGpuCounts")
    if listed is not None and not isinstance(listed, list):
        raise RowError("bad_shape", f"availableGpuCounts: {short(listed)} is no list")
    most = whole(row, names.most_gpus)
    found = [size for item in listed or () if (size := whole({"availableGpuCounts": item}, "availableGpuCounts"))]
    if any(not 1 <= size <= MOST_GPUS for size in found):
        raise RowError("bad_number", f"availableGpuCounts: {short(listed)} has sizes that no machine has")
    return [size for size in found if not most or size <= most] or [1]


def _spot_usd_per_gpu_hour(row: Row, lowest: Row, names: Fields, band: PriceBand) -> float | None:
    """The least bid, else the list price of a spot pod; None where there is neither, or none that can be."""

    def price(told: Row, name: str) -> float | None:
        return listing.if_readable(lambda: listing.list_price(number(told, name), name, band))

    return price(lowest, "minimumBidPrice") or price(row, names.spot_price)


def _usd_per_gpu_hour(row: Row, names: Fields, band: PriceBand) -> float:
    """The list price. Raises RowError."""
    return listing.list_price(number(row, names.price), names.price, band)
