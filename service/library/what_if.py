"""What if one thing were different: a problem planned as it is and with changes, side by side.

The market is read once, all variants are checked before the first is planned, and what explains a single plan (its
alternatives) is left out: ten variants cost far less than ten plans (benchmarks/what_if.py).
"""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from sutler.service.documents.changes import MOST_VARIANTS, Changes
from sutler.service.documents.errors import DocumentError, NoMarketDataError
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.what_if import VariantDocument, WhatIfDocument
from sutler.service.library.problems import Given, folder_of, problem_document, translated
from sutler.service.main import StoreWhenNeeded
from sutler.service.studies import answering
from sutler.service.studies.answering import OnProgress
from sutler.service.studies.questions import UNEXPLAINED, Variant, WhatIf
from sutler.service.translation.stored_market import StoreReadOnce
from sutler.service.translation.to_problem import Translation


def what_if(
    problem: Given,
    variants: Iterable[Changes],
    *,
    folder: str | Path | None = None,
    on_planned: Callable[[VariantDocument], None] | None = None,
    on_progress: OnProgress | None = None,
) -> WhatIfDocument:
    """Plans a problem as it is and once for each of `variants`, which put other values at paths of it.

    `problem` and `folder` are as in `plan`. A variant without a market to plan on is an answer, not an error.
    Raises DocumentError and UnknownNameError where the problem or a variant is wrong; nothing is planned then.
    """
    if isinstance(variants, Mapping | str):
        remedy = "must be a list of mappings of paths to values: [{'budget_usd_per_hour': 20}]"
        raise DocumentError.of("variants", remedy, value=variants)
    every = ({}, *variants)
    if len(every) > 1 + MOST_VARIANTS:
        raise DocumentError.of("variants", f"at most {MOST_VARIANTS} are planned at once", value=len(every) - 1)
    store, where = StoreReadOnce(StoreWhenNeeded()), folder_of(problem, folder)
    base = problem_document(problem, UNEXPLAINED)
    documents = [problem_document(base, changes) if changes else base for changes in every]
    translations = [_translation(document, where, store) for document in documents]
    return answering.what_if(
        WhatIf(tuple(map(Variant, every, translations))), on_planned=on_planned, on_progress=on_progress
    )


def _translation(document: ProblemDocument, folder: Path, store: StoreReadOnce) -> Translation | str:
    try:
        return translated(document, folder, store)
    except NoMarketDataError as error:
        return str(error)
