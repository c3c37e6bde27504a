"""Who makes a request, and how far that reaches."""

from dataclasses import dataclass
from typing import Final, Literal

Scope = Literal["read", "plan", "admin"]
SCOPES: Final[tuple[Scope, ...]] = ("read", "plan", "admin")  # each includes those before it


@dataclass(frozen=True, slots=True)
class Principal:
    """`actor` is what logs and the audit log call it: `key/ID`, `local` for who needs no key on loopback, `cli`."""

    actor: str
    scope: Scope

    def may(self, needed: Scope) -> bool:
        return SCOPES.index(self.scope) >= SCOPES.index(needed)


LOCAL: Final = Principal("local", "admin")
