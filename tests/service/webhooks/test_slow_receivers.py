"""Receivers that never come to an end: every attempt does."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

from sutler.service.webhooks.sending import Sender, SendLimits
from tests.adapters.server import Raw, Reply, ScriptedServer, Wire
from tests.service.webhooks.builders import LOOPBACK, PATIENT, QUICK, a_message

DRIP_S = 0.02
TOO_LATE = "no answer within 0.3 s"


def dripping(start: bytes, drop: bytes) -> Callable[[Wire], None]:
    """Sends a start, and then a drop again and again until nobody listens."""

    def drip(wire: Wire) -> None:
        going_on = wire.send(start)
        while going_on:
            going_on = wire.send(drop) and wire.wait(DRIP_S)

    return drip


@pytest.mark.parametrize(
    ("start", "drop"),
    [
        (b"", b"H"),
        (b"HTTP/1.1 200 OK\r\n", b"X"),
        (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
)
def test_an_answer_that_drips_is_over_in_time(start: bytes, drop: bytes) -> None:
    with ScriptedServer([Raw(dripping(start, drop))]) as server:
        attempt = Sender(limits=QUICK)(a_message(server.base_url), allowed=LOOPBACK)
    assert (attempt.ok, attempt.status_code) == (False, None)
    assert attempt.error in {TOO_LATE, "no HTTP answer (HTTPException)"}


def test_a_receiver_that_says_nothing_is_left() -> None:
    def say_nothing(wire: Wire) -> None:
        wire.wait(30.0)

    with ScriptedServer([Raw(say_nothing)]) as server:
        attempt = Sender(limits=QUICK)(a_message(server.base_url), allowed=LOOPBACK)
        assert (attempt.ok, attempt.error) == (False, TOO_LATE)


@pytest.mark.parametrize(
    "start", [b"Content-Length: 1000000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n", b"\r\n"]
)
def test_a_body_that_drips_after_a_success_is_not_waited_for(start: bytes) -> None:
    with ScriptedServer([Raw(dripping(b"HTTP/1.1 200 OK\r\n" + start, b"1"))]) as server:
        assert Sender(limits=QUICK)(a_message(server.base_url), allowed=LOOPBACK).ok


def test_a_body_that_never_comes_is_not_waited_for() -> None:
    waited_long = threading.Event()

    def promise(wire: Wire) -> None:
        wire.send(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n")
        if wire.wait(5.0):
            waited_long.set()

    with ScriptedServer([Raw(promise)]) as server:
        assert Sender(limits=SendLimits(farewell_s=0.1))(a_message(server.base_url), allowed=LOOPBACK).ok
    assert not waited_long.is_set()


def test_no_more_than_the_start_of_a_huge_body_is_read() -> None:
    took_all = threading.Event()

    def gush(wire: Wire) -> None:
        wire.send(b"HTTP/1.1 200 OK\r\n\r\n")
        if all(wire.send(b"x" * 1_000_000) for _ in range(100)):
            took_all.set()

    with ScriptedServer([Raw(gush)]) as server:
        assert Sender(limits=PATIENT)(a_message(server.base_url), allowed=LOOPBACK).ok
    assert not took_all.is_set()


def test_a_handshake_that_never_ends_is_over_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        attempt = Sender(limits=QUICK)(a_message(f"https://127.0.0.1:{silent.getsockname()[1]}/"), allowed=LOOPBACK)
    assert (attempt.ok, attempt.error) == (False, TOO_LATE)


@contextmanager
def full(host: str, port: int = 0) -> Iterator[int]:
    """A port whose queue of connections is full."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.create_server((host, port), backlog=0))
        for _ in range(8):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        yield listening.getsockname()[1]


def test_a_receiver_that_takes_no_connection_is_left() -> None:
    with full("127.0.0.1") as port:
        attempt = Sender(limits=QUICK)(a_message(f"http://127.0.0.1:{port}/"), allowed=LOOPBACK)
    assert (attempt.ok, attempt.error) == (False, "no connection within 0.3 s")


def test_an_address_that_takes_no_connection_leaves_time_for_the_next() -> None:
    with ScriptedServer([Reply(200)]) as server, full("127.0.0.2", int(server.base_url.rpartition(":")[2])) as port:
        sender = Sender(lookup=lambda *_: ["127.0.0.2", "127.0.0.1"], limits=SendLimits(connect_s=0.3, whole_s=8.0))
        assert sender(a_message(f"http://two.example:{port}/"), allowed=LOOPBACK).ok


def test_a_resolver_that_never_answers_is_left() -> None:
    is_over, has_answered = threading.Event(), threading.Event()

    def lookup(host: str, port: int) -> list[str]:
        is_over.wait(5.0)
        has_answered.set()
        return ["127.0.0.1"]

    attempt = Sender(lookup=lookup, limits=QUICK)(a_message("http://slow.example/"), allowed=LOOPBACK)
    assert not has_answered.is_set()
    is_over.set()
    assert (attempt.ok, attempt.error) == (False, TOO_LATE)


def test_a_receiver_that_reads_nothing_is_left() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/"
        attempt = Sender(limits=QUICK)(a_message(url, body="x" * 20_000_000), allowed=LOOPBACK)
    assert (attempt.ok, attempt.error) == (False, TOO_LATE)


def test_the_next_receiver_is_served_after_a_slow_one() -> None:
    with ScriptedServer([Raw(dripping(b"", b"H")), Reply(200)]) as server:
        sender = Sender(limits=QUICK)
        assert not sender(a_message(server.base_url), allowed=LOOPBACK).ok
        assert Sender(limits=PATIENT)(a_message(server.base_url), allowed=LOOPBACK).ok
