"""How far off rates are wherever people serve: by regime, and by engine, GPU, model family and precision.

Flow: the runs of serving_wide.csv beside those that the rest of the report is about -> regimes (here) -> report.py.
Each regime's errors are those of the shipped factors, which saw the runs, and of fits that saw no run of the same GPU
or of the same model.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from benchmarks.accuracy.coverage import Score, conformal_band, rounded_outwards, scores
from benchmarks.accuracy.errors import Answers, closed_form
from benchmarks.accuracy.held_out import Fold, answers
from benchmarks.accuracy.markdown import both, prose, table
from sutler.solver.calibration.factors import Calibration
from sutler.solver.throughput.runs import ServingRun

KINDS: Final = ("GPU", "model")
LEAST_ROWS: Final = 40  # chosen: runs are there once per kind, and nine of ten of fewer say little
REGIMES: Final[Mapping[str, Callable[[ServingRun], bool]]] = {
    "dense models in data centres": lambda run: run.spec.moe is None and not is_small(run),
    "mixture of experts": lambda run: run.spec.moe is not None,
    "consumer and workstation cards": lambda run: run.gpu.slug.startswith("rtx"),
    "prompts of 128 tokens and less": lambda run: run.input_tokens <= 128,
    "weights in int4": lambda run: run.precision == "int4",
    "8,192 tokens and more": lambda run: run.input_tokens + run.output_tokens >= 8_192,
}


def is_small(run: ServingRun) -> bool:
    """Of a card that is no data centre's, or of its smallest."""
    return run.gpu.slug.startswith("rtx") or run.gpu.slug in ("l4", "t4")


@dataclass(frozen=True, slots=True)
class Wide:
    """All runs; what the shipped factors say of them, and fits without the run's GPU or model."""

    runs: Sequence[ServingRun]
    shipped: Calibration
    answers: Mapping[str, Answers]

    @property
    def families(self) -> list[tuple[str, str, str, str]]:
        """Engine, GPU, model and precision, in order."""
        return sorted({_family(run) for run in self.runs})


def wide(runs: Sequence[ServingRun], folds: Sequence[Fold], shipped: Calibration) -> Wide:
    """Asks the shipped factors and every fold, which are of KINDS."""
    of_folds = {f"{kind} never seen": answers(runs, folds, kind, closed_form) for kind in KINDS}
    return Wide(runs, shipped, {"shipped": Answers(runs, closed_form(runs, shipped)), **of_folds})


def with_bands(calibration: Calibration, runs: Sequence[ServingRun], folds: Sequence[Fold]) -> Calibration:
    """States the bands within which nine of ten left-out runs lie: of each GPU class with LEAST_ROWS dense runs that
    has none of its own yet, and of experts."""
    found = scores(runs, [fold for fold in folds if fold.kind in KINDS])
    measured, of_class = calibration.measured_band, defaultdict[str, list[Score]](list)
    for score in found:
        if score.run.spec.moe is None:
            of_class[calibration.gpu_class(score.run.gpu).name].append(score)
    classes = tuple(
        replace(one, band=max(_band(of_class[one.name]), measured))
        if one.band > measured and len(of_class[one.name]) >= LEAST_ROWS
        else one
        for one in calibration.gpu_classes
    )
    experts = [score for score in found if score.run.spec.moe is not None]
    least = _band(experts) if len(experts) >= LEAST_ROWS else calibration.priors.expert_band
    return replace(calibration, gpu_classes=classes, priors=replace(calibration.priors, expert_band=least))


def _band(found: Sequence[Score]) -> float:
    return rounded_outwards(conformal_band(found))


def regimes_section(found: Wide | None) -> str:
    """Of docs/accuracy.md."""
    if found is None:
        return ""
    rows = [_row(found, name, chosen) for name, chosen in REGIMES.items()]
    header = ("regime", "runs", *(f"{name}, req/s, %" for name in found.answers), "TTFT, %", "within the band, %")
    scorecard = [_score(found, family) for family in found.families]
    return (
        "## Wherever people serve\n\n"
        + prose(f"""{len(found.runs)} closed loops: those above, and runs of experts, consumer and workstation cards,
        quantised weights, short prompts and long contexts. A run can be in several regimes. Shipped factors saw the
        runs; TTFT and the band are theirs, too.""")
        + table(header, [row for row in rows if row is not None], words=1)
        + "\nThe shipped factors by engine, GPU, model and precision; bias above 0: too much was predicted.\n\n"
        + table(("engine", "GPU", "model", "precision", "runs", "req/s, %", "bias, %"), scorecard, words=4)
    )


def _row(found: Wide, name: str, chosen: Callable[[ServingRun], bool]) -> tuple[object, ...] | None:
    errors = [one.errors(name, chosen) for one in found.answers.values()]
    mine = [run for run in found.runs if chosen(run)]
    if not mine:
        return None
    predicted = closed_form(mine, found.shipped).req_per_s
    bands = [
        found.shipped.band(run.gpu, run.precision, run.engine, has_experts=run.spec.moe is not None) for run in mine
    ]
    off = np.abs(np.log(predicted / np.array([run.req_per_s for run in mine])))
    ttft = errors[0].ttft_s[np.isfinite(errors[0].ttft_s)]
    inside = f"{100 * float(np.mean(off <= np.log(bands))):.1f}"
    return (name, len(mine), *(both(one.req_per_s) for one in errors), both(ttft), inside)


def _score(found: Wide, family: tuple[str, str, str, str]) -> tuple[object, ...]:
    mine = [run for run in found.runs if _family(run) == family]
    off = closed_form(mine, found.shipped).req_per_s / np.array([run.req_per_s for run in mine]) - 1
    return (*family, len(mine), both(np.abs(off)), f"{100 * float(np.median(off)):+.0f}")


def _family(run: ServingRun) -> tuple[str, str, str, str]:
    return run.engine, run.gpu.slug, run.spec.id, run.precision
