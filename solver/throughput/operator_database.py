"""Asks NVIDIA's operator database (aiconfigurator-core, Apache-2.0, optional) how long a pass through a model takes.

Flow: operator_models.py names the stage -> OperatorTimes (here) -> aiconfigurator.py makes tables. This is the only
file that imports the package (https://github.com/ai-dynamo/aiconfigurator). Its failures become reasons, never
exceptions; its warnings go to logging. It is asked in SILICON mode, which fails where an operator was not measured.
"""

import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.catalog.entries import Gpu, ModelSpec, Precision
from sutler.solver.throughput.operator_models import (
    SYSTEMS,
    QuantModes,
    config_json,
    model_error,
    quant_modes,
    system_error,
)
from sutler.solver.throughput.operator_package import Answer, NoAnswer, missing, shielded
from sutler.solver.units import MILLISECONDS_PER_SECOND

ENGINE: Final = "vllm"
REFERENCE_CONTEXT: Final = 1024  # tokens; every batch is asked for at this one
KEPT_ANSWERS: Final = 1 << 16  # per stage; chosen: more than any problem asks, some megabytes


def operator_times(
    gpu: Gpu, spec: ModelSpec, precision: Precision, kv_precision: Precision, tensor_parallel: int
) -> "OperatorTimes | str":
    """What the database knows of these stages, once per process, or why it knows nothing."""
    modes = quant_modes(spec, precision, kv_precision)
    error = missing() or system_error(gpu, tensor_parallel) or model_error(spec)
    if error is not None:
        return error
    return modes if isinstance(modes, str) else _opened(SYSTEMS[gpu.slug], spec, modes, tensor_parallel)


@dataclass(frozen=True, slots=True)
class Passes:
    """Seconds of one pass through all layers and what surrounds them, and of the latter alone.

    Prefill: whole_s [W], rest_s [] for a single token. Decode: whole_s [W, num_batches], rest_s [num_batches].
    """

    whole_s: FloatArray
    rest_s: FloatArray


class OperatorTimes:
    """Seconds of passes through the whole model on `tensor_parallel` GPUs of one system, and of what is not a layer.

    The latter is what remains of a model of twice the depth: the package's times are linear in the layers. A method
    returns None where a question fails, and `failure` says why from then on.
    """

    def __init__(self, system: str, spec: ModelSpec, modes: QuantModes, tensor_parallel: int) -> None:
        from aiconfigurator_core.sdk.backends.factory import get_backend

        self.failure: str | None = None
        # A backend of its own for every stage: one remembers answers without their model and system.
        self._backend: Any = get_backend(ENGINE)
        self._database, _ = _measurements(system)
        self._once, self._twice = _models(spec, modes, tensor_parallel)
        self._step_s = lru_cache(maxsize=KEPT_ANSWERS)(self._ask)

    def prefill(self, new: FloatArray, total: FloatArray) -> Passes | None:
        """Prompts [W], each alone, of `total` tokens of which `new` are not cached."""
        return self._answer(lambda: self._prefill(new, total))

    def decode(self, contexts: FloatArray, max_batch: int) -> Passes | None:
        """A step at mean `contexts` [W], for 0 to max_batch sequences; none take as long as one."""
        return self._answer(lambda: self._decode(contexts, max_batch))

    def _prefill(self, new: FloatArray, total: FloatArray) -> Passes:
        totals = np.maximum(np.round(total), 1).astype(int)
        cached = totals - np.clip(np.round(new), 1, totals).astype(int)
        whole = [self._prompt_s(self._once, int(t), int(c)) for t, c in zip(totals, cached, strict=True)]
        rest = 2 * self._prompt_s(self._once, 1, 0) - self._prompt_s(self._twice, 1, 0)
        return Passes(np.array(whole), np.array(rest))

    def _decode(self, contexts: FloatArray, max_batch: int) -> Passes:
        every, grid = np.arange(1, max_batch + 1), _grid(max_batch)
        once, twice = (
            np.array([self._step_s(model, int(batch), REFERENCE_CONTEXT) for batch in every])
            for model in (self._once, self._twice)
        )
        # Matrix products have steps at any batch but do not see the context; attention sees it and is smooth.
        extra = [
            np.interp(every, grid, [self._step_s(self._once, int(batch), context) for batch in grid] - once[grid - 1])
            for context in np.maximum(np.round(contexts), 1).astype(int).tolist()
        ]
        whole, rest = once + np.reshape(extra, (-1, max_batch)), 2 * once - twice
        return Passes(np.concatenate([whole[:, :1], whole], axis=1), np.concatenate([rest[:1], rest]))

    def _prompt_s(self, model: Any, tokens: int, cached: int) -> float:
        return self._step_s(model, 1, tokens, cached, "static_ctx")

    def _ask(self, model: Any, batch: int, tokens: int, cached: int = 0, mode: str = "static_gen") -> float:
        """Generation of two tokens is one decode step: the first comes out of the prefill."""
        from aiconfigurator_core.sdk.config import RuntimeConfig

        asked = RuntimeConfig(batch_size=batch, isl=tokens, osl=2, prefix=cached)
        milliseconds = self._backend.run_static_latency_only(model, self._database, asked, mode=mode)
        return float(milliseconds) / MILLISECONDS_PER_SECOND

    def _answer(self, question: Callable[[], Answer]) -> Answer | None:
        if self.failure is not None:
            return None
        found = shielded(question)
        if isinstance(found, NoAnswer):
            self.failure = found.reason
            return None
        return found


