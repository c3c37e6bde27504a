"""What a look has found, as people are told of it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from sutler.service.deployments.replanning.drift import Drift
from sutler.service.deployments.traffic.window import ModelTraffic
from sutler.service.deployments.watch_schema import Feed, Status
from sutler.solver.plan import Conflict

CARRIED: Final = 1e-6  # of the load: less is missing by rounding alone


@dataclass(frozen=True, slots=True)
class State:
    """What the last look found, for people.

    calm: nothing has moved; kept: something has, but no change is worth it; waiting: until the cool-down is over;
    short: the load is not carried, and no fleet would; manual: there is something worth doing, and nobody may do it;
    blind: it could not look, as the detail says.
    """

    status: Status
    detail: str
    feed: Feed
    holdings: Literal["reported", "never"]
    drifts: tuple[Drift, ...]
    load_multiple: float | None = None
    conflicts: tuple[Conflict, ...] = ()


def feed_of(traffic: Iterable[ModelTraffic]) -> Feed:
    """The worst state of all models' feeds: without one, drift of the traffic cannot be seen."""
    states = {"none" if model.state == "never" else model.state for model in traffic}
    worst: tuple[Feed, ...] = ("silent", "none", "thin", "live")
    return next((state for state in worst if state in states), "none")


def alerts_of(state: State) -> dict[str, str]:
    """What a person has to know, by kind; of a kind only the first is sent, until it has passed."""
    found = {}
    multiple = state.load_multiple
    if state.status == "short" or (state.status == "manual" and multiple is not None and multiple < 1 - CARRIED):
        found["short"] = f"short: {state.detail}"
    if state.status == "blind":
        found["blind"] = f"blind: {state.detail}"
    if state.feed == "silent":
        found["silent"] = "silent: the traffic is no longer reported, and changes of it cannot be seen"
    return found
