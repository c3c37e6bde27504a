"""The made-up year is one that the version before could have left behind, and that is upgraded and read."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import text

from benchmarks.retention_store import fill
from sutler.service.db.engine import open_engine
from sutler.service.db.upgrade import OLDEST, upgrade
from sutler.service.settings import StoreSettings
from sutler.service.workers.retention import delete_old
from tests.service.web.stored import opened

ROWS: Final = 2_000
LISTS: Final = {"drifts": "[]", "options": "[]", "buckets": json.dumps([[1000, 200, 90]])}


def test_half_of_a_year_goes_and_what_deployments_stand_on_stays(new_database: StoreSettings) -> None:
    engine = open_engine(new_database)
    upgrade(engine, OLDEST)
    fill(engine, ROWS, problem="{}", document="{}", **LISTS)
    upgrade(engine)
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO retention (project, kind, kept_s) VALUES ('default', 'plans', 15768000)")
        )

    async def delete() -> int:
        async with opened(engine) as store:
            return (await delete_old(store, datetime.now(UTC)))["default", "plans"]

    gone = asyncio.run(delete())
    with engine.connect() as connection:
        kept = "SELECT count(*) FROM plan p JOIN deployment d ON d.plan_id = p.id"
        assert connection.scalar(text(kept)) == connection.scalar(text("SELECT count(plan_id) FROM deployment")) > 900
        left = sum(
            connection.scalar(text(f"SELECT count(*) FROM {table}")) for table in ("plan", "offline_plan", "study")
        )
    assert left == 3 * ROWS - gone
    assert 0.3 < gone / (3 * ROWS) < 0.5
    engine.dispose()
