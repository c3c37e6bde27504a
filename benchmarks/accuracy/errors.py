"""What a source says of measured runs beside what was measured, and how far the two are apart."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from sutler.solver.calibration.factors import Calibration
from sutler.solver.throughput.latency import ClosedLoop
from sutler.solver.throughput.runs import ServingRun, predict, run_groups

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
Chosen = Callable[[ServingRun], bool]
METRICS: Final = ("req_per_s", "ttft_s", "tpot_s")


@dataclass(frozen=True, slots=True)
class Errors:
    """|predicted / measured - 1| of some runs, arrays [num_runs], with what the fit rested on."""

    group: str
    rests_on: str
    req_per_s: FloatArray
    ttft_s: FloatArray
    tpot_s: FloatArray

    def __len__(self) -> int:
        return len(self.req_per_s)

    def line(self) -> str:
        """A row of the console summary."""
        cells = "   ".join(median_and_p90(one) for one in (self.req_per_s, self.ttft_s, self.tpot_s))
        return f"{self.group:<38} {len(self):>4}   {cells}   {self.rests_on}".rstrip()


@dataclass(frozen=True, slots=True)
class Answers:
    """What one source says of every run of a table, NaN where it has no answer."""

    runs: Sequence[ServingRun]
    predicted: ClosedLoop

    def errors(self, group: str, chosen: Chosen = lambda run: True, rests_on: str = "") -> Errors:
        """The errors of the chosen runs that have an answer."""
        answered = np.isfinite(self.predicted.req_per_s)
        place = np.array([i for i, run in enumerate(self.runs) if answered[i] and chosen(run)], dtype=np.int64)
        of_metric = {
            name: relative(getattr(self.predicted, name)[place], [getattr(self.runs[i], name) for i in place])
            for name in METRICS
        }
        return Errors(group=group, rests_on=rests_on, **of_metric)


def closed_form(runs: Sequence[ServingRun], calibration: Calibration) -> ClosedLoop:
    """What plans rest on."""
    return predict(run_groups(runs), calibration)


def relative(predicted: FloatArray, observed: Iterable[float]) -> FloatArray:
    return np.asarray(np.abs(predicted / np.array(list(observed), dtype=np.float64) - 1.0))


def median(errors: FloatArray) -> float:
    """NaN of none."""
    return float(np.median(errors)) if len(errors) else float("nan")


def p90(errors: FloatArray) -> float:
    """NaN of none."""
    return float(np.quantile(errors, 0.9)) if len(errors) else float("nan")


def median_and_p90(errors: FloatArray) -> str:
    """Writes both in percent."""
    return f"{100 * median(errors):5.1f} / {100 * p90(errors):5.1f}"
