"""The one HTTP policy of all clouds: patience, limits and discretion.

A poll may retry twice and last 30 s; waits over 10 s are handed back instead of slept. Status comes first, then the
content type, then JSON. Bodies have a size limit, redirects stay on the host, and secrets are blanked out of every
body before anything reads it, so that no error, log or stored row can hold one.
"""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NoReturn, TypeVar
from urllib.parse import urljoin, urlsplit

import requests
from requests.auth import AuthBase

from sutler.adapters import bodies
from sutler.adapters.bodies import BodyLimits
from sutler.adapters.errors import AnswerError, FetchError, SetupError, TryLaterError
from sutler.adapters.stated_waits import spent_windows_s, stated_wait_s
from sutler.adapters.values import short

T = TypeVar("T")

_WHOLE: Final = frozenset({200, 201})
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_USUAL_PORTS: Final = {"http": 80, "https": 443}
_BUSY: Final = frozenset({408, 425, 429})


@dataclass(frozen=True, slots=True)
class HttpPolicy:
    """How patient a poll is; seconds, bytes and tries per poll.

    Chosen: a poll ends well before the next is due, for most clouds a minute later at the earliest; two retries
    outlast a short stumble, and longer waits are left to whoever plans the next poll. Bytes bound memory.
    """

    connect_timeout_s: float = 5.0
    read_timeout_s: float = 15.0
    poll_time_limit_s: float = 30.0
    longest_sleep_s: float = 10.0
    most_retries: int = 2
    backoff_s: float = 1.0
    longest_stated_wait_s: float = 86_400.0
    most_body_bytes: int = 32 * 1024 * 1024
    most_redirects: int = 3


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """A successful answer: header names in lower case, `data` as parsed from JSON."""

    status: int
    headers: Mapping[str, str]
    data: Any

    @property
    def stated_wait_s(self) -> float | None:
        """How long the cloud wants to be left alone after this answer, if it says so."""
        wait_s = spent_windows_s(self.headers)
        return None if wait_s is None else min(wait_s, USUAL_POLICY.longest_stated_wait_s)


@dataclass(frozen=True, slots=True)
class Refusal:
    """An answer whose status says no; `text` is the start of its body, secrets blanked.

    `wait_s` is the longest wait that its headers ask for, `at_s` the epoch when it came.
    """

    status: int
    headers: Mapping[str, str]
    data: Any
    text: str
    wait_s: float | None
    at_s: float


Classify = Callable[[Refusal], FetchError | None]


@dataclass(frozen=True, slots=True)
class Clock:
    """What a poll knows of time and chance; tests hand in their own."""

    sleep: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic
    epoch_s: Callable[[], float] = time.time
    chance: Callable[[], float] = random.random


USUAL_POLICY: Final = HttpPolicy()
REAL_CLOCK: Final = Clock()


