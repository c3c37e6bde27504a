"""A cloud whose key the scheduler alone has is read as the scheduler has polled it."""

import pytest
from sqlalchemy import Engine

from sutler.service.market.polling import Poller
from sutler.service.market.service import MarketService
from sutler.service.settings import WITHHELD, market_settings, withheld_secrets
from tests.adapters.server import Received, Reply, ScriptedServer


def answer(_request: Received) -> Reply:
    return Reply(401, b"{}")


@pytest.mark.parametrize("is_withheld", [True, False])
def test_nobody_polls_without_the_key(engine: Engine, monkeypatch: pytest.MonkeyPatch, is_withheld: bool) -> None:
    with ScriptedServer(answer) as cloud:
        monkeypatch.setenv("SUTLER_PROVIDERS", "vastai")
        monkeypatch.setenv("SUTLER_VASTAI_BASE_URL", cloud.base_url)
        monkeypatch.setenv("SUTLER_VASTAI_API_KEY", "secret")
        if is_withheld:
            assert withheld_secrets() == {"SUTLER_VASTAI_API_KEY": "secret"}
        settings = market_settings()
        assert settings.providers == ("vastai",)
        market = MarketService(engine, settings, Poller(engine, settings.configs))
        assert market.polled(()).offers == ()
        keys = {request.headers["authorization"] for request in cloud.requests}
    assert keys == (set() if is_withheld else {"Bearer secret"})
    assert WITHHELD not in keys
