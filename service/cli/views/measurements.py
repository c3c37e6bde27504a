"""Profiles and calibrations as people read them, and as `--json` prints them."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from rich.console import RenderableType

from sutler.service.cli.views.layout import lines, listed, section, table_of
from sutler.service.documents.calibration import CalibrationDocument, CalibrationErrors
from sutler.service.profiles.calibrating import Calibrated
from sutler.service.profiles.checks import DESCRIBE
from sutler.service.profiles.repository import Profile
from sutler.service.profiles.runs import ProfileRun, serving_run
from sutler.service.profiles.service import Imported
from sutler.service.profiles.simulated import first_token_error
from sutler.service.translation.names import CATALOGUE, Names
from sutler.service.wording.words import engine_words, number, percent
from sutler.solver.calibration.factors import shipped_calibration
from sutler.solver.throughput.refit import errors

MOST_SIMULATED = 50  # chosen: about 0.1 s each
METRICS = (("req_per_s", "requests/s"), ("ttft", "TTFT, as plans bound it"), ("tpot", "TPOT"))


def import_records(done: Iterable[Imported]) -> list[dict[str, Any]]:
    """What scripts read of an import."""
    return [{**asdict(one), "profiles": [key.id for key in one.profiles]} for one in done]


def import_view(done: Sequence[Imported]) -> Iterator[RenderableType]:
    """One row per file, then what to do with it."""
    table = table_of(texts=("file", "format"), numbers=("kept", "new", "refused"))
    for one in done:
        table.add_row(one.file, one.format, f"{one.kept:,}", f"{one.new:,}", f"{len(one.rejected):,}")
    yield table
    keys = dict.fromkeys(key for one in done for key in one.profiles)
    yield from listed("Profiles", (f"{key.id}  {key}" for key in keys))
    if any(one.kept for one in done):
        yield lines(["Next: sutler calibrate NAME fits the estimates to them."])


def profile_record(found: Profile) -> dict[str, Any]:
    """What scripts read of a profile."""
    figures = asdict(found)
    return {"id": found.key.id, **figures.pop("key"), **figures}


def profiles_view(found: Sequence[Profile], *, is_filtered: bool) -> Iterator[RenderableType]:
    """One row per profile."""
    if not found and is_filtered:
        yield lines(["No profile is of that kind. Next: sutler profiles list, without options, shows all."])
        return
    if not found:
        yield lines(["Nothing is measured yet. Next: sutler profiles import FILE (docs/calibration.md)."])
        return
    table = table_of(texts=("id", "GPU", "model", "precision", "engine"), numbers=("runs", "TP", "concurrency"))
    for one in found:
        key = one.key
        span = f"{one.least_concurrency:.3g}–{one.most_concurrency:.3g}"
        degrees = ", ".join(map(str, one.tensor_parallel))
        engine = f"{key.engine} {key.engine_version}".strip()
        table.add_row(key.id, key.gpu, key.model, key.precision, engine, f"{one.runs:,}", degrees, span)
    yield table


def run_records(profile: Profile, runs: Sequence[ProfileRun]) -> dict[str, Any]:
    """What scripts read of a profile and its runs."""
    names = [name for name in ProfileRun.__slots__ if name != "key"]
    return {**profile_record(profile), "measured": [{name: getattr(run, name) for name in names} for run in runs]}


def runs_view(profile: Profile, runs: Sequence[ProfileRun], names: Names = CATALOGUE) -> Iterator[RenderableType]:
    """One row per run, with the shipped calibration's errors: of the rate, and of the first token by the simulated
    benchmark, where there are no more runs than are simulated at once; without errors where `names` lacks
    what ran."""
    is_known = names.has(profile.key.gpu, profile.key.model)
    single = [run for run in runs if is_known and run.pipeline_parallel == 1]
    expected = errors([serving_run(run, names) for run in single], shipped_calibration()).req_per_s
    off = dict(zip(map(id, single), np.exp(expected) - 1, strict=True))
    waits = {id(run): first_token_error(run, names) for run in single} if len(single) <= MOST_SIMULATED else {}
    table = table_of(
        texts=("TP x PP",),
        numbers=("input", "output", "in flight", "req/s", "TTFT s", "TPOT ms", "shipped estimate", "its TTFT"),
    )
    for run in runs:
        tokens = (f"{tokens:,.0f}" for tokens in (run.input_tokens, run.output_tokens))
        latencies = (number(one, digits=3) for one in (run.ttft_s, 1000 * run.tpot_s))
        error = f"{100 * off[id(run)]:+.0f} %" if id(run) in off else "–"
        wait = f"{100 * waits[id(run)]:+.0f} %" if np.isfinite(waits.get(id(run), np.nan)) else "–"
        degrees = f"{run.tensor_parallel} x {run.pipeline_parallel}"
        table.add_row(degrees, *tokens, number(run.concurrency), number(run.req_per_s), *latencies, error, wait)
    yield from section(f"{profile.key.id}  {profile.key}", table)
    if not is_known:
        yield lines([f"What is estimated for them: {DESCRIBE}."])


def calibration_view(made: Calibrated, *, is_stored: bool) -> Iterator[RenderableType]:
    """How far off the estimates were before and are after, and what to expect."""
    document = made.document
    yield from section(calibration_title(document), error_table(document))
    if made.notes:
        yield lines(f"note: {note}" for note in made.notes)
    if is_stored and made.result.is_kept:
        yield lines(
            [f"Kept as revision {document.revision}, but it changes nothing. Next: check the runs named above."]
        )
    elif is_stored:
        use = f"throughput: {{calibration: {document.name}}}"
        yield lines([f"Kept as revision {document.revision}. Next: put `{use}` into a problem, and plan."])


def calibrations_view(found: Sequence[CalibrationDocument]) -> Iterator[RenderableType]:
    """One row per name."""
    if not found:
        yield lines(["There is no calibration yet. Next: sutler profiles import FILE, then sutler calibrate NAME."])
        return
    table = table_of(texts=("name", "engine", "fitted"), numbers=("revision", "runs", "left-out error of req/s"))
    for one in found:
        off = _pair(one.left_out, "req_per_s")
        table.add_row(
            one.name, engine_words(one), f"{one.created_at:%Y-%m-%d %H:%M}", f"{one.revision}", f"{one.runs:,}", off
        )
    yield table


def calibration_title(document: CalibrationDocument) -> str:
    layers = f", {document.layer_times:,} layer times" if document.layer_times else ""
    return f"Calibration {document.name}: {document.runs:,} runs of {engine_words(document)}{layers}"


def error_table(document: CalibrationDocument) -> RenderableType:
    table = table_of(texts=("error, median / p90",), numbers=("shipped", "fitted", "each left out"))
    for name, title in METRICS:
        table.add_row(title, *(_pair(one, name) for one in (document.before, document.after, document.left_out)))
    return table


def _pair(found: CalibrationErrors | None, name: str) -> str:
    if found is None:
        return "–"
    median, p90 = getattr(found, f"{name}_median_fraction"), getattr(found, f"{name}_p90_fraction")
    return "–" if median is None or p90 is None else f"{percent(median)} / {percent(p90)}"
