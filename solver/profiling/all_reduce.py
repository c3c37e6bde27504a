"""All-reduces between the GPUs of this machine: one process per GPU, NCCL between them (gloo between processors).

Flow: measure.py -> every message of one group size (here) -> times by measurement.

What is timed is a row of all-reduces, each launched by the host: what a captured graph or an engine's own kernels for
small messages save is not seen. Every rank repeats equally often, or they would wait for each other for ever.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from sutler.solver.profiling.device import Device, load_torch
from sutler.solver.profiling.layer import activation_type
from sutler.solver.profiling.shapes import Measurement
from sutler.solver.profiling.timing import Repeats, Timed, by_clock, by_events, timed

IN_A_ROW: Final = 20  # chosen: the gap before the first is small beside so many
PATIENCE: Final = timedelta(minutes=2)  # chosen: for ranks that start, load torch and meet


@dataclass(frozen=True, slots=True)
class Task:
    """What every rank does; pickled."""

    points: tuple[Measurement, ...]
    hidden_size: int
    kind: str
    ranks: int
    meeting_place: str
    effort: Repeats
    clock: Callable[[], float]


def all_reduced(
    device: Device,
    points: Sequence[Measurement],
    hidden_size: int,
    *,
    effort: Repeats,
    clock: Callable[[], float],
) -> tuple[Mapping[Measurement, Timed], str]:
    """Times of `points`, which share degree and precision; none and a note where the processes failed."""
    spread = device.torch.multiprocessing
    ranks = points[0].tensor_parallel
    steady = replace(effort, most=effort.least)
    results = spread.get_context("spawn").SimpleQueue()
    with TemporaryDirectory(prefix="sutler-") as folder:
        meeting_place = (Path(folder) / "ranks").as_uri()
        task = Task(tuple(points), hidden_size, device.kind, ranks, meeting_place, steady, clock)
        try:
            spread.spawn(run_rank, args=(task, results), nprocs=ranks, join=True)
        except (spread.ProcessRaisedException, spread.ProcessExitedException) as error:
            reason = str(error).strip().rpartition("\n")[2]
            return {}, f"all-reduce over {ranks} GPUs failed: {reason}"
    return dict(zip(points, results.get(), strict=True)), ""


def run_rank(rank: int, task: Task, results: Any) -> None:
    """One process of the group; the first puts the times of all points, in order, into `results`."""
    torch = load_torch()
    if task.kind == "cuda":
        torch.cuda.set_device(rank)
    group = torch.distributed
    group.init_process_group(
        "nccl" if task.kind == "cuda" else "gloo",
        init_method=task.meeting_place,
        world_size=task.ranks,
        rank=rank,
        timeout=PATIENCE,
    )
    try:
        times = [_timed(torch, task, point) for point in task.points]
        if rank == 0:
            results.put(times)
        group.barrier()
    finally:
        group.destroy_process_group()


def _timed(torch: Any, task: Task, point: Measurement) -> Timed:
    kind = activation_type(torch, point.precision)
    message = torch.zeros(
        point.tokens, task.hidden_size, device=task.kind, dtype=kind
    )  # zeros: a sum never overflows

    def run() -> None:
        for _ in range(IN_A_ROW):
            torch.distributed.all_reduce(message)

    torch.distributed.barrier()
    repetition_s = by_events(torch, run) if task.kind == "cuda" else by_clock(run, task.clock)
    return timed(repetition_s, steps=IN_A_ROW, effort=task.effort)
