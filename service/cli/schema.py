"""`sutler schema`: the JSON Schema of a document, for editors, validators and other programs."""

from enum import StrEnum
from typing import Annotated

import typer

from sutler.service.cli.terminal.exits import guarded


class Kind(StrEnum):
    """The documents that sutler reads and writes."""

    problem = "problem"
    plan = "plan"
    market = "market"
    calibration = "calibration"
    comparison = "comparison"
    application = "application"
    offline_plan = "offline-plan"
    offline_progress = "offline-progress"
    offline_simulation = "offline-simulation"
    offline_comparison = "offline-comparison"
    offline_schedule = "offline-schedule"


@guarded
def schema(document: Annotated[Kind, typer.Argument(help="Which document.")]) -> None:
    """Print the JSON Schema of a document, with the meaning and unit of every field."""
    import json

    from sutler.service.cli.terminal.output import write_stdout
    from sutler.service.json_schemas import json_schema

    text = json.dumps(json_schema(document.value), indent=2, ensure_ascii=False, allow_nan=False)
    write_stdout(f"{text}\n".encode())
