"""How far off rates are wherever people serve: by regime, and by engine, version, GPU, model and precision.

Flow: the runs of serving_wide.csv beside those that the rest of the report is about -> regimes (here) -> report.py.
Each regime's errors are those of the shipped factors, which saw the runs, and of fits that saw no run of the same GPU
or of the same model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.accuracy.calibrated import Recalibrated, after_runs, starts
from benchmarks.accuracy.coverage import Score, scores
from benchmarks.accuracy.errors import Answers, Chosen, FloatArray, closed_form
from benchmarks.accuracy.held_out import Fold, answers
from benchmarks.accuracy.markdown import both, prose, table
from benchmarks.accuracy.simulated import simulated
from sutler.solver.calibration.factors import Calibration
from sutler.solver.throughput.runs import ServingRun

KINDS: Final = ("GPU", "model")
RUNS: Final = 5
Family = tuple[str, str, str, str, str]
REGIMES: Final[Mapping[str, Chosen]] = {
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
    """All runs; what the shipped factors say of them, and fits without the run's GPU or model; simulated: the same
    by the simulated benchmark, which knows most of first tokens; after: what five runs of a group that was left out
    do for the rest of it."""

    runs: Sequence[ServingRun]
    shipped: Calibration
    answers: Mapping[str, Answers]
    simulated: Mapping[str, Answers]
    after: Sequence[Recalibrated]

    @property
    def families(self) -> list[Family]:
        """In order."""
        return sorted({_family(run) for run in self.runs})


def wide(
    runs: Sequence[ServingRun], folds: Sequence[Fold], shipped: Calibration, reference: Sequence[Score], *, seeds: int
) -> Wide:
    """Asks the shipped factors and every fold, which are of KINDS; `reference`: as of with_uncertainty."""
    of_folds = {_title(kind): answers(runs, folds, kind, closed_form) for kind in KINDS}
    clients = {_title(kind): answers(runs, folds, kind, simulated) for kind in KINDS}
    found = scores(runs, folds)
    return Wide(
        runs,
        shipped,
        {"shipped": Answers(runs, closed_form(runs, shipped)), **of_folds},
        {"shipped": Answers(runs, simulated(runs, shipped)), **clients},
        after_runs(runs, folds, starts(folds, found, reference), count=RUNS, seeds=seeds),
    )


def _title(kind: str) -> str:
    return f"{kind} never seen"


def regimes_section(found: Wide | None) -> str:
    """Of docs/accuracy.md."""
    if found is None:
        return ""
    rows = [_row(found, name, chosen) for name, chosen in REGIMES.items()]
    header = ("regime", "runs", *(f"{name}, req/s, %" for name in found.answers))
    first = [_first_tokens(found, name, chosen) for name, chosen in REGIMES.items()]
    waits = ("regime", *(f"{name}, %" for name in found.simulated), "bounds of plans, %")
    after = [_after(found, kind, name, chosen) for name, chosen in REGIMES.items() for kind in KINDS]
    learnt = ("regime", "never seen", "req/s, %", f"after {RUNS}, %", "TTFT, %", f"after {RUNS}, %", "in band, %")
    scorecard = [_score(found, family) for family in found.families]
    known = ("engine", "version", "GPU", "model", "precision", "runs", "req/s, %", "bias, %")
    return (
        "## Wherever people serve\n\n"
        + prose(f"""{len(found.runs)} closed loops: those above, and runs of experts, consumer and workstation cards,
        quantised weights, short prompts and long contexts. A run can be in several regimes. Shipped factors saw the
        runs; the other columns are of fits that saw no run of the same GPU, or of the same model.""")
        + table(header, [row for row in rows if row is not None])
        + "\nFirst tokens, by the simulated benchmark, and by the closed form that plans rest on (shipped):\n\n"
        + table(waits, [row for row in first if row is not None])
        + "\n"
        + prose(f"""After {RUNS} runs of one engine on a group that was never seen, on the others of the group; of
        groups with enough runs, {found.after[0].seeds if found.after else 0} draws each. TTFT is the closed form's;
        the band is the one that is then stated.""")
        + table(learnt, [row for row in after if row is not None], words=2)
        + "\nThe shipped factors by what ran; bias above 0: too much was predicted.\n\n"
        + table(known, scorecard, words=5)
    )


def _row(found: Wide, name: str, chosen: Chosen) -> tuple[object, ...] | None:
    errors = [one.errors(name, chosen) for one in found.answers.values()]
    return (name, len(errors[0]), *(both(one.req_per_s) for one in errors)) if len(errors[0]) else None


def _first_tokens(found: Wide, name: str, chosen: Chosen) -> tuple[object, ...] | None:
    asked = (*found.simulated.values(), found.answers["shipped"])
    errors = [_finite(one.errors(name, chosen).ttft_s) for one in asked]
    return (name, *(both(one) for one in errors)) if len(errors[0]) else None


def _finite(errors: FloatArray) -> FloatArray:
    return errors[np.isfinite(errors)]


def _after(found: Wide, kind: str, name: str, chosen: Chosen) -> tuple[object, ...] | None:
    mine = [one for one in found.after if one.kind == kind]
    of_regime = [np.array([chosen(run) for run in one.rests], dtype=np.bool_) for one in mine]

    def every(column: str) -> NDArray[Any]:
        return np.concatenate([getattr(one, column)[picked] for one, picked in zip(mine, of_regime, strict=True)])

    if not any(picked.any() for picked in of_regime):
        return None
    errors = (both(_finite(every(column))) for column in ("before", "after", "ttft_before", "ttft_after"))
    return (name, kind, *errors, f"{100 * float(np.mean(every('inside'))):.1f}")


def _score(found: Wide, family: Family) -> tuple[object, ...]:
    mine = np.array([_family(run) == family for run in found.runs])
    measured = np.array([run.req_per_s for run in found.runs])
    off = (found.answers["shipped"].predicted.req_per_s / measured)[mine] - 1
    return (*family, int(mine.sum()), both(np.abs(off)), f"{100 * float(np.median(off)):+.0f}")


def _family(run: ServingRun) -> Family:
    return run.engine, run.version or "not stated", run.gpu.slug, run.spec.id, run.precision
