"""One attempt to deliver one event: checked, signed, and over in bounded time whatever the receiver does.

Proxy variables are not looked at and redirects not followed. No error shows the URL's path, the body or the answer.
"""

import http.client
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from typing import Final, cast

from adapters.stated_waits import stated_wait_s
from service.webhooks.addresses import Address, Network
from service.webhooks.destinations import (
    USUAL_PORTS,
    Destination,
    DestinationError,
    Lookup,
    check_url,
    resolve,
    system_lookup,
)
from service.webhooks.signatures import signed_headers
from service.webhooks.wire import Deadline, NoConnectionError, Wire, connected, secured


@dataclass(frozen=True, slots=True)
class Limits:
    """`whole_s` is for everything, from the look-up of the name to the answer's headers.

    What follows them is read so that the receiver can finish: `most_answer_bytes` in `farewell_s`, no more.
    """

    connect_s: float = 5.0
    whole_s: float = 15.0
    farewell_s: float = 1.0
    most_answer_bytes: int = 4_096


@dataclass(frozen=True, slots=True)
class Message:
    """What one receiver is sent: `id` and `body` stay the same at every attempt."""

    id: str
    url: str = field(repr=False)
    secret: str = field(repr=False)
    body: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Attempt:
    """How it went. `wait_s`: how long the receiver asks to be left alone."""

    ok: bool
    status_code: int | None
    error: str | None
    seconds: float
    wait_s: float | None = None

    @property
    def is_unwanted(self) -> bool:
        """The receiver wants no more events, ever."""
        return self.status_code == HTTPStatus.GONE


USUAL_LIMITS: Final = Limits()


@dataclass(frozen=True, slots=True)
class Sender:
    """Sends messages; `tls` says whom to trust: by default the authorities of the system and of `requests`."""

    lookup: Lookup = system_lookup
    limits: Limits = USUAL_LIMITS
    tls: ssl.SSLContext | None = None
    epoch_s: Callable[[], float] = time.time

    def __call__(self, message: Message, *, allowed: tuple[Network, ...]) -> Attempt:
        """One attempt; blocks. What goes wrong is in the result; nothing is raised."""
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
        destination = check_url(message.url, allowed=allowed)
        addresses = self._addresses(destination, allowed, deadline)
        with self._opened(destination, addresses, deadline) as opened:
            connection = http.client.HTTPConnection(destination.host, destination.port)
            connection.default_port = USUAL_PORTS["https" if destination.is_https else "http"]
            connection.sock = cast(socket.socket, Wire(opened, deadline))
            content = message.body.encode()
            connection.request("POST", destination.target, body=content, headers=self._headers(message, content))
            with connection.getresponse() as response:
                deadline.shorten(self.limits.farewell_s)
                with suppress(OSError, http.client.HTTPException, ValueError):
                    response.read(self.limits.most_answer_bytes)
                stated = {"retry-after": response.headers.get("Retry-After", "")}
                return response.status, stated_wait_s(stated, now_s=self.epoch_s())

    def _headers(self, message: Message, content: bytes) -> dict[str, str]:
        signed = signed_headers(message.secret, message_id=message.id, at_s=int(self.epoch_s()), body=content)
        return {"Content-Type": "application/json", "User-Agent": "sutler", "Connection": "close", **signed}

    def _addresses(
        self, destination: Destination, allowed: tuple[Network, ...], deadline: Deadline
    ) -> tuple[Address, ...]:
        """Resolvers know no time limit: one that takes too long is left behind."""
        if destination.address is not None:
            return (destination.address,)
        found: Future[tuple[Address, ...]] = Future()

        def look_up() -> None:
            try:
                found.set_result(resolve(destination.host, destination.port, allowed=allowed, lookup=self.lookup))
            except Exception as error:
                found.set_exception(error)

        threading.Thread(target=look_up, name="look-up", daemon=True).start()
        return found.result(deadline.left_s)

    @contextmanager
    def _opened(
        self, destination: Destination, addresses: tuple[Address, ...], deadline: Deadline
    ) -> Iterator[socket.socket]:
        limit_s = self.limits.connect_s
        with connected(addresses, destination.port, limit_s=limit_s, deadline=deadline) as opened:
            if not destination.is_https:
                yield opened
                return
            with secured(opened, destination.host, context=self.tls or _usual_tls(), deadline=deadline) as secure:
                yield secure


USUAL_SENDER: Final = Sender()


@cache
def _usual_tls() -> ssl.SSLContext:
    from requests.utils import DEFAULT_CA_BUNDLE_PATH

    context = ssl.create_default_context()
    context.load_verify_locations(DEFAULT_CA_BUNDLE_PATH)
    return context


def _objection(status_code: int) -> str | None:
    """What is wrong with this answer; None: nothing."""
    if 200 <= status_code < 300:
        return None
    if 300 <= status_code < 400:
        return f"answers {status_code}: redirects are not followed; register the URL that is meant"
    if status_code == HTTPStatus.GONE:
        return "answers 410: wants no more events"
    return f"answers {status_code}"


def _said(failure: Exception, limits: Limits) -> str:
    """One short line, none of it from the receiver."""
    if isinstance(failure, DestinationError):
        return str(failure)
    if isinstance(failure, NoConnectionError):
        return f"no connection within {limits.connect_s:g} s"
    if isinstance(failure, TimeoutError):
        return f"no answer within {limits.whole_s:g} s"
    if isinstance(failure, http.client.HTTPException):
        return f"no HTTP answer ({type(failure).__name__})"
    return _said_by_the_system(failure)


def _said_by_the_system(failure: Exception) -> str:
    if isinstance(failure, socket.gaierror):
        return "the name cannot be resolved: correct it, or try again later"
    if isinstance(failure, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {failure.verify_message}"
    if isinstance(failure, ssl.SSLError):
        return f"no TLS connection: {failure.reason}"
    return f"no connection: {getattr(failure, 'strerror', None) or type(failure).__name__}"
