"""The measurements of the store, one after another; what they mean is in README.md."""

import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from random import Random
from typing import Final, TypedDict, cast

from sqlalchemy import Engine, text

from benchmarks.machine import Machine, describe_machine
from benchmarks.market_bodies import answering, vast_body, vast_offers, vast_rows
from benchmarks.market_history import CHANGES_PER_MINUTE, History, history
from benchmarks.market_one_poll import OnePoll
from benchmarks.market_reads import Command, Read, Server, read, run_command
from benchmarks.market_store import fill, forget_files, opened_store, sizes_mb
from sutler.adapters.base import Coverage, Offer, Poll
from sutler.adapters.config import ProviderConfig
from sutler.adapters.vastai import PROVIDER
from sutler.service.db import embedded
from sutler.service.market.history import price_history
from sutler.service.market.polling import Poller
from sutler.service.market.repository import offers_at, polls_before
from sutler.service.market.snapshot import read_market

_ROOT: Final = Path(__file__).parent.parent
_PACKAGES: Final = ("psycopg", "sqlalchemy", "alembic", "pydantic")
OFFERS: Final = 2_000
SLOTS: Final = OFFERS + 80  # some are away at any time
SECOND_PROVIDER: Final = "lium"
SECOND_OFFERS: Final = 50
SECOND_CHANGES_PER_MINUTE: Final = 0.5
INSTANTS: Final = 20
RECORDED_POLLS: Final = 5
GPU: Final = "rtx-4090"


class Store(TypedDict):
    """What was filled. `fill_s` is the time for that, `sizes_mb` by table and index."""

    offer_rows: int
    poll_rows: int
    days: float
    open_offers: int
    changes_per_minute: float
    fill_s: float
    sizes_mb: dict[str, float]


class Recorded(TypedDict):
    """Polls recorded into the filled store: seconds of each transaction, rows begun and ended by each."""

    seconds: list[float]
    opened: list[int]
    closed: list[int]


class Report(TypedDict):
    """Everything measured. `market_s` and `history_s` are `read_market` and `price_history` in a warm process."""

    machine: Machine
    poll: OnePoll
    store: Store
    reads: list[Read]
    market_s: list[float]
    history_s: list[float]
    commands: list[Command]
    recorded: Recorded


def measured(folder: Path, rows: int, *, tell: Callable[[str], None]) -> Report:
    """All measurements, with stores of their own under `folder`."""
    tell(f"polling {OFFERS} offers ...")
    one_poll = _one_poll(folder / "poll")
    tell(f"filling a store with {rows} rows ...")
    data_dir = folder / "store"
    histories = _histories(rows)
    with opened_store(data_dir) as engine:
        store = _filled(engine, histories)
        machine = _machine(engine)
    tell(f"reading it ({store['fill_s']:.0f} s for filling) ...")
    month = histories[0]
    commands = [*_commands(data_dir, month, "cold"), *_commands(data_dir, month, "stopped")]
    embedded.stop(data_dir)
    forget_files(data_dir)
    with opened_store(data_dir) as engine:
        reads = _reads(engine, month)
        market_s = [_seconds(lambda: read_market(engine, now=month.instants[-1])) for _ in range(5)]
        history_s = [_history_seconds(engine, month) for _ in range(3)]
        commands += _commands(data_dir, month, "running")
        tell("recording polls into it ...")
        recorded = _recorded(engine, month)
    return Report(
        machine=machine,
        poll=one_poll,
        store=store,
        reads=reads,
        market_s=market_s,
        history_s=history_s,
        commands=commands,
        recorded=recorded,
    )


def _one_poll(data_dir: Path) -> OnePoll:
    body = vast_body(vast_rows(OFFERS))
    with opened_store(data_dir), answering(body) as base_url:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.market_one_poll"],
            input=json.dumps({"base_url": base_url, "data_dir": str(data_dir)}),
            stdout=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
            check=True,
        )
    return cast(OnePoll, json.loads(done.stdout))


