"""What the commands of `sutler deployments` share: the paths they ask, and how answers are read and printed."""

import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar
from urllib.parse import quote

import typer
from rich.console import RenderableType

from sutler.service.cli.terminal.exits import refuse
from sutler.service.cli.terminal.output import show, write_json
from sutler.service.errors import Exit

if TYPE_CHECKING:
    from pydantic import BaseModel

    from sutler.service.cli.terminal.client import Client
    from sutler.service.client.replies import Reply

M = TypeVar("M", bound="BaseModel")

Name = Annotated[str, typer.Argument(metavar="NAME", help="The deployment.")]
PAGE: Final = 200  # items of a list asked for at once: the most that the service gives
INPUT: Final = "YAML or JSON; - reads standard input."


def calling() -> "AbstractContextManager[Client]":
    """A client of the service, which is imported only now."""
    from sutler.service.cli.terminal import client

    return client.calling()


def at(name: str, rest: str = "") -> str:
    """The path of a deployment, or of what is below it."""
    return f"/v1/deployments/{quote(name, safe='')}{f'/{rest}' if rest else ''}"


def read(model: type[M], text: str | bytes) -> M:
    """The document in an answer; what a newer service says besides is left out. Raises typer.Exit."""
    from sutler.service.client import replies
    from sutler.service.client.errors import AnswerError

    try:
        return replies.read(model, text)
    except AnswerError as error:
        refuse(error, Exit.OUR_FAULT)


def all_items(client: "Client", path: str, *, most: int | None = None) -> list[Any]:
    """The items of a list, over all its pages; of a long one, the first `most`."""
    found: list[Any] = []
    cursor: str | None = None
    while True:
        limit = PAGE if most is None else min(PAGE, most - len(found))
        page = client.get(path, limit=limit, cursor=cursor).data
        found += page["items"]
        cursor = page["next"]
        if cursor is None or len(found) == most:
            return found


def print_reply(
    reply: "Reply", model: type[M], view: Callable[[M], Iterable[RenderableType]], *, as_json: bool
) -> None:
    """The answer as it came, indented, or the view of the document in it."""
    if as_json:
        write_json(reply.data)
    else:
        show(*view(read(model, reply.body)))


def print_items(
    items: list[Any], model: type[M], view: Callable[[Sequence[M]], Iterable[RenderableType]], *, as_json: bool
) -> None:
    """A list as it came, indented, or the view of the documents in it."""
    if as_json:
        write_json({"items": items, "next": None})
    else:
        show(*view([read(model, json.dumps(item)) for item in items]))
