"""A poll ends, whatever a server does to keep it."""

import threading
import time
from collections.abc import Callable

import pytest

from sutler.adapters.config import ProviderConfig
from sutler.adapters.http import HttpPolicy
from sutler.adapters.polling import poll
from sutler.adapters.registry import PROVIDERS
from tests.adapters.server import Raw, ScriptedServer, Wire

HURRIED = HttpPolicy(poll_time_limit_s=1.0, read_timeout_s=0.8, most_retries=0)
LONGEST_S = 20.0


def dripping(start: bytes, piece: bytes) -> Callable[[Wire], None]:
    """After `start`, a piece every 0.1 s for as long as anybody listens: no read ever times out."""

    def write(wire: Wire) -> None:
        give_up_at = time.monotonic() + LONGEST_S
        goes_on = wire.send(start)
        while goes_on and time.monotonic() < give_up_at:
            goes_on = wire.wait(0.1) and wire.send(piece)

    return write


@pytest.mark.parametrize(
    ("start", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\nX-Long: ", b"x"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n1;x=", b"y"),
        (b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100000\r\n\r\n", b" "),
    ],
    ids=["headers", "a chunk's size", "a chunk's extension", "the body"],
)
def test_a_server_that_drips_cannot_hold_a_poll(start: bytes, piece: bytes) -> None:
    began = time.monotonic()
    with ScriptedServer([Raw(dripping(start, piece))]) as server:
        found = poll(PROVIDERS["lium"], ProviderConfig(server.base_url), policy=HURRIED)
    assert found.outcome in {"retry", "bad_body"}
    assert time.monotonic() - began < LONGEST_S / 2


def test_the_timer_of_a_poll_ends_with_it() -> None:
    before = threading.active_count()
    found = poll(PROVIDERS["lium"], ProviderConfig("http://127.0.0.1:9"), policy=HURRIED)
    assert found.outcome == "retry"
    time.sleep(0.05)
    assert threading.active_count() <= before