@dataclass(slots=True)
class HttpClient:
    """The requests of one poll, on one host. `classify` may name what a cloud means by a status of its own.

    `headers` and `secrets` belong to the caller's key; a request header given to a call wins.
    """

    base_url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    secrets: tuple[str, ...] = field(default=(), repr=False)
    policy: HttpPolicy = USUAL_POLICY
    clock: Clock = REAL_CLOCK
    session: requests.Session = field(default_factory=requests.Session)
    requests_sent: int = 0
    _retries_left: int = field(init=False)
    _deadline: float = field(init=False)
    _next_request_at: dict[str, float] = field(init=False, default_factory=dict)

    @property
    def left_s(self) -> float:
        """What is left of the poll's time."""
        return self._deadline - self.clock.monotonic()

    def __post_init__(self) -> None:
        self._retries_left = self.policy.most_retries
        self._deadline = self.clock.monotonic() + self.policy.poll_time_limit_s

    def get(self, path: str, *, params: Mapping[str, str] | None = None, **options: Any) -> HttpAnswer:
        """Sends a GET and reads JSON; see `request`."""
        return self.request("GET", path, params=params, **options)

    def post(self, path: str, body: object, **options: Any) -> HttpAnswer:
        """Sends a JSON body by POST and reads JSON; see `request`."""
        return self.request("POST", path, body=body, **options)

    def request(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        classify: Classify | None = None,
        check: Callable[[HttpAnswer], None] | None = None,
        least_interval_s: float = 0.0,
    ) -> HttpAnswer:
        """Makes one request with its retries. `least_interval_s` keeps requests to the same path that far apart.

        `check` may raise for an answer that says yes and holds none, so that it is retried like any other failure.
        Raises TryLaterError, QuotaError, AnswerError or SetupError.
        """
        all_headers = {"Accept": "application/json", "User-Agent": "sutler", **self.headers, **(headers or {})}
        send = partial(self._send, method, self.base_url + path, params, body, all_headers)
        attempt = 0
        while True:
            self._pace(path, least_interval_s)
            try:
                answer = self._once(send, classify)
                if check is not None:
                    check(answer)
                return answer
            except (TryLaterError, AnswerError) as error:
                if not self._sleep_before_retry(error, attempt):
                    raise
            attempt += 1

    def _pace(self, path: str, least_interval_s: float) -> None:
        now = self.clock.monotonic()
        pause_s = self._next_request_at.get(path, now) - now
        if pause_s > 0:
            if now + pause_s >= self._deadline:
                raise _with_own_wait(TryLaterError(f"{self._host()}: no time is left for another request"), pause_s)
            self.clock.sleep(pause_s)
        self._next_request_at[path] = self.clock.monotonic() + least_interval_s

    def _sleep_before_retry(self, error: FetchError, attempt: int) -> bool:
        """Whether a retry is due, after the wait. Else `error.wait_s` says when to poll again."""
        if error.outcome not in {"retry", "bad_body"}:
            return False
        stated_s = error.wait_s or None  # "now", or a moment that has passed, asks for no patience: have some
        wait_s = stated_s if stated_s is not None else self._backoff_s(attempt)
        may_retry = self._retries_left > 0 and wait_s <= self.policy.longest_sleep_s and wait_s < self.left_s
        if not may_retry:
            if stated_s is None:
                _with_own_wait(error, self._backoff_s(self.policy.most_retries + 2))
            return False
        self._retries_left -= 1
        self.clock.sleep(wait_s)
        return True

    def _backoff_s(self, attempt: int) -> float:
        """Doubles with each attempt; between half and all of it, so that many clients do not return as one."""
        return self.policy.backoff_s * 2.0**attempt * (0.5 + 0.5 * self.clock.chance())

    def _once(self, send: Callable[[], requests.Response], classify: Classify | None) -> HttpAnswer:
        try:
            with send() as response:
                content = bodies.blanked(bodies.body_of(response, self._body_limits()), self.secrets)
                found = {
                    name.lower(): bodies.blanked_text(value, self.secrets) for name, value in response.headers.items()
                }
                status = response.status_code
        except (requests.exceptions.RequestException, ValueError) as error:
            raise self._no_answer(error) from None
        if status >= 300:
            self._refuse(status, found, content, classify)
        if status not in _WHOLE:
            raise AnswerError("bad_body", f"{self._host()} answers {status}: no whole answer", http_status=status)
        data = bodies.json_of(content, found.get("content-type", ""), host=self._host(), http_status=status)
        return HttpAnswer(status, found, data)

    def _no_answer(self, error: Exception) -> FetchError:
        """Hosts that cannot exist raise errors of urllib3 and of codecs, too; all of them are ValueErrors."""
        bad_url = requests.exceptions.InvalidURL | requests.exceptions.InvalidSchema
        if isinstance(error, bad_url) or not isinstance(error, requests.exceptions.RequestException):
            return SetupError("config_error", f"base_url: {self._host()} cannot be a host: correct it")
        return TryLaterError(f"{self._host()} does not answer: {bodies.kind_of(error)}")

    def _send(
        self, method: str, url: str, params: Mapping[str, str] | None, body: object, headers: dict[str, str]
    ) -> requests.Response:
        for _ in range(self.policy.most_redirects + 1):
            left_s = self.left_s
            if left_s <= 0:
                raise TryLaterError(f"{self._host()}: the poll took longer than {self.policy.poll_time_limit_s:g} s")
            self.requests_sent += 1
            response = self.session.request(
                method,
                url,
                params=params,
                json=body,
                headers=headers,
                timeout=(min(self.policy.connect_timeout_s, left_s), min(self.policy.read_timeout_s, left_s)),
                stream=True,
                allow_redirects=False,
                auth=_AsGiven(),
            )
            target = response.headers.get("location")
            if response.status_code not in _REDIRECTS or target is None:
                return response
            response.close()
            url, params = self._same_host(response.status_code, url, target), None
        raise SetupError("config_error", f"{self._host()} redirects in circles: correct the base URL")

    def _same_host(self, status: int, url: str, target: str) -> str:
        """Tells where a redirect leads. One that carries a secret is refused too: URLs end up in logs."""
        try:
            there = urljoin(url, target)
            stays = _origin(there) == _origin(self.base_url)
        except ValueError:
            stays = False
        if not stays or bodies.blanked_text(target, self.secrets) != target:
            detail = f"{self._host()} redirects to another host: set the base URL to the one that is meant"
            raise SetupError("config_error", detail, http_status=status)
        return there

    def _body_limits(self) -> BodyLimits:
        return BodyLimits(self._host(), self.policy.most_body_bytes, is_too_late=lambda: self.left_s < 0)

    def _refuse(self, status: int, headers: Mapping[str, str], content: bytes, classify: Classify | None) -> NoReturn:
        wait_s, at_s = self._stated_wait_s(headers), self.clock.epoch_s()
        refusal = Refusal(status, headers, bodies.json_or_none(content), bodies.first_words(content), wait_s, at_s)
        own = classify(refusal) if classify is not None else None
        raise own if own is not None else self._usual_meaning(refusal)

    def _usual_meaning(self, refusal: Refusal) -> FetchError:
        status = refusal.status
        said = f"{self._host()} answers {status}: {message_of(refusal)}"
        if status in _BUSY or status >= 500:
            return TryLaterError(said, http_status=status, wait_s=refusal.wait_s)
        if status in {401, 403}:
            return SetupError("auth_error", f"{said}; check the API key", http_status=status)
        return SetupError("config_error", f"{said}; check the settings and the base URL", http_status=status)

    def _stated_wait_s(self, headers: Mapping[str, str]) -> float | None:
        wait_s = stated_wait_s(headers, now_s=self.clock.epoch_s())
        return None if wait_s is None else min(wait_s, self.policy.longest_stated_wait_s)

    def _host(self) -> str:
        return _origin(self.base_url)


