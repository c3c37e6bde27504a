"""Everything that goes wrong with clouds, by name: each kind is a way that their documents, or the web, know.

A failure turns the case (cloud, request, the good answer that would have been) into a reply; a kind may belong to one
cloud only, or to some of its paths. How a reply breaks the wire is the server's part.
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from sutler.adapters.fake.clouds.cloud import Cloud, MarketInstant, at_path
from sutler.adapters.fake.clouds.runpod import GRAPHQL_PATH, RATE_HEADERS
from sutler.adapters.fake.garbage import garbled, without_rows
from sutler.adapters.fake.wire import Reply, Request, json_of, json_reply

RETRY_AFTER_S: Final = 7
LONG_WINDOW_S: Final = 1_800
DAY_S: Final = 86_400  # in whole seconds, as headers want it
BLOCK: Final = b" " * 65_536
HTML: Final = {"Content-Type": "text/html; charset=utf-8"}
DRIP_BYTES: Final = 8


@dataclass(frozen=True, slots=True)
class Case:
    """What a failure may look at. `good` makes the answer that the market would have given."""

    cloud: Cloud
    request: Request
    view: MarketInstant
    good: Callable[[], Reply]
    flood_bytes: int


@dataclass(frozen=True, slots=True)
class Failure:
    """`only`: the one cloud that knows it. `paths`: where it happens; elsewhere the answer stays good."""

    title: str
    reply: Callable[[Case], Reply]
    only: str | None = None
    paths: frozenset[str] | None = None

    def happens_at(self, cloud: Cloud, path: str) -> bool:
        if self.reply is _garbage_rows:
            return path in cloud.row_shapes
        return self.paths is None or path in self.paths


def _refused(case: Case, status: int, message: str, headers: Mapping[str, str] | None = None) -> Reply:
    reply = case.cloud.refuse(case.request.path, status, message)
    return replace(reply, headers={**reply.headers, **(headers or {})})


def _plain_429(case: Case) -> Reply:
    body = b"API requests too frequent: endpoint threshold=4.2"
    return Reply(status=429, headers={"Content-Type": "text/plain; charset=utf-8"}, body=body)


def _retry_after_429(case: Case) -> Reply:
    return _refused(case, 429, "API requests too frequent", {"Retry-After": str(RETRY_AFTER_S)})


def _windows_429(case: Case) -> Reply:
    """Retry-After names the shortest window only."""
    spent = f'"minute";r=0;t={RETRY_AFTER_S}, "hour";r=0;t={LONG_WINDOW_S}, "day";r=49000;t=40000'
    headers = {**RATE_HEADERS, "RateLimit": spent, "Retry-After": str(RETRY_AFTER_S)}
    return _refused(case, 429, "too many requests in the last hour", headers)


def _quota(case: Case) -> Reply:
    """A day's searches are spent until midnight UTC."""
    reset_s = int(case.view.wall_s // DAY_S + 1) * DAY_S
    body = {"success": False, "error": "search_quota_exceeded", "msg": "Daily search quota exceeded"}
    return json_reply(body, 429, {"X-RateLimit-Reset": str(reset_s)})


def _bad_gateway(_: Case) -> Reply:
    page = (
        b"<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title></head><body><h1>Bad gateway</h1></body></html>"
    )
    return Reply(status=502, headers=HTML, body=page)


def _bad_key(case: Case) -> Reply:
    return _refused(case, case.cloud.bad_key_status, "Invalid user key")


def _echo_key(case: Case) -> Reply:
    shown = " ".join(_keys_of(case.request)) or "(none)"
    return _refused(case, case.cloud.bad_key_status, f"Invalid user key: {shown}")


def _keys_of(request: Request) -> list[str]:
    body = request.data()
    secret = body.get("client_secret") if isinstance(body, dict) else None
    headers = request.headers
    found = [request.bearer(), headers.get("api_key"), headers.get("x-api-key"), request.query.get("api_key"), secret]
    return [key for key in found if isinstance(key, str) and key]


def _truncated(case: Case) -> Reply:
    good = case.good()
    return replace(good, body=good.body[: len(good.body) * 2 // 3])


def _broken_off(case: Case) -> Reply:
    good = case.good()
    return replace(good, sent_bytes=len(good.body) // 2)


def _html_200(_: Case) -> Reply:
    return Reply(headers=HTML, body=b"<html><body><h1>We will be back soon</h1></body></html>")


def _empty(case: Case) -> Reply:
    return without_rows(case.good())


def _wrong_shape(case: Case) -> Reply:
    return json_reply({"status": "ok", "result": {"items": 3}})


def _redirect_elsewhere(case: Case) -> Reply:
    return Reply(status=302, headers={"Location": f"http://elsewhere.invalid{case.request.path}"})


def _redirect_loop(case: Case) -> Reply:
    return Reply(status=307, headers={"Location": case.request.path})


def _too_large(case: Case) -> Reply:
    return Reply(headers={"Content-Type": "application/json"}, body=BLOCK, repeats=case.flood_bytes // len(BLOCK) + 1)


def _gzip_bomb(case: Case) -> Reply:
    """Blanks that are a thousandth of their size on the wire."""
    packer = zlib.compressobj(9, zlib.DEFLATED, 16 + zlib.MAX_WBITS)
    packed = [packer.compress(BLOCK) for _ in range(case.flood_bytes // len(BLOCK) + 1)]
    headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
    return Reply(headers=headers, body=b"".join([*packed, packer.flush()]))


def _graphql_errors(case: Case) -> Reply:
    error = {"message": "The catalogue is out of reach for the moment.", "path": ["gpuTypes"]}
    return json_reply({"errors": [error], "data": None})


def _graphql_partial(case: Case) -> Reply:
    """The answer with one of its prices gone and an error in its place."""
    good = case.good()
    data = json_of(good.body)
    first = at_path(data, ("data", "gpuTypes", "0"))
    if not isinstance(first, dict):
        return good
    price = next((name for name, value in first.items() if isinstance(value, dict)), "lowestPrice")
    first[price] = None
    return json_reply({**data, "errors": [{"message": "Timed out", "path": ["gpuTypes", 0, price]}]})


def _garbage_rows(case: Case) -> Reply:
    return garbled(case.good(), case.cloud.row_shapes[case.request.path])


FAILURES: Final[Mapping[str, Failure]] = {
    "http_429_plain": Failure("429 as plain text, without a word on how long", _plain_429),
    "http_429_retry_after": Failure(f"429 with Retry-After: {RETRY_AFTER_S}", _retry_after_429),
    "http_429_windows": Failure(
        "429 with rate windows, the longest of which outlasts Retry-After", _windows_429, only="runpod"
    ),
    "quota": Failure("429: the day's searches are spent until midnight UTC", _quota, only="vastai"),
    "http_500": Failure("500 in the cloud's own format", lambda case: _refused(case, 500, "Internal error")),
    "http_502_html": Failure("502 with a proxy's HTML page", _bad_gateway),
    "http_503": Failure("503 in the cloud's own format", lambda case: _refused(case, 503, "Service unavailable")),
    "bad_key": Failure("the key is refused: 404 at Vast.ai, 401 elsewhere", _bad_key),
    "echo_key": Failure("the key is refused by a message that repeats it", _echo_key),
    "http_400": Failure("400: the request is refused", lambda case: _refused(case, 400, "bad request")),
    "truncated": Failure("200 with a right length and JSON that is cut", _truncated),
    "broken_off": Failure("the connection closes in mid-body", _broken_off),
    "html_200": Failure("200 with an HTML page", _html_200),
    "empty": Failure("200 with a right body and nothing in it", _empty),
    "no_body": Failure("200 without a body", lambda _: Reply(headers={"Content-Type": "application/json"})),
    "wrong_shape": Failure("200 with JSON of another shape", _wrong_shape),
    "redirect_elsewhere": Failure("302 to another host", _redirect_elsewhere),
    "redirect_loop": Failure("307 to itself", _redirect_loop),
    "slow": Failure(
        "the body drips, a few bytes at a time", lambda case: replace(case.good(), drip_bytes=DRIP_BYTES)
    ),
    "hang": Failure("the request is taken and never answered", lambda _: Reply(hangs=True)),
    "too_large": Failure("a body beyond any sensible size", _too_large),
    "gzip_bomb": Failure("a small body that unpacks beyond any sensible size", _gzip_bomb),
    "graphql_errors": Failure(
        "200 with errors and no data", _graphql_errors, only="runpod", paths=frozenset({GRAPHQL_PATH})
    ),
    "graphql_partial": Failure(
        "200 with data and an error for a part of it",
        _graphql_partial,
        only="runpod",
        paths=frozenset({GRAPHQL_PATH}),
    ),
    "garbage_rows": Failure("good rows, and among them one of each kind that cannot be used", _garbage_rows),
}


def kinds_of(provider: str) -> tuple[str, ...]:
    """The failures that this cloud knows."""
    return tuple(kind for kind, failure in FAILURES.items() if failure.only in {None, provider})
