"""`sutler schema`: the JSON Schema of a document, for editors, validators and other programs."""

from typing import Annotated

import typer

from sutler.service.cli.terminal.exits import guarded
from sutler.service.cli.terminal.output import write_json
from sutler.service.documents.kinds import DocumentName


@guarded
def schema(
    document: Annotated[
        DocumentName,
        typer.Argument(help="Which document."),
    ],
) -> None:
    """Print the JSON Schema of a document, with the meaning and unit of every field."""
    from sutler.service.json_schemas import json_schema

    write_json(json_schema(document))
