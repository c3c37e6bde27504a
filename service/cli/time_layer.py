"""`sutler profile`: times one layer of a model on the GPU at hand, with PyTorch alone, and writes a CSV of it.

What is slow to import is imported when the command runs, so that --help is instant.
"""

import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from sutler.service.cli.terminal.background import telling
from sutler.service.cli.terminal.exits import guarded, refuse, say
from sutler.service.cli.terminal.output import check_target, show, write_json
from sutler.service.documents.writing import write_file
from sutler.solver.catalog import Gpu, ModelSpec, resolve_gpu, resolve_model

if TYPE_CHECKING:
    from sutler.service.profiles.layer_profile import Kept
    from sutler.solver.profiling.device import Device
    from sutler.solver.profiling.shapes import Measurement, ProfiledPrecision

DeviceKind = Literal["cuda", "cpu"]
MOST_GPUS = 64  # chosen: more than any one layer is shared by


@guarded
def profile(
    model: Annotated[
        list[str], typer.Option(help="Model whose layer is timed; once for each. Usual spellings work.")
    ],
    tensor_parallel: Annotated[
        str, typer.Option(help="GPUs that share the layer, such as 1,2,4,8; one GPU is enough to time a share.")
    ] = "1,2,4,8",
    precision: Annotated[str, typer.Option(help="Of the weights: bf16, fp16, fp8, or several as bf16,fp8.")] = "bf16",
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where the CSV goes.")] = Path("profile.csv"),
    device: Annotated[
        DeviceKind, typer.Option(help="cpu only tests the tool: its times say nothing of GPUs.")
    ] = "cuda",
    gpu: Annotated[
        str | None, typer.Option(help="The GPU in the catalogue; default: found by the name that the driver gives.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few points, each repeated less often.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Also print the rows as JSON, instead of the table.")
    ] = False,
) -> None:
    """Time one transformer layer on this machine's GPU: prefill, decode, and all-reduce where there are several.

    Weights are random: no model is downloaded, and no serving engine is needed, only torch
    (pip install 'sutler[profile]'). Ctrl-C keeps the rows measured so far. Exit status: 0 measured, 2 bad input or
    no such device, 130 interrupted.
    """
    from sutler.service.cli.views.layer_timings import profile_table
    from sutler.service.profiles.layer_rows import row_fields
    from sutler.solver.profiling.shapes import full_grid, measurements, quick_grid

    specs = {spec.id: spec for spec in (resolve_model(name, field="--model") for name in model)}
    degrees, precisions = _degrees(tensor_parallel), _precisions(precision)
    points = measurements(tuple(specs.values()), degrees, precisions, quick_grid() if quick else full_grid())
    check_target(out)
    machine, known = _machine(device, gpu)
    kept = _measure(machine, known.slug if known else "cpu", specs, points, out=out, quick=quick)
    if not kept.rows:
        refuse("nothing could be measured: the notes above say why and what to ask for instead")
    if as_json:
        write_json([row_fields(row) for row in kept.rows])
    else:
        show(profile_table(kept.rows, specs, known))
    use = f"Next: `sutler profiles import {out}`, then `sutler calibrate`"
    hint = "They only show that the tool works: run it where there is a GPU" if known is None else use
    say(f"{len(kept.rows)} rows are in {out}. {hint}")


def _degrees(text: str) -> tuple[int, ...]:
    words = [word.strip() for word in text.split(",")]
    if not all(word.isdecimal() and len(word) < 4 and 1 <= int(word) <= MOST_GPUS for word in words):
        raise typer.BadParameter(f"--tensor-parallel {text}: give whole numbers from 1 to {MOST_GPUS}, as 1,2,4,8")
    return tuple(int(word) for word in words)


def _precisions(text: str) -> "tuple[ProfiledPrecision, ...]":
    from sutler.solver.profiling.shapes import ProfiledPrecision

    by_name = {name: name for name in get_args(ProfiledPrecision)}
    words = [word.strip().lower() for word in text.split(",")]
    if unknown := [word for word in words if word not in by_name]:
        raise typer.BadParameter(
            f"--precision {', '.join(unknown)}: give {', '.join(by_name)}, or several as bf16,fp8"
        )
    return tuple(by_name[word] for word in words)


def _machine(kind: DeviceKind, gpu: str | None) -> "tuple[Device, Gpu | None]":
    """The device, and what the catalogue knows of it (None: a processor). Raises ProfilingError, UnknownNameError."""
    from sutler.solver.profiling.device import cpu_device, cuda_device

    if kind == "cpu" and gpu is not None:
        raise typer.BadParameter("--gpu goes with --device cuda: times of a processor are not those of a GPU")
    machine = cuda_device() if kind == "cuda" else cpu_device()
    return machine, resolve_gpu(gpu or machine.name, field="--gpu") if kind == "cuda" else None


def _measure(
    machine: "Device",
    gpu: str,
    specs: Mapping[str, ModelSpec],
    points: "Sequence[Measurement]",
    *,
    out: Path,
    quick: bool,
) -> "Kept":
    """Measures every point and has each row in `out` at once."""
    from sutler.service.profiles.layer_profile import Kept, described, keep
    from sutler.service.profiles.layer_rows import written
    from sutler.solver.profiling.measure import measured
    from sutler.solver.profiling.timing import FULL, QUICK

    kept = Kept()
    outcomes = measured(machine, specs, points, effort=QUICK if quick else FULL, clock=time.perf_counter)
    try:
        with telling(described(points, 0)) as tell:
            for done, outcome in enumerate(outcomes, start=1):
                note = keep(kept, outcome, specs=specs, device=machine, gpu=gpu, now=datetime.now(UTC))
                if note:
                    say(f"note: {note}")
                if outcome.timed is not None:
                    write_file(out, written(kept.rows))
                tell(described(points, done))
    except KeyboardInterrupt:
        say(f"{len(kept.rows)} of {len(points)} rows are in {out}" if kept.rows else "nothing was measured yet")
        raise
    return kept
