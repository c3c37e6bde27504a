"""Makes one offline plan, or the plan of what is left of one that runs: read the market, search, store.

Flow: queue -> Attempts (service/workers/attempts.py) -> OfflineMaker (here) -> solver process -> store.
"""

import asyncio
import logging
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sutler.service.documents.validation import validate
from sutler.service.offline.application_schema import ApplicationDocument
from sutler.service.offline.market import market_of
from sutler.service.offline.progress_schema import ProgressDocument
from sutler.service.offline.questions import AdjustQuestion, OfflineQuestion, PlanQuestion
from sutler.service.offline.repository import OFFLINE_PLANS
from sutler.service.plans.claims import Claimed
from sutler.service.workers.attempts import Attempts, limit_s

logger = logging.getLogger("sutler.solving")


@dataclass(frozen=True, slots=True)
class OfflineClaim(Claimed):
    """An offline plan that a worker has taken up; `report` where it adjusts the plan `parent_id`."""

    application: dict[str, Any]
    parent_id: UUID | None
    report: dict[str, Any] | None


@dataclass(frozen=True, slots=True)
class OfflineMaker(Attempts[OfflineClaim]):
    """Makes offline plans."""

    plans = OFFLINE_PLANS
    claim = OfflineClaim

    async def make_and_store(self, claimed: OfflineClaim) -> None:
        document = await asyncio.to_thread(validate, ApplicationDocument, claimed.application)
        question, read_at = await self._question(claimed, document)
        longest_s = limit_s(document.search.time_limit_s)
        answer = await self.solved(claimed, lambda solver, _: solver.plan_offline(question, limit_s=longest_s))
        values = {**asdict(answer), "market_read_at": read_at}
        await self.persist(claimed, lambda connection: self.finish(connection, claimed, now=self.now(), **values))
        logger.info("offline plan %s: %s in %.2f s", claimed.id, answer.status, answer.solve_seconds)

    async def _question(
        self, claimed: OfflineClaim, document: ApplicationDocument
    ) -> tuple[OfflineQuestion, datetime | None]:
        """And when the market was read for it."""
        now = self.now()
        if claimed.parent_id is not None:
            before = await self._document(claimed, claimed.parent_id)
            progress = validate(ProgressDocument, claimed.report)
            return AdjustQuestion(before, progress, claimed.id, now), None
        store = self.market.of(claimed.project)
        market = await self.patiently(
            lambda: asyncio.to_thread(market_of, document, folder=None, now=now, store=store)
        )
        return PlanQuestion(document, market, claimed.id, now), None if market is None else now

    async def _document(self, claimed: OfflineClaim, plan_id: UUID) -> str:
        found = await self.persist(claimed, lambda connection: OFFLINE_PLANS.find(connection, plan_id))
        assert found is not None, "plans are kept"
        assert found.document is not None, "only finished plans are adjusted"
        return found.document
