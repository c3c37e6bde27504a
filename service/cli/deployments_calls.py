"""What the commands of `sutler deployments` share: the paths they ask, and how answers are read and printed."""

from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from sutler.service.cli.terminal.exits import Exit, say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pydantic import BaseModel

    from sutler.service.cli.terminal.client import Answer, Client

M = TypeVar("M", bound="BaseModel")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The deployment.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print only JSON.")]
PAGE: Final = 200
INPUT: Final = "YAML or JSON; - reads standard input."


def at(name: str, rest: str = "") -> str:
    """The path of a deployment, or of what is below it."""
    from urllib.parse import quote

    return f"/v1/deployments/{quote(name, safe='')}{f'/{rest}' if rest else ''}"


def read(model: type[M], answer: "Answer") -> M:
    """The document in an answer; what a newer service says besides is left out. Raises typer.Exit."""
    return _read(model, answer.body)


def read_item(model: type[M], item: object) -> M:
    """The same of one item of a list."""
    import json

    return _read(model, json.dumps(item).encode())


def _read(model: type[M], text: bytes) -> M:
    from pydantic import ValidationError

    try:
        return model.model_validate_json(text, extra="ignore")
    except ValidationError as error:
        field = ".".join(str(part) for part in error.errors()[0]["loc"])
        say(f"error: the service's answer is not as expected ({field}): it has to run the version of this command")
        raise typer.Exit(Exit.OUR_FAULT) from None


def all_items(client: "Client", path: str, *, most: int | None = None) -> list[Any]:
    """Of a list, over all its pages; of a long one, the first `most`."""
    import json

    found: list[Any] = []
    cursor: str | None = None
    while True:
        limit = PAGE if most is None else min(PAGE, most - len(found))
        page = json.loads(client.get(path, limit=limit, cursor=cursor).body)
        found += page["items"]
        cursor = page["next"]
        if cursor is None or len(found) == most:
            return found


def print_json(answer: "Answer") -> None:
    """The answer as it came, indented."""
    import json

    from sutler.service.cli.terminal.output import write_json

    write_json(json.loads(answer.body))


def print_json_lines(answers: "Sequence[Answer]") -> None:
    """One list of all answers that say anything."""
    import json

    from sutler.service.cli.terminal.output import write_json

    write_json([json.loads(answer.body) for answer in answers if answer.body])
