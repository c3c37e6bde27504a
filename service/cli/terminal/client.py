"""The commands' way to a running service: SUTLER_URL and SUTLER_KEY say where it is and who asks.

Imported only when a command calls the service.

ServiceError
├── UnreachableError   nobody answers there: start the service, or correct SUTLER_URL
└── RefusedError       it answered with a problem (RFC 9457): its `slug` says of which kind
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import requests
import typer
from requests import PreparedRequest

from sutler.service.cli.terminal.exits import refuse, say
from sutler.service.documents.errors import DocumentError
from sutler.service.errors import Exit
from sutler.service.settings import CallerSettings, caller_settings

# Chosen: a service that is there connects in milliseconds, and its slowest answers take seconds.
CONNECT_TIMEOUT_S: Final = 5.0
ANSWER_TIMEOUT_S: Final = 60.0
RETRY_S: Final = 2.0  # where an answer does not say when to come back
LOOPBACK: Final = ("http://127.", "http://localhost", "http://[::1]")
TYPE_PREFIX: Final = "urn:sutler:problem:"
OF_KIND: Final[Mapping[str, Exit]] = {"no-market-data": Exit.NO_MARKET_DATA, "not-yet": Exit.NO_PLAN_IN_TIME}
TOO_MANY: Final = 429
USUAL: Final = frozenset({200, 201, 202, 204, 304})


class ServiceError(Exception):
    """Root of what a call comes to, other than an answer."""


class UnreachableError(ServiceError):
    """The service at this URL does not answer."""


class RefusedError(ServiceError):
    """A problem as the answer, of this `kind` if it is ours; `wrong` has one line per field."""

    def __init__(
        self, status: int, detail: str, *, kind: str = "", wrong: tuple[str, ...] = (), retry_after_s: float = RETRY_S
    ) -> None:
        self.status, self.slug = status, kind.removeprefix(TYPE_PREFIX)
        self.wrong, self.retry_after_s = wrong, retry_after_s
        super().__init__(detail)


@dataclass(frozen=True, slots=True)
class Reply:
    """What the service answered: JSON, or nothing where there is nothing new (304) or nothing to say (204)."""

    status: int
    body: bytes

    @property
    def data(self) -> Any:
        """What the body says."""
        return json.loads(self.body)


class Client:
    """One service and one caller."""

    def __init__(self, settings: CallerSettings, session: requests.Session) -> None:
        self._url, self._session = settings.url, session
        session.auth = partial(_authorised, settings.key)  # also without one, so that no netrc file adds another
        session.trust_env = not settings.url.startswith(LOOPBACK)  # no proxy for this machine

    def get(self, path: str, *, wait_s: float = 0.0, **params: Any) -> Reply:
        """`wait_s`: how long the service may keep us waiting. Raises ServiceError."""
        waits = {"wait_s": wait_s} if wait_s else {}
        return self._ask("GET", path, wait_s=wait_s, params={**params, **waits})

    def put(self, path: str, body: object) -> Reply:
        """Asks to have `body` there. Raises ServiceError, DocumentError."""
        return self._ask("PUT", path, **_content(body))

    def post(self, path: str, body: object | None = None) -> Reply:
        """Asks to do what is there, with `body`. Raises ServiceError, DocumentError."""
        return self._ask("POST", path, **({} if body is None else _content(body)))

    def delete(self, path: str) -> Reply:
        """Asks to delete what is there. Raises ServiceError."""
        return self._ask("DELETE", path)

    def _ask(self, method: str, path: str, wait_s: float = 0.0, **options: Any) -> Reply:
        timeouts = (CONNECT_TIMEOUT_S, ANSWER_TIMEOUT_S + wait_s)
        try:
            with self._session.request(
                method, f"{self._url}{path}", timeout=timeouts, allow_redirects=False, **options
            ) as response:
                answer = Reply(response.status_code, response.content)
                retry_after = response.headers.get("Retry-After", "")
        except requests.RequestException as error:
            raise UnreachableError(f"{self._url}: {_reason(error)}") from None
        if answer.status not in USUAL or not _is_ours(answer):
            raise _refused(answer, float(retry_after) if retry_after.isdecimal() else RETRY_S)
        return answer


def _content(body: object) -> dict[str, Any]:
    """JSON has no infinity and no NaN, but YAML has. Raises DocumentError."""
    try:
        text = json.dumps(body, allow_nan=False)
    except ValueError:
        raise DocumentError.of("FILE", "holds a number that is infinite or none: give finite numbers") from None
    return {"data": text.encode(), "headers": {"Content-Type": "application/json"}}


@contextmanager
def calling() -> Iterator[Client]:
    """A client; what its calls come to ends the command with a message and its exit status.

    Raises SettingsError, typer.Exit.
    """
    settings = caller_settings()
    with requests.Session() as session:
        try:
            yield Client(settings, session)
        except UnreachableError as error:
            refuse(f"no answer from {error}: start it with `sutler serve`, or set SUTLER_URL", Exit.OUR_FAULT)
        except RefusedError as error:
            for line in error.wrong or (f"{error}{_hint(error)}",):
                say(f"error: {line}")
            raise typer.Exit(_exit(error)) from error


def _exit(error: RefusedError) -> Exit:
    is_the_callers = 400 <= error.status < 500 and error.status != TOO_MANY
    return OF_KIND.get(error.slug, Exit.BAD_INPUT if is_the_callers else Exit.OUR_FAULT)


def _hint(error: RefusedError) -> str:
    return ": set SUTLER_KEY to a key of the service" if error.status == 401 else ""


def _authorised(key: str | None, request: PreparedRequest) -> PreparedRequest:
    if key is not None:
        request.headers["Authorization"] = f"Bearer {key}"
    return request


def _is_ours(answer: Reply) -> bool:
    try:
        return not answer.body or answer.data is not None
    except ValueError:
        return False


def _refused(answer: Reply, retry_after_s: float) -> RefusedError:
    """The refusal in an answer, also of what stands between, such as a proxy, which knows no problems."""
    try:
        problem = answer.data
        detail, kind = str(problem["detail"]), str(problem["type"])
        wrong = tuple(_wrong(field) for field in problem.get("errors", ()))
    except (ValueError, TypeError, KeyError):
        return RefusedError(answer.status, f"HTTP {answer.status} without a reason: is this a service of sutler?")
    return RefusedError(answer.status, detail, kind=kind, wrong=wrong, retry_after_s=retry_after_s)


def _wrong(field: Mapping[str, Any]) -> str:
    shown = "" if field.get("value") is None else f" {field['value']}:"
    return f"{field['field']}:{shown} {field['remedy']}"


def _reason(error: requests.RequestException) -> str:
    if isinstance(error, requests.Timeout):
        return "it took too long"
    if isinstance(error, requests.ConnectionError):
        return "it cannot be reached"
    return type(error).__name__
