"""`sutler estimate`: what one configuration should do, or every configuration of a CSV file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from sutler.service.cli.terminal.exits import guarded, say
from sutler.service.cli.terminal.input import read_bytes
from sutler.service.cli.terminal.options import DescribedIn
from sutler.service.cli.terminal.output import check_target, deliver, write_or_print
from sutler.service.cli.views.layout import table_of

if TYPE_CHECKING:
    from sutler.service.documents.estimate import EstimateDocument
    from sutler.solver.catalog import ModelSpec


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
    engine_version: Annotated[
        str | None, typer.Option(help="Its version, such as 0.6.3; default: a current one.")
    ] = None,
    length_spread_fraction: Annotated[
        float | None,
        typer.Option(help="By how much lengths vary around their means; default: 0.1, with sglang 0."),
    ] = None,
    requests_per_client: Annotated[
        int | None, typer.Option(help="Requests that each client sends; default: 10.")
    ] = None,
    calibration: Annotated[
        str | None,
        typer.Option(metavar="NAME|FILE", help="By your own runs: a name or file of `sutler calibrate`."),
    ] = None,
    problem: DescribedIn = None,
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
    single: dict[str, Any] = {
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
        _estimate_table(csv_in, out, calibration, problem)
        return
    if out is not None:
        raise typer.BadParameter("--out goes with --csv; use --json for a single estimate")
    single.update(
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
        data_parallel=data_parallel,
        engine=engine,
        engine_version=engine_version,
        length_spread_fraction=length_spread_fraction,
        requests_per_client=requests_per_client,
    )
    _estimate_one(single, calibration, problem, as_json=as_json)


def _refuse(single: dict[str, object]) -> None:
    given = [f"--{name.replace('_', '-')}" for name, value in single.items() if value is not None]
    if given:
        raise typer.BadParameter(f"{', '.join(given)}: --csv takes the configurations from the file; leave these out")


def _estimate_one(asked: dict[str, Any], calibration: str | None, problem: Path | None, *, as_json: bool) -> None:
    from sutler.service.library.estimating import estimate as estimated

    model = asked.pop("model")
    spec = _spec_of(asked.pop("config"), named=model)
    needed = ("gpu", "precision", "input_tokens", "output_tokens", *(() if spec else ("model",)))
    given = {**asked, "model": model}
    missing = [f"--{name.replace('_', '-')}" for name in needed if given[name] is None]
    if missing:
        raise typer.BadParameter(f"missing {', '.join(missing)} (or --csv FILE)")
    found = estimated(spec or model, asked.pop("gpu"), calibration=calibration, problem=problem, **asked)
    deliver(found, [view(found)], as_json=as_json)


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


def view(found: "EstimateDocument") -> Table:
    degrees = f"TP {found.tensor_parallel}, PP {found.pipeline_parallel}"
    degrees += f", DP {found.data_parallel}" if found.data_parallel > 1 else ""
    served_by = f"{found.engine} {found.engine_version}".rstrip()
    title = f"{found.model} at {found.precision} on {found.gpu}, {degrees}, {served_by}"
    table = table_of(title=title, texts=("", ""))
    table.show_header = False
    band = f"{found.low_req_per_s:.3g} to {found.high_req_per_s:.3g}"
    table.add_row("requests/s", f"{found.req_per_s:.4g} ({band})")
    table.add_row("time to first token", f"{found.ttft_s:.4g} s")
    table.add_row("time per output token", f"{1000 * found.tpot_s:.4g} ms")
    waiting = f", {found.running} of them running" if found.running < found.concurrency else ""
    table.add_row("requests in flight", f"{found.concurrency}{waiting}")
    table.add_row("tokens", f"{found.input_tokens:g} in, {found.output_tokens:g} out")
    table.add_row("source", found.detail)
    return table


def _estimate_table(source: Path, out: Path | None, calibration: str | None, problem: Path | None) -> None:
    from sutler.service.library.estimating import calibration_of_choice
    from sutler.service.library.problems import names_in
    from sutler.service.translation.estimate_table import predict_table

    check_target(out)
    own = None if calibration is None else calibration_of_choice(calibration)
    made = predict_table(read_bytes(source, "--csv"), own, names_in(problem))
    write_or_print(made.content, out)
    if made.predicted < made.rows:
        say(f"{made.rows - made.predicted} of {made.rows} rows cannot be predicted; their column `error` says why")
