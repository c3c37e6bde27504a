"""What every faked cloud says about itself: its paths, its way to refuse, and what its rows hold.

A cloud never sees the server: it turns a request and the market at one instant into a reply.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sutler.adapters.fake.market import DAY_S, MachineState, Market
from sutler.adapters.fake.wire import Reply, Request

Path = tuple[str, ...]

_SAME_INSTANT_S: Final = 1.0


@dataclass(frozen=True, slots=True)
class MarketInstant:
    """The market at one instant, which it is `wall_s` for the caller; both in epoch seconds."""

    market: Market
    at_s: float
    wall_s: float
    _known: dict[str, tuple[MachineState, ...]] = field(default_factory=dict, repr=False, compare=False)

    def states(self, provider: str) -> tuple[MachineState, ...]:
        """The machines of a cloud that are on line, computed once."""
        if provider not in self._known:
            self._known[provider] = self.market.states(provider, self.at_s)
        return self._known[provider]

    @property
    def shift_s(self) -> float:
        """The whole days that bring a date of the market into the caller's calendar, and never into its past."""
        return math.ceil((self.wall_s - self.at_s - _SAME_INSTANT_S) / DAY_S) * DAY_S


Handler = Callable[[Request, MarketInstant], Reply]
Refuse = Callable[[str, int, str], Reply]


@dataclass(frozen=True, slots=True)
class RowShape:
    """Where an answer keeps its rows (a list, or an object by id) and what of a row can go wrong.

    `figures` are its prices, or its counts where prices are elsewhere.
    """

    rows: Path
    gpu: Path
    figures: tuple[Path, ...]
    id: str | None = "id"
    memory: Path | None = None
    is_for_rent: Callable[[Mapping[str, Any]], bool] = lambda _: True


@dataclass(frozen=True, slots=True, kw_only=True)
class Cloud:
    """`refuse` writes an error as this cloud does (path, status, message); `key_of` is None where none is wanted."""

    name: str
    title: str
    routes: Mapping[tuple[str, str], Handler]
    refuse: Refuse
    key_of: Callable[[Request], str] | None
    bad_key_status: int = 401
    row_shapes: Mapping[str, RowShape] = field(default_factory=dict)


def at_path(data: Any, path: Path) -> Any:
    """What lies at this path, or None; "0" is the first of a list."""
    for name in path:
        if isinstance(data, list):
            data = data[0] if name == "0" and data else None
        else:
            data = data.get(name) if isinstance(data, dict) else None
    return data
