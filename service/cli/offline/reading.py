"""How the offline commands read applications, plans and progress: from a file or standard input, all checked."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sutler.service.cli.terminal.input import folder_of, read_data, read_mapping
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.validation import of_json, validate
from sutler.service.main import StoreWhenNeeded
from sutler.service.offline.files import checked_application
from sutler.service.offline.market import OfflineMarket, market_of
from sutler.service.offline.plan_schema import OfflinePlanDocument
from sutler.service.offline.progress_schema import ProgressDocument
from sutler.service.offline.translate import OfflineTranslation, translate

REMEDY: Final = "must hold an offline plan (`sutler offline plan APP --json`)"


def read_translated(path: Path) -> tuple[OfflineTranslation, OfflineMarket | None]:
    """An application ready to plan, with what is for rent where it has no hardware.

    Raises DocumentError and UnknownNameError for fields that are wrong, NoMarketDataError without offers.
    """
    folder = folder_of(path)
    document = checked_application(read_data(path, "APPLICATION"))
    translation = translate(document, folder=folder)
    market = market_of(translation.document, folder=folder, now=datetime.now(UTC), store=StoreWhenNeeded())
    return translation, market


def read_plan(path: Path) -> OfflinePlanDocument:
    """A plan file. Raises DocumentError for what is none, or one whose parts do not name the same models."""
    plan = of_json(OfflinePlanDocument, read_mapping(path, "PLAN", REMEDY))
    asked = [model.name for model in plan.application.models]
    if [model.name for model in plan.models] != asked:
        remedy = f"must be those of its application, in their order: {', '.join(asked)}"
        raise DocumentError.of("models", remedy, value=[model.name for model in plan.models])
    return plan


def read_progress(path: Path) -> ProgressDocument:
    """What has been done of a plan. Raises DocumentError naming every wrong field."""
    remedy = "must hold a mapping of names to values (`sutler schema offline-progress`)"
    return validate(ProgressDocument, read_mapping(path, "PROGRESS", remedy))
