"""The commands' way to a running service: SUTLER_URL and SUTLER_KEY say where it is and who asks.

Imported only when a command calls the service.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import typer

from sutler.service.cli.terminal.exits import refuse, say
from sutler.service.client import calls
from sutler.service.client.errors import AnswerError, RefusedError, UnreachableError
from sutler.service.client.replies import Reply
from sutler.service.client.synchronous import Client as TypedClient
from sutler.service.errors import Exit

OF_KIND: Final[Mapping[str, Exit]] = {"no-market-data": Exit.NO_MARKET_DATA, "not-yet": Exit.NO_PLAN_IN_TIME}
TOO_MANY: Final = 429


class Client:
    """Answers as they came, which commands print or read. Every method raises ServiceError."""

    def __init__(self, client: TypedClient) -> None:
        self._client = client

    def get(self, path: str, *, wait_s: float = 0.0, **params: Any) -> Reply:
        """`wait_s`: how long the service may keep us waiting."""
        return self._client.ask(calls.get(path, _as_it_is, wait_s=wait_s, params=params))

    def put(self, path: str, body: object) -> Reply:
        """Asks to have `body` there. Raises DocumentError."""
        return self._client.ask(calls.sending("PUT", path, _as_it_is, body))

    def post(self, path: str, body: object | None = None) -> Reply:
        """Asks to do what is there, with `body`. Raises DocumentError."""
        return self._client.ask(calls.sending("POST", path, _as_it_is, body))

    def delete(self, path: str) -> Reply:
        """Asks to delete what is there."""
        return self._client.ask(calls.sending("DELETE", path, _as_it_is))


@contextmanager
def calling() -> Iterator[Client]:
    """A client; what its calls come to ends the command with a message and its exit status.

    Raises SettingsError, typer.Exit.
    """
    with TypedClient(retries=0) as client:
        try:
            yield Client(client)
        except UnreachableError as error:
            refuse(f"no answer from {error}: start it with `sutler serve`, or set SUTLER_URL", Exit.OUR_FAULT)
        except AnswerError as error:
            refuse(error, Exit.OUR_FAULT)
        except RefusedError as error:
            for line in error.wrong or (f"{error}{_hint(error)}",):
                say(f"error: {line}")
            raise typer.Exit(_exit(error)) from error


def _as_it_is(reply: Reply) -> Reply:
    return reply


def _exit(error: RefusedError) -> Exit:
    is_the_callers = 400 <= error.status < 500 and error.status != TOO_MANY
    return OF_KIND.get(error.slug, Exit.BAD_INPUT if is_the_callers else Exit.OUR_FAULT)


def _hint(error: RefusedError) -> str:
    return ": set SUTLER_KEY to a key of the service" if error.status == 401 else ""
