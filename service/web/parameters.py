"""Headers and parameters that several endpoints take, with what reads them where that is more than taking the text.

`If-None-Match`, which versions the caller has: https://www.rfc-editor.org/rfc/rfc9110#name-if-none-match
`Prefer`, what the caller would like: https://www.rfc-editor.org/rfc/rfc7240. What is not known is ignored.
"""

import re
from dataclasses import dataclass
from typing import Annotated, Final

from fastapi import Header, Query, Request

MOST_WAIT_S: Final = 3_600.0  # the most that SUTLER_LONGEST_WAIT_S may allow
IdempotencyKey = Annotated[
    str | None,
    Header(alias="Idempotency-Key", description="Names the request: sent again within 24 hours, it is done once."),
]
Prefer = Annotated[
    str | None,
    Header(alias="Prefer", description="`respond-async`: answer 202 at once; `wait=10`: after 10 seconds at most."),
]
IfMatch = Annotated[str | None, Header(alias="If-Match", description="Only if the `ETag` is still this one.")]
IfNoneMatch = Annotated[
    str | None, Header(alias="If-None-Match", description="304 without a body while the `ETag` is this one.")
]
WaitS = Annotated[float, Query(ge=0, le=MOST_WAIT_S, description="Seconds to wait for a plan that is being made.")]
_WAIT: Final = re.compile(r"wait\s*=\s*\"?([0-9]{1,6})\"?", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Preferences:
    """`respond_async`: answer before the work is done. `wait_s`: or, at the latest, after so long."""

    respond_async: bool = False
    wait_s: float | None = None

    @property
    def applied(self) -> dict[str, str]:
        """The header that says what was heeded."""
        heeded = ["respond-async"] if self.respond_async else []
        heeded += [] if self.wait_s is None else [f"wait={self.wait_s:.0f}"]
        return {"Preference-Applied": ", ".join(heeded)} if heeded else {}


def tags_of(request: Request) -> frozenset[str]:
    """The tags that `If-None-Match` names, as strong ones."""
    lines = request.headers.getlist("if-none-match")
    return frozenset(tag.strip().removeprefix("W/") for line in lines for tag in line.split(",") if tag.strip())


def preferences_of(request: Request) -> Preferences:
    """Returns what the caller prefers; the first `wait` counts."""
    words = [word.strip() for line in request.headers.getlist("prefer") for word in line.split(",")]
    waits = [float(found[1]) for word in words if (found := _WAIT.fullmatch(word))]
    return Preferences(any(word.lower() == "respond-async" for word in words), waits[0] if waits else None)
