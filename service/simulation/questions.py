"""What a solver process is asked about plans that are replayed before they are issued.

Flow: a worker -> solver process -> answered (here) -> validation.py. The answer is the document, since a replay takes
as long as a solve, and a worker's event loop is no place for either.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from uuid import UUID

from sutler.service.documents.plan import PlanDocument
from sutler.service.simulation.traffic import PoissonTraffic
from sutler.service.simulation.validation import validated
from sutler.service.translation.from_plan import issue_plan
from sutler.service.translation.to_problem import Translation
from sutler.solver.plan import Plan
from sutler.solver.planner import solve
from sutler.solver.problem import Problem
from sutler.solver.progress import Progress


@dataclass(frozen=True, slots=True)
class ValidationQuestion:
    """The best plan of those that are tried on random arrivals at their own rates; or, with `plan`, that plan with
    what it misses."""

    translation: Translation
    plan_id: UUID
    created_at: datetime
    plan: Plan | None = None


def answered(question: ValidationQuestion, on_progress: Callable[[Progress], None]) -> PlanDocument:
    """The plan, with what its replay has shown. Raises InvalidProblemError and DocumentError."""

    def issued(plan: Plan, problem: Problem) -> PlanDocument:
        translation = replace(question.translation, problem=problem)
        return issue_plan(plan, translation, plan_id=question.plan_id, created_at=question.created_at)

    def solved(problem: Problem) -> PlanDocument:
        return issued(solve(problem, on_progress=on_progress), problem)

    problem, given = question.translation.problem, question.plan
    first = solved(problem) if given is None else issued(given, problem)
    return validated(problem, first, PoissonTraffic(), solve_again=solved, corrects=given is None)
