"""What usually comes soon at this time of the day or week, as far as the past tells it apart from chance. Pure.

Requests/s are kept by quarters of an hour. By how much the coming quarters had more than the hour before now is
compared with the same time in past weeks, or on past days of the same kind. It counts where that growth differs from
none by far more than chance: the spread is what is left of the logarithms of the rates without the level of each past
day and the usual shape (two-way analysis of variance; Scheffe, The Analysis of Variance, section 4.2).
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from math import ceil, sqrt
from typing import Final

import numpy as np
import scipy

from sutler.solver.arrays import FloatArray

QUARTER: Final = timedelta(minutes=15)
KEPT: Final = timedelta(days=29)  # four weeks to compare with
LEVEL: Final = 4  # quarters before now: an hour tells the level of a day, and follows it
LEAST: Final = 2  # past days or weeks
LEAST_GROWTH: Final = 1.2  # chosen: less is within the usual headroom
CHANCE: Final = 1e-4  # chosen: of 96 quarters a day, each looked at twice, a false alarm in fifty days
_EPOCH: Final = datetime.fromisoformat("2001-01-01T00:00:00+00:00")


def quarter_of(moment: datetime) -> datetime:
    """When its quarter began."""
    return moment - (moment - _EPOCH) % QUARTER


def quarters_wanted(now: datetime, ahead: timedelta) -> list[datetime]:
    """When the quarters begin that have to be known."""
    level, coming = _level(now), _coming(now, ahead)
    past = [one - shift for shift in {*_weeks(), *_days(now)} for one in (*level, *coming)]
    return sorted({*level, *past})


def usually_comes_to(
    rates: Mapping[datetime, float], *, now: datetime, ahead: timedelta, quantile: float
) -> float | None:
    """Requests/s that will not be exceeded within `ahead`, with that probability, where usually more comes then.

    `rates`: by the beginning of quarters, of those that are known. None: nothing is usual, or too little known.
    """
    level, coming = _level(now), _coming(now, ahead)
    if any(rates.get(one, 0.0) <= 0 for one in level):
        return None
    found: list[float] = []
    for shifts in (_weeks(), _days(now)):
        past = [[rates.get(one - shift, 0.0) for one in (*level, *coming)] for shift in shifts]
        known = np.array([row for row in past if min(row) > 0])
        if len(known) >= LEAST and not found:
            found = [growth for growth in _growths(np.log(known), quantile) if growth >= LEAST_GROWTH]
    now_rps = sum(rates[one] for one in level) / LEVEL
    return max(found) * now_rps if found else None


def _growths(logs: FloatArray, quantile: float) -> Iterator[float]:
    """By how much each of the coming quarters had more than the level, of those that clearly had."""
    days, quarters = logs.shape
    rest = logs - logs.mean(axis=0) - logs.mean(axis=1, keepdims=True) + logs.mean()
    freedom = (days - 1) * (quarters - 1)
    spread = sqrt(float((rest**2).sum()) / freedom * (1 + 1 / LEVEL) / days)
    least = float(-scipy.special.stdtrit(freedom, CHANCE)) * spread
    for coming in range(LEVEL, quarters):
        grown = logs[:, coming] - logs[:, :LEVEL].mean(axis=1)
        if grown.mean() > least:
            yield float(np.exp(np.quantile(grown, quantile)))


def _level(now: datetime) -> Sequence[datetime]:
    """The last quarters that are over."""
    return [quarter_of(now) - number * QUARTER for number in range(LEVEL, 0, -1)]


def _coming(now: datetime, ahead: timedelta) -> Sequence[datetime]:
    """The quarters from now on, the present one included."""
    first = quarter_of(now)
    return [first + number * QUARTER for number in range(ceil((now + ahead - first) / QUARTER))]


def _weeks() -> Sequence[timedelta]:
    return [timedelta(weeks=number) for number in range(1, 5)]


def _days(now: datetime) -> Sequence[timedelta]:
    """Back to days of the same kind: from Monday to Friday, or at the weekend."""
    shifts = (timedelta(days=number) for number in range(1, 8))
    return [shift for shift in shifts if ((now - shift).weekday() < 5) == (now.weekday() < 5)]
