"""Logs as a process writes them, put back at the end; a small application that writes them."""

import logging
from collections.abc import Callable, Iterator
from io import StringIO

import pytest
from fastapi import FastAPI

from sutler.service.logs import LEVELS, SILENT, LogFormat, configure
from tests.service.web.applications import Served, an_application

Configured = Callable[[LogFormat], StringIO]


@pytest.fixture
def configured() -> Iterator[Configured]:
    """Configures the logs of this process; they are as before at the end."""
    root = logging.getLogger()
    levels = {name: logging.getLogger(name).level for name in (*LEVELS, *SILENT)}
    handlers, level = root.handlers[:], root.level

    def begin(log_format: LogFormat, *, debug: bool = False) -> StringIO:
        stream = StringIO()
        configure(log_format, stream=stream, debug=debug)
        return stream

    yield begin
    logging.captureWarnings(False)
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


@pytest.fixture
def app() -> FastAPI:
    return an_application()


@pytest.fixture
def served(configured: Configured, app: FastAPI) -> Served:
    """Says all at DEBUG too, as JSON."""
    log = configured("json")
    logging.getLogger("sutler").setLevel(logging.DEBUG)
    return Served(app, log)
