"""Asking a scripted server through the HTTP client: for what it answers, or for what it is refused with."""

from typing import Any, Final

import pytest

from sutler.adapters.errors import FetchError
from sutler.adapters.http import HttpAnswer, HttpPolicy
from tests.adapters.builders import ToldTime, a_client
from tests.adapters.server import Raw, Script, ScriptedServer, Wire, json_reply, text_reply

OK: Final = json_reply({"fine": True})
BUSY: Final = text_reply("too many", 429)
HASTY: Final = HttpPolicy(connect_timeout_s=2.0, read_timeout_s=0.1)


def asked(
    *script: Script, told: ToldTime | None = None, policy: HttpPolicy | None = None, **options: Any
) -> tuple[HttpAnswer, ScriptedServer]:
    with ScriptedServer(script) as server, a_client(server.base_url, time=told, policy=policy) as http:
        return http.get("/things", **options), server


def refused(
    *script: Script, told: ToldTime | None = None, policy: HttpPolicy | None = None, **options: Any
) -> tuple[FetchError, ScriptedServer]:
    with ScriptedServer(script) as server, a_client(server.base_url, time=told, policy=policy) as http:
        with pytest.raises(FetchError) as caught:
            http.get("/things", **options)
        return caught.value, server


def silent(wire: Wire) -> None:
    wire.wait(5.0)


def raw(head: str, body: bytes = b"", *, then_wait_s: float = 0.0) -> Raw:
    def write(wire: Wire) -> None:
        wire.send(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
        wire.wait(then_wait_s)

    return Raw(write)
