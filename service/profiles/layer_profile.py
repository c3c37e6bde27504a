"""Runs `solver/profiling` and keeps every row as soon as it is measured, so that an interrupt loses none.

Flow: what was asked for -> solver/profiling/measured -> Kept rows -> layer_rows.py writes the file.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime

from sutler.service.profiles.layer_rows import LayerRow
from sutler.solver.catalog import ModelSpec
from sutler.solver.profiling.counts import all_reduce_bytes
from sutler.solver.profiling.device import Device
from sutler.solver.profiling.measure import PointOutcome
from sutler.solver.profiling.shapes import Measurement
from sutler.solver.profiling.timing import Timed


@dataclass(slots=True)
class Kept:
    """Rows so far. `notes`: what could not be measured, or not as usual."""

    rows: list[LayerRow] = field(default_factory=list)
    notes: set[str] = field(default_factory=set)


def keep(
    kept: Kept, outcome: PointOutcome, *, specs: Mapping[str, ModelSpec], device: Device, gpu: str, now: datetime
) -> str:
    """Adds the outcome to `kept`; `gpu`: the catalogue's slug of the device, or "cpu".

    Returns its note where nobody has read it yet, else "".
    """
    if outcome.timed is not None:
        kept.rows.append(_row(outcome.measurement, outcome.timed, specs, device, gpu, now))
    if not outcome.note or outcome.note in kept.notes:
        return ""
    kept.notes.add(outcome.note)
    return outcome.note


def _row(
    point: Measurement,
    timed: Timed,
    specs: Mapping[str, ModelSpec],
    device: Device,
    gpu: str,
    measured_at: datetime,
) -> LayerRow:
    is_sum = point.phase == "all_reduce"
    shared = ("model", "precision", "kv_precision", "phase", "new_tokens", "batch", "context_tokens")
    return LayerRow(
        **{name: getattr(point, name) for name in shared},
        **asdict(timed),
        gpu=gpu,
        tp=point.tensor_parallel,
        attention="included" if point.with_attention else "excluded",
        bytes=round(all_reduce_bytes(point, specs[point.model].hidden_size)) if is_sum else None,
        torch=device.torch_version,
        cuda=device.cuda_version,
        driver=device.driver_version,
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
