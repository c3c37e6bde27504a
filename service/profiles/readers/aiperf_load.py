"""Which models AIPerf and GenAI-Perf were pointed at and under which load: the `input_config` of their exports.

Format, newest first: https://github.com/ai-dynamo/aiperf, src/aiperf/config/phases.py (`models.items`, `phases`, with
unset fields left out); AIPerf before that (`endpoint.model_names`, `loadgen`); GenAI-Perf of 2025
(`perf_analyzer.stimulus`) and before (`model`, `concurrency` and `request_rate` at the top level), see
https://github.com/triton-inference-server/perf_analyzer, genai-perf/genai_perf/config/input/.
"""

from typing import Annotated, Final

from pydantic import BeforeValidator

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.fields import Name
from sutler.service.profiles.readers.values import Positive, Stated, WhereMapping

_PROFILING: Final = "profiling"
_NO_LOAD: Final = "benchmark at a concurrency or a request rate: no load is known for a replayed schedule"
_RATED: Final = frozenset({"poisson", "gamma", "constant"})


def _names(value: object) -> object:
    """A name, a list of names or of objects with a name, or such a list under `items`."""
    if isinstance(value, dict) and "items" in value:
        return _names(value["items"])
    if isinstance(value, list | tuple):
        return tuple(one.get("name") if isinstance(one, dict) else one for one in value)
    return (value,)


Names = Annotated[tuple[Name, ...], BeforeValidator(_names)]


class LoadSettings(Stated):
    """A load generator's settings."""

    concurrency: Positive | None = None
    request_rate: Positive | None = None


class TargetEndpoint(Stated):
    """What requests went to."""

    model_names: Names | None = None


class PerfAnalyzer(Stated):
    """GenAI-Perf's section of that name."""

    stimulus: LoadSettings | None = None


class Input(Stated):
    """What requests were made of."""

    fixed_schedule: bool | None = None


class Phase(Stated):
    """A stretch of load of one kind; warm-ups are phases too."""

    name: Name | None = None
    kind: Name | None = None
    type: Name | None = None
    concurrency: Positive | None = None
    rate: Positive | None = None


class InputConfig(LoadSettings):
    """The settings of the run, in whichever version of the format."""

    models: Names | None = None
    model: Names | None = None
    phases: list[Phase] | None = None
    endpoint: Annotated[TargetEndpoint | None, WhereMapping] = None
    loadgen: Annotated[LoadSettings | None, WhereMapping] = None
    input: Annotated[Input | None, WhereMapping] = None
    perf_analyzer: Annotated[PerfAnalyzer | None, WhereMapping] = None

    @property
    def model_names(self) -> tuple[str, ...]:
        return self.models or self.model or (self.endpoint.model_names if self.endpoint else None) or ()


def load_of(config: InputConfig) -> tuple[float | None, float | None]:
    """Concurrency and request rate. Raises DocumentError for a load that keeps to neither, or to several."""
    if config.input and config.input.fixed_schedule:
        raise DocumentError.of("input_config.input.fixed_schedule", _NO_LOAD, value=True)
    if config.phases is not None:
        return _of_phases(config.phases)
    stimulus = config.perf_analyzer.stimulus if config.perf_analyzer else None
    load = config.loadgen or stimulus or config
    return load.concurrency, load.request_rate


def _of_phases(phases: list[Phase]) -> tuple[float | None, float | None]:
    profiling = [phase for phase in phases if _PROFILING in (phase.kind, phase.name)]
    if len(profiling) > 1:
        remedy = "give the export of one phase, phases/<name>/profile_export_aiperf.json: this one mixes them"
        raise DocumentError.of("input_config.phases", remedy, value=[phase.name for phase in profiling])
    if not profiling:
        return None, None
    (phase,) = profiling
    if phase.type == "concurrency":
        return phase.concurrency or 1, None  # its default, and unset fields are left out
    if phase.type in _RATED and phase.rate is not None:
        return phase.concurrency, phase.rate
    raise DocumentError.of("input_config.phases.type", _NO_LOAD, value=phase.type or phase.name)
