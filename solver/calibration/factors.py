"""The calibrated numbers of the roofline, read from calibration.toml, and which of them apply to a GPU.

Flow: calibration.toml (written by `python -m benchmarks.accuracy --write`) -> Calibration (here) ->
speeds.py. Everything that was fitted or assumed is in that file with what it rests on; nothing here is a number.
"""

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cache
from importlib import resources
from typing import Any, Final

import numpy as np

from sutler.solver.arrays import FloatArray
from sutler.solver.calibration.corrections import Corrections, Correlation
from sutler.solver.catalog.entries import Gpu, Precision

REFERENCE_ENGINE: Final = "vllm"
SHIPPED: Final = "shipped"
CLASS_FACTORS: Final = ("compute", "bandwidth", "overhead")  # what is fitted of a GPU class


@dataclass(frozen=True, slots=True)
class Factors:
    """Shared by every GPU, model and engine.

    compute, attention, bandwidth, kv_bandwidth and allreduce fractions are shares of the datasheet peak;
    fp8 and fp4 fractions multiply the compute fraction at that precision. ridge_exponent p joins the compute and
    the memory bound as (c^p + m^p)^(1/p). Latencies: per all-reduce and doubling of the group, per layer, per
    engine step, per sequence and step. Grouped products of experts reach expert_compute and expert_bandwidth of what
    dense ones do; a layer with experts has expert_overhead, one with latent attention latent_attention_overhead times
    the overhead of a plain one. first_token_*: seconds, prefills, and share of the prefills of the other
    sequences that a first token waits for in a closed loop.
    """

    compute_fraction: float
    fp8_fraction: float
    fp4_fraction: float
    attention_fraction: float
    bandwidth_fraction: float
    kv_bandwidth_fraction: float
    ridge_exponent: float
    allreduce_latency_s: float
    allreduce_fraction: float
    layer_overhead_s: float
    step_overhead_s: float
    sequence_overhead_s: float
    kernel_overhead_fraction: float
    pcie_allreduce_latency_s: float
    pcie_allreduce_fraction: float
    expert_compute: float
    expert_bandwidth: float
    expert_overhead: float
    latent_attention_overhead: float
    first_token_base_s: float
    first_token_prefills: float
    first_token_wave_fraction: float


@dataclass(frozen=True, slots=True)
class GpuClass:
    """GPUs that share multipliers on the shared factors. `band` f: rates are stated as rate / f to rate x f."""

    name: str
    architecture: str
    compute: float
    bandwidth: float
    overhead: float
    band: float
    basis: str
    min_bandwidth_gb_per_s: float = 0.0
    slugs: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kernels:
    """Multipliers of the kernels that one engine has for weights of one precision on the GPUs of one class: on the
    speeds of dense products, and on what is shared of experts."""

    engine: str
    gpu_class: str
    precision: str
    compute: float = 1.0
    bandwidth: float = 1.0
    expert_compute: float = 1.0
    expert_bandwidth: float = 1.0
    expert_overhead: float = 1.0

    @property
    def key(self) -> tuple[str, str, str]:
        """What tells them apart."""
        return self.engine, self.gpu_class, self.precision


@dataclass(frozen=True, slots=True)
class EngineFactors:
    """Multipliers of one serving engine on the shared factors; `mixes`: whether prompts share steps with others'
    tokens.

    An engine's older versions have factors of their own: `of` is what they are versions of, `until` the first version
    that they do not stand for ("" for what is current), `band` the least band of their rates.
    """

    name: str
    mixes: bool
    compute: float
    kv_bandwidth: float
    overhead: float
    first_token_base: float
    first_token_prefills: float
    first_token_wave: float
    of: str = ""
    until: str = ""
    band: float = 1.0

    @property
    def engine(self) -> str:
        """What people call it, whatever the version."""
        return self.of or self.name

    @property
    def title(self) -> str:
        return f"{self.engine} before {self.until}" if self.until else self.engine


# What is fitted of an engine.
ENGINE_FACTORS: Final = tuple(
    field.name for field in fields(EngineFactors) if field.type is float and field.name != "band"
)
# Stands for HTTP and tokenizing, which an engine that is asked in its own process has none of.
MAY_VANISH: Final = frozenset({"first_token_base"})


@dataclass(frozen=True, slots=True)
class Compared:
    """How far off the roofline and the operator database were on the same runs of one GPU type with the reference
    engine: medians of |predicted / measured - 1| of requests/s, the roofline's by fits that saw no run of the GPU;
    `operators_band`: the factor within which nine of ten answers of the database are."""

    gpu: str
    has_experts: bool
    runs: int
    roofline_error_fraction: float
    operators_error_fraction: float
    operators_band: float


