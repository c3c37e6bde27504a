"""Outcomes to the few figures that are compared with the paper's: ratios, gaps, losses."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Final

from benchmarks.offline.paper import Part
from benchmarks.offline.settings import Loss, Outcome, Recovery, VariantName
from sutler.solver.offline.plan import Strategy

ROUNDING: Final = 1e-6
LEAST_ORACLE_GAIN_FRACTION: Final = 0.01
"""Of the time: below it there is nothing to recover."""
Key = tuple[str, VariantName, Strategy]
Outcomes = Mapping[Key, Outcome]


@dataclass(frozen=True, slots=True)
class Spread:
    least: float
    most: float

    def __str__(self) -> str:
        return f"{self.least:.2f}–{self.most:.2f}"


@dataclass(frozen=True, slots=True)
class KnownSummary:
    """Fractions of the time with known lengths; `known_s`: that time, on average; expected_s: what the plan said."""

    setting: str
    seeds: int
    mean: float
    least: float
    worst: float
    known_s: float
    expected_s: float


def index(outcomes: Iterable[Outcome]) -> dict[Key, Outcome]:
    return {(one.setting, one.variant, one.strategy): one for one in outcomes}


def settings_of(part: Part, outcomes: Iterable[Outcome]) -> list[str]:
    """Names, in the order in which they ran."""
    return list(dict.fromkeys(one.setting for one in outcomes if one.setting.startswith(f"{part}: ")))


def ratio(
    outcomes: Outcomes,
    setting: str,
    variant: VariantName,
    *,
    rival: Strategy,
    over: Strategy,
    with_planning: bool,
) -> float | None:
    """How many times as long the rival takes; None where one of the two has no plan."""
    times = [
        None if one is None else one.end_to_end_s if with_planning else one.makespan_s
        for one in (outcomes.get((setting, variant, name)) for name in (rival, over))
    ]
    return times[0] / times[1] if times[0] and times[1] else None


def ratios(
    outcomes: Outcomes,
    part: Part,
    variant: VariantName,
    *,
    rival: Strategy,
    over: Strategy,
    with_planning: bool = True,
) -> Spread | None:
    """Over the settings of an application; None where there is none."""
    found = [
        one
        for setting in settings_of(part, outcomes.values())
        if (one := ratio(outcomes, setting, variant, rival=rival, over=over, with_planning=with_planning))
    ]
    return Spread(min(found), max(found)) if found else None


def without_preemption(outcomes: Outcomes, setting: str, strategy: Strategy, *, variant: VariantName) -> float | None:
    """How many times as long without preemption as with it."""
    off, on = (outcomes.get((setting, name, strategy)) for name in ("no preemption", variant))
    if off is None or on is None or not off.makespan_s or not on.makespan_s:
        return None
    return off.makespan_s / on.makespan_s


def gap_fraction(one: Outcome) -> float | None:
    """How much of the time at most could be saved."""
    return None if not one.makespan_s else 1 - one.bound_s / one.makespan_s


def known_summaries(losses: Sequence[Loss]) -> list[KnownSummary]:
    found = []
    for setting in dict.fromkeys(one.setting for one in losses):
        own = [one for one in losses if one.setting == setting]
        fractions = [one.fraction for one in own]
        found.append(
            KnownSummary(
                setting,
                len(own),
                mean=fmean(fractions),
                least=min(fractions),
                worst=max(fractions),
                known_s=fmean(one.known_s for one in own),
                expected_s=own[0].expected_s,
            )
        )
    return found


def recovered_fraction(recovery: Recovery) -> float | None:
    """The share of what knowing the speed would gain; None where that is next to nothing."""
    if recovery.oracle_gain_s < LEAST_ORACLE_GAIN_FRACTION * recovery.going_on_s:
        return None
    return recovery.gain_s / recovery.oracle_gain_s


def recovered_in_all(recoveries: Sequence[Recovery]) -> float | None:
    """All gains over all that knowing the speeds would gain; None where that is nothing."""
    most_s = sum(one.oracle_gain_s for one in recoveries)
    return sum(one.gain_s for one in recoveries) / most_s if most_s > 0 else None


def gain_over_best(outcomes: Outcomes, setting: str, variant: VariantName) -> float | None:
    """By which fraction the best of the other strategies takes longer than sutler; None where there is none."""
    ours = outcomes.get((setting, variant, "sutler"))
    others = [
        one.makespan_s
        for (name, of_variant, strategy), one in outcomes.items()
        if (name, of_variant) == (setting, variant) and strategy != "sutler" and one.makespan_s
    ]
    return min(others) / ours.makespan_s - 1 if ours and ours.makespan_s and others else None


def forecast_error(one: Outcome) -> float | None:
    """The error as a share of the time as executed; negative where the forecast is too early."""
    return one.forecast_s / one.makespan_s - 1 if one.forecast_s and one.makespan_s else None


def slowest_planning(outcomes: Outcomes, part: Part, strategy: Strategy) -> Outcome | None:
    found = [
        one
        for setting in settings_of(part, outcomes.values())
        for (name, _, planner), one in outcomes.items()
        if (name, planner) == (setting, strategy) and one.makespan_s is not None
    ]
    return max(found, key=lambda one: one.planning_s, default=None)


def beaten(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Plans of sutler that are slower than one of another strategy in the same variant."""
    known = index(outcomes)
    found = []
    for (setting, variant, strategy), ours in known.items():
        if strategy != "sutler":
            continue
        others = [
            one.makespan_s
            for (name, of_variant, _), one in known.items()
            if (name, of_variant) == (setting, variant) and one.makespan_s is not None
        ]
        if others and (ours.makespan_s is None or ours.makespan_s > min(others) * (1 + ROUNDING)):
            found.append(ours)
    return found


def refuted(outcomes: Iterable[Outcome]) -> list[Outcome]:
    """Plans that are faster than the bound says is possible: a bug."""
    return [one for one in outcomes if one.makespan_s is not None and one.makespan_s < one.bound_s * (1 - ROUNDING)]
