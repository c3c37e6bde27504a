"""`sutler profiles`: the user's own measurements. What is slow to import is imported when a command runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sutler.service.cli.terminal import output
from sutler.service.cli.terminal.exits import guarded, say, say_all
from sutler.service.cli.terminal.input import file_bytes
from sutler.service.cli.terminal.options import AsJson, DescribedIn
from sutler.service.documents.errors import DocumentError
from sutler.service.errors import Exit

if TYPE_CHECKING:
    from sutler.service.profiles.checks import Given
    from sutler.service.profiles.service import Imported, ProfilesService

profiles = typer.Typer(no_args_is_help=True, rich_markup_mode=None)


@profiles.command("import", short_help="Check result files of benchmarks and keep what can be believed.")
@guarded
def import_(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Results of `vllm bench serve`, GuideLLM, AIPerf or GenAI-Perf (JSON), a CSV table, or what "
            "`sutler profile` wrote.",
        ),
    ],
    gpu: Annotated[str | None, typer.Option(help="GPU it ran on; wins over the file.")] = None,
    model: Annotated[str | None, typer.Option(help="Model of the catalogue; wins over the file.")] = None,
    precision: Annotated[str | None, typer.Option(help="Of the weights; wins over the file.")] = None,
    kv_precision: Annotated[
        str | None, typer.Option(help="Of the KV cache; default: 16 bits, fp8 on Blackwell with fp8 or fp4 weights.")
    ] = None,
    engine: Annotated[str | None, typer.Option(help="vllm, sglang, trtllm, ...; wins over the file.")] = None,
    engine_version: Annotated[str | None, typer.Option(help="Its version; wins over the file.")] = None,
    tensor_parallel: Annotated[int | None, typer.Option(min=1, help="GPUs of a stage; wins over the file.")] = None,
    pipeline_parallel: Annotated[int | None, typer.Option(min=1, help="Stages; default 1.")] = None,
    problem: DescribedIn = None,
    as_json: AsJson = False,
) -> None:
    """Read the runs, refuse those that cannot be true with the reason, keep the others.

    A file that was imported before adds nothing. Exit status: 0 all runs kept, 2 some or all refused, 4 no database.
    """
    from sutler.service.cli.views.measurements import import_records, import_view
    from sutler.service.library.problems import names_in
    from sutler.service.main import opened_profiles
    from sutler.service.profiles.checks import Given

    given = Given(
        gpu=gpu,
        model=model,
        precision=precision,
        kv_precision=kv_precision,
        engine=engine,
        engine_version=engine_version,
        tensor_parallel=tensor_parallel,
        pipeline_parallel=pipeline_parallel,
    )
    with opened_profiles(names_in(problem)) as service:
        done = [_imported(service, path, given) for path in files]
    output.show_or_json(import_view(done), import_records(done), as_json=as_json)
    if not as_json:
        places = ((f"{one.file}, {run.place}", run.reasons) for one in done for run in one.rejected)
        refused = [f"refused: {place}: {reason}" for place, reasons in places for reason in reasons]
        say_all(refused, "refused: ... and {} more reasons; --json has them all")
    raise typer.Exit(Exit.BAD_INPUT if any(one.rejected for one in done) else Exit.PLANNED)


@profiles.command("list", short_help="What was measured, by GPU, model, precision and engine.")
@guarded
def list_(
    gpu: Annotated[str | None, typer.Option(help="Only this GPU.")] = None,
    model: Annotated[str | None, typer.Option(help="Only this model.")] = None,
    engine: Annotated[str | None, typer.Option(help="Only this engine.")] = None,
    problem: DescribedIn = None,
    as_json: AsJson = False,
) -> None:
    """One line for the runs of one GPU, model, precision, engine and version."""
    from sutler.service.cli.views.measurements import profile_record, profiles_view
    from sutler.service.library.problems import names_in
    from sutler.service.main import opened_profiles
    from sutler.service.profiles.service import run_filter

    names = names_in(problem)
    with opened_profiles(names) as service:
        found = service.profiles(run_filter(gpu=gpu, model=model, engine=engine, names=names))
    records = [profile_record(one) for one in found]
    output.show_or_json(profiles_view(found, is_filtered=any((gpu, model, engine))), records, as_json=as_json)


@profiles.command(short_help="The runs of one profile.")
@guarded
def show(
    profile: Annotated[str, typer.Argument(metavar="ID", help="As `sutler profiles list` shows it.")],
    problem: DescribedIn = None,
    as_json: AsJson = False,
) -> None:
    """Each run beside what the shipped calibration expects of it."""
    from sutler.service.cli.views.measurements import run_records, runs_view
    from sutler.service.library.problems import names_in
    from sutler.service.main import opened_profiles

    names = names_in(problem)
    with opened_profiles(names) as service:
        found = service.profile(profile)
        runs = service.runs(found)
    output.show_or_json(runs_view(found, runs, names), run_records(found, runs), as_json=as_json)


@profiles.command(short_help="Forget the runs of one profile.")
@guarded
def delete(
    profile: Annotated[str, typer.Argument(metavar="ID", help="As `sutler profiles list` shows it.")],
) -> None:
    """Calibrations that were fitted to them stay as they are."""
    from sutler.service.main import opened_profiles

    with opened_profiles() as service:
        found = service.profile(profile)
        gone = service.delete(found)
    say(f"Forgot {gone} runs of {found.key}.")


def _imported(service: "ProfilesService", path: Path, given: "Given") -> "Imported":
    """A file that cannot be read at all does not keep the others from being."""
    from sutler.service.profiles.readers import RejectedRun
    from sutler.service.profiles.service import Imported

    try:
        return service.import_file(path.name, file_bytes(path, "FILE"), given)
    except DocumentError as error:
        rejected = RejectedRun("file", tuple(str(problem) for problem in error.problems))
        return Imported(path.name, "–", 0, 0, (), (rejected,))
