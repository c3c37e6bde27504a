"""Makes one offline plan, or the plan of what is left of one that runs: read the market, search, store.

Flow: queue -> Attempts (service/workers/attempts.py) -> OfflineMaker (here) -> solver process -> store.
"""

import asyncio
import logging
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.notices import notify, plan_topic
from sutler.service.db.offline_tables import OfflinePlanRow
from sutler.service.documents.validation import validate
from sutler.service.offline import repository
from sutler.service.offline.application_schema import ApplicationDocument
from sutler.service.offline.market import OfflineMarket, market_of
from sutler.service.offline.progress_schema import ProgressDocument
from sutler.service.offline.questions import AdjustQuestion, OfflineAnswer, OfflineQuestion, PlanQuestion
from sutler.service.offline.repository import OfflineClaim
from sutler.service.workers.attempts import Attempts, DroppedError, limit_s

logger = logging.getLogger("sutler.solving")


@dataclass(frozen=True, slots=True)
class OfflineMaker(Attempts[OfflineClaim]):
    """Makes offline plans."""

    table = OfflinePlanRow
    columns = tuple(OfflineClaim.__slots__)

    def claim_of(self, *values: Any) -> OfflineClaim:
        return OfflineClaim(*values)

    async def put_back(self, connection: AsyncConnection, claimed: OfflineClaim) -> None:
        await self.queue.plan_offline(connection, claimed.id)

    async def make_and_store(self, claimed: OfflineClaim) -> None:
        document = await asyncio.to_thread(validate, ApplicationDocument, claimed.application)
        question, read_at = await self._question(claimed, document)
        longest_s = limit_s(document.search.time_limit_s)
        answer = await self.solved(claimed, lambda solver, _: solver.plan_offline(question, limit_s=longest_s))
        await self.persist(lambda connection: self._finish(connection, claimed, answer, read_at))
        logger.info("offline plan %s: %s in %.2f s", claimed.id, answer.status, answer.solve_seconds)

    async def _question(
        self, claimed: OfflineClaim, document: ApplicationDocument
    ) -> tuple[OfflineQuestion, datetime | None]:
        """And when the market was read for it."""
        now = self.now()
        if claimed.parent_id is not None:
            before = await self._document(claimed.parent_id)
            progress = validate(ProgressDocument, claimed.report)
            return AdjustQuestion(before, progress, claimed.id, now), None
        market = await self.patiently(lambda: self._market(document, now))
        return PlanQuestion(document, market, claimed.id, now), None if market is None else now

    async def _market(self, document: ApplicationDocument, now: datetime) -> OfflineMarket | None:
        return await asyncio.to_thread(market_of, document, folder=None, now=now, store=self.market)

    async def _document(self, plan_id: UUID) -> str:
        found = await self.persist(lambda connection: repository.document_of(connection, plan_id))
        assert found is not None, "only finished plans are adjusted"
        return found

    async def _finish(
        self, connection: AsyncConnection, claimed: OfflineClaim, answer: OfflineAnswer, read_at: datetime | None
    ) -> None:
        now = self.now()
        if not await repository.finish(connection, claimed, answer, now=now, market_read_at=read_at):
            raise DroppedError
        await notify(connection, plan_topic(claimed.id))
