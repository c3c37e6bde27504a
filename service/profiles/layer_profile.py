"""Runs `solver/profiling` and keeps every row as soon as it is measured, so that an interrupt loses none.

Flow: what was asked for -> solver/profiling/measured -> Kept rows -> layer_rows.py writes the file.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from sutler.service.profiles.layer_rows import LayerRow
from sutler.solver.catalog import ModelSpec
from sutler.solver.profiling.counts import all_reduce_bytes
from sutler.solver.profiling.device import Device
from sutler.solver.profiling.measure import PointOutcome
from sutler.solver.profiling.shapes import Measurement
from sutler.solver.profiling.timing import Timed

Now = Callable[[], datetime]


@dataclass(slots=True)
class Kept:
    """Rows so far. `notes`: what could not be measured or not as usual, and of how many points that is true."""

    rows: list[LayerRow] = field(default_factory=list)
    notes: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Origin:
    """Where the rows are from: `gpu` is the catalogue's slug, or "cpu"."""

    gpu: str
    torch: str
    cuda: str
    driver: str

    @classmethod
    def of(cls, device: Device, gpu: str) -> "Origin":
        return cls(gpu, device.torch_version, device.cuda_version, device.driver_version)


def keep(
    kept: Kept,
    outcome: PointOutcome,
    *,
    specs: Mapping[str, ModelSpec],
    origin: Origin,
    now: Now,
) -> str:
    """Adds the outcome to `kept`. Returns its note where nobody has read it yet, else ""."""
    if outcome.timed is not None:
        kept.rows.append(_row(outcome.measurement, outcome.timed, specs, origin, now()))
    if not outcome.note:
        return ""
    kept.notes[outcome.note] = kept.notes.get(outcome.note, 0) + 1
    return outcome.note if kept.notes[outcome.note] == 1 else ""


def _row(
    point: Measurement, timed: Timed, specs: Mapping[str, ModelSpec], origin: Origin, measured_at: datetime
) -> LayerRow:
    is_sum = point.phase == "all_reduce"
    return LayerRow(
        gpu=origin.gpu,
        model=point.model,
        precision=point.precision,
        kv_precision=point.kv_precision,
        tp=point.tensor_parallel,
        phase=point.phase,
        new_tokens=point.new_tokens,
        batch=point.batch,
        context_tokens=point.context_tokens,
        attention="included" if point.with_attention else "excluded",
        seconds=timed.seconds,
        repetitions=timed.repetitions,
        spread_fraction=timed.spread_fraction,
        bytes=round(all_reduce_bytes(point, specs[point.model].hidden_size)) if is_sum else None,
        torch=origin.torch,
        cuda=origin.cuda,
        driver=origin.driver,
        measured_at=measured_at,
    )


def described(points: Sequence[Measurement], position: int) -> str:
    """One line of progress about the point that comes next."""
    if position >= len(points):
        return "writing"
    point = points[position]
    where = f"{point.model} {point.precision} TP {point.tensor_parallel}"
    if point.phase == "decode":
        what = f"decode, {point.batch} at {point.context_tokens:,} tokens" if point.context_tokens else "decode"
    else:
        what = f"{point.phase.replace('_', '-')} of {point.new_tokens:,} tokens"
    return f"{position + 1} of {len(points)} · {where} · {what}"
