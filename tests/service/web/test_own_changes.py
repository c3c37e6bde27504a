"""Who has changed something finds it changed, before PostgreSQL's notice of it arrives."""

import asyncio
from contextlib import suppress
from typing import Any

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.asynchronous import conninfo
from sutler.service.db.notices import Notices, notify
from sutler.service.settings import ServiceSettings
from sutler.service.web.caller import CLI, Principal
from sutler.service.web.metrics import Metrics
from sutler.service.web.state import Services
from tests.service.web.stored import opened


async def uncounted(_connection: AsyncConnection, _principal: Principal) -> None:
    return None


def test_a_process_hears_of_its_own_changes_at_their_commit_and_of_no_other(engine: Engine) -> None:
    async def scene() -> None:
        heard: list[str | None] = []
        async with opened(engine) as store:
            notices = Notices(conninfo(store))
            notices.listen(heard.append)
            rest: dict[str, Any] = {"queue": None, "settings": ServiceSettings(), "metrics": Metrics(), "parts": {}}
            services = Services(store, store, **rest, notices=notices, count_change=uncounted, needs_key=False)
            with suppress(ValueError):
                async with services.changing(CLI) as connection:
                    await notify(connection, "plan/1")
                    raise ValueError("undone")
            assert heard == []
            async with services.changing(CLI) as connection:
                await notify(connection, "plan/2")
                assert heard == []
            assert heard == ["plan/2"]

    asyncio.run(scene())
