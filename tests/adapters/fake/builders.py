"""A small market at a known time, a cloud over it, and polls that do not wait."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from sutler.adapters.base import Poll
from sutler.adapters.config import ProviderConfig
from sutler.adapters.fake.clouds import CLOUDS
from sutler.adapters.fake.market import Market
from sutler.adapters.fake.server import FakeCloud
from sutler.adapters.http import USUAL_POLICY, Clock, HttpPolicy
from sutler.adapters.polling import poll
from sutler.adapters.registry import PROVIDERS

CANARY = "canary-key-0123456789"
NIGHT_S = datetime(2026, 11, 24, 3, tzinfo=UTC).timestamp()
DAY_S = datetime(2026, 11, 24, 15, tzinfo=UTC).timestamp()
HOUR_S = 3600.0
PLAYED = sorted(set(CLOUDS) & set(PROVIDERS))
IMPATIENT = HttpPolicy(read_timeout_s=0.3, poll_time_limit_s=0.8)


def at(t_s: float) -> Callable[[], float]:
    """A clock that stands still."""
    return lambda: t_s


def a_cloud(*, seed: int = 1, machines: int = 300, at_s: float = NIGHT_S, **options: Any) -> FakeCloud:
    return FakeCloud(Market(seed=seed, machines=machines), clock=at(at_s), **options)


def polled(cloud: FakeCloud, name: str, *, policy: HttpPolicy = USUAL_POLICY, **options: str | None) -> Poll:
    """One poll with a canary for every key; waits between requests are skipped."""
    provider = PROVIDERS[name]
    chosen = {option: value for option, value in options.items() if value is not None}
    config = ProviderConfig(cloud.base_url, dict.fromkeys(provider.secrets, CANARY), chosen)
    return poll(provider, config, policy=policy, clock=Clock(sleep=lambda _: None))
