"""Bodies of answers: read with limits, secrets blanked out before anything else sees them, then parsed as JSON."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import requests

from sutler.adapters.errors import AnswerError, FetchError, TryLaterError
from sutler.adapters.values import integer_of_digits

SHORTEST_SECRET: Final = 6  # blanking shorter texts out would garble ordinary words
BLANKED: Final = "[secret]"
LONGEST_LINE: Final = 300  # chosen: a message stays readable in a log
_CHUNK_BYTES: Final = 65_536  # chosen: as much as is read between two looks at limits and clock
_JSON_TYPE: Final = re.compile(r"application/([a-z0-9.+-]+\+)?json\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class BodyLimits:
    """How much of a body is read, and until when; `host` is for messages."""

    host: str
    most_bytes: int
    is_too_late: Callable[[], bool]


def body_of(response: requests.Response, limits: BodyLimits) -> bytes:
    """The whole body. Of a refusal, whose status says enough, it is as much as can be had.

    Raises AnswerError when it is too large or garbled, TryLaterError when it comes too slowly, and what requests
    raises when it breaks off.
    """
    chunks: list[bytes] = []
    try:
        for chunk in _chunks(response, limits):
            chunks.append(chunk)  # noqa: PERF402 (what came before an error counts)
    except (requests.exceptions.RequestException, FetchError) as error:
        if response.status_code < 300:
            too_late = TryLaterError(f"{limits.host} sends too slowly") if limits.is_too_late() else None
            raise _broken_off(too_late or error, limits.host, response.status_code) from None
    return b"".join(chunks)


def _chunks(response: requests.Response, limits: BodyLimits) -> Iterator[bytes]:
    response.raw = _AsItArrives(response.raw)
    size = 0
    for chunk in response.iter_content(_CHUNK_BYTES):
        size += len(chunk)
        if size > limits.most_bytes:
            raise AnswerError("bad_body", f"{limits.host} sent more than {limits.most_bytes} bytes")
        if limits.is_too_late():
            raise TryLaterError(f"{limits.host} sends too slowly")
        yield chunk


def _broken_off(error: Exception, host: str, status: int) -> Exception:
    garbled = requests.exceptions.ChunkedEncodingError | requests.exceptions.ContentDecodingError
    if isinstance(error, garbled):
        detail = f"{host}: the answer broke off or is garbled ({kind_of(error)})"
        return AnswerError("bad_body", detail, http_status=status)
    if isinstance(error, FetchError):
        error.http_status = status
    return error


class _AsItArrives:
    """A body in the pieces that arrive: urllib3's own `stream` waits for full ones, however slowly they fill."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self.close, self.release_conn = raw.close, raw.release_conn

    def stream(self, most_bytes: int, *, decode_content: bool) -> Iterator[bytes]:
        while piece := self._raw.read1(most_bytes, decode_content=decode_content):
            yield piece


def blanked(content: bytes, secrets: Sequence[str]) -> bytes:
    """The content without the secrets, in whatever spelling."""
    for secret in secrets:
        if len(secret) >= SHORTEST_SECRET:
            content = _spellings(secret).sub(BLANKED.encode(), content)
    return content


def blanked_text(text: str, secrets: Sequence[str]) -> str:
    return blanked(text.encode("utf-8", errors="replace"), secrets).decode("utf-8", errors="replace")


def _spellings(secret: str) -> re.Pattern[bytes]:
    """A secret as it is, and as it stands in JSON, in a URL or in HTML: each character may be escaped."""
    parts = [
        rf"(?:{re.escape(char)}|\\u00{ord(char):02x}|%{ord(char):02x}|&#x0*{ord(char):x};|&#0*{ord(char)};)"
        for char in secret
    ]
    return re.compile("".join(parts).replace("(?:/|", r"(?:/|\\/|").encode(), re.IGNORECASE)


def json_of(content: bytes, content_type: str, *, host: str, http_status: int) -> Any:
    """The data that a successful answer holds. Raises AnswerError (bad_body)."""
    if not _JSON_TYPE.match(content_type.strip()):
        shown = one_line(content_type)[:80] or "nothing"
        raise AnswerError("bad_body", f"{host} sent {shown}, not JSON", http_status=http_status)
    try:
        return _json(content)
    except (ValueError, RecursionError) as error:
        detail = f"{host}: the body is no JSON: {str(error)[:80]}"
        raise AnswerError("bad_body", detail, http_status=http_status) from None


def json_or_none(content: bytes) -> Any:
    """The data of a refusal, None where there is none."""
    try:
        return _json(content)
    except (ValueError, RecursionError):
        return None


def _json(content: bytes) -> Any:
    """`NaN` and `Infinity`, which are no JSON, become text: as such they spoil one field and not the whole body."""
    return json.loads(content, parse_int=integer_of_digits, parse_constant=str)


def first_words(content: bytes) -> str:
    """The first words of a body, without markup."""
    start = content[:4000].decode("utf-8", errors="replace")
    return one_line(re.sub(r"<[^>]*>", " ", start))


def one_line(text: str) -> str:
    """The start of a text, printable and in one line."""
    start = text[: 10 * LONGEST_LINE]
    return " ".join("".join(char if char.isprintable() else " " for char in start).split())[:LONGEST_LINE]


def kind_of(error: Exception) -> str:
    """The kind of failure; the messages of requests may hold whole URLs."""
    names = {"ConnectTimeout": "timed out", "ReadTimeout": "timed out", "SSLError": "no valid TLS certificate"}
    return names.get(type(error).__name__, type(error).__name__)
