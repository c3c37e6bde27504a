"""Traffic of sources that say nothing of how fast engines are: a push, or engines that had nothing to do."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from sutler.service.db.asynchronous import begun
from sutler.service.deployments.rates import repository
from tests.postgres import Server
from tests.service.deployments.rates.test_deployed import NAME, a_site
from tests.service.faults.looks import looking


@pytest.mark.slow
def test_a_push_is_no_word_of_rates_and_leaves_the_deployment_to_be_looked_at(postgres: Server) -> None:
    with a_site(postgres) as site:
        ended = datetime.now(UTC)
        window = {"source": "gateway", "observed_at": ended.isoformat(), "window_s": 120}
        bucket = {"input_tokens": 1000, "output_tokens": 200, "requests": 2400}
        sent = {"model": site.get("/traffic")["models"][0]["model"], **window, "buckets": [bucket]}
        assert site.api.post(f"/v1/deployments/{NAME}/observations", sent).ok

        async def looked() -> int:
            async with looking(site.scene) as looks:
                await looks.looks(site.id)
                async with begun(looks.engine) as connection:
                    since = ended - timedelta(hours=1)
                    return len(await repository.told_since(connection, site.id, models=[sent["model"]], since=since))

        assert asyncio.run(looked()) == 0
        assert site.get("")["watch"]["status"] != "blind"
