"""Scrapes: kept for a while, answered whatever the database does, and documented."""

import asyncio
import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final
from uuid import uuid4

import pytest
import yaml
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.ext.asyncio import AsyncEngine

from sutler.service.db.api_tables import DeploymentRow, PlanRow
from sutler.service.db.asynchronous import open_async_engine, reading
from sutler.service.db.tables import OfferRow, PollRow
from sutler.service.operation import metrics_of_the_store
from sutler.service.operation.metrics_of_the_store import FRESH_S, StoreMetrics, StoreMetricsCache, gather
from sutler.service.web.metrics import Metrics
from tests.service.web.applications import samples, value
from tests.service.web.stored import (
    NOW,
    a_plan,
    a_poll,
    an_offer,
    counted,
    gathered,
    opened,
    put,
    put_fed,
    put_providers,
    put_watched,
    run,
)

ROOT: Final = Path(__file__).parents[3]
DOCUMENT: Final = ROOT / "docs" / "observability.md"
MONITORING: Final = ROOT / "examples" / "monitoring"


class Clock:
    """Seconds that pass when told."""

    def __init__(self) -> None:
        self.at_s = 1_000.0

    def __call__(self) -> float:
        return self.at_s


async def deployments(cache: StoreMetricsCache, store: AsyncEngine) -> float:
    return value(samples(Metrics(), await cache.get(store, "default")), "sutler_deployments")


def put_deployment(engine: Engine) -> None:
    put(engine, DeploymentRow, {"id": uuid4(), "name": str(uuid4()), "problem": {}, "policy": {}})


def test_answers_are_kept_for_a_while(engine: Engine) -> None:
    clock = Clock()

    async def ask() -> list[float]:
        cache = StoreMetricsCache(monotonic=clock)
        async with opened(engine) as store:
            told = [await deployments(cache, store)]
            put_deployment(engine)
            for pause_s in (FRESH_S - 0.1, 0.2):
                clock.at_s += pause_s
                told.append(await deployments(cache, store))
        return told

    assert asyncio.run(ask()) == [0, 0, 1]


def test_answers_that_took_long_are_kept_for_longer(engine: Engine) -> None:
    seconds = iter([0.0, 2.0, 39.9, 42.1, 42.1, 42.1])  # it took 2 s, so it holds for 40 s

    async def ask() -> list[float]:
        cache = StoreMetricsCache(monotonic=lambda: next(seconds))
        async with opened(engine) as store:
            told = [await deployments(cache, store)]
            put_deployment(engine)
            return [*told, await deployments(cache, store), await deployments(cache, store)]

    assert asyncio.run(ask()) == [0, 0, 1]


def test_scrapes_at_the_same_time_ask_once(engine: Engine) -> None:
    async def ask() -> list[StoreMetrics]:
        cache = StoreMetricsCache()
        async with opened(engine) as store:
            return await asyncio.gather(*(cache.get(store, "default") for _ in range(20)))

    first, *others = asyncio.run(ask())
    assert first.is_up
    assert all(other is first for other in others)


def scraped(store_of: Callable[[], AsyncEngine]) -> tuple[list[Sample], str]:
    async def ask() -> tuple[bytes, str]:
        store = store_of()
        try:
            return Metrics().text(await StoreMetricsCache().get(store, "default"))
        finally:
            await store.dispose()

    content, media_type = asyncio.run(ask())
    families = text_string_to_metric_families(content.decode())
    return [sample for family in families for sample in family.samples], media_type


def test_a_scrape_has_both_what_the_process_and_what_the_store_knows(engine: Engine) -> None:
    put(engine, PlanRow, a_plan("queued"))
    series, media_type = scraped(lambda: open_async_engine(engine))
    assert media_type.startswith("text/plain")
    assert value(series, "sutler_plans", {"status": "queued"}) == 1
    assert value(series, "sutler_http_requests_in_progress") == 0


def test_a_scrape_while_the_database_is_away_is_answered_all_the_same() -> None:
    nobody = create_engine("postgresql+psycopg://sutler@127.0.0.1:9/nothing")
    series, _ = scraped(lambda: open_async_engine(nobody))
    assert value(series, "sutler_database_up") == 0
    assert value(series, "sutler_http_requests_in_progress") == 0
    assert not any(sample.name == "sutler_deployments" for sample in series)


