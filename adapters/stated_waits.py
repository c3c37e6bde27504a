"""How long a cloud asks to be left alone, by the headers of its answer (names in lower case); seconds from now."""

import email.utils
import re
from collections.abc import Iterable, Mapping
from datetime import UTC
from typing import Final

from sutler.adapters.errors import FetchError

_WINDOW: Final = re.compile(r'"([^"]*)"((?:\s*;\s*[a-z]+=-?[0-9]+)+)')


def stated_wait_s(headers: Mapping[str, str], *, now_s: float) -> float | None:
    """The longest wait of all that are stated, or None; `now_s` is the epoch."""
    return longest_wait_s([_retry_after_s(headers, now_s), spent_windows_s(headers), _reset_s(headers, now_s)])


def spent_windows_s(headers: Mapping[str, str]) -> float | None:
    """The longest reset `t` over rate windows with nothing left (`"hour";r=0;t=1724`), or None.

    https://datatracker.ietf.org/doc/draft-ietf-httpapi-ratelimit-headers/
    """
    waits = []
    for _, parameters in _WINDOW.findall(headers.get("ratelimit", "")):
        values = dict(re.findall(r"([a-z]+)=(-?[0-9]{1,15})", parameters))
        if int(values.get("r", "1")) <= 0 and int(values.get("t", "0")) > 0:
            waits.append(float(values["t"]))
    return max(waits, default=None)


def longest_wait_s(waits: Iterable[float | None]) -> float | None:
    """The longest of the waits that were stated."""
    return max((wait_s for wait_s in waits if wait_s is not None), default=None)


def wait_after(stated_s: Iterable[float | None], failure: FetchError | None) -> tuple[float | None, bool]:
    """The wait that a poll of several requests ends with, and whether the cloud stated it.

    What a cloud states, in answers or in the failure after them, counts before the client's own backoff.
    """
    in_failure_s = failure.wait_s if failure is not None else None
    if failure is not None and failure.wait_is_stated:
        stated_s = [*stated_s, in_failure_s]
    longest_s = longest_wait_s(stated_s)
    return (in_failure_s, False) if longest_s is None else (longest_s, True)


def _retry_after_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """Reads seconds or an HTTP date (RFC 9110, 10.2.3); anything else says nothing."""
    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,9})?", value):
        return float(value)
    try:
        stated = email.utils.parsedate_to_datetime(value)
        stated = stated if stated.tzinfo is not None else stated.replace(tzinfo=UTC)
        return max(0.0, stated.timestamp() - now_s)
    except (TypeError, ValueError, OverflowError):
        return None


def _reset_s(headers: Mapping[str, str], now_s: float) -> float | None:
    """Reads `X-RateLimit-Reset` as epoch seconds, or as seconds from now where it is too small for an epoch."""
    value = headers.get("x-ratelimit-reset", "").strip()
    if not re.fullmatch(r"[0-9]{1,15}(\.[0-9]{1,9})?", value):
        return None
    reset_s = float(value)
    return max(0.0, reset_s - now_s) if reset_s > 1e9 else reset_s
