"""The fake cloud as a real HTTP server on loopback: market or folder behind it, failures on demand.

    with FakeCloud(market=Market(seed=1)) as cloud:
        cloud.fail("vastai", "truncated", times=2)
        ...                      # poll cloud.base_url
    cloud.requests               # ["POST /api/v0/bundles/", ...]

At run time `/_fake/failures` (GET, POST, DELETE), `/_fake/replay` (POST) and `/_fake/state` (GET) do the same.
"""

import functools
import time
from collections import deque
from collections.abc import Callable
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Self

from sutler.adapters.fake.clouds import cloud_at
from sutler.adapters.fake.clouds.cloud import Cloud, MarketInstant
from sutler.adapters.fake.connection import Listener
from sutler.adapters.fake.errors import FakeSetupError
from sutler.adapters.fake.failures import Case
from sutler.adapters.fake.market import Market
from sutler.adapters.fake.replay import ReplayFolder
from sutler.adapters.fake.schedule import FailureSchedule
from sutler.adapters.fake.wire import Reply, Request, json_reply

USUAL_FLOOD_BYTES: Final = 80 * 1024 * 1024  # more than any client should take
MOST_REQUESTS_REMEMBERED: Final = 10_000  # chosen: bounds the memory of a fake that runs for days
_CONTROL: Final = "/_fake/"


