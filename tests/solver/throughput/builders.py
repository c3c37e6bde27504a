"""Short ways to say layouts and models for the throughput tests."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from sutler.solver.arrays import FloatArray
from sutler.solver.catalog import resolve_gpu, resolve_model
from sutler.solver.catalog.entries import Gpu, ModelSpec, Precision
from sutler.solver.catalog.power_caps import capped
from sutler.solver.problem import LatencyLimit, Role, ServedModel, Workload
from sutler.solver.throughput.base import Layouts, Points, Rates
from sutler.solver.throughput.mixes import mixes_of
from sutler.solver.throughput.roofline import Roofline

Stage = tuple[str, int]  # (GPU slug, tensor parallel)
ETHERNET_GB_PER_S = 0.625


def a_dense_spec(**changes: Any) -> ModelSpec:
    """A small dense model: 4 layers of 15 M parameters, two key/value heads of 128."""
    facts: dict[str, Any] = {
        "id": "tiny",
        "layers": 4,
        "hidden_size": 1024,
        "heads": 8,
        "kv_heads": 2,
        "head_dim": 128,
        "intermediate_size": 4096,
        "vocab_size": 1000,
        "max_context_tokens": 100_000,
        "total_params": 4 * 15e6 + 2 * 1024e3,
        "active_params": 4 * 15e6 + 2 * 1024e3,
    }
    return ModelSpec(**{**facts, **changes})


def served(
    spec: ModelSpec | str = "llama-3-70b",
    *requests: tuple[float, float],
    precision: Precision = "bf16",
    kv_precision: Precision = "bf16",
    slo: Sequence[LatencyLimit] = (),
    prefix_cache_hit_fraction: float = 0.0,
) -> ServedModel:
    """A model with one workload per (input, output) pair; (1024, 256) where none is given."""
    known = resolve_model(spec) if isinstance(spec, str) else spec
    pairs = requests or ((1024, 256),)
    workloads = tuple(Workload(f"w{i}", inputs, outputs, 1.0) for i, (inputs, outputs) in enumerate(pairs))
    return ServedModel(
        name="chat",
        spec=known,
        precision=precision,
        kv_precision=kv_precision,
        workloads=workloads,
        slo=tuple(slo),
        prefix_cache_hit_fraction=prefix_cache_hit_fraction,
    )


def pipelines_of(
    *pipelines: Sequence[Stage],
    extra_gpus: Sequence[Gpu] = (),
    layers: Sequence[Sequence[int]] | None = None,
    cross_machine: bool = False,
    intra_gb_per_s: float | None = None,
) -> Layouts:
    """Layouts of catalogue GPUs (or `extra_gpus`), padded to the longest pipeline."""
    known = {gpu.slug: gpu for gpu in extra_gpus}
    slugs = list(dict.fromkeys(slug for pipeline in pipelines for slug, _ in pipeline))
    gpus = tuple(known.get(slug) or resolve_gpu(slug) for slug in slugs)
    shape = (len(pipelines), max(len(pipeline) for pipeline in pipelines))
    gpu, degree = np.full(shape, -1), np.zeros(shape, dtype=np.int64)
    intra, hop = np.zeros(shape), np.full(shape, np.inf)
    crossing, split = np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.int64)
    for row, pipeline in enumerate(pipelines):
        for stage, (slug, tensor_parallel) in enumerate(pipeline):
            index = slugs.index(slug)
            link = gpus[index].link_gb_per_s or 0.0
            gpu[row, stage], degree[row, stage] = index, tensor_parallel
            intra[row, stage] = link if intra_gb_per_s is None else intra_gb_per_s
            if stage + 1 < len(pipeline):
                hop[row, stage] = ETHERNET_GB_PER_S if cross_machine else link
                crossing[row, stage] = cross_machine
            if layers is not None:
                split[row, stage] = layers[row][stage]
    return Layouts(gpus, gpu, degree, intra, hop, crossing, None if layers is None else split)


def in_role(layouts: Layouts, role: Role, *, kv_gb_per_s: float = np.inf) -> Layouts:
    """The same layouts with the work of a role; `kv_gb_per_s` is every stage's share of its machine's link."""
    links = None if role == "aggregated" else np.full(layouts.gpu.shape, kv_gb_per_s)
    return replace(layouts, role=role, kv_gb_per_s=links)


def at_cap(layouts: Layouts, fraction: float) -> Layouts:
    """The same layouts with all GPUs capped to a share of their TDP."""
    return replace(layouts, gpus=tuple(capped(gpu, fraction) for gpu in layouts.gpus), power_cap_fraction=fraction)


def rates_of(model: ServedModel, layouts: Layouts, *, caps: Sequence[int] | None = None) -> Rates:
    """With all sequences busy, whatever the limits."""
    return Roofline().rates(model, layouts, caps=None if caps is None else np.array(caps))


def points_of(
    model: ServedModel, layouts: Layouts, *, caps: Sequence[int] | None = None, most_load: float = 1.0
) -> Points:
    return Roofline().points(model, layouts, caps=None if caps is None else np.array(caps), most_load=most_load)


def most_alone(points: Points, layouts: int, workloads: int) -> FloatArray:
    """[num_layouts, W] requests/s of each workload alone at the best point of each layout."""
    most = np.zeros((layouts, workloads))
    np.maximum.at(most, points.layout, points.rps[:, :workloads])
    return most


def most_of_each(points: Points, layouts: int, model: ServedModel) -> FloatArray:
    """[num_layouts, V] the same, and of each fixed mix of the model, whether a point is of it or of a set."""
    most = [most_of_mix(points, layouts, mix) for mix in mixes_of(model)]
    for column in range(len(model.workloads), points.rps.shape[1]):
        np.maximum.at(most[column], points.layout, points.rps[:, column])
    return np.stack(most, axis=1)


def most_of_mix(points: Points, layouts: int, mix: Sequence[float]) -> FloatArray:
    """[num_layouts] requests/s of a mix at the best point of each layout."""
    alone = points.rps[:, : len(mix)]
    with np.errstate(divide="ignore", invalid="ignore"):
        carried = 1.0 / np.where(np.array(mix) > 0, np.array(mix) / alone, 0.0).sum(axis=1)
    most = np.zeros(layouts)
    np.maximum.at(most, points.layout, carried)
    return most


def detail_of(model: ServedModel, layouts: Layouts) -> str:
    """Evidence for the first workload on the first layout."""
    return Roofline().basis(model, layouts, rates_of(model, layouts), 0, 0).detail
