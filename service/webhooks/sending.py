"""One attempt to deliver one event: checked, signed, and over in bounded time whatever the receiver does.

Proxy variables are not looked at and redirects not followed. No error shows the URL's path, the body or the answer.
"""

import http.client
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final

from sutler.adapters.stated_waits import stated_wait_s
from sutler.service.outgoing.addresses import Network
from sutler.service.outgoing.calling import CallLimits, Connector, said_by_the_system
from sutler.service.outgoing.destinations import DestinationError
from sutler.service.outgoing.wire import Deadline, NoConnectionError
from sutler.service.webhooks.signatures import signed_headers


@dataclass(frozen=True, slots=True)
class SendLimits(CallLimits):
    """What follows the headers is read so that the receiver can finish: `most_answer_bytes` in `farewell_s`."""

    farewell_s: float = 1.0
    most_answer_bytes: int = 4_096


@dataclass(frozen=True, slots=True)
class Message:
    """What one receiver is sent, signed with each of the secrets: `id` and `body` stay the same at every attempt."""

    id: str
    url: str = field(repr=False)
    secrets: tuple[str, ...] = field(repr=False)
    body: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Attempt:
    """How it went; `wait_s` is how long the receiver asks to be left alone."""

    ok: bool
    status_code: int | None
    error: str | None
    seconds: float
    wait_s: float | None = None

    @property
    def is_unwanted(self) -> bool:
        """The receiver wants no more events, ever."""
        return self.status_code == HTTPStatus.GONE


USUAL_LIMITS: Final = SendLimits()


@dataclass(frozen=True, slots=True)
class Sender(Connector):
    """Sends messages."""

    limits: SendLimits = USUAL_LIMITS
    epoch_s: Callable[[], float] = time.time

    def __call__(self, message: Message, *, allowed: tuple[Network, ...]) -> Attempt:
        """Makes one attempt; blocks. What goes wrong is in the result; nothing is raised."""
        started_s = time.monotonic()
        status_code, wait_s = None, None
        try:
            status_code, wait_s = self._exchange(message, allowed)
            error = _objection(status_code)
        except (DestinationError, OSError, http.client.HTTPException) as failure:
            error = _said(failure, self.limits)
        return Attempt(error is None, status_code, error, time.monotonic() - started_s, wait_s)

    def _exchange(self, message: Message, allowed: tuple[Network, ...]) -> tuple[int, float | None]:
        deadline = Deadline(self.limits.whole_s)
        with self.called(message.url, allowed=allowed, deadline=deadline) as (connection, target):
            content = message.body.encode()
            connection.request("POST", target, body=content, headers=self._headers(message, content))
            with connection.getresponse() as response:
                deadline.shorten(self.limits.farewell_s)
                with suppress(OSError, http.client.HTTPException, ValueError):
                    response.read(self.limits.most_answer_bytes)
                stated = {"retry-after": response.headers.get("Retry-After", "")}
                return response.status, stated_wait_s(stated, now_s=self.epoch_s())

    def _headers(self, message: Message, content: bytes) -> dict[str, str]:
        signed = signed_headers(*message.secrets, message_id=message.id, at_s=int(self.epoch_s()), body=content)
        return {"Content-Type": "application/json", "User-Agent": "sutler", "Connection": "close", **signed}


USUAL_SENDER: Final = Sender()


def _objection(status_code: int) -> str | None:
    """What is wrong with this answer; None: nothing."""
    if 200 <= status_code < 300:
        return None
    if 300 <= status_code < 400:
        return f"answers {status_code}: redirects are not followed; register the URL that is meant"
    if status_code == HTTPStatus.GONE:
        return "answers 410: wants no more events"
    return f"answers {status_code}"


def _said(failure: Exception, limits: SendLimits) -> str:
    """Returns one short line, none of it from the receiver."""
    if isinstance(failure, DestinationError):
        return str(failure)
    if isinstance(failure, NoConnectionError):
        return f"no connection within {limits.connect_s:g} s"
    if isinstance(failure, TimeoutError):
        return f"no answer within {limits.whole_s:g} s"
    if isinstance(failure, http.client.HTTPException):
        return f"no HTTP answer ({type(failure).__name__})"
    return said_by_the_system(failure)
