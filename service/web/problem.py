"""From an error to an RFC 9457 problem. https://www.rfc-editor.org/rfc/rfc9457"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sutler.service.documents.errors import DocumentError
from sutler.service.errors import DEFECT, FieldProblem, Kind, SutlerError
from sutler.solver.errors import InvalidProblemError

TYPE_PREFIX: Final = "urn:sutler:problem:"
RETRY_S: Final = 5.0  # of a 503 that does not say; about what a restart of PostgreSQL or a worker takes

CANCELLED: Final = Kind(409, "cancelled", "The plan was cancelled")
TIMED_OUT: Final = Kind(500, "solver-lost", "The solver did not finish")


@dataclass(frozen=True, slots=True)
class ProblemDetail:
    """What a caller is told: `fields` are (field, value, remedy), `retry_after_s` when to ask again."""

    kind: Kind
    detail: str
    fields: Sequence[FieldProblem] = ()
    retry_after_s: float | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """Returns the body of an `application/problem+json` answer, without the request id."""
        errors = [{"field": f.field, "value": f.value, "remedy": f.remedy} for f in self.fields]
        return {
            "type": f"{TYPE_PREFIX}{self.kind.slug}",
            "title": self.kind.title,
            "status": self.kind.status,
            "detail": self.detail,
            "errors": errors,
        }


def problem_of(error: Exception) -> ProblemDetail:
    """What to tell the caller; of a defect no more than that it is one."""
    if isinstance(error, InvalidProblemError):
        error = DocumentError([FieldProblem(error.field, repr(error.value)[:200], error.remedy)])
    if not isinstance(error, SutlerError) or error.kind is DEFECT:
        return ProblemDetail(DEFECT, "this is a defect of sutler: report it with the request id")
    headers = {"WWW-Authenticate": 'Bearer realm="sutler", Basic realm="sutler"'} if error.kind.status == 401 else {}
    retry_after_s = RETRY_S if error.retry_after_s is None and error.kind.status == 503 else error.retry_after_s
    return ProblemDetail(error.kind, error.detail, error.fields, retry_after_s, headers)
