"""`sutler catalog`: which GPUs and models there are, and where each figure comes from."""

from typing import Annotated, Any, Literal

import typer
from rich.table import Table

from sutler.service.cli.terminal.exits import guarded
from sutler.service.cli.terminal.output import show, write_json
from sutler.service.cli.views.layout import FittedTable, table_of
from sutler.service.translation.catalogue import Edition, gpu_entries, model_entries
from sutler.solver.catalog import ModelSpec, load_gpus, load_models
from sutler.solver.units import PARAMETERS_PER_BILLION


@guarded
def catalog(
    part: Annotated[Literal["gpus", "models"], typer.Argument(help="What to list.")],
    name: Annotated[
        str | None, typer.Argument(help="Only this entry, with the source of every figure. Usual spellings work.")
    ] = None,
    edition: Annotated[
        Edition, typer.Option("--catalog", help="Which GPU table; paper_table1 has the six GPUs of the MILP paper.")
    ] = "default",
    as_json: Annotated[bool, typer.Option("--json", help="JSON on stdout, with the source of every figure.")] = False,
) -> None:
    """List the GPUs or the models that a problem can name."""
    entries = gpu_entries(name, edition) if part == "gpus" else model_entries(name)
    if as_json:
        write_json(entries)
        return
    if name is not None:
        show(facts_table(entries[0]))
    else:
        show(gpus_table(edition) if part == "gpus" else models_table())


def _table(title: str, *, texts: tuple[str, ...], numbers: tuple[str, ...]) -> FittedTable:
    return table_of(title=title, texts=texts, numbers=numbers)


def gpus_table(edition: Edition) -> Table:
    table = _table(
        "GPUs: dense tensor peaks, link in one direction per GPU",
        texts=("slug", "architecture", "link"),
        numbers=("GB", "GB/s", "TFLOPS bf16", "fp8", "fp4", "link GB/s", "W"),
    )
    for gpu in load_gpus(edition).values():
        half = "" if gpu.supports_bf16 else " (fp16)"
        memory = (gpu.memory_gb, gpu.memory_bandwidth_gb_per_s)
        others = (gpu.peak_tflops_fp8_dense, gpu.peak_tflops_fp4_dense, gpu.link_gb_per_s, gpu.tdp_watts)
        figures = (*map(_figure, memory), f"{_figure(gpu.peak_tflops_bf16_dense)}{half}", *map(_figure, others))
        table.add_row(gpu.slug, gpu.architecture, gpu.link, *figures)
    return table


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:g}"


def models_table() -> Table:
    table = _table(
        "Models",
        texts=("id", "experts", "attention", "checkpoints"),
        numbers=("10⁹ parameters", "active", "layers", "context"),
    )
    table.dispensable = (2, 3)
    for model in load_models().values():
        table.add_row(
            model.id,
            _kind(model),
            _attention(model),
            ", ".join(["bf16"] * (model.native_precision is None) + [name for name, _ in model.checkpoints]),
            f"{model.total_params / PARAMETERS_PER_BILLION:.4g}",
            f"{model.active_params / PARAMETERS_PER_BILLION:.3g}",
            str(model.layers),
            str(model.max_context_tokens),
        )
    return table


def _kind(model: ModelSpec) -> str:
    return "dense" if model.moe is None else f"{model.moe.experts_per_token} of {model.moe.experts}"


def _attention(model: ModelSpec) -> str:
    if model.mla is not None:
        sparse = "" if model.sparse_attention is None else f", top {model.sparse_attention.top_tokens}"
        return f"latent {model.mla.kv_lora_rank}{sparse}"
    window = "" if model.sliding_window is None else f", window {model.sliding_window.window_tokens}"
    linear = model.linear_attention
    some = "" if linear is None else f", {model.layers - linear.full_layers} linear"
    return f"{model.heads}/{model.kv_heads} x {model.head_dim}{window}{some}"


def facts_table(entry: dict[str, Any]) -> Table:
    title = entry.get("slug") or entry["id"]
    table = _table(str(title), texts=("figure",), numbers=("value",))
    for heading in ("basis", "source", "as of"):
        table.add_column(heading, overflow="fold")
    for figure, fact in entry["facts"].items():
        value = fact["value"]
        shown = value if isinstance(value, str) else f"{value:.12g}"
        table.add_row(figure, shown, fact["basis"], fact["source"], fact["as_of"])
    return table