@dataclass(frozen=True, slots=True)
class Priors:
    """What no measurement at hand decides; each with its basis in calibration.toml.

    Links slower than fast_link_gb_per_s are taken for PCIe. `*_band`: least band in that case.
    """

    fast_link_gb_per_s: float
    hop_latency_s: float
    cross_machine_hop_latency_s: float
    expert_band: float
    pipeline_band: float
    weight_only_band: float
    engine_band: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """Shipped, or a user's own: then `corrections` hold what its runs say near them, and `name` is what plans call
    it. `serves` is the engine whose speed is planned with; `version` tells the data from those of other versions."""

    factors: Factors
    priors: Priors
    gpu_classes: tuple[GpuClass, ...]
    engines: Mapping[str, EngineFactors]
    kernels: tuple[Kernels, ...]
    correlation: Correlation
    compared: tuple[Compared, ...] = ()
    corrections: Corrections | None = None
    name: str = SHIPPED
    serves: str = REFERENCE_ENGINE
    version: str = field(default="", compare=False)

    @property
    def measured_band(self) -> float:
        """The band of GPU classes that were measured."""
        return min(one.band for one in self.gpu_classes)

    def spread(self, bands: FloatArray) -> FloatArray:
        """How much more uncertain (logarithms) rates of those bands are than one of a measured GPU class."""
        return np.asarray(np.log(bands) / np.log(self.measured_band))

    def band(self, gpu: Gpu, precision: Precision, engine: str, *, has_experts: bool) -> float:
        """What is stated of a rate on one GPU type before any run near it counts, as a factor."""
        bands = [self.gpu_class(gpu).band]
        if has_experts:
            bands.append(self.priors.expert_band)
        if precision in ("int4", "int8"):
            bands.append(self.priors.weight_only_band)
        if self.corrections is not None and engine == self.corrections.engine:
            bands.append(self.corrections.least_band)
        elif engine not in self.engines:
            bands.append(self.priors.engine_band)
        return max(*bands, self.engine(engine).band)

    def version_of(self, engine: str, version: str) -> str:
        """The name of the factors for a version of an engine: of the oldest that still stand for it. A version that
        holds no number (a nightly build, `latest`) is current."""
        number = _number(version)
        older = [one for one in self.engines.values() if one.of == engine and number and number < _number(one.until)]
        return min(older, key=lambda one: _number(one.until)).name if older else engine

    def compared_on(self, gpu: Gpu, *, has_experts: bool) -> Compared | None:
        """Which source was nearer on runs like these; None without any."""
        wanted = (gpu.slug, has_experts)
        return next((one for one in self.compared if (one.gpu, one.has_experts) == wanted), None)

    def gpu_class(self, gpu: Gpu) -> GpuClass:
        """Finds the class by slug, else by architecture and memory bandwidth, else the class `unknown`."""
        for candidate in self.gpu_classes:
            if gpu.slug in candidate.slugs:
                return candidate
        architecture = (gpu.architecture or "").lower()
        bandwidth = gpu.memory_bandwidth_gb_per_s or 0.0
        of_architecture = [
            candidate
            for candidate in self.gpu_classes
            if candidate.architecture == architecture and bandwidth >= candidate.min_bandwidth_gb_per_s
        ]
        if of_architecture:
            return max(of_architecture, key=lambda candidate: candidate.min_bandwidth_gb_per_s)
        return next(candidate for candidate in self.gpu_classes if candidate.name == "unknown")

    def kernels_of(self, engine: str, gpu: Gpu, precision: Precision) -> Kernels:
        """The multipliers of these kernels. Where none were measured, those of experts are of another class of the
        same architecture, if one has them (nearer to what left-out GPUs do; of dense products that does not hold);
        else they are 1."""
        return self.kernels_at(engine, self.gpu_class(gpu).name, precision)

    def kernels_at(self, engine: str, gpu_class: str, precision: str) -> Kernels:
        """The same by the name of the GPU's class."""
        known = {one.key: one for one in self.kernels}
        wanted = Kernels(engine, gpu_class, precision)
        if engine not in self.engines and wanted.key not in known:  # as the reference one, under its own name
            return replace(self.kernels_at(REFERENCE_ENGINE, gpu_class, precision), engine=engine)
        architectures = {one.name: one.architecture for one in self.gpu_classes if one.architecture}
        alike = (
            replace(found, gpu_class=gpu_class, compute=1.0, bandwidth=1.0)
            for name, architecture in architectures.items()
            if architecture == architectures.get(gpu_class)
            and (found := known.get((engine, name, precision))) is not None
        )
        return known.get(wanted.key) or next((one for one in alike if one != wanted), wanted)

    def engine(self, name: str) -> EngineFactors:
        """The engine's multipliers; an engine without any counts as the reference one, under its own name."""
        return self.engines.get(name) or replace(self.engines[REFERENCE_ENGINE], name=name)


def _number(version: str) -> tuple[int, ...]:
    """0.8.5 of `v0.8.5.post1`; empty without one."""
    found = re.search(r"\d+(?:\.\d+)+", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


@cache
def shipped_calibration() -> Calibration:
    """The calibration that comes with the package."""
    text = resources.files("sutler.solver.calibration").joinpath("calibration.toml").read_text(encoding="utf-8")
    return calibration_from_toml(text)


def calibration_from_toml(text: str) -> Calibration:
    """Raises KeyError or TypeError where a factor is missing: the file is part of the program, not user input."""
    data = tomllib.loads(text)
    classes = (_gpu_class(name, entry) for name, entry in data["gpu_class"].items())
    return Calibration(
        factors=Factors(**_only(Factors, data["factors"])),
        priors=Priors(**_only(Priors, data["priors"])),
        gpu_classes=tuple(classes),
        engines={name: EngineFactors(name=name, **entry) for name, entry in data["engine"].items()},
        kernels=tuple(Kernels(**entry) for entry in data.get("kernels", ())),
        correlation=Correlation(**data["correlation"]),
        compared=tuple(Compared(**entry) for entry in data.get("compared", ())),
        version=f"calibration {hashlib.sha256(text.encode()).hexdigest()[:8]}",
    )


def _gpu_class(name: str, entry: dict[str, Any]) -> GpuClass:
    return GpuClass(**{**entry, "name": name, "slugs": tuple(entry.get("slugs", ()))})


def _only(kind: type, entry: dict[str, Any]) -> dict[str, float]:
    names = {field.name for field in fields(kind)}
    return {name: float(value) for name, value in entry.items() if name in names}
