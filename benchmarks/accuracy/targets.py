"""What the project asks of its estimates, and whether the findings meet it."""

from dataclasses import dataclass
from typing import Final

from benchmarks.accuracy.coverage import pooled_fraction
from benchmarks.accuracy.errors import Answers, FloatArray, median, p90
from benchmarks.accuracy.findings import Findings
from benchmarks.accuracy.markdown import both, joined, percent
from benchmarks.accuracy.summary import is_reference
from sutler.solver.calibration.factors import REFERENCE_ENGINE

# Median and p90 of the error of requests/s.
LEFT_OUT: Final = {"GPU": (0.06, 0.20), "model": (0.12, 0.35)}
TTFT_MEDIAN: Final = 0.30
AFTER_RUNS: Final = (0.04, 0.12)
COVERED: Final = (0.85, 0.95)


@dataclass(frozen=True, slots=True)
class Target:
    """What was asked and what was found, in words of the report; two answers: vLLM rows, all rows."""

    asked: str
    limit: str
    found: tuple[str, str]
    is_met: tuple[bool, bool]


def targets(found: Findings) -> list[Target]:
    """All of them, on vLLM rows and on those of every engine."""
    return [
        *(_left_out(found, kind) for kind in LEFT_OUT),
        *(_first_token(f"TTFT of plans, {kind} never seen", one) for kind, one in found.left_out.items()),
        *(
            _first_token(f"TTFT of `sutler estimate`, {kind} never seen", one)
            for kind, one in found.simulated_left_out.items()
        ),
        *(_after(found, kind) for kind in found.left_out),
        *(_covered(found, kind) for kind in found.left_out),
    ]


def _left_out(found: Findings, kind: str) -> Target:
    answers = found.left_out[kind]
    errors = answers.errors("", is_reference).req_per_s, answers.errors("").req_per_s
    return _pair(f"req/s, {kind} never seen", errors, LEFT_OUT[kind])


def _after(found: Findings, kind: str) -> Target:
    mine = [one for one in found.after[5] if one.kind == kind]
    vllm = joined(one.after for one in mine if one.engine == REFERENCE_ENGINE)
    return _pair(f"req/s, {kind} never seen but for 5 runs", (vllm, joined(one.after for one in mine)), AFTER_RUNS)


def _pair(asked: str, errors: tuple[FloatArray, FloatArray], limits: tuple[float, float]) -> Target:
    limit = f"≤ {100 * limits[0]:.0f} / {100 * limits[1]:.0f} %"
    met = [median(one) <= limits[0] and p90(one) <= limits[1] for one in errors]
    return Target(asked, limit, (both(errors[0]), both(errors[1])), (met[0], met[1]))


def _first_token(asked: str, answers: Answers) -> Target:
    medians = [median(answers.errors("", *chosen).ttft_s) for chosen in ((is_reference,), ())]
    return Target(
        asked,
        f"median ≤ {100 * TTFT_MEDIAN:.0f} %",
        (percent(medians[0]), percent(medians[1])),
        (medians[0] <= TTFT_MEDIAN, medians[1] <= TTFT_MEDIAN),
    )


def _covered(found: Findings, kind: str) -> Target:
    fractions = [
        pooled_fraction([one for one in of_rows if one.fold.kind == kind])
        for of_rows in (found.reference_coverage, found.coverage)
    ]
    met = [COVERED[0] <= one <= COVERED[1] for one in fractions]
    limit = f"{100 * COVERED[0]:.0f}–{100 * COVERED[1]:.0f} %"
    words = (percent(fractions[0]), percent(fractions[1]))
    return Target(f"runs within the band, {kind} never seen", limit, words, (met[0], met[1]))
