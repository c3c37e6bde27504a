"""The vLLM server of one model of an offline plan: its command line, and how long its start may take.

Used by schedule.py. Flags are those of service/export/command.py, arguments those of solver/answer/engine_args.py.
"""

from collections.abc import Iterator, Mapping
from math import ceil
from typing import Final

from sutler.service.export.command import flag
from sutler.service.export.layout import Value
from sutler.service.offline.plan_schema import ApplicationModel, OfflinePlanDocument
from sutler.solver.answer.engine_args import engine_args
from sutler.solver.problem import ServedModel

LONGEST_CONTEXT: Final = "auto"
"""As much of the model's context as fits beside its weights: vLLM refuses to start where one request of the model's
full context would not fit, although no request of the application need be that long."""
LEAST_START_UP_S: Final = 900  # chosen: giving up early ends a run that works, giving up late only wastes this time
START_UP_FACTOR: Final = 10  # chosen: as above, for models that take long as planned
LOOPBACK: Final = "127.0.0.1"
_WHOLE: Final = ("bf16", "fp16")


def serve_words(
    plan: OfflinePlanDocument,
    model: ApplicationModel,
    *,
    tensor_parallel: int,
    port: int,
    is_alone: bool,
    further: Mapping[str, Value],
) -> tuple[str, ...]:
    """`vllm serve ...`, unquoted. `is_alone`: no other host has to reach it. `further`: arguments besides."""
    has_bf16 = plan.hardware is None or plan.hardware.figures.supports_bf16
    precision = "fp16" if model.precision == "bf16" and not has_bf16 else model.precision
    served = ServedModel(loaded(model), None, precision, model.kv_precision, ())
    sequences = plan.application.search.max_sequences
    given = dict(engine_args(served, tensor_parallel=(tensor_parallel,), max_batch=sequences))
    if _checkpoint(model) is not None:
        given.pop("quantization", None)  # its config.json says how it is quantised
    arguments = {"served_model_name": model.name, **given, "max_model_len": LONGEST_CONTEXT, "port": port}
    if is_alone:
        arguments["host"] = LOOPBACK
    arguments |= further
    words = ["vllm", "serve", loaded(model)]
    for name, value in arguments.items():
        if name not in ("model", "pipeline_parallel_size"):
            words += flag(name, value)
    return tuple(words)


def start_up_limit_s(expected_s: float) -> int:
    """When a start that was planned to take `expected_s` has failed: far later, since disks and downloads vary."""
    return max(LEAST_START_UP_S, ceil(START_UP_FACTOR * expected_s))


def engine_warnings(plan: OfflinePlanDocument) -> Iterator[str]:
    """What the command lines cannot know."""
    asked = {model.name: model.model for model in plan.application.models}
    for model in plan.models:
        named = asked.get(model.name)
        if isinstance(named, str) and named not in (model.model, model.architecture.hf_id, _checkpoint(model)):
            yield (
                f"{model.name} is {named} and its command names {loaded(model)}: "
                "put in the checkpoint that you mean, unless it is that one"
            )
        if model.precision not in _WHOLE and _checkpoint(model) is None:
            yield (
                f"{model.name} is planned at {model.precision} and its command names {loaded(model)}: "
                "put in a checkpoint at that precision, unless it is one"
            )


def loaded(model: ApplicationModel) -> str:
    """The repository or path that the engine loads."""
    return _checkpoint(model) or model.architecture.hf_id or model.model


def _checkpoint(model: ApplicationModel) -> str | None:
    return model.architecture.checkpoints.get(model.precision)
