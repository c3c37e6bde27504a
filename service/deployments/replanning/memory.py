"""What one look leaves for the next: kept as JSON beside the deployment, small, and never needed to be right.

A memory that is lost or of another version costs a search that was made before, nothing else.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from sutler.solver.plan import Conflict
from sutler.solver.replanning import Kept

SAME_RATE_FRACTION: Final = 0.1  # of all requests: by so much traffic may differ and be the same


class PastSearch(BaseModel):
    """What a fleet was sought for in vain, and what was found instead: under the same facts it is not sought again.

    `rates_rps` by model and workload; `circumstances` is everything else that would make it another search.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    circumstances: str
    rates_rps: dict[str, float]
    status: Literal["calm", "kept", "waiting", "short", "manual"]
    detail: str
    load_multiple: float | None
    conflicts: tuple[Conflict, ...]

    def is_for(self, circumstances: str, rates_rps: Mapping[str, float]) -> bool:
        """Whether a search now would be the same, but for a little traffic."""
        if self.circumstances != circumstances or self.rates_rps.keys() != rates_rps.keys():
            return False
        slack_rps = SAME_RATE_FRACTION * max(sum(rates_rps.values()), sum(self.rates_rps.values()))
        return sum(abs(rate - self.rates_rps[name]) for name, rate in rates_rps.items()) <= slack_rps


class Absence(BaseModel):
    """Since when machines of the plan are not for rent, and when offers of their provider had been seen last then."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    since: datetime
    polled_at: datetime | None


class Memory(BaseModel):
    """What the next look has to know; `revision` is the plan that it is about.

    `most_net_usd` is what the last search without a result was promised by the relaxation: only a better promise is
    worth another one. `searched_at`: when the fleet was last sought anew. `looked_at`: the last look. `settles_at`
    and `settled_at`: when the first and the last of what is new on the market will have held for long enough. `alert`
    is the last one that was sent. `absent`: by `key_text`, machines that the market has not shown of late.
    `before_climb`: where the plan is for what climbing traffic would come to, by model the work that was planned for
    before the climb, in input tokens/s. `changed_at`: when a plan last changed machines; None: this one did. `kept`:
    what was found of what runs, and on which `basis` (`repeats.basis_of`).
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    revision: int = 0
    most_net_usd: float | None = None
    searched_at: datetime | None = None
    searched: PastSearch | None = None
    looked_at: datetime | None = None
    settles_at: datetime | None = None
    settled_at: datetime | None = None
    market_version: int | None = None
    alert: str = ""
    absent: dict[str, Absence] = {}
    before_climb: dict[str, float] = {}
    changed_at: datetime | None = None
    kept: Kept | None = None
    basis: str = ""

    def after_issue(self, revision: int) -> "Memory":
        """The memory that is still true of the next revision."""
        past = {"most_net_usd": None, "searched_at": None, "searched": None, "kept": None}
        return self.model_copy(update={"revision": revision, **past})


def remembered(stored: dict[str, Any], *, revision: int) -> Memory:
    """The memory that was stored, as far as it is about this revision."""
    try:
        memory = Memory.model_validate(stored)
    except ValidationError:
        return Memory(revision=revision)
    return memory if memory.revision == revision else Memory(revision=revision, alert=memory.alert)
