"""Solves in a process of its own, with so much memory; where a search needs more, a smaller one is made, once."""

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from sutler.service.answering import AnsweringProcess, NoAnswerError, TooLargeError
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.plan import PlanDocument
from sutler.service.fork_server import ForkedProcess, ForkServer, Request
from sutler.service.offline.questions import OfflineAnswer, OfflineQuestion
from sutler.service.simulation.questions import ValidationQuestion
from sutler.service.studies.questions import Study
from sutler.service.workers.errors import SolverDefectError, SolverLostError, SolveTooLargeError
from sutler.solver.clearing import Clearing, Fleet
from sutler.solver.errors import InvalidProblemError
from sutler.solver.plan import Plan
from sutler.solver.problem import Problem
from sutler.solver.progress import Progress
from sutler.solver.replanning import Consideration, Considered
from sutler.solver.smaller import all_unproven, smaller, unproven

logger = logging.getLogger("sutler.solving")

MODULE: Final = "sutler.service.workers.solver_main"

Question = Problem | Consideration | Clearing | OfflineQuestion | ValidationQuestion | Study


class SolverProcess:
    """Makes one solve at a time, each within `most_bytes` of memory (SUTLER_MOST_SOLVE_BYTES)."""

    def __init__(self, fork_server: ForkServer, *, most_bytes: int) -> None:
        request = Request("sutler solver", f"{MODULE}:main", MODULE, {"most_bytes": most_bytes})
        self._process, self._most_bytes = AnsweringProcess(fork_server, request), most_bytes

    async def start(self) -> ForkedProcess:
        """Makes the process ready, if it is not. Raises ConnectionError where the fork server has died."""
        return await self._process.start()

    async def stop(self) -> None:
        """Ends the process, whatever it does."""
        await self._process.stop()

    async def solve(self, problem: Problem, on_progress: Callable[[Progress], None], *, limit_s: float) -> Plan:
        """The plan. Cancelling stops the process, as does the limit, which is no solve's own.

        Raises InvalidProblemError, SolverDefectError, SolverLostError.
        """
        plan: Plan
        try:
            plan = await self._answer(problem, on_progress, limit_s=limit_s)
        except SolveTooLargeError as error:
            logger.warning("%s: a smaller search is tried", error)
            plan = await self._answer(smaller(problem), on_progress, limit_s=limit_s)
            if plan.value is None:
                raise SolverLostError(f"{error}, and a smaller search found no plan") from None
            plan = unproven(plan, str(error))
        return plan

    async def consider(
        self, consideration: Consideration, on_progress: Callable[[Progress], None], *, limit_s: float
    ) -> Considered:
        """The options of a running fleet; as `solve`."""
        considered: Considered
        try:
            considered = await self._answer(consideration, on_progress, limit_s=limit_s)
        except SolveTooLargeError as error:
            logger.warning("%s: a smaller search is tried", error)
            tried = replace(consideration, problem=smaller(consideration.problem, consideration.standing.replicas))
            considered = all_unproven(await self._answer(tried, on_progress, limit_s=limit_s), str(error))
        return considered

    async def clear(self, clearing: Clearing, *, limit_s: float) -> tuple[Fleet | None, ...]:
        """Who gets which machines; as `solve`, without progress."""
        fleets: tuple[Fleet | None, ...] = await self._answer(clearing, lambda _: None, limit_s=limit_s)
        return fleets

    async def validate(
        self, question: ValidationQuestion, on_progress: Callable[[Progress], None], *, limit_s: float
    ) -> PlanDocument:
        """The plan, replayed; as `solve`. Raises DocumentError, too."""
        document: PlanDocument = await self._answer(question, on_progress, limit_s=limit_s)
        return document

    async def plan_offline(self, question: OfflineQuestion, *, limit_s: float) -> OfflineAnswer:
        """The plan of an offline application; as `solve`, without progress. Raises DocumentError, too."""
        answer: OfflineAnswer = await self._answer(question, lambda _: None, limit_s=limit_s)
        return answer

    async def study(self, question: Study, on_progress: Callable[[Progress], None], *, limit_s: float) -> str:
        """The answer to a study as JSON; as `solve`. Raises DocumentError, too."""
        document: str = await self._answer(question, on_progress, limit_s=limit_s)
        return document

    async def _answer(self, question: Question, on_progress: Callable[[Progress], None], *, limit_s: float) -> Any:
        try:
            kind, content = await self._process.answer(question, limit_s=limit_s, on_progress=on_progress)
        except TooLargeError:
            used = f"the solve ran out of its {self._most_bytes / 1e9:.3g} GB of memory"
            raise SolveTooLargeError(used) from None
        except NoAnswerError as error:
            raise SolverLostError(f"the solver process was lost: {error}") from None
        return _answered(kind, content)


def _answered(kind: str, content: Any) -> Any:
    if kind == "invalid":
        raise InvalidProblemError(*content)
    if kind == "wrong":
        raise DocumentError(content)
    if kind == "defect":
        raise SolverDefectError(content)
    return content