class _AsGiven(AuthBase):
    """Keeps the headers as they are: without an auth object, requests would look for a password in ~/.netrc."""

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        return request


def wrong_shape(what: str, *, http_status: int | None = None) -> AnswerError:
    """An answer whose shape is not the documented one."""
    detail = f"{what}: the API may have changed; look for a newer sutler"
    return AnswerError("bad_shape", detail, http_status=http_status)


def of_shape(found: object, kind: type[T], *, sent: object, cloud: str, what: str) -> T:
    """What was found in an answer, where it is of the documented kind. Raises AnswerError (bad_shape)."""
    if not isinstance(found, kind):
        raise wrong_shape(f"{cloud} sent {short(sent)} in place of {what}", http_status=200)
    return found


def message_of(refusal: Refusal) -> str:
    """What a refusal says, in one short line, from the fields that clouds use for it."""
    data = refusal.data
    if isinstance(data, dict):
        inner = data.get("error")
        fields = [*(inner.values() if isinstance(inner, dict) else [inner])]
        fields += [data.get(name) for name in ("msg", "message", "detail", "title")]
        texts = [text for text in fields if isinstance(text, str) and text]
        if texts:
            return bodies.one_line(": ".join(dict.fromkeys(texts)))
    return refusal.text or "nothing more"


def _with_own_wait(error: FetchError, wait_s: float) -> FetchError:
    """The failure with a wait that nobody but the client asks for."""
    error.wait_s, error.wait_is_stated = wait_s, False
    return error


def _origin(url: str) -> str:
    """Scheme, host and port: what an error may show of a URL."""
    parts = urlsplit(url)
    port = f":{parts.port}" if parts.port and parts.port != _USUAL_PORTS.get(parts.scheme) else ""
    return f"{parts.scheme}://{parts.hostname}{port}"
