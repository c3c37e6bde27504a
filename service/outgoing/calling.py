"""Connections to URLs that callers give: checked, resolved once, opened to an address that was checked, in time."""

import http.client
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Final, cast

from sutler.service.outgoing.addresses import Address, Network
from sutler.service.outgoing.destinations import USUAL_PORTS, Destination, Lookup, check_url, resolve, system_lookup
from sutler.service.outgoing.wire import Deadline, Wire, connected, secured


@dataclass(frozen=True, slots=True)
class CallLimits:
    """How long a call may take; `whole_s` is for everything, from the look-up of the name on."""

    connect_s: float = 5.0
    whole_s: float = 15.0


USUAL: Final = CallLimits()


@dataclass(frozen=True, slots=True)
class Connector:
    """Calls over HTTP; `tls` says whom to trust: by default the authorities of the system and of `requests`."""

    lookup: Lookup = system_lookup
    limits: CallLimits = USUAL
    tls: ssl.SSLContext | None = None

    @contextmanager
    def called(
        self, url: str, *, allowed: tuple[Network, ...], deadline: Deadline
    ) -> Iterator[tuple[http.client.HTTPConnection, str]]:
        """A connection that asks nobody else, and what to ask it for. Raises DestinationError, OSError."""
        destination = check_url(url, allowed=allowed)
        addresses = self._addresses(destination, allowed, deadline)
        with self._opened(destination, addresses, deadline) as opened:
            connection = http.client.HTTPConnection(destination.host, destination.port)
            connection.default_port = USUAL_PORTS["https" if destination.is_https else "http"]
            connection.sock = cast(socket.socket, Wire(opened, deadline))
            yield connection, destination.target

    def _addresses(
        self, destination: Destination, allowed: tuple[Network, ...], deadline: Deadline
    ) -> tuple[Address, ...]:
        """The addresses; resolvers know no time limit, so one that takes too long is left behind."""
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


@cache
def _usual_tls() -> ssl.SSLContext:
    from requests.utils import DEFAULT_CA_BUNDLE_PATH

    context = ssl.create_default_context()
    context.load_verify_locations(DEFAULT_CA_BUNDLE_PATH)
    return context


def said_by_the_system(failure: Exception) -> str:
    """Returns one short line, none of it from whoever was called."""
    if isinstance(failure, socket.gaierror):
        return "the name cannot be resolved: correct it, or try again later"
    if isinstance(failure, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {failure.verify_message}"
    if isinstance(failure, ssl.SSLError):
        return f"no TLS connection: {failure.reason}"
    return f"no connection: {getattr(failure, 'strerror', None) or type(failure).__name__}"
