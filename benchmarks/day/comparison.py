"""All ways through the day of one seed, each as figures; what the report is made of.

Two rivals are given hindsight, so that cost is compared at equal served requests. Never replanning: its first fleet
is planned for that multiple of the day's mean traffic at which it serves as many requests as sutler did, found by
bisection. The autoscaler, which begins with sutler's first plan, lives the day with several headrooms; which of them
counts is said over all seeds (report.py).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np

from benchmarks.day.autoscaler import Autoscaler
from benchmarks.day.fleet import Fleet
from benchmarks.day.market import MACHINES, DayMarket, left_over
from benchmarks.day.planning import GPUS, STARTS, Planner, speeds_of, truth, weights_gb
from benchmarks.day.policies import NeverReplan, Policy, ReplanAlways
from benchmarks.day.simulation import Outcome, Setting, live, oracle, outcome_of
from benchmarks.day.traffic import DAY_S, day_of, read_traces, shaped
from benchmarks.day.world import Terms
from sutler.service.deployments.schemas import PolicyDocument

PolicyName = Literal["sutler", "autoscaler", "never", "always", "oracle"]
NAMES: Final[tuple[PolicyName, ...]] = ("sutler", "autoscaler", "never", "always", "oracle")
MEAN_RPS: Final = 28.0
"""Requests/s on average: the fleets have some 5 to 20 GPUs."""
ORACLE_STEP_S: Final = 1800.0
QUICK_LENGTH_S: Final = 2 * 3600.0
_MULTIPLES: Final = tuple(round(0.6 + 0.04 * step, 2) for step in range(86))
HEADROOMS: Final = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5, 2.0)
POLICY: Final = PolicyDocument(shrink_after_s=900.0, avoid_lost_s=1800.0)
"""As an owner sets it whose traffic swings by the half hour and whose clouds take machines back in waves: found
on the tuning seeds, as the planned headroom."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One seed. `multiple`: of the mean traffic, for which never replanning had to plan; `is_enough`: it sufficed.
    `autoscaled`: the days of the autoscaler by its headroom, none of which is in `outcomes`."""

    seed: int
    multiple: float
    is_enough: bool
    outcomes: dict[PolicyName, Outcome]
    autoscaled: dict[float, Outcome]


PolicyMaker = Callable[[Setting, PolicyDocument], tuple[Policy, Fleet]]
"""Makes the policy under test, and the fleet that the day begins with under it and under replanning always."""


def setting_of(seed: int, policy: PolicyDocument, *, length_s: float = DAY_S, machines: int = MACHINES) -> Setting:
    """The world of a seed. Raises FileNotFoundError without the traces."""
    day = day_of(shaped(*read_traces(), seed=seed), mean_rps=MEAN_RPS, seed=seed)
    market = DayMarket(seed, starts_s=STARTS.timestamp(), gpus=GPUS, machines=machines)
    planner, some = Planner(day.buckets), market.offers(0.0)
    terms = Terms(
        startup_s=policy.startup_s,
        download_gb_per_s=policy.download_gb_per_s,
        restart_s=policy.restart_s,
        drain_s=policy.drain_s,
        min_rental_s=policy.min_rental_s,
        weights_gb=weights_gb(),
        utilisation_fraction=1.0,
    )
    speeds, estimates = (speeds_of(planner, some, truly) for truly in (truth(seed), {}))
    return Setting(market, day, planner, speeds, estimates, terms, length_s=length_s)


def compared(seed: int, make: PolicyMaker, *, length_s: float = DAY_S, tell: Callable[[str], None]) -> Compared:
    """All ways through the day of a seed."""
    setting = setting_of(seed, POLICY, length_s=length_s)
    policy, first = make(setting, POLICY)
    tell(f"seed {seed}: sutler")
    sutler = live(setting, policy, first)
    tell(f"seed {seed}: autoscaler")
    autoscaled = {
        each: live(setting, Autoscaler(first, setting.speeds, setting.estimates, each), first) for each in HEADROOMS
    }
    tell(f"seed {seed}: never")
    multiple, never = _Fleets(setting).serving(sutler.served)
    tell(f"seed {seed}: always")
    always = live(setting, ReplanAlways(setting.planner, POLICY.window_s), first)
    tell(f"seed {seed}: oracle")
    spans = oracle(setting, step_s=ORACLE_STEP_S)
    bound = outcome_of(spans, revisions=0, started=0, stopped=0, lost=0, gpus=float("nan"))
    outcomes: dict[PolicyName, Outcome] = {"sutler": sutler, "never": never, "always": always, "oracle": bound}
    return Compared(seed, multiple, never.served >= sutler.served, outcomes, autoscaled)


@dataclass(slots=True)
class _Fleets:
    """Days without replanning, by the multiple of the mean traffic that their fleet was planned for."""

    setting: Setting
    _lived: dict[int, Outcome | None] = field(default_factory=dict)

    def serving(self, requests: float) -> tuple[float, Outcome]:
        """The smallest multiple whose day serves that much; without one, the largest that the market has."""
        low, high = 0, len(_MULTIPLES) - 1
        while self._day(high) is None and high > 0:
            high = high * 3 // 4
        while low < high:
            middle = (low + high) // 2
            found = self._day(middle)
            if found is not None and found.served >= requests:
                high = middle
            else:
                low = middle + 1
        outcome = self._day(high)
        if outcome is None:
            raise ValueError("the market has no fleet even for a part of the mean traffic: take more machines")
        return _MULTIPLES[high], outcome

    def _day(self, step: int) -> Outcome | None:
        if step not in self._lived:
            fleet = self._planned(_MULTIPLES[step])
            self._lived[step] = None if fleet is None else live(self.setting, NeverReplan(fleet), fleet)
        return self._lived[step]

    def _planned(self, multiple: float) -> Fleet | None:
        setting = self.setting
        rates = multiple * np.array([bucket.rate_rps for bucket in setting.planner.buckets])
        offers = left_over(setting.market.offers(0.0), ())
        problem = setting.planner.problem(rates, offers, 0.0, headroom_fraction=0.0)
        return setting.planner.fleet(problem)