@cache
def _opened(system: str, spec: ModelSpec, modes: QuantModes, tensor_parallel: int) -> OperatorTimes | str:
    """Asks one prompt and one step, so that missing tables show at once: they do not depend on the traffic."""
    # Without a handler of its own the package's warnings would end up on stderr where logging is not set up.
    logging.getLogger("aiconfigurator_core").addHandler(logging.NullHandler())
    times = shielded(lambda: OperatorTimes(system, spec, modes, tensor_parallel))
    if isinstance(times, NoAnswer):
        return times.reason
    one = np.array([float(REFERENCE_CONTEXT)])
    times.prefill(one, one)
    times.decode(one, 1)
    return times.failure or times


@cache
def _measurements(system: str) -> tuple[Any, Any]:
    """The operators measured on one system, and a handle that keeps them: without one the package reads their files
    again, for a third of a second, whenever 32 other stages were asked in between."""
    from aiconfigurator_core.sdk import EngineHandle
    from aiconfigurator_core.sdk.perf_database import get_database_view

    database = get_database_view(system, ENGINE, "current", database_mode="SILICON")
    return database, EngineHandle.for_database(database)


def _models(spec: ModelSpec, modes: QuantModes, tensor_parallel: int) -> tuple[Any, Any]:
    """The package's models of `spec` at its own depth and at twice that."""
    from aiconfigurator_core.sdk import common
    from aiconfigurator_core.sdk.config import ModelConfig
    from aiconfigurator_core.sdk.models import get_model

    def model(folder: str, layers: int) -> Any:
        config = ModelConfig(
            tp_size=tensor_parallel,
            moe_tp_size=tensor_parallel,
            moe_ep_size=1,
            overwrite_num_layers=layers,
            gemm_quant_mode=common.GEMMQuantMode[modes.gemm],
            moe_quant_mode=common.MoEQuantMode[modes.experts],
            kvcache_quant_mode=common.KVCacheQuantMode[modes.kv],
            fmha_quant_mode=common.FMHAQuantMode.bfloat16,  # the only one that was measured under vLLM
        )
        return get_model(folder, config, ENGINE)

    with TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config_json(spec)), encoding="utf-8")
        return model(folder, spec.layers), model(folder, 2 * spec.layers)


def _grid(max_batch: int) -> IntArray:
    """Batches to ask for: 1, 2, 3, 4, 6, 8, 12, 16, 24, ... and max_batch."""
    powers = 2 ** np.arange(max_batch.bit_length(), dtype=np.int64)
    grid = np.unique(np.concatenate([powers, powers[1:] * 3 // 2, [max_batch]]))
    return grid[grid <= max_batch]
