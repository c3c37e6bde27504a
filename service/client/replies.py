"""What a service answered: read as the document that it is, or raised as the problem that it is."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from pydantic import BaseModel, ValidationError

from sutler.service.client.errors import AnswerError, RefusedError

M = TypeVar("M", bound=BaseModel)

USUAL: Final = frozenset({200, 201, 202, 204, 304})


@dataclass(frozen=True, slots=True)
class Reply:
    """JSON, or nothing where there is nothing new (304) or nothing to say (204)."""

    status: int
    body: bytes

    @property
    def data(self) -> Any:
        """What the body says."""
        return json.loads(self.body)

    def read(self, model: type[M]) -> M:
        """The document in it; what a newer service says besides is left out. Raises AnswerError."""
        return read(model, self.body)


def read(model: type[M], text: str | bytes) -> M:
    """The document in an answer. Raises AnswerError."""
    try:
        return model.model_validate_json(text, extra="ignore")
    except ValidationError as error:
        field = ".".join(str(part) for part in error.errors()[0]["loc"])
        reason = (
            f"the service's answer is not as expected ({field}): it has to run the version of this program or command"
        )
        raise AnswerError(reason) from None


def checked(reply: Reply, retry_after: str) -> Reply:
    """The reply, unless it refuses what was asked. Raises RefusedError."""
    if reply.status in USUAL and _is_ours(reply):
        return reply
    retry_after_s = float(retry_after) if retry_after.isdecimal() else None
    try:
        problem = reply.data
        detail, kind = str(problem["detail"]), str(problem["type"])
        wrong = tuple(_wrong(field) for field in problem.get("errors", ()))
    except (ValueError, TypeError, KeyError):
        detail = f"HTTP {reply.status} without a reason: is this a service of sutler?"
        raise RefusedError(reply.status, detail, retry_after_s=retry_after_s) from None
    raise RefusedError(reply.status, detail, kind=kind, wrong=wrong, retry_after_s=retry_after_s)


def _is_ours(reply: Reply) -> bool:
    try:
        return not reply.body or reply.data is not None
    except ValueError:
        return False


def _wrong(field: Mapping[str, Any]) -> str:
    shown = "" if field.get("value") is None else f" {field['value']}:"
    return f"{field['field']}:{shown} {field['remedy']}"