class FakeCloud:
    """Serves from `start` (or the beginning of a `with` block) until `close`.

    `clock` tells the epoch in seconds; with `speed` the market's time runs that many times as fast from the start
    on. `log` is called with one line per request, which never holds a key or a query.
    """

    def __init__(
        self,
        market: Market | None = None,
        *,
        clock: Callable[[], float] = time.time,
        speed: float = 1.0,
        host: str = "127.0.0.1",
        port: int = 0,
        require_key: bool = False,
        replayed: ReplayFolder | None = None,
        log: Callable[[str], None] | None = None,
        flood_bytes: int = USUAL_FLOOD_BYTES,
        drip_pause_s: float = 0.25,
    ) -> None:
        if not 0 < speed <= 1e6:
            raise FakeSetupError(f"speed: {speed} must be above 0 and at most 1000000")
        self.market = market if market is not None else Market()
        self.replayed = replayed
        self.failures = FailureSchedule()
        self._clock, self._speed, self._started_s = clock, speed, clock()
        self._address = (host, port)
        self._require_key, self._flood_bytes, self._drip_pause_s = require_key, flood_bytes, drip_pause_s
        self._log = log
        self._requests: deque[str] = deque(maxlen=MOST_REQUESTS_REMEMBERED)
        self._listener: Listener | None = None

    @classmethod
    def replay(cls, folder: Path | str, **options: Any) -> Self:
        """Makes one that plays back a folder. Raises FakeSetupError."""
        return cls(replayed=ReplayFolder(folder), **options)

    def start(self) -> None:
        """Begins to listen. Raises OSError where the port is taken."""
        self._listener = Listener(self._address, self.answer, drip_pause_s=self._drip_pause_s)

    def close(self) -> None:
        """Ends every connection, hanging ones included; no thread or socket is left."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def base_url(self) -> str:
        """What a provider's base URL has to be to reach the fake. Raises FakeSetupError before `start`."""
        if self._listener is None:
            raise FakeSetupError("the fake cloud does not run: use it in a `with` block, or call start()")
        host, port = self._listener.address
        return f"http://{host}:{port}"

    @property
    def requests(self) -> list[str]:
        """Method and path of what was asked, the fake's own paths aside; the latest ten thousand."""
        return list(self._requests)

    def fail(self, provider: str, kind: str, *, times: int | None = None) -> None:
        """The next requests to this cloud fail in this way. Raises FakeSetupError."""
        self.failures.plan(provider, kind, times)

    def heal(self, provider: str | None = None) -> None:
        """Lets this cloud, or all of them, answer well again."""
        self.failures.clear(provider)

    def select(self, file: str) -> None:
        """Lets this file of the folder answer for its provider from now on. Raises FakeSetupError."""
        if self.replayed is None:
            raise FakeSetupError("file: there is no folder to play; start with --payloads DIR")
        self.replayed.select(file)

    def now_s(self) -> float:
        """The market's time, epoch seconds."""
        return self._started_s + (self._clock() - self._started_s) * self._speed

    def answer(self, request: Request) -> Reply:
        """Called by the threads that serve; at most one line of log each."""
        if request.path.startswith(_CONTROL):
            return self._control(request)
        self._requests.append(f"{request.method} {request.path}")
        reply = self._reply(request)
        if self._log is not None:
            self._log(f"{request.method} {request.path} {'hangs' if reply.hangs else reply.status}")
        return reply

    def _reply(self, request: Request) -> Reply:
        cloud = cloud_at(request.path)
        if cloud is None:
            return self._good(request, None)
        failure = self.failures.due(cloud, request.path)
        if failure is not None:
            good = functools.partial(self._good, request, cloud)
            return failure.reply(Case(cloud, request, self._view(), good, self._flood_bytes))
        return self._good(request, cloud)

    def _good(self, request: Request, cloud: Cloud | None) -> Reply:
        if self.replayed is not None:
            entry = self.replayed.entry_for(request)
            return entry.reply if entry is not None else _unknown(request, "no file of the folder answers this")
        if cloud is None:
            return _unknown(request, "no cloud has this path")
        handler = cloud.routes.get((request.method, request.path))
        if handler is None:
            return cloud.refuse(request.path, 405, "method not allowed")
        if self._require_key and cloud.key_of is not None and not cloud.key_of(request):
            return cloud.refuse(request.path, cloud.bad_key_status, "Invalid user key")
        return handler(request, self._view())

    def _view(self) -> MarketInstant:
        return MarketInstant(self.market, self.now_s(), time.time())

    def _control(self, request: Request) -> Reply:
        task = (request.method, request.path.removeprefix(_CONTROL))
        try:
            match task:
                case ("GET", "state"):
                    return json_reply(self.state())
                case ("GET", "failures"):
                    pass
                case ("POST", "failures"):
                    given = _object(request)
                    self.failures.plan(_text(given, "provider"), _text(given, "kind"), given.get("times"))
                case ("DELETE", "failures"):
                    self.heal(request.query.get("provider"))
                case ("POST", "replay"):
                    self.select(_text(_object(request), "file"))
                case _:
                    return _unknown(request, "the fake knows /_fake/state, /_fake/failures and /_fake/replay")
        except FakeSetupError as error:
            return json_reply({"error": str(error)}, 422)
        return json_reply({"failures": self.failures.listed()})

    def state(self) -> dict[str, Any]:
        """The market's true counts and least prices now."""
        now_s = self.now_s()
        counts = self.market.counts(now_s)
        return {
            "at": datetime.fromtimestamp(now_s, UTC).isoformat(timespec="seconds"),
            "at_s": now_s,
            "speed": self._speed,
            "seed": self.market.seed,
            "machines": len(self.market.machines),
            "failures": self.failures.listed(),
            "providers": {
                provider: {slug: asdict(count) for slug, count in by_gpu.items() if count.machines}
                for provider, by_gpu in counts.items()
            },
        }


def _unknown(request: Request, why: str) -> Reply:
    return json_reply({"error": f"{request.method} {request.path}: {why}"}, 404)


def _object(request: Request) -> dict[str, Any]:
    given = request.data()
    if not isinstance(given, dict):
        raise FakeSetupError("body: must be a JSON object")
    return given


def _text(given: dict[str, Any], name: str) -> str:
    value = given.get(name)
    if not isinstance(value, str):
        raise FakeSetupError(f"{name}: {value!r} must be text")
    return value
