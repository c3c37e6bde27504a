"""The API's process: uvicorn on a socket that is already bound."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

import uvicorn
from fastapi import FastAPI

from sutler.service.api.app import wrapped
from sutler.service.fork_server import ForkServer
from sutler.service.main import api
from sutler.service.processes.ending import signals_to_end
from sutler.service.processes.heart import BEAT_S, Tell, ending
from sutler.service.web.state import Services

GRACE_S: Final = 5  # seconds, chosen: a restart does not take long; long polls are answered at once in any case
BACKLOG: Final = 2048  # uvicorn's own default
KEEP_ALIVE_S: Final = 30  # chosen: clients that ask every few seconds keep their connection


class _Server(uvicorn.Server):
    """Stops when it is told to, and returns: what was opened around it is then closed in order.

    Who waits is answered at once, with what there is.
    """

    def __init__(self, config: uvicorn.Config, app: FastAPI, tell: Tell) -> None:
        super().__init__(config)
        self._app, self._tell = app, tell

    async def on_tick(self, counter: int) -> bool:
        """Is called ten times a second."""
        if counter % round(10 * BEAT_S) == 0:
            self._tell()
        return await super().on_tick(counter)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        services: Services | None = getattr(self._app.state, "services", None)
        if services is not None:
            services.notices.close()
        ending()
        super().handle_exit(sig, frame)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        for number in signals_to_end():
            loop.add_signal_handler(number, self.handle_exit, number, None)
        yield


def run(listening: socket.socket, tell: Tell, asking: socket.socket | None = None, *, needs_key: bool) -> None:
    """Serves until SIGTERM or SIGINT; requests under way are given a few seconds.

    `tell` gives signs of life. `asking` leads to the fork server that processes for large bodies come from; None: to
    one of its own.
    """
    app = api(ForkServer(asking), needs_key=needs_key)
    config = uvicorn.Config(
        wrapped(app),
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_S,
        timeout_keep_alive=KEEP_ALIVE_S,
        backlog=BACKLOG,
        ws="none",
    )
    _Server(config, app, tell).run(sockets=[listening])
