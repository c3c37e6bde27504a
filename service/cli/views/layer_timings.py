"""How `sutler profile` shows its rows: one line per model, precision, degree and phase, against datasheet peaks."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from sutler.service.cli.views.layout import table_of
from sutler.solver.catalog import Gpu, ModelSpec
from sutler.solver.profiling.counts import layer_bytes, layer_flops
from sutler.solver.profiling.shapes import LayerShard, Measurement, shard_of
from sutler.solver.throughput.speeds import arithmetic
from sutler.solver.units import BYTES_PER_GB, FLOPS_PER_TFLOP, MILLISECONDS_PER_SECOND

if TYPE_CHECKING:
    from rich.table import Table

    from sutler.service.profiles.layer_rows import LayerRow

PEAKS: Final = {"prefill": "compute", "decode": "bandwidth", "all_reduce": "link"}


def profile_table(rows: "Sequence[LayerRow]", specs: Mapping[str, ModelSpec], gpu: Gpu | None) -> "Table":
    """`gpu` None: no peaks to compare with."""
    table = table_of(
        texts=("model", "precision", "TP", "phase"),
        numbers=("timings", "ms per layer", "spread", "best share of peak"),
    )
    for (model, precision, degree, phase), alike in _groups(rows):
        shares = [share for row in alike if (share := peak_share(row, specs[model], gpu)) is not None]
        best = f"{100 * max(shares):.0f} % of {PEAKS[phase]}" if shares else "unknown"
        fastest, slowest = (MILLISECONDS_PER_SECOND * pick(row.seconds for row in alike) for pick in (min, max))
        spread = f"{100 * max(row.spread_fraction for row in alike):.0f} %"
        times = f"{fastest:.3g} to {slowest:.3g}"
        table.add_row(model, precision, str(degree), phase.replace("_", "-"), str(len(alike)), times, spread, best)
    return table


def _groups(rows: "Sequence[LayerRow]") -> "Iterator[tuple[tuple[str, str, int, str], list[LayerRow]]]":
    keys = dict.fromkeys((row.model, row.precision, row.tp, row.phase) for row in rows)
    for key in keys:
        yield key, [row for row in rows if (row.model, row.precision, row.tp, row.phase) == key]


def peak_share(row: "LayerRow", spec: ModelSpec, gpu: Gpu | None) -> float | None:
    """How much of the peak a timing reaches; None where the catalogue has no such figure.

    The peak is that of dense compute in prefill, of memory bandwidth in decode, and of one direction of the link in
    an all-reduce (a ring, Patarasuk & Yuan 2009).
    """
    shard = shard_of(spec, row.tp)
    if gpu is None or isinstance(shard, str):
        return None
    if row.phase == "all_reduce":
        moved = (row.bytes or 0) * 2 * (row.tp - 1) / row.tp
        return _share(moved / row.seconds, (gpu.link_gb_per_s or 0.0) * BYTES_PER_GB)
    return _layer_share(row, shard, gpu)


def _layer_share(row: "LayerRow", shard: LayerShard, gpu: Gpu) -> float | None:
    shared = ("model", "new_tokens", "batch", "context_tokens")
    point = Measurement(
        **{name: getattr(row, name) for name in shared},
        precision="fp8" if row.precision == "fp8" else "bf16",
        kv_precision="bf16",
        tensor_parallel=row.tp,
        phase="decode" if row.phase == "decode" else "prefill",
        with_attention=row.attention == "included",
    )
    if point.phase == "prefill":
        peak = arithmetic(gpu, point.precision if gpu.supports_bf16 else "fp16").tflops * FLOPS_PER_TFLOP
        return _share(layer_flops(point, shard) / row.seconds, peak)
    return _share(layer_bytes(point, shard) / row.seconds, (gpu.memory_bandwidth_gb_per_s or 0.0) * BYTES_PER_GB)


def _share(rate: float, peak: float) -> float | None:
    return rate / peak if peak > 0 else None
