"""The answers themselves, made in a solver process or, for the command line, in its own."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final
from uuid import uuid4

from sutler.service.comparing.compared import comparison_of, plan_made
from sutler.service.comparing.sweeping import frontier_of, sweep_of
from sutler.service.documents.comparison import ComparisonDocument
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.what_if import VariantDocument, WhatIfDocument
from sutler.service.simulation.schemas import SimulationResource
from sutler.service.simulation.simulated import simulated
from sutler.service.studies.questions import Comparison, Study, Variant, WhatIf
from sutler.service.translation.from_plan import issue_plan
from sutler.solver.planner import solve
from sutler.solver.problem import Problem
from sutler.solver.progress import Progress
from sutler.solver.strategies.comparing import Ran
from sutler.solver.strategies.registry import compare
from sutler.solver.version import VERSION

OnProgress = Callable[[Progress], None]
FIGURES: Final = (
    *("throughput_rps", "makespan_s", "load_multiple", "cost_usd_per_hour", "power_watts", "usd_per_million_tokens"),
    *("rentals", "conflicts"),
)


def answered(study: Study, on_progress: OnProgress) -> WhatIfDocument | ComparisonDocument | SimulationResource:
    """The document. Raises DocumentError, InvalidProblemError."""
    if isinstance(study, WhatIf):
        return what_if(study, on_progress=on_progress)
    if isinstance(study, Comparison):
        return comparison(study)
    return simulated(study.plan, study.traffic, study.choices).resource


def what_if(
    study: WhatIf,
    *,
    on_planned: Callable[[VariantDocument], None] | None = None,
    on_progress: OnProgress | None = None,
) -> WhatIfDocument:
    """Plans all variants, one after the other."""
    found: list[VariantDocument] = []
    base: PlanDocument | None = None
    for variant in study.every:
        plan = _plan_of(variant, on_progress)
        base = plan if not found else base
        found.append(_described(variant, plan, base))
        if on_planned is not None:
            on_planned(found[-1])
    return WhatIfDocument(
        schema="sutler/what-if/v1",
        created_at=datetime.now(UTC),
        base=found[0],
        variants=tuple(found[1:]),
        market=None if base is None else base.market,
        version=VERSION,
        notes=() if base is None else base.notes,
    )


def comparison(
    study: Comparison,
    *,
    on_ran: Callable[[Ran], None] = lambda _: None,
    on_expected: Callable[[int], None] | None = None,
) -> ComparisonDocument:
    """Runs all strategies; `on_expected` hears how often they will run in all, once that is known."""
    problem = study.translation.problem

    def run(problem: Problem) -> tuple[Ran, ...]:
        return compare(problem, names=study.names, on_ran=on_ran)

    ran = run(problem)
    sweep = None if study.sweep is None else sweep_of(problem, plan_made(ran[0]), study.sweep)
    if sweep is not None and on_expected is not None:
        on_expected(len(ran) * (1 + len(sweep.values)))
    frontier = None if sweep is None else frontier_of(problem, sweep, run)
    return comparison_of(ran, study.translation, created_at=datetime.now(UTC), frontier=frontier)


def _plan_of(variant: Variant, on_progress: OnProgress | None) -> PlanDocument | None:
    translation = variant.translation
    if isinstance(translation, str):
        return None
    solved = solve(translation.problem, on_progress=on_progress)
    return issue_plan(solved, translation, plan_id=uuid4(), created_at=datetime.now(UTC))


def _described(variant: Variant, plan: PlanDocument | None, base: PlanDocument | None) -> VariantDocument:
    changes = dict(variant.changes)
    if plan is None:
        return VariantDocument(
            changes=changes,
            status="no_market_data",
            reason=str(variant.translation),
            objective=None,
            better_fraction=None,
        )
    gpus: dict[str, int] = {}
    for rental in plan.rentals:
        gpus[rental.gpu] = gpus.get(rental.gpu, 0) + rental.gpus * rental.count
    return VariantDocument(
        changes=changes,
        status=plan.status,
        reason=None,
        objective=plan.objective,
        better_fraction=_better(plan, base),
        gpus=gpus,
        replicas=len(plan.replicas),
        seconds=plan.solver.seconds,
        notes=tuple(note for note in plan.notes if base is None or note not in base.notes),
        **{name: getattr(plan, name) for name in FIGURES},
    )


def _better(plan: PlanDocument, base: PlanDocument | None) -> float | None:
    value, before = plan.objective.value, None if base is None else base.objective.value
    if value is None or not before or base is None or base.objective.kind != plan.objective.kind:
        return None
    change = value / before - 1.0
    return change if plan.objective.kind == "max_throughput" else -change
