"""`Prefer`: what the caller would like, https://www.rfc-editor.org/rfc/rfc7240. What is not known is ignored."""

import re
from dataclasses import dataclass
from typing import Final

from fastapi import Request

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


def preferences_of(request: Request) -> Preferences:
    """Returns what the caller prefers; the first `wait` counts."""
    words = [word.strip() for line in request.headers.getlist("prefer") for word in line.split(",")]
    waits = [float(found[1]) for word in words if (found := _WAIT.fullmatch(word))]
    return Preferences(any(word.lower() == "respond-async" for word in words), waits[0] if waits else None)
