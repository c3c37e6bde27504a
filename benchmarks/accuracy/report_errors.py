"""Of docs/accuracy.md: the targets, the rows, errors by source, errors on what was left out."""

from collections.abc import Iterator, Sequence
from functools import partial

from benchmarks.accuracy.errors import Answers, Chosen
from benchmarks.accuracy.findings import OPERATORS, ROOFLINE, SIMULATED, Findings
from benchmarks.accuracy.held_out import KEYS, Fold
from benchmarks.accuracy.markdown import both, cells, prose, table, verdict
from benchmarks.accuracy.summary import equals, is_reference, values
from benchmarks.accuracy.targets import targets
from sutler.solver.throughput.runs import ServingRun, with_room

ERRORS = ("rows", "req/s, %", "TPOT, %", "TTFT, %")


def targets_section(found: Findings) -> str:
    """What was asked for, and what is met."""
    rows = [
        (one.asked, one.limit, one.found[0], verdict(one.is_met[0]), one.found[1], verdict(one.is_met[1]))
        for one in targets(found)
    ]
    return (
        "## In short\n\n"
        + prose("""Errors in percent, median / p90 or median; shares of runs in percent; a share above its target
        says that the band is wider than it need be. *Never seen* means that the factors were fitted without a single
        run of it.""")
        + table(("what", "target", "vLLM runs", "", "every engine", ""), rows, words=2)
    )


def rows_section(found: Findings) -> str:
    """Which runs all of it rests on, and which of them have no room."""
    kinds = [(run.engine, run.gpu.slug, run.spec.id, run.precision) for run in found.runs]
    counted = [(*kind, kinds.count(kind)) for kind in sorted(set(kinds))]
    degrees = ", ".join(str(one) for one in sorted({run.tensor_parallel for run in found.runs}))
    return (
        "## What was measured\n\n"
        + prose(f"""{len(found.runs)} closed-loop serving runs whose concurrency could be verified, one replica each,
        tensor parallel {degrees}, no pipeline:""")
        + table(("engine", "GPU", "model", "precision", "rows"), counted, words=4)
        + "\n"
        + prose(f"""And {len(found.layers):,} times of single layers, which the fits see too. The runs are not part
        of this project ([estimates.md](estimates.md#calibration) names their origin and licence). GPU, model,
        precision and engine go together in them: not every combination was measured, and two GPU types say little
        about a third.""")
        + _without_room(found)
    )


def _without_room(found: Findings) -> str:
    roomy = {id(run) for run in with_room(found.runs)}
    cramped = [run for run in found.runs if id(run) not in roomy]
    if not cramped:
        return ""
    header = ("engine", "GPU", "model", "precision", "TP", "input", "output", "concurrency", "measured req/s")
    cases = _with_and_without(cramped)
    errors = [(name, *cells(found.sources[ROOFLINE].errors("", chosen))) for name, chosen in cases.items()]
    return (
        prose(f"""In {len(cramped)} of the runs the weights take more than 0.9 of the usable memory. Their rate says
        how much memory the engine kept for itself, not how fast the GPU is. No fit, no band and no calibration on
        this page sees them; the tables of errors by source, engine and group count them.""")
        + table(header, [_numbers(run) for run in cramped], words=4)
        + "\nWhat they do to the errors of the shipped factors:\n\n"
        + table(("runs", *ERRORS), errors)
    )


def _numbers(run: ServingRun) -> Sequence[object]:
    lengths = (f"{one:.0f}" for one in (run.input_tokens, run.output_tokens, run.concurrency))
    names = (run.engine, run.gpu.slug, run.spec.id, run.precision)
    return (*names, run.tensor_parallel, *lengths, f"{run.req_per_s:.3f}")


def _with_and_without(cramped: Sequence[ServingRun]) -> dict[str, Chosen]:
    left, engines = {id(run) for run in cramped}, {run.engine for run in cramped}
    named = ", ".join(sorted(engines))
    return {
        f"{named}, with them": lambda run: run.engine in engines,
        f"{named}, without them": lambda run: run.engine in engines and id(run) not in left,
        "every engine, with them": lambda run: True,
        "every engine, without them": lambda run: id(run) not in left,
        "they alone": lambda run: id(run) in left,
    }


def sources_section(found: Findings) -> str:
    """Errors with what is shipped."""
    parts = [f"\n**{name.capitalize()}**\n\n{_by_everything(found.sources[name])}" for name in (ROOFLINE, SIMULATED)]
    return (
        "## Errors by source\n\n"
        + prose("""With the shipped factors. They were fitted to these runs, so these errors are smaller than those
        on runs of your own; the [next section](#a-gpu-model-precision-or-engine-that-was-never-seen) has the ones to
        go by. The *calibrated roofline* is what plans rest on; *benchmark simulated* is what `sutler estimate`
        answers: the same factors, with the benchmark's clients simulated one by one.""").rstrip()
        + "\n"
        + "".join(parts)
        + _operators(found)
    )


def _operators(found: Findings) -> str:
    if OPERATORS not in found.sources:
        return f"\n**{OPERATORS}**: not judged here. {found.no_operators}\n"
    words = """(extra `sutler[aiconfigurator]`), benchmark simulated: NVIDIA's operator database, which is asked about
    vLLM alone. Nothing of it was fitted here, so these errors are not in sample."""
    return "\n" + prose(f"**{OPERATORS}** {words}") + _by_everything(found.sources[OPERATORS])


def _by_everything(answers: Answers) -> str:
    cases = {
        f"{kind} {value}": equals(key, value) for kind, key in KEYS.items() for value in values(answers.runs, key)
    }
    errors = {"all": answers.errors("")} | {name: answers.errors("", chosen) for name, chosen in cases.items()}
    return table(("runs of", *ERRORS), [(name, *cells(one)) for name, one in errors.items() if len(one)])


def left_out_section(found: Findings) -> str:
    """Errors of fits that saw none of a group."""
    header = ("never seen", "asked for", *ERRORS, "TTFT simulated, %", "fitted on")
    return (
        "## A GPU, model, precision or engine that was never seen\n\n"
        + prose("""For every group the factors are fitted to all other runs and then asked for the group's. An engine
        or GPU class that was left out keeps what was assumed of it before any run. TTFT is given twice: by the
        closed form that plans rest on, and by the simulated benchmark.""")
        + table(header, _left_out_rows(found), words=2)
    )


def _left_out_rows(found: Findings) -> Iterator[tuple[str, ...]]:
    for kind in KEYS:
        for fold in found.folds:
            if fold.kind == kind:
                for engine in values([found.runs[i] for i in fold.index], KEYS["engine"]):
                    chosen = partial(_is_of, fold, engine)
                    yield (f"{kind} {fold.group}", engine, *_left_out_cells(found, kind, chosen), fold.rests_on)
        yield (f"**every {kind}**", "**vllm**", *_left_out_cells(found, kind, is_reference), "")
        yield (f"**every {kind}**", "**all**", *_left_out_cells(found, kind, lambda run: True), "")


def _is_of(fold: Fold, engine: str, run: ServingRun) -> bool:
    return fold.has(run) and run.engine == engine


def _left_out_cells(found: Findings, kind: str, chosen: Chosen) -> list[str]:
    simulated = found.simulated_left_out[kind].errors("", chosen)
    return [*cells(found.left_out[kind].errors("", chosen)), both(simulated.ttft_s)]
