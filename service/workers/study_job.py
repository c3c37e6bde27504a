"""Makes one what-if, comparison or simulation: read the market, answer in a solver process, store.

Flow: queue -> Attempts (attempts.py) -> StudyMaker (here) -> solver process -> service/studies/answering.py.
"""

import asyncio
import logging
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import numpy as np

from sutler.service.documents.errors import NoMarketDataError
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.studies import ComparisonQuestion, SimulationQuestion, StudyQuestion, WhatIfQuestion
from sutler.service.documents.traces import RequestTrace
from sutler.service.plans.claims import Claimed
from sutler.service.profiles.references import with_calibration
from sutler.service.simulation.losing import losing_of
from sutler.service.simulation.simulated import Choices
from sutler.service.simulation.traffic import PoissonTraffic, TraceTraffic
from sutler.service.studies.questions import Comparison, Simulation, Study, Variant, WhatIf
from sutler.service.studies.repository import STUDIES
from sutler.service.studies.resources import StudyKind
from sutler.service.studies.service import asked_again, longest_s, range_of, variant_of
from sutler.service.translation.stored_market import StoreReadOnce
from sutler.service.translation.to_problem import Translation, to_problem
from sutler.service.workers.attempts import Attempts, limit_s

logger = logging.getLogger("sutler.solving")


@dataclass(frozen=True, slots=True)
class StudyClaim(Claimed):
    """A study that a worker has taken up."""

    kind: StudyKind
    asked: dict[str, Any]


@dataclass(frozen=True, slots=True)
class StudyMaker(Attempts[StudyClaim]):
    """Makes studies."""

    plans = STUDIES
    claim = StudyClaim

    async def make_and_store(self, claimed: StudyClaim) -> None:
        began, now = time.monotonic(), self.now()
        question = await asyncio.to_thread(asked_again, claimed.kind, claimed.asked)
        study = await self._study(claimed, question, now)
        most_s = limit_s(longest_s(question))
        document = await self.solved(claimed, lambda solver, seen: solver.study(study, seen.add, limit_s=most_s))
        values = {
            "status": "done",
            "document": document,
            "market_read_at": now if _is_of_the_store(question) else None,
            "solve_seconds": time.monotonic() - began,
        }
        await self.persist(claimed, lambda connection: self.finish(connection, claimed, now=self.now(), **values))
        logger.info("%s %s: done in %.2f s", claimed.kind, claimed.id, values["solve_seconds"])

    async def _study(self, claimed: StudyClaim, question: StudyQuestion, now: datetime) -> Study:
        """Raises NoMarketDataError where the problem itself has nothing to plan with, and is compared."""
        if isinstance(question, SimulationQuestion):
            assert question.plan is not None
            return Simulation(question.plan, _traffic(question), _choices(question))
        assert question.problem is not None
        problem, store = question.problem, StoreReadOnce(self.market.of(claimed.project))

        async def translated(document: ProblemDocument) -> Translation:
            known = await self.persist(claimed, lambda connection: with_calibration(connection, document))
            return await self.patiently(
                lambda: asyncio.to_thread(to_problem, known, folder=None, now=now, store=store)
            )

        if isinstance(question, ComparisonQuestion):
            return Comparison(await translated(variant_of(problem, {})), question.only or None, range_of(question))
        assert isinstance(question, WhatIfQuestion)
        every = []
        for changes in ({}, *question.variants):
            try:
                every.append(Variant(changes, await translated(variant_of(problem, changes))))
            except NoMarketDataError as error:
                every.append(Variant(changes, str(error)))
        return WhatIf(tuple(every))


def _is_of_the_store(question: StudyQuestion) -> bool:
    """Whether other polls would make it another answer."""
    if isinstance(question, SimulationQuestion):
        return False
    return question.problem is None or question.problem.market.offers is None


def _traffic(question: SimulationQuestion) -> PoissonTraffic | TraceTraffic:
    if not question.traces:
        return PoissonTraffic(question.duration_s, question.load_multiple, question.seed, {})
    traces = {}
    for model, found in question.traces.items():
        arrival_s = np.array(found.arrival_s)
        traces[model] = RequestTrace(
            arrival_s - arrival_s.min(), np.array(found.input_tokens), np.array(found.output_tokens)
        )
    return TraceTraffic(traces, question.at_rated_load, question.load_multiple)


def _choices(question: SimulationQuestion) -> Choices:
    losing = None if question.lose is None else losing_of(question.lose, question.detection_s)
    return Choices(
        question.routing,
        question.scheduling,
        question.max_batched_tokens,
        question.seed,
        question.warm_up_s,
        losing,
        question.roles,
    )
