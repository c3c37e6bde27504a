"""Polls a market into a store, and again: `python -m benchmarks.market_one_poll`, a process of its own for its peak.

Where the cloud and the store are comes in as JSON on stdin, the result goes out as JSON on stdout. One contract is
asked for, since the adapter keeps two searches 3.5 s apart on purpose.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypedDict, TypeVar

import requests
from sqlalchemy import Engine, text

from sutler.adapters.base import USUAL_PRICE_BAND, Poll
from sutler.adapters.config import Provider, ProviderConfig
from sutler.adapters.polling import poll
from sutler.adapters.vastai import PROVIDER, parse
from sutler.adapters.vastai_searches import SEARCH_PATH, SearchAnswer
from sutler.service.db import embedded
from sutler.service.db.store import open_store
from sutler.service.market.polling import Poller
from sutler.service.settings import StoreSettings

_KIBIBYTES_PER_MEGABYTE: Final = 1e6 / 1024
_CONTRACT: Final = "on_demand"
T = TypeVar("T")


class OnePoll(TypedDict):
    """Seconds and 10^6 bytes. `fetch_s` is request, JSON and `parse_s`; the rest of `total_s` is `record_s`.

    `again_*` is the second poll, of a market that has not changed; `rows_*` are the offer rows after each.
    """

    offers: int
    body_mb: float
    total_s: float
    fetch_s: float
    parse_s: float
    record_s: float
    rows: int
    again_s: float
    again_record_s: float
    rows_again: int
    opened_again: int
    closed_again: int
    peak_mb: float
    import_mb: float


def main() -> None:
    """Read where, poll twice, print the result."""
    given = json.load(sys.stdin)
    json.dump(measured(given["base_url"], Path(given["data_dir"])), sys.stdout)


def measured(base_url: str, data_dir: Path) -> OnePoll:
    """Must run first in a fresh process: peaks cannot be reset."""
    import_mb = _peak_mb()
    engine = open_store(StoreSettings(data_dir))
    try:
        return _measured(engine, base_url, import_mb)
    finally:
        engine.dispose()
        embedded.stop(data_dir)


def _measured(engine: Engine, base_url: str, import_mb: float) -> OnePoll:
    fetches: list[float] = []

    def fetch(provider: Provider, config: ProviderConfig) -> Poll:
        seconds, found = _timed(lambda: poll(provider, config))
        fetches.append(seconds)
        return found

    config = ProviderConfig(base_url, options={"contracts": _CONTRACT})
    poller = Poller(engine, {PROVIDER.name: config}, fetch=fetch)
    total_s, _ = _timed(lambda: poller.poll(PROVIDER))
    rows = _rows(engine)
    again_s, again = _timed(lambda: poller.poll(PROVIDER))
    peak_mb = _peak_mb()
    body = requests.post(base_url + SEARCH_PATH, json={}, timeout=60).content
    search = SearchAnswer(_CONTRACT, tuple(json.loads(body)["offers"]), is_cut=False)
    parse_s, parsed = _timed(lambda: parse([search], price_band=USUAL_PRICE_BAND, now_s=time.time()))
    return OnePoll(
        offers=parsed.kept,
        body_mb=len(body) / 1e6,
        total_s=total_s,
        fetch_s=fetches[0],
        parse_s=parse_s,
        record_s=total_s - fetches[0],
        rows=rows,
        again_s=again_s,
        again_record_s=again_s - fetches[1],
        rows_again=_rows(engine),
        opened_again=again.opened,
        closed_again=again.closed,
        peak_mb=peak_mb,
        import_mb=import_mb,
    )


def _rows(engine: Engine) -> int:
    with engine.connect() as connection:
        return int(connection.scalar(text("SELECT count(*) FROM offer")) or 0)


def _timed(call: Callable[[], T]) -> tuple[float, T]:
    start = time.perf_counter()
    result: Any = call()
    return time.perf_counter() - start, result


def _peak_mb() -> float:
    """The kernel's own count for this program: getrusage would count the parent before this program began (Linux)."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) / _KIBIBYTES_PER_MEGABYTE


if __name__ == "__main__":
    main()
