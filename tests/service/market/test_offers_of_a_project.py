"""The offers of a snapshot file are one project's: no other sees them, in whatever way it asks, or plans on them."""

from datetime import timedelta
from typing import Final

import pytest
from sqlalchemy import Engine

from sutler.adapters.registry import PROVIDERS
from sutler.service.deployments.replanning.shared_market import SharedMarket
from sutler.service.market.service import MarketService
from sutler.service.settings import market_settings
from sutler.service.web.errors import NotFoundError
from tests.service.market.builders import Store, an_answer, an_offer

HERS: Final = "research"


@pytest.fixture
def market(engine: Engine) -> MarketService:
    """Of a cloud, and of a file that belongs to one project."""
    store = Store(engine)
    for name in ("vastai", "file"):
        store.clouds.answers[name] = an_answer(an_offer(f"of {name}"))
        store.poller.poll(PROVIDERS[name])
    settings = market_settings({"SUTLER_FILE_PROJECT": HERS, "SUTLER_PROVIDERS": "vastai,file"})
    return MarketService(engine, settings, store.poller, store.time.now)


def test_only_its_project_sees_them(market: MarketService) -> None:
    now = market.now()

    def gpus(mine: MarketService, *providers: str) -> float | None:
        since = now - timedelta(minutes=1)
        points = mine.history("h100-sxm", contract="on_demand", since=since, until=now, points=2, providers=providers)
        return points[-1].gpus

    for project, clouds in ((HERS, {"vastai", "file"}), ("default", {"vastai"})):
        mine = market.of(project)
        looked = SharedMarket(market).seen(version=1, settle_s=60.0, now=now, project=project)[0].stored()
        for seen in (mine.stored(), mine.looked_through(), mine.read(as_of=now), looked):
            assert {offer.provider for offer in seen.offers} == set(seen.last_seen) == clouds
        assert {one.provider for one in mine.provider_reports()} == clouds
        assert gpus(mine) == len(clouds)
        assert (gpus(mine, "file") or 0) == len(clouds) - 1


def test_a_file_is_no_cloud_of_another_project(market: MarketService) -> None:
    assert len(market.of(HERS).polls("file", limit=5)) == 1
    with pytest.raises(NotFoundError, match="no cloud 'file'"):
        market.of("default").polls("file", limit=5)


def test_who_has_the_store_sees_all(market: MarketService) -> None:
    assert {offer.provider for offer in market.stored().offers} == {"vastai", "file"}
