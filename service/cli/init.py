"""`sutler init`: four questions, or options in their place, and a problem file that `sutler plan` takes."""

from collections.abc import Callable
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final, TypeVar

import typer

from sutler.service.cli.terminal.exits import guarded, refuse, say
from sutler.service.cli.terminal.output import check_target
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.writing import write_file

if TYPE_CHECKING:
    from sutler.solver.catalog import ModelSpec

T = TypeVar("T")

MODEL: Final = ("Which model (catalogue id, repository or usual spelling)?", "llama-3.1-8b")
TRAFFIC: Final = ("How many requests per second, of how many tokens in and out?", "5 1000 300")
LATENCY: Final = ("Seconds to the first token and for each one after it, for 90 % of requests?", "2 0.05")
BUDGET: Final = ("USD per hour at most (0: as little as carries the load)?", "0")


@guarded
def init(
    out: Annotated[Path, typer.Argument(metavar="[FILE]", help="The file to write.")] = Path("problem.yaml"),
    model: Annotated[str | None, typer.Option(help="What to serve.")] = None,
    traffic: Annotated[
        str | None, typer.Option(metavar="'RPS IN OUT'", help="Requests/s, tokens of a prompt, tokens of an answer.")
    ] = None,
    latency: Annotated[
        str | None, typer.Option(metavar="'TTFT TPOT'", help="Seconds to the first token, and per token after it.")
    ] = None,
    budget: Annotated[
        str | None, typer.Option(metavar="USD", help="Per hour at most; 0: as little as carries the load.")
    ] = None,
    market: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Plan on this snapshot; default: on what was polled.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Ask what to serve, for how many requests, how fast and for how much, and write a problem to plan.

    What an option answers is not asked. Exit status: 0, 2 bad input or no answer.
    """
    from sutler.service.documents.market import MarketDocument
    from sutler.service.documents.problem import ProblemDocument
    from sutler.service.documents.reading import read_document
    from sutler.service.documents.validation import validate
    from sutler.service.documents.yaml_loader import load_yaml
    from sutler.solver.catalog import resolve_model

    check_target(out)
    if out.exists() and not force:
        refuse(f"{out} is there already: name another file, or give --force to replace it")
    if market is not None:
        validate(MarketDocument, read_document(out.parent / market, field="--market"))
    spec = _asked(model, *MODEL, lambda text: resolve_model(text, field="--model"))
    load = _asked(traffic, *TRAFFIC, lambda text: _traffic(text, spec))
    limits = _asked(
        latency, *LATENCY, lambda text: _numbers(text, 2, "--latency", "give two numbers of seconds: 2 0.05")
    )
    [usd] = _asked(budget, *BUDGET, lambda text: _numbers(text, 1, "--budget", "give USD per hour, or 0", least=0.0))
    text = problem_text(spec.id, load, limits, usd, market)
    validate(ProblemDocument, load_yaml(text))
    write_file(out, text.encode())
    polled = "" if market else "`sutler market poll` (with a cloud's key; `sutler demo` needs none), then "
    say(f"{out} is written. Next: {polled}`sutler plan {out}`")


def problem_text(model: str, traffic: list[float], latency: list[float], usd: float, market: Path | None) -> str:
    """A problem file with a word on what else there is."""
    rate, tokens_in, tokens_out = (f"{value:g}" for value in traffic)
    first, following = (f"{value:g}" for value in latency)
    most = "# The most requests/s for so much an hour.\nobjective: {kind: max_throughput}\n"
    least = "# As little as carries the load and a fifth more.\nobjective: {kind: min_cost, headroom_fraction: 0.2}"
    goal = f"{most}budget_usd_per_hour: {usd:g}" if usd else least
    source = (
        "market: {}   # what `sutler market poll` stored"
        if market is None
        else f"market: {{offers: {str(market)!r}}}"
    )
    return f"""\
# A problem for `sutler plan`; docs/problem.md and `sutler schema problem` describe every key.
{goal}
models:
  - name: chat
    model: {model}
    slo: {{ttft_p90_s: {first}, tpot_p90_s: {following}}}
    workloads:   # one line for each kind of requests
      - {{name: usual, input_tokens: {tokens_in}, output_tokens: {tokens_out}, rate_rps: {rate}}}
{source}
"""


def _asked(given: str | None, question: str, usual: str, read: Callable[[str], T]) -> T:
    """The option, or what the caller answers, asked again until it can be read. Raises what `read` raises."""
    from sutler.solver.errors import InvalidProblemError

    if given is not None:
        return read(given)
    while True:
        try:
            return read(str(typer.prompt(question, default=usual, err=True)))
        except (DocumentError, InvalidProblemError) as error:
            say(f"{error}")
        except typer.Abort:
            say("")
            refuse("no answer, so nothing is written: answer, or give --model, --traffic, --latency and --budget")


def _traffic(text: str, spec: "ModelSpec") -> list[float]:
    """Requests/s, tokens of a prompt and of an answer. Raises DocumentError."""
    found = _numbers(text, 3, "--traffic", "give requests/s, tokens in and tokens out: 5 1000 300")
    if found[1] + found[2] > spec.max_context_tokens:
        remedy = f"is beyond the context of {spec.id}: at most {spec.max_context_tokens} tokens in and out"
        raise DocumentError.of("--traffic", remedy, value=text)
    return found


def _numbers(text: str, count: int, field: str, remedy: str, *, least: float | None = None) -> list[float]:
    """So many numbers above 0, or from `least` on, divided by spaces or commas. Raises DocumentError."""
    try:
        found = [float(word) for word in text.replace(",", " ").split()]
    except ValueError:
        raise DocumentError.of(field, remedy, value=text) from None
    fit = [isfinite(number) and (number > 0 if least is None else number >= least) for number in found]
    if len(found) != count or not all(fit):
        raise DocumentError.of(field, remedy, value=text)
    return found
