"""What the service takes on of offline applications: within its limits, without files, whose names are known.

All of it is said before a plan is queued, so that a caller who does not wait hears it too.
"""

from collections.abc import Iterator
from datetime import datetime

from sutler.service.documents.errors import DocumentError
from sutler.service.errors import FieldProblem, short_repr
from sutler.service.offline.application_schema import ApplicationDocument
from sutler.service.offline.market import market_of
from sutler.service.offline.translate import translate
from sutler.service.plans.admission import over_limit
from sutler.service.settings import ServiceSettings
from sutler.service.translation.market_source import path_refused
from sutler.solver.catalog import load_gpus


def admit(document: ApplicationDocument, settings: ServiceSettings, *, now: datetime) -> None:
    """Checks an application.

    Raises DocumentError, InvalidProblemError, UnknownNameError, and NoMarketDataError for an empty market of its own.
    """
    time_limit_s = document.search.time_limit_s
    problems = [
        *over_limit("models", len(document.models), settings.most_models, "SUTLER_MOST_MODELS"),
        *over_limit("search.time_limit_s", time_limit_s, settings.longest_solve_s, "SUTLER_LONGEST_SOLVE_S"),
        *_unknown_gpus(document),
    ]
    if problems:
        raise DocumentError(problems)
    if document.market is not None and isinstance(document.market.offers, str):
        raise path_refused("market.offers", document.market.offers)
    translate(document, folder=None)
    if document.market is not None and document.market.offers is not None:
        market_of(document, folder=None, now=now)


def _unknown_gpus(document: ApplicationDocument) -> Iterator[FieldProblem]:
    known = {*load_gpus(document.catalog), *document.gpus}
    wanted = () if document.market is None else document.market.filter.gpus
    for i, slug in enumerate(wanted):
        if slug not in known:
            remedy = "is no GPU of the catalogue (`sutler catalog gpus` lists all): describe it under `gpus`"
            yield FieldProblem(f"market.filter.gpus[{i}]", short_repr(slug), remedy)
