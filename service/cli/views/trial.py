"""A trial as people read it: what replicas did beside what was planned, and what that changes."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sutler.service.cli.views.layout import lines, listed, section, table_of
from sutler.service.cli.views.measurements import calibration_title, error_table
from sutler.service.cli.views.simulation import headline, limits_table
from sutler.service.cli.views.what_if import what_if_view
from sutler.service.simulation.schemas import SimulationResource
from sutler.service.trial.schemas import TrialDocument, TrialRun
from sutler.service.wording.words import counted, number


def trial_view(found: TrialDocument) -> Iterator[RenderableType]:
    """The parts to print, in order."""
    inside = sum(run.within_band for run in found.runs)
    yield Text(f"{inside} of {counted(len(found.runs), 'run')} within what was planned", style="bold")
    yield from section("Measured, and planned in brackets", _runs(found))
    if found.calibration is not None:
        yield from section(calibration_title(found.calibration), error_table(found.calibration))
    if found.replay is not None:
        yield from section("The present plan, as fast as that", *_replay(found.replay))
    if found.what_if is not None:
        yield Text("")
        yield from what_if_view(found.what_if)
    yield from listed("What to know", found.notes)
    if found.calibration is not None and found.calibration.revision:
        use = f"throughput: {{calibration: {found.calibration.name}}}"
        kept = f"Kept as revision {found.calibration.revision}, with {counted(found.imported, 'new run')}"
        yield lines([f"{kept}. Next: put `{use}` into the problem, and plan."])


def _runs(found: TrialDocument) -> Table:
    table = table_of(
        texts=("replica", "workload"),
        numbers=("at once", "req/s", "band", "TTFT s", "TPOT ms", "calibrated req/s"),
        notes=("verdict",),
    )
    for run in found.runs:
        planned, after = run.planned, run.calibrated
        table.add_row(
            run.replica,
            run.workload,
            f"{run.concurrency}",
            _pair(run.req_per_s, planned.req_per_s),
            f"{number(planned.low_req_per_s)}–{number(planned.high_req_per_s)}",
            _pair(run.ttft_s, planned.ttft_s),
            _pair(_ms(run.tpot_s), _ms(planned.tpot_s)),
            number(None if after is None else after.req_per_s),
            _verdict(run),
        )
    return table


def _verdict(run: TrialRun) -> str:
    if run.refused:
        return "refused"
    if run.within_band:
        return "as planned"
    return "slower" if run.req_per_s < run.planned.req_per_s else "faster"


def _pair(measured: float | None, planned: float | None) -> str:
    return f"{number(measured, digits=3)} ({number(planned, digits=3)})"


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else 1000 * seconds


def _replay(replay: SimulationResource) -> Iterator[RenderableType]:
    """Whether it still keeps its limits, and carries its load."""
    done = ", ".join(
        f"{one.model} {number(one.throughput_rps)} of {number(one.offered_rps)} req/s" for one in replay.models
    )
    yield lines([headline(replay), f"done of what arrives: {done}"])
    limits = [(model.model, limit) for model in replay.models for limit in model.limits]
    if limits:
        yield limits_table(limits)
