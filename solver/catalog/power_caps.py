"""GPUs whose board power is capped: the same card with slower arithmetic, by the knots of power_caps.toml."""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from sutler.solver.catalog.entries import Gpu
from sutler.solver.catalog.tables import Fact, read_toml, take_provenance

_FIGURES = ("compute_speed_fraction", "memory_speed_fraction")


@dataclass(frozen=True, slots=True)
class PowerCaps:
    """Speeds relative to no cap at ascending shares of the TDP, ending with no cap."""

    cap_fraction: tuple[float, ...]
    compute_speed_fraction: tuple[float, ...]
    memory_speed_fraction: tuple[float, ...]
    facts: tuple[Fact, ...]

    def speeds(self, cap_fraction: float) -> tuple[float, float]:
        """(compute, memory) at a cap."""
        at = [0.0, *self.cap_fraction]
        compute, memory = (
            float(np.interp(cap_fraction, at, [0.0, *values]))
            for values in (self.compute_speed_fraction, self.memory_speed_fraction)
        )
        return compute, memory


@lru_cache(maxsize=1)
def power_caps() -> PowerCaps:
    """The shipped knots. Raises CatalogError for a defect in our file."""
    file = read_toml("power_caps.toml")
    as_of, source = file.month("as_of"), file.text("source")
    basis = file.table("basis").text_map()
    rows, facts = [(1.0, 1.0, 1.0)], []
    for name, knot in file.table("knots").tables().items():
        provenance = take_provenance(knot, defaults=basis, as_of=as_of, source=source)
        cap, figures = knot.number("cap_fraction"), [knot.number(figure) for figure in _FIGURES]
        facts += [provenance.fact(name, figure, value) for figure, value in zip(_FIGURES, figures, strict=True)]
        rows.append((cap, figures[0], figures[1]))
        knot.close()
    file.close()
    caps, compute, memory = zip(*sorted(rows), strict=True)
    return PowerCaps(caps, compute, memory, tuple(facts))


def capped(gpu: Gpu, cap_fraction: float) -> Gpu:
    """The card at a share of its TDP; 1: as it is."""
    if cap_fraction >= 1:
        return gpu
    compute, memory = power_caps().speeds(cap_fraction)

    def slowed(peak: float | None, speed: float) -> float | None:
        return None if peak is None else peak * speed

    return replace(
        gpu,
        peak_tflops_bf16_dense=slowed(gpu.peak_tflops_bf16_dense, compute),
        peak_tflops_fp8_dense=slowed(gpu.peak_tflops_fp8_dense, compute),
        peak_tflops_fp4_dense=slowed(gpu.peak_tflops_fp4_dense, compute),
        memory_bandwidth_gb_per_s=slowed(gpu.memory_bandwidth_gb_per_s, memory),
        tdp_watts=None if gpu.tdp_watts is None else round(gpu.tdp_watts * cap_fraction, 6),
    )
