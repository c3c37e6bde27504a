"""How the offline commands read applications, plans and progress: from a file or standard input, all checked."""

import json
import sys
from pathlib import Path
from typing import Final

from pydantic import ValidationError

from sutler.service.cli.terminal.reading import STANDARD_INPUT
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.reading import read_document, read_stream
from sutler.service.documents.validation import field_problems, validate
from sutler.service.offline.files import checked_application
from sutler.service.offline.market import OfflineMarket
from sutler.service.offline.plan_schema import OfflinePlanDocument
from sutler.service.offline.progress_schema import ProgressDocument
from sutler.service.offline.translate import OfflineTranslation

PLAN_FORMAT: Final = "sutler/offline-plan/v1"
REMEDY: Final = "must hold an offline plan (`sutler offline plan APP --json`)"


def read_translated(path: Path) -> tuple[OfflineTranslation, OfflineMarket | None]:
    """An application ready to plan, with what is for rent where it has no hardware.

    Raises DocumentError and UnknownNameError for fields that are wrong, NoMarketDataError without offers.
    """
    from datetime import UTC, datetime

    from sutler.service.cli.terminal.reading import folder_of
    from sutler.service.main import StoreWhenNeeded
    from sutler.service.offline.market import market_of
    from sutler.service.offline.translate import translate

    document = checked_application(_read(path, "APPLICATION"))
    translation = translate(document, folder=folder_of(path))
    now = datetime.now(UTC)
    return translation, market_of(translation.document, folder=folder_of(path), now=now, store=StoreWhenNeeded())


def read_plan(path: Path) -> OfflinePlanDocument:
    """Raises DocumentError for what is no offline plan, or one whose parts do not name the same models."""
    data = _read(path, "PLAN")
    if not isinstance(data, dict):
        raise DocumentError.of("PLAN", REMEDY, value=data)
    if data.get("schema") != PLAN_FORMAT:
        raise DocumentError.of("PLAN", REMEDY, value=data.get("schema"))
    try:
        plan = OfflinePlanDocument.model_validate_json(json.dumps(data))  # as JSON: strict Python mode wants tuples
    except ValidationError as error:
        raise DocumentError(field_problems(OfflinePlanDocument, data, error)) from None
    asked = [model.name for model in plan.application.models]
    if [model.name for model in plan.models] != asked:
        remedy = f"must be those of its application, in their order: {', '.join(asked)}"
        raise DocumentError.of("models", remedy, value=[model.name for model in plan.models])
    return plan


def read_progress(path: Path) -> ProgressDocument:
    """Raises DocumentError naming every wrong field."""
    data = _read(path, "PROGRESS")
    if not isinstance(data, dict):
        remedy = "must hold a mapping of names to values (`sutler schema offline-progress`)"
        raise DocumentError.of("PROGRESS", remedy, value=data)
    return validate(ProgressDocument, data)


def _read(path: Path, field: str) -> object:
    return read_stream(sys.stdin.buffer, field=field) if path == STANDARD_INPUT else read_document(path, field=field)
