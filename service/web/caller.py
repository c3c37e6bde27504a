"""Who makes a request or a change, how far that reaches, and by which request: what the audit log is told."""

from dataclasses import dataclass
from typing import Final, Literal

from sutler.service.settings import DEFAULT_PROJECT

Scope = Literal["read", "plan", "admin"]
SCOPES: Final[tuple[Scope, ...]] = ("read", "plan", "admin")  # each includes those before it


@dataclass(frozen=True, slots=True)
class Principal:
    """`actor` is what logs and the audit log call it: `key/ID`, `local` for who needs no key on loopback, `cli`.

    `weight`: how many of its plans are made for each one of another's, while both wait. `project`: all that it
    reaches; beside the common market. `most_requests_per_minute`: of all keys of the project together.
    """

    actor: str
    scope: Scope
    weight: int = 1
    project: str = DEFAULT_PROJECT
    most_requests_per_minute: int | None = None

    def may(self, needed: Scope) -> bool:
        return SCOPES.index(self.scope) >= SCOPES.index(needed)


@dataclass(frozen=True, slots=True)
class Caller:
    """`request_id` None: no request is the cause."""

    principal: Principal
    request_id: str | None


LOCAL: Final = Principal("local", "admin")
CLI: Final = Caller(Principal("cli", "admin"), None)
