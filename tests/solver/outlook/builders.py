"""Markets whose hazards are known, and what looks at intervals see of them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.outlook.lives import DAY_S, HOUR_S, Lives, Slot, Spell, watched

MONDAY_S: Final = 20_000 * DAY_S + 3 * DAY_S  # 2024-10-07
Draw = Callable[[np.random.Generator], float]


def a_slot(machine: str = "m", **others: object) -> Slot:
    usual: dict[str, object] = {"provider": "north", "gpu": "h100", "contract": "on_demand", "gpus": 1}
    return Slot(**{**usual, "machine": machine, **others})  # type: ignore[arg-type]


def looks(days: float, *, every_s: float = 300.0, lost: IntArray | None = None) -> FloatArray:
    """Instants of polls from a Monday on, without those at the positions `lost`."""
    instants = MONDAY_S + np.arange(0.0, days * DAY_S, every_s)
    return instants if lost is None else np.delete(instants, lost)


def seen_spells(true: list[tuple[float, float]], looks_s: FloatArray) -> list[Spell]:
    """What looks see of stretches of time: what begins and ends between two looks is not seen, nor short absences."""
    spells: list[Spell] = []
    for start, end in true:
        first, then = np.searchsorted(looks_s, [start, end], "left")
        if first == then:
            continue
        end_s = float(looks_s[then]) if then < len(looks_s) else np.inf
        if spells and spells[-1].end_s == looks_s[first]:
            spells[-1] = Spell(spells[-1].start_s, end_s)
        else:
            spells.append(Spell(float(looks_s[first]), end_s))
    return spells


@dataclass
class AliveAndGone:
    """A machine that is for rent for a while, then gone for a while, and so on; both in hours."""

    lasts_h: Draw
    away_h: Draw

    def stretches(self, chance: np.random.Generator, until_s: float) -> list[tuple[float, float]]:
        found, at = [], MONDAY_S - 5 * DAY_S
        while at < until_s:
            end = at + self.lasts_h(chance) * HOUR_S
            found.append((at, end))
            at = end + self.away_h(chance) * HOUR_S
        return found


def exponential(mean_h: float) -> Draw:
    return lambda chance: float(chance.exponential(mean_h))


def watched_machines(
    machines: list[tuple[Slot, AliveAndGone]], looks_s: FloatArray, chance: np.random.Generator
) -> Lives:
    """The lives of these machines as the looks tell them."""
    spells = [seen_spells(kind.stretches(chance, float(looks_s[-1])), looks_s) for _, kind in machines]
    return watched([slot for slot, _ in machines], spells, looks_s)
