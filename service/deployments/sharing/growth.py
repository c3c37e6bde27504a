"""By how many machines holdings have grown of late: what a market that was seen before still shows for rent. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

GROWTH_KEPT: Final = timedelta(hours=1)  # several times as long as a market may be old
Growth = Sequence[tuple[datetime, int]]
"""When, and by how many machines."""


def growth_of(
    grown: Mapping[str, Any], before: Mapping[str, int], after: Mapping[str, int], now: datetime
) -> dict[str, list[tuple[str, int]]]:
    """The growth so far with what a report adds, as it is stored: by kind of machines, whose counts are given."""
    found: dict[str, list[tuple[str, int]]] = {}
    for kind, count in after.items():
        change = count - before.get(kind, 0)
        growths = [(at, by) for at, by in grown.get(kind, ()) if now - datetime.fromisoformat(at) < GROWTH_KEPT]
        growths += [(now.isoformat(), change)] if change > 0 else []
        kept: list[tuple[str, int]] = []
        for at, by in growths:  # what is given back is taken to be the newest
            room = count - sum(other for _, other in kept)
            kept += [(at, min(by, room))] if room > 0 else []
        if kept:
            found[kind] = kept
    return found


def stored_growth(grown: Mapping[str, Any]) -> dict[tuple[tuple[str, str, str], int], Growth]:
    """What was stored, by offer and GPUs of a machine."""
    found: dict[tuple[tuple[str, str, str], int], Growth] = {}
    for kind, growths in grown.items():
        provider, offer_id, contract, gpus = kind.split("\n")
        found[(provider, offer_id, contract), int(gpus)] = [(datetime.fromisoformat(at), by) for at, by in growths]
    return found
