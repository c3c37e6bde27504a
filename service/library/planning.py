"""From a problem to a plan, replayed and corrected where that is asked for."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

from sutler.service.documents.changes import Changes
from sutler.service.documents.plan import PlanDocument
from sutler.service.library.problems import Given, folder_of, problem_document, translated
from sutler.service.main import StoreWhenNeeded
from sutler.service.translation.from_plan import issue_plan
from sutler.service.translation.to_problem import Translation
from sutler.solver.planner import solve
from sutler.solver.progress import Progress

if TYPE_CHECKING:
    from sutler.service.documents.problem import ProblemDocument
    from sutler.service.documents.traces import RequestTrace
    from sutler.service.simulation.traffic import PoissonTraffic, TraceTraffic
    from sutler.solver.problem import Problem

OnProgress = Callable[[Progress], None]


def plan(
    problem: Given,
    *,
    changes: Changes | None = None,
    folder: str | Path | None = None,
    validate: bool = False,
    on_progress: OnProgress | None = None,
) -> PlanDocument:
    """Plans a problem: which offers to rent, how to deploy the models on them, where to route each workload.

    `problem` is the path of a YAML or JSON file, its content as a mapping, or a ProblemDocument; `changes` puts other
    values at paths of it, as `{"budget_usd_per_hour": 20}`; paths in it are relative to `folder` (unset: the file's).
    With `validate`, requests are sent through the plan, and where limits are missed it is planned again. The plan may
    be `infeasible` (its `conflicts` say what has to give) or `unknown` (the time limit came first).

    Raises DocumentError for wrong fields, UnknownNameError for names that the catalogue does not have,
    NoMarketDataError where there is nothing to plan with.
    """
    document, where = problem_document(problem, changes), folder_of(problem, folder)
    translation = translated(document, where)
    if validate:
        return validated_plan(translation, traffic_of_problem(document, where), on_progress=on_progress)
    return planned(translation, on_progress=on_progress)


def planned(translation: Translation, *, on_progress: OnProgress | None = None) -> PlanDocument:
    """The plan of a translated problem, issued now."""
    return _with_chances(_issued(translation, on_progress), translation)


def _issued(translation: Translation, on_progress: OnProgress | None) -> PlanDocument:
    solved = solve(translation.problem, on_progress=on_progress)
    return issue_plan(solved, translation, plan_id=uuid4(), created_at=datetime.now(UTC))


def _with_chances(plan: PlanDocument, translation: Translation) -> PlanDocument:
    """The plan with how likely its offers are still there, where the market is the store's."""
    return StoreWhenNeeded().with_chances(plan, translation) if translation.market.is_of_store else plan


def validated_plan(
    translation: Translation,
    traffic: "PoissonTraffic | TraceTraffic",
    *,
    on_progress: OnProgress | None = None,
) -> PlanDocument:
    """The same, replayed on this traffic; where it misses limits, planned again with less of what missed them."""
    from sutler.service.simulation.validation import validated

    def again(problem: "Problem") -> PlanDocument:
        return _issued(replace(translation, problem=problem), on_progress)

    found = validated(translation.problem, again(translation.problem), traffic, solve_again=again)
    return _with_chances(found, translation)


def traffic_of_problem(
    document: "ProblemDocument", folder: Path, traces: "Mapping[str, RequestTrace] | None" = None
) -> "PoissonTraffic | TraceTraffic":
    """What to replay a plan on: these recorded requests by model, else those that the problem names, else arrivals
    at random. Raises DocumentError for traces that cannot be read."""
    from sutler.service.documents.traces import read_trace_file
    from sutler.service.simulation.traffic import traffic_of
    from sutler.service.translation.market_source import resolve_path

    known = dict(traces or {})
    for index, model in enumerate(document.models):
        if model.trace is not None and not traces:
            at = f"models[{index}].trace"
            known[model.name] = read_trace_file(resolve_path(model.trace.file, folder, field=at), field=at)
    return traffic_of([model.name for model in document.models], known)
