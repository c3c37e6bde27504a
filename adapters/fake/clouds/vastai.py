"""Vast.ai as the fake plays it: one search endpoint, open to everybody unless a key is asked for."""

from typing import Final

from sutler.adapters.fake.clouds.cloud import Cloud, RowShape, View
from sutler.adapters.fake.clouds.vastai_rows import rows
from sutler.adapters.fake.clouds.vastai_search import BadSearchError, understood
from sutler.adapters.fake.wire import Reply, Request, json_reply

SEARCH_PATH: Final = "/api/v0/bundles/"
_CODES: Final = {400: "invalid_request", 404: "auth_error", 429: "too_many_requests"}


def _search(request: Request, view: View) -> Reply:
    everything = list(rows(view, is_bid=_is_bid(request), storage_gb=_storage_gb(request)))
    try:
        search = understood(request.data(), frozenset(everything[0]) if everything else frozenset())
    except BadSearchError as error:
        return _refuse(request.path, 400, str(error))
    found = [] if search.type == "reserved" else search.choose(everything)
    return json_reply({"success": True, "offers": found})


def _is_bid(request: Request) -> bool:
    body = request.data()
    return isinstance(body, dict) and body.get("type") == "bid"


def _storage_gb(request: Request) -> float:
    body = request.data()
    value = body.get("allocated_storage") if isinstance(body, dict) else None
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e9 else 8.0


def _refuse(_: str, status: int, message: str) -> Reply:
    return json_reply({"success": False, "error": _CODES.get(status, "server_error"), "msg": message}, status)


CLOUD: Final = Cloud(
    name="vastai",
    title="Vast.ai",
    routes={("POST", SEARCH_PATH): _search},
    refuse=_refuse,
    key_of=lambda request: request.bearer() or request.query.get("api_key", ""),
    bad_key_status=404,
    row_shapes={
        SEARCH_PATH: RowShape(("offers",), ("gpu_name",), (("dph_total",), ("dph_base",)), memory=("gpu_ram",))
    },
)
