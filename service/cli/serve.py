"""`sutler serve`: the API, the scheduler that polls the clouds, and the workers that solve; all, or one of them."""

import logging
import socket
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Final, Literal

import typer

from sutler.service.cli.terminal.exits import guarded, refuse, say

if TYPE_CHECKING:
    from sutler.service.fork_server import Request
    from sutler.service.processes.heart import Tell

Role = Literal["all", "api", "scheduler", "worker"]
FAMILY: Final[tuple[Role, ...]] = ("api", "scheduler", "worker")
LOOPBACK = ("127.0.0.1", "localhost", "::1")


@guarded
def serve(
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0: any that is free.")] = 8400,
    role: Annotated[Role, typer.Option(help="What this process does: all, or one part of it.")] = "all",
    workers: Annotated[
        int,
        typer.Option(min=1, max=64, help="Workers of --role all: each looks at deployments on a core of its own."),
    ] = 1,
    require_key: Annotated[bool, typer.Option("--require-key", help="Ask for a key on loopback too.")] = False,
) -> None:
    """Answer on http://HOST:PORT, poll every cloud when it is due, and make plans, until SIGINT or SIGTERM.

    Without SUTLER_DATABASE_URL a private PostgreSQL keeps everything. Beyond loopback callers need a key
    (`sutler keys create`); on loopback none, unless told otherwise.
    """
    from sutler.service.processes.heart import alone
    from sutler.service.settings import service_settings, withheld_secrets

    settings = service_settings()
    needs_key = require_key or settings.require_key or host not in LOOPBACK
    if workers > 1 and role != "all":
        refuse(f"--workers {workers}: is for --role all; start `sutler serve --role worker` as often instead")
    with _logging(role):
        _check_settings()
        secrets = withheld_secrets() if role == "all" else {}
        if role in ("scheduler", "worker"):
            _run_alone(role, alone(), None)
            return
        listening = _listening(host, port)
        opened = _opened(listening, host=host, needs_key=needs_key)
        if role == "api":
            from sutler.service.processes import api

            with opened:
                api.run(listening, alone(), needs_key=needs_key)
        else:
            from sutler.service.processes import family

            parts = [part for part in FAMILY for _ in range(workers if part == "worker" else 1)]
            family.run([_request(part, secrets, needs_key=needs_key) for part in parts], listening, opened=opened)


def _request(role: Role, secrets: Mapping[str, str], *, needs_key: bool) -> "Request":
    """`secrets`: the clouds', which the scheduler alone gets."""
    from sutler.service.fork_server import Request

    entry, needs = f"{__name__}:as_child", f"sutler.service.processes.{role}"
    arguments = {"role": role, "needs_key": needs_key, "secrets": secrets if role == "scheduler" else {}}
    return Request(f"sutler serve --role {role}", entry, needs, arguments)


def as_child(
    link: socket.socket,
    listening: socket.socket,
    asking: socket.socket,
    role: Role,
    *,
    needs_key: bool,
    secrets: Mapping[str, str],
) -> None:
    """A role in a process that a family's parent has asked its fork server for."""
    from sutler.service.settings import give_secrets

    give_secrets(secrets)
    try:
        _be_child(link, listening, asking, role, needs_key=needs_key)
    except typer.Exit as end:
        sys.exit(end.exit_code)


@guarded
def _be_child(
    link: socket.socket, listening: socket.socket, asking: socket.socket, role: Role, *, needs_key: bool
) -> None:
    from sutler.service.processes import api
    from sutler.service.processes.family import follow_parent
    from sutler.service.processes.heart import to_parent

    with _logging(role):
        follow_parent(link)
        tell = to_parent(link)
        if role == "api":
            api.run(listening, tell, asking, needs_key=needs_key)
        else:
            listening.close()
            _run_alone(role, tell, asking)


@contextmanager
def _logging(role: Role) -> Iterator[None]:
    from sutler.service.logs import bound, configure
    from sutler.service.settings import service_settings, settings_from

    configure(service_settings().log_format, debug=settings_from().debug)
    with bound(role=role):
        yield


def _check_settings() -> None:
    """All of them, so that no role finds a wrong one later. Raises SettingsError."""
    from difflib import get_close_matches

    from sutler.service.settings import known_variables, unknown_variables

    for name in unknown_variables():
        close = get_close_matches(name, known_variables(), n=1)
        hint = f": did you mean {close[0]}?" if close else ": docs/running.md lists all"
        say(f"warning: {name} is no setting of sutler{hint}")


def _run_alone(role: Role, tell: "Tell", asking: socket.socket | None) -> None:
    """`tell` gives signs of life; `asking`: what a worker of a family asks for its solvers' processes."""
    if role == "scheduler":
        from sutler.service.processes import scheduler

        scheduler.run(tell)
    else:
        from sutler.service.processes import worker

        worker.run(tell, asking)


@contextmanager
def _opened(listening: socket.socket, *, host: str, needs_key: bool) -> Iterator[None]:
    from sutler.service.main import opened_database

    with opened_database():
        if needs_key:
            _check_key(host)
        _announce(listening)
        yield


def _listening(host: str, port: int) -> socket.socket:
    """Bound now, so that a port in use is said at once, and connections wait while the API starts."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0][0]
        listening = socket.create_server((host, port), family=family, backlog=2048)
    except OSError as error:
        refuse(f"cannot listen on {host}:{port}: {error.strerror or error}: choose another --host or --port")
    listening.set_inheritable(True)
    return listening


def _check_key(host: str) -> None:
    from sutler.service.cli.keys_of_the_store import any_key

    if not any_key():
        remedy = "make one with `sutler keys create NAME --scope plan`"
        refuse(f"--host {host}: callers need a key, and there is none: {remedy}")


def _announce(listening: socket.socket) -> None:
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host
    logger = logging.getLogger("sutler.serve")
    logger.info("sutler answers on http://%s:%d (the API is described at /docs)", shown, port)