def _histories(rows: int) -> tuple[History, History]:
    until = datetime.now(UTC) - timedelta(seconds=30)
    minutes = round(rows / CHANGES_PER_MINUTE)
    templates = vast_offers(SLOTS // 2, "on_demand") + vast_offers(SLOTS - SLOTS // 2, "interruptible")
    others = tuple(replace(offer, feed="standard") for offer in vast_offers(SECOND_OFFERS, "on_demand"))
    return (
        history(
            PROVIDER.name, templates, minutes=minutes, until=until, changes_per_minute=CHANGES_PER_MINUTE, seed=1
        ),
        history(
            SECOND_PROVIDER,
            others,
            minutes=minutes,
            until=until,
            changes_per_minute=SECOND_CHANGES_PER_MINUTE,
            seed=2,
        ),
    )


def _filled(engine: Engine, histories: Sequence[History]) -> Store:
    fill_s = _seconds(lambda: fill(engine, histories))
    with engine.connect() as connection:
        offer_rows, poll_rows = (
            int(connection.scalar(text(f"SELECT count(*) FROM {table}")) or 0) for table in ("offer", "poll")
        )
    polls = len(histories[0].instants)
    return Store(
        offer_rows=offer_rows,
        poll_rows=poll_rows,
        days=polls / 60 / 24,
        open_offers=sum(int(history.held[-1]) for history in histories),
        changes_per_minute=sum(len(history.intervals) for history in histories) / polls,
        fill_s=fill_s,
        sizes_mb=sizes_mb(engine),
    )


def _machine(engine: Engine) -> Machine:
    with engine.connect() as connection:
        server = str(connection.scalar(text("SHOW server_version"))).split()[0]
    packages = {name: version(name) for name in _PACKAGES}
    return Machine(**{**describe_machine(), "packages": {"PostgreSQL": server, **packages}})


def _instants(month: History, *, seed: int) -> list[datetime]:
    random = Random(seed)
    first, last = month.instants[0], month.instants[-1]
    return [first + (last - first) * random.random() for _ in range(INSTANTS)]


def _reads(engine: Engine, month: History) -> list[Read]:
    past: list[datetime | None] = [*_instants(month, seed=1)]
    return [
        read(engine, "offers, now", offers_at, [None]),
        read(engine, "offers, past", offers_at, past),
        read(engine, "polls, now", polls_before, [None]),
        read(engine, "polls, past", polls_before, past),
    ]


def _commands(data_dir: Path, month: History, server: Server) -> list[Command]:
    at = _instants(month, seed=2)[0].isoformat()
    since = f"{(month.instants[-1] - month.instants[0]).total_seconds() / 86_400:.2f}d"
    asked = {
        "market offers --as-of T --json": ["market", "offers", "--as-of", at, "--json"],
        "market offers --json": ["market", "offers", "--json"],
        f"market history {GPU} --since {since} --json": ["market", "history", GPU, "--since", since, "--json"],
    }
    chosen, times = (list(asked.items()), 3) if server == "running" else (list(asked.items())[:1], 2)
    return [run_command(name, words, data_dir, server=server, times=times) for name, words in chosen]


def _history_seconds(engine: Engine, month: History) -> float:
    since, until = month.instants[0], month.instants[-1]
    return _seconds(lambda: price_history(engine, GPU, contract="on_demand", since=since, until=until, points=48))


def _recorded(engine: Engine, month: History) -> Recorded:
    """Polls in which as many offers as usual have another price."""
    offers = list(month.open_offers())
    random = Random(3)
    done = Recorded(seconds=[], opened=[], closed=[])
    for _ in range(RECORDED_POLLS):
        for i in random.sample(range(len(offers)), round(CHANGES_PER_MINUTE)):
            offers[i] = replace(offers[i], price_usd_per_hour=offers[i].price_usd_per_hour * 1.01)
        poller = _poller(engine, offers, month)
        reports = []
        done["seconds"].append(_seconds(lambda: reports.append(poller.poll(PROVIDER))))  # noqa: B023
        done["opened"].append(reports[0].opened)
        done["closed"].append(reports[0].closed)
    return done


def _poller(engine: Engine, offers: Sequence[Offer], month: History) -> Poller:
    covered = tuple(Coverage(feed, None, len(offers)) for feed in month.feeds)
    poll = Poll(outcome="ok", offers=tuple(offers), kept=len(offers), covered=covered, requests=2)
    return Poller(engine, {PROVIDER.name: ProviderConfig(PROVIDER.base_url)}, fetch=lambda *_: poll)


def _seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
