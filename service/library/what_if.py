"""What if one thing were different: a problem planned as it is and with changes, side by side.

The market is read once, all variants are checked before the first is planned, and what explains a single plan (its
alternatives) is left out: ten variants cost far less than ten plans (benchmarks/what_if.py).
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sutler.service.documents.changes import Changes
from sutler.service.documents.errors import NoMarketDataError
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.what_if import VariantDocument, WhatIfDocument
from sutler.service.library.planning import OnProgress, planned
from sutler.service.library.problems import Given, StoreReadOnce, folder_of, problem_document, translated
from sutler.solver.version import VERSION

UNEXPLAINED: Final = {"solver.alternatives": False}
FIGURES: Final = (
    *("throughput_rps", "makespan_s", "load_multiple", "cost_usd_per_hour", "power_watts", "usd_per_million_tokens"),
    *("rentals", "conflicts"),
)


def what_if(
    problem: Given,
    variants: Sequence[Changes],
    *,
    folder: str | Path | None = None,
    on_planned: Callable[[VariantDocument], None] | None = None,
    on_progress: OnProgress | None = None,
) -> WhatIfDocument:
    """Plans a problem as it is and once for each of `variants`, which put other values at paths of it.

    `problem` and `folder` are as in `plan`. A variant without a market to plan on is an answer, not an error.
    Raises DocumentError and UnknownNameError where the problem or a variant is wrong; nothing is planned then.
    """
    store, where = StoreReadOnce(), folder_of(problem, folder)
    documents = [problem_document(problem, {**UNEXPLAINED, **changes}) for changes in ({}, *variants)]
    found: list[VariantDocument] = []
    first: PlanDocument | None = None
    for number, (document, changes) in enumerate(zip(documents, ({}, *variants), strict=True)):
        plan = _plan_of(document, where, store, on_progress)
        if number == 0 and isinstance(plan, PlanDocument):
            first = plan
        found.append(_variant(changes, plan, first))
        if on_planned is not None:
            on_planned(found[-1])
    return WhatIfDocument(
        schema="sutler/what-if/v1",
        created_at=datetime.now(UTC),
        base=found[0],
        variants=tuple(found[1:]),
        market=None if first is None else first.market,
        version=VERSION,
        notes=() if first is None else first.notes,
    )


def _plan_of(
    document: ProblemDocument, folder: Path, store: StoreReadOnce, on_progress: OnProgress | None
) -> PlanDocument | NoMarketDataError:
    try:
        return planned(translated(document, folder, store), on_progress=on_progress)
    except NoMarketDataError as error:
        return error


def _variant(changes: Changes, plan: PlanDocument | NoMarketDataError, base: PlanDocument | None) -> VariantDocument:
    if isinstance(plan, NoMarketDataError):
        reason = str(plan)
        return VariantDocument(
            changes=dict(changes), status="no_market_data", reason=reason, objective=None, better_fraction=None
        )
    gpus: dict[str, int] = {}
    for rental in plan.rentals:
        gpus[rental.gpu] = gpus.get(rental.gpu, 0) + rental.gpus * rental.count
    return VariantDocument(
        changes=dict(changes),
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