def test_a_scrape_of_tables_of_another_version_is_answered_all_the_same(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    run(engine, "ALTER TABLE deployment RENAME TO elsewhere")
    try:
        series, _ = scraped(lambda: open_async_engine(engine))
    finally:
        run(engine, "ALTER TABLE elsewhere RENAME TO deployment")
    assert value(series, "sutler_database_up") == 0
    assert "a defect of sutler" in caplog.text


def test_what_takes_too_long_is_left_out_and_nothing_else(
    engine: Engine, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_of_the_store, "QUESTION_LIMIT_S", 0.2)

    async def ask() -> StoreMetrics:
        async with opened(engine) as store, reading(store) as connection:
            return await gather(connection, NOW)

    put_deployment(engine)
    with engine.begin() as blocking:
        blocking.execute(text("LOCK TABLE plan IN ACCESS EXCLUSIVE MODE"))
        series = samples(Metrics(), asyncio.run(ask()))
    names = {sample.name for sample in series}
    assert value(series, "sutler_database_up") == 1
    assert value(series, "sutler_deployments") == 1
    assert {"sutler_queue_depth", "sutler_workers", "sutler_deliveries"} <= names
    assert not {"sutler_plans", "sutler_solve_seconds_count", "sutler_relative_gap_count"} & names
    assert "sutler_plans takes too long" in caplog.text


def test_the_document_lists_every_metric_with_its_labels_and_no_other(engine: Engine) -> None:
    provider = put_providers(engine, "north")["north"]
    put(engine, OfferRow, an_offer("a", provider_id=provider, contract="on_demand"))
    put(engine, PollRow, a_poll("ok", provider_id=provider, minutes_ago=1))
    deployment = put_watched(engine, holdings=[{"count": 1}])
    put_fed(engine, deployment, counted(1.0, ttft_p90_s_kept_fraction=1.0))
    metrics = Metrics()
    metrics.request_began()
    metrics.request_ended("GET", "/healthz", 200, 0.001)
    content, _ = metrics.text(gathered(engine))
    exposed = {
        (f"{family.name}_total" if family.type == "counter" else family.name, family.type, labels_of(family))
        for family in text_string_to_metric_families(content.decode())
        if family.name.startswith("sutler_")
    }
    row = re.compile(r"^\| `(sutler_\w+)` \| (\w+) \| ([^|]*)\|", re.MULTILINE)
    rows = row.findall(DOCUMENT.read_text(encoding="utf-8"))
    documented = {(name, kind, frozenset(re.findall(r"`(\w+)`", labels))) for name, kind, labels in rows}
    assert documented == exposed


def labels_of(family: Metric) -> frozenset[str]:
    return frozenset(name for sample in family.samples for name in sample.labels if name != "le")


def listed() -> set[str]:
    return set(re.findall(r"^\| `(sutler_\w+)`", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE))


def asked_in(expressions: Iterable[str]) -> set[str]:
    return {name.removesuffix("_bucket") for each in expressions for name in re.findall(r"sutler_\w+", each)}


def test_the_alerts_ask_for_metrics_that_there_are() -> None:
    [group] = yaml.safe_load((MONITORING / "alerts.yaml").read_text("utf-8"))["groups"]
    assert len({rule["alert"] for rule in group["rules"]}) == len(group["rules"]) >= 3
    assert asked_in(rule["expr"] for rule in group["rules"]) <= listed()


def test_the_dashboard_asks_for_metrics_that_there_are_and_no_panel_covers_another() -> None:
    panels = json.loads((MONITORING / "dashboard.json").read_text("utf-8"))["panels"]
    asked = asked_in(target["expr"] for panel in panels for target in panel["targets"])
    assert {"sutler_plan_usd_per_hour", "sutler_load_carried", "sutler_held_machines"} <= asked <= listed()
    places = [panel["gridPos"] for panel in panels]
    cells = [(x, y) for p in places for x in range(p["x"], p["x"] + p["w"]) for y in range(p["y"], p["y"] + p["h"])]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24
