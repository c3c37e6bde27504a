"""The calibration document: what a user's own runs make of the roofline, as it is stored, exported and named by
problems.

It is written by `sutler calibrate`; nobody is expected to edit it.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from sutler.service.documents.fields import Document, FilePath, Name, Timestamp
from sutler.service.documents.model import PrecisionName

Factor = Annotated[float, Field(ge=1e-9, le=1e3)]
Multipliers = dict[Name, Factor]
LogError = Annotated[float, Field(ge=-20, le=20)]
Octaves = Annotated[float, Field(ge=-10, le=60)]
Small = Annotated[float, Field(ge=1e-4, le=100)]


def _plain(name: str) -> str:
    """Refuses words that YAML, in which problems are written, takes for something else."""
    if name.lower() in ("true", "false", "null", "yes", "no", "on", "off", "y", "n"):
        raise PydanticCustomError("sutler_name", "must not be a word that YAML reads as true, false or null")
    return name


CalibrationName = Annotated[str, Field(max_length=100, pattern=r"^[A-Za-z][A-Za-z0-9._-]*$"), AfterValidator(_plain)]


class CalibrationFile(Document):
    """A calibration that `sutler calibrate --out` wrote."""

    file: FilePath
    """Path of the JSON file, relative to the problem file (command line only)."""


class CorrelationDocument(Document):
    """How errors of neighbouring runs hang together; standard deviations of logarithms, and octaves."""

    common: Small
    """What all runs share."""
    local: Small
    """What runs of alike lengths and concurrency share."""
    noise: Small
    """What repeated runs differ by."""
    difference_fraction: Annotated[float, Field(ge=1e-4, le=1)]
    """What is left of it for each of GPU, model and precision that differs."""
    input_octaves: Small
    """How far apart input tokens may be."""
    output_octaves: Small
    """How far apart output tokens may be."""
    concurrency_octaves: Small
    """How far apart concurrencies may be."""
    tensor_parallel_octaves: Small
    """How far apart tensor-parallel degrees may be."""


class KernelsDocument(Document):
    """Multipliers of the kernels for weights of one precision on the GPUs of one class."""

    engine: Name
    """The serving engine."""
    gpu_class: Name
    """Of GPUs."""
    precision: PrecisionName
    """Of the weights."""
    compute: Factor
    """Of the compute that dense products reach."""
    bandwidth: Factor
    """Of the bandwidth that they reach."""
    expert_compute: Factor
    """Of the compute that grouped products reach."""
    expert_bandwidth: Factor
    """Of the bandwidth that they reach."""
    expert_overhead: Factor
    """Of the overhead of a layer with experts."""


class CalibrationPoint(Document):
    """One run, or several of one place, and by how much the fitted roofline misses it."""

    gpu: Name
    """Slug of the GPU."""
    model: Name
    """Id in the catalogue."""
    precision: PrecisionName
    """Of the weights."""
    log2: Annotated[tuple[Octaves, Octaves, Octaves, Octaves], Field(strict=False)]
    """Base-2 logarithms of input tokens, output tokens, concurrency and tensor parallelism."""
    spread: Small
    """How uncertain its rate was before, against that of a measured GPU class."""
    log_error: LogError
    """Logarithm of measured over predicted: requests/s, or a decode step over a prompt."""
    noise: Small
    """Standard deviation of that by itself."""


class CalibrationErrors(Document):
    """|predicted / measured - 1| over the runs; null where none says it."""

    req_per_s_median_fraction: float | None
    """Requests/s, median."""
    req_per_s_p90_fraction: float | None
    """Requests/s, nine of ten."""
    ttft_median_fraction: float | None
    """Time to first token, median."""
    ttft_p90_fraction: float | None
    """Time to first token, nine of ten."""
    tpot_median_fraction: float | None
    """Time per output token, median."""
    tpot_p90_fraction: float | None
    """Time per output token, nine of ten."""


class CalibrationDocument(Document):
    """The whole calibration."""

    schema_: Literal["sutler/calibration/v1"] = Field(alias="schema")
    """Version of this format."""
    name: CalibrationName
    """What problems call it: a letter, then letters, digits, dots, dashes and underscores."""
    revision: Annotated[int, Field(ge=0)]
    """Counts the calibrations of this name; 0 outside the store."""
    created_at: Timestamp
    """When it was fitted."""
    sutler: Name
    """Version of sutler that fitted it."""
    engine: Name
    """The serving engine whose runs it was fitted to, and that plans are made for."""
    engine_versions: Annotated[tuple[str, ...], Field(strict=False)]
    """Versions of it among the runs."""
    runs: Annotated[int, Field(ge=0)]
    """Benchmark runs that it was fitted to."""
    layer_times: Annotated[int, Field(ge=0)]
    """Times of single layers that it was fitted to."""
    before: CalibrationErrors | None
    """Of the shipped calibration on these runs."""
    after: CalibrationErrors | None
    """Of this one on the runs that it was fitted to."""
    left_out: CalibrationErrors | None
    """Of each run, or tenth of the runs, by a fit without it: what to expect of runs like these."""
    factors: dict[Name, Factor]
    """Shared by all GPUs."""
    gpu_classes: dict[Name, Multipliers]
    """By class: compute, bandwidth, overhead."""
    engines: dict[Name, Multipliers]
    """By engine."""
    kernels: Annotated[tuple[KernelsDocument, ...], Field(strict=False, max_length=1_000)] = ()
    """Where runs spoke for themselves."""
    correlation: CorrelationDocument
    """How far a run speaks for its neighbours."""
    least_band: Annotated[float, Field(ge=1, le=100)]
    """What the engine alone made of every band before the runs."""
    share: Annotated[float, Field(ge=0, le=1)] = 1.0
    """How far the points are followed: as far as runs predict each other."""
    points: Annotated[tuple[CalibrationPoint, ...], Field(strict=False, max_length=1_000)]
    """The runs."""
    phase_points: Annotated[tuple[CalibrationPoint, ...], Field(strict=False, max_length=1_000)] = ()
    """Those with one request in flight, by how much longer decode steps took against the prompt than predicted.
    Without any, both are corrected alike."""
