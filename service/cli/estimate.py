"""`sutler estimate`: what one configuration should do, or every configuration of a CSV file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from sutler.service.cli.terminal.exits import guarded, refuse, say
from sutler.service.cli.terminal.input import read_bytes
from sutler.service.cli.terminal.output import check_target, show, write_json, write_or_print

if TYPE_CHECKING:
    from sutler.service.translation.estimates import Configuration
    from sutler.solver.calibration.factors import Calibration
    from sutler.solver.catalog import ModelSpec
    from sutler.solver.estimate import Estimate


@guarded
def estimate(
    model: Annotated[str | None, typer.Option(help="Model: catalogue id, repository or a usual spelling.")] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="In place of --model: the config.json of its repository."),
    ] = None,
    gpu: Annotated[str | None, typer.Option(help="GPU: catalogue slug or a usual spelling.")] = None,
    tensor_parallel: Annotated[int, typer.Option(help="GPUs that share every layer.")] = 1,
    pipeline_parallel: Annotated[int, typer.Option(help="Stages that share the layers.")] = 1,
    data_parallel: Annotated[
        int, typer.Option(help="Ranks of attention, each tensor-parallel GPUs; experts are spread over all of them.")
    ] = 1,
    precision: Annotated[str | None, typer.Option(help="Of the weights: bf16, fp16, fp8, int8, int4, fp4.")] = None,
    kv_precision: Annotated[str | None, typer.Option(help="Of the KV cache; default: what engines choose.")] = None,
    input_tokens: Annotated[float | None, typer.Option(help="Tokens of a prompt.")] = None,
    output_tokens: Annotated[float | None, typer.Option(help="Tokens of an answer.")] = None,
    concurrency: Annotated[
        int | None, typer.Option(help="Requests in flight, each followed by the next; default: the most that fit.")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="Serving engine; default: the calibration's, or vllm.")] = None,
    calibration: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="By your own runs: a name or file of `sutler calibrate`."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    csv_in: Annotated[
        Path | None,
        typer.Option(
            "--csv",
            metavar="IN",
            help="Estimate every row of a CSV file (- reads standard input) with columns gpu, model, precision, tp, "
            "pp, input_tokens, output_tokens, concurrency (or batch_or_concurrency).",
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="OUT", help="Where the CSV goes; default: standard output.")
    ] = None,
) -> None:
    """Say what one configuration should do: requests/s, TTFT and TPOT, with their error band.

    With a concurrency, req_per_s = concurrency / (ttft_s + (output_tokens - 1) * tpot_s). Exit status: 0 estimated
    (rows of a CSV that cannot be predicted say so in `error`), 2 bad input.
    """
    single: dict[str, object] = {
        "model": model,
        "config": config,
        "gpu": gpu,
        "precision": precision,
        "kv_precision": kv_precision,
        "input_tokens": input_tokens,
        "output_tokens": output_tokens,
        "concurrency": concurrency,
    }
    if csv_in is not None:
        _refuse(single)
        if as_json:
            raise typer.BadParameter("--csv writes a CSV file; leave --json out")
        _estimate_table(csv_in, out, calibration)
        return
    if out is not None:
        raise typer.BadParameter("--out goes with --csv; use --json for a single estimate")
    single.update(tp=tensor_parallel, pp=pipeline_parallel, dp=data_parallel, engine=engine)
    _estimate_one(single, calibration, as_json=as_json)


def _refuse(single: dict[str, object]) -> None:
    given = [f"--{name.replace('_', '-')}" for name, value in single.items() if value is not None]
    if given:
        raise typer.BadParameter(f"{', '.join(given)}: --csv takes the configurations from the file; leave these out")


def _estimate_one(asked: dict[str, object], calibration: str | None, *, as_json: bool) -> None:
    from sutler.service.translation.estimates import configuration, estimated

    spec = _spec_of(asked.pop("config"), named=asked["model"])
    needed = ("gpu", "precision", "input_tokens", "output_tokens", *(() if spec else ("model",)))
    missing = [f"--{name.replace('_', '-')}" for name in needed if asked[name] is None]
    if missing:
        raise typer.BadParameter(f"missing {', '.join(missing)} (or --csv FILE)")
    own = _calibration(calibration)
    if own is not None and asked["engine"] is None:
        asked = {**asked, "engine": own.serves}
    config = configuration({name: _text(value) for name, value in asked.items() if value is not None}, spec)
    found = estimated(config, own)
    if found.error is not None:
        refuse(found.error)
    if as_json:
        write_json(_fields(config, found))
    else:
        _show(config, found)


def _spec_of(config: object, *, named: object) -> "ModelSpec | None":
    """What --config describes."""
    if not isinstance(config, Path):
        return None
    from sutler.service.translation.given_models import config_in, how_read
    from sutler.solver.catalog import spec_of_config

    if named is not None:
        raise typer.BadParameter("--model and --config both say what the model is: leave one out")
    spec = spec_of_config(config_in(config, field="--config"), name=config.stem, field=config.name)
    say(how_read(spec))
    return spec


def _calibration(given: str | None) -> "Calibration | None":
    """The calibration of the store, or of a file where one is there."""
    if given is None:
        return None
    from sutler.service.main import StoreWhenNeeded
    from sutler.service.profiles.references import calibration_in
    from sutler.service.translation.calibrations import calibration_of

    path = Path(given)
    is_file = path.is_file() or path.suffix == ".json" or len(path.parts) > 1
    document = calibration_in(path) if is_file else StoreWhenNeeded().calibration(given)
    return calibration_of(document, field="--calibration")


def _text(value: object) -> str:
    """Python refuses to print integers beyond 4300 digits; such a number is out of every range anyway."""
    if isinstance(value, int) and abs(value) > 10**18:
        return f"{'-' if value < 0 else ''}{10**18}"
    return str(value)


def _fields(config: "Configuration", found: "Estimate") -> dict[str, Any]:
    layout = ("tensor_parallel", "pipeline_parallel", "data_parallel", "precision", "kv_precision", "engine")
    load = ("input_tokens", "output_tokens")
    rates = ("concurrency", "running", "req_per_s", "ttft_s", "tpot_s", "low_req_per_s", "high_req_per_s")
    return {
        "model": config.spec.id,
        "gpu": config.gpu.slug,
        **{name: getattr(config, name) for name in (*layout, *load)},
        **{name: getattr(found, name) for name in (*rates, "source", "detail")},
    }


def _show(config: "Configuration", found: "Estimate") -> None:
    degrees = f"TP {config.tensor_parallel}, PP {config.pipeline_parallel}"
    degrees += f", DP {config.data_parallel}" if config.data_parallel > 1 else ""
    title = f"{config.spec.id} at {config.precision} on {config.gpu.slug}, {degrees}, {config.engine}"
    table = Table(title=title, title_justify="left", show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    band = f"{found.low_req_per_s:.3g} to {found.high_req_per_s:.3g}"
    table.add_row("requests/s", f"{found.req_per_s:.4g} ({band})")
    table.add_row("time to first token", f"{found.ttft_s:.4g} s")
    table.add_row("time per output token", f"{1000 * found.tpot_s:.4g} ms")
    waiting = f", {found.running} of them running" if found.running < found.concurrency else ""
    table.add_row("requests in flight", f"{found.concurrency}{waiting}")
    table.add_row("tokens", f"{config.input_tokens:g} in, {config.output_tokens:g} out")
    table.add_row("source", found.detail)
    show(table)


def _estimate_table(source: Path, out: Path | None, calibration: str | None) -> None:
    from sutler.service.translation.estimate_table import predict_table

    check_target(out)
    made = predict_table(read_bytes(source, "--csv"), _calibration(calibration))
    write_or_print(made.content, out)
    if made.predicted < made.rows:
        say(f"{made.rows - made.predicted} of {made.rows} rows cannot be predicted; their column `error` says why")
