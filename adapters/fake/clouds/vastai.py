"""Vast.ai as the fake plays it: one search endpoint, open to everybody unless a key is asked for."""

from typing import Final

from sutler.adapters.fake.clouds.cloud import Cloud, MarketInstant, RowShape, at_path
from sutler.adapters.fake.clouds.vastai_rows import rows
from sutler.adapters.fake.clouds.vastai_search import USUAL_STORAGE_GB, BadSearchError, understood
from sutler.adapters.fake.wire import Reply, Request, json_reply

SEARCH_PATH: Final = "/api/v0/bundles/"
_CODES: Final = {400: "invalid_request", 404: "auth_error", 429: "too_many_requests"}


def _search(request: Request, view: MarketInstant) -> Reply:
    body = request.data()
    stated_gb = at_path(body, ("allocated_storage",))
    is_stated = isinstance(stated_gb, int | float) and 0 <= stated_gb < 1e9
    storage_gb = float(stated_gb) if is_stated else USUAL_STORAGE_GB
    everything = list(rows(view, is_bid=at_path(body, ("type",)) == "bid", storage_gb=storage_gb))
    try:
        search = understood(body, frozenset(everything[0]) if everything else frozenset())
    except BadSearchError as error:
        return _refuse(request.path, 400, str(error))
    found = [] if search.type == "reserved" else search.choose(everything)
    return json_reply({"success": True, "offers": found})


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
