"""The findings as plain text for a terminal; benchmarks/results/accuracy.txt holds the last ones."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import numpy as np

from benchmarks.accuracy.coverage import pooled_fraction
from benchmarks.accuracy.errors import Answers, Errors, median_and_p90
from benchmarks.accuracy.findings import ROOFLINE, SIMULATED, Findings
from benchmarks.accuracy.held_out import KEYS, Fold, Key
from sutler.solver.calibration.factors import REFERENCE_ENGINE
from sutler.solver.throughput.runs import ServingRun, with_room

HEADER = f"{'group':<38} {'rows':>4}   {'req/s':^13}   {'TTFT':^13}   {'TPOT':^13}"


def summary(found: Findings) -> str:
    """Errors: median / p90 of |predicted / measured - 1|, in percent."""
    return "\n".join(_lines(found)) + "\n"


def pooled(found: Findings) -> list[Errors]:
    """Sums up the vLLM runs, each predicted by a fit without its group; by kind of group."""
    return [
        answers.errors(f"leaving one {kind} out, all vLLM", is_reference, "as above, per group")
        for kind, answers in found.left_out.items()
    ]


def is_reference(run: ServingRun) -> bool:
    return run.engine == REFERENCE_ENGINE


def _lines(found: Findings) -> Iterator[str]:
    vllm = sum(is_reference(run) for run in found.runs)
    yield f"{len(found.runs)} verified serving runs ({vllm} of them vLLM), {len(found.layers)} layer profiles"
    yield "Errors: median / p90 of |predicted / measured - 1|, in percent."
    yield ""
    yield f"{HEADER}   fitted on"
    for errors in pooled(found):
        kind = errors.group.split()[2]
        yield from _of_kind(found, kind)
        yield errors.line()
        yield ""
    yield from _shipped(found)
    yield from _simulated(found)
    yield from _after(found)
    yield from _bands(found)
    yield from _layers(found)
    yield from _old_engines(found)
    yield from _table6(found)


def _of_kind(found: Findings, kind: str) -> Iterator[str]:
    answers = found.left_out[kind]
    for fold in found.folds:
        if fold.kind != kind:
            continue
        name = f"without {kind} {fold.group}"
        vllm = answers.errors(f"{name}, vLLM", partial(_is_reference_of, fold), fold.rests_on)
        every = answers.errors(f"{name}, all", fold.has, fold.rests_on)
        if len(vllm):
            yield vllm.line()
        if len(vllm) < len(every):
            yield every.line()


def _shipped(found: Findings) -> Iterator[str]:
    answers = found.sources[ROOFLINE]
    yield answers.errors(
        "shipped factors, vLLM", is_reference, f"{len(with_room(found.runs))} runs, in sample"
    ).line()
    yield answers.errors("shipped factors, all", rests_on=f"{len(with_room(found.runs))} runs, in sample").line()
    vllm = [run for run in found.runs if is_reference(run)]
    for name in values(vllm, _configuration):
        chosen = answers.errors(f"  {name}", partial(_is_configuration, name))
        yield chosen.line()


def _simulated(found: Findings) -> Iterator[str]:
    yield ""
    yield "The benchmark itself simulated, client by client (solver/simulation/benchmark.py), by engine; as above"
    yield HEADER.rstrip()
    cases: dict[str, Answers] = {f"leaving one {kind} out": one for kind, one in found.simulated_left_out.items()}
    for title, answers in {**cases, "shipped factors": found.sources[SIMULATED]}.items():
        for engine in values(found.runs, KEYS["engine"]):
            yield answers.errors(f"{title}, {engine}", equals(KEYS["engine"], engine)).line()


def _after(found: Findings) -> Iterator[str]:
    for count, all_of_them in found.after.items():
        yield ""
        yield f"req/s before and after calibration on {count} runs of the left-out group, on the rest of it"
        yield f"{'left out':<10} {'engine':<8} {'before':^13}    {'after':^13}   within the narrowed band, %"
        for kind in KEYS:
            for engine in dict.fromkeys(one.engine for one in all_of_them):
                mine = [one for one in all_of_them if one.kind == kind and one.engine == engine]
                if not mine:
                    continue
                before, after, inside = (
                    np.concatenate([getattr(one, name) for one in mine]) for name in ("before", "after", "inside")
                )
                cells = f"{median_and_p90(before)} -> {median_and_p90(after)}"
                yield f"{kind:<10} {engine:<8} {cells}   {100 * inside.mean():5.1f}"


def _bands(found: Findings) -> Iterator[str]:
    yield ""
    yield f"Band over all of them: {found.band:.3f}. Bands made without a group, and how much of it they cover, %"
    for one in found.coverage:
        yield f"  {one.fold.kind:<10} {one.fold.group:<14} {one.rows:>4} {one.band:6.3f} {100 * one.fraction:6.1f}"
    for kind in KEYS:
        mine = [one for one in found.coverage if one.fold.kind == kind]
        rows = sum(one.rows for one in mine)
        yield f"  {'every ' + kind:<25} {rows:>4} {100 * pooled_fraction(mine):13.1f}"


def _layers(found: Findings) -> Iterator[str]:
    if found.layer_errors:
        yield ""
        yield "Time of one layer without attention (Vidur), shipped factors: median / p90, percent"
    for one in found.layer_errors:
        yield f"  {one.gpu:<36} {len(one.shipped):>4}   {median_and_p90(one.shipped)}"


def _old_engines(found: Findings) -> Iterator[str]:
    if found.old_engines is None:
        return
    yield ""
    yield "Static batches of older versions, req/s: by current factors, by their own, model left out"
    for engine in sorted({run.engine for run in found.old_engines.runs}):
        of_engine = np.array([run.engine == engine for run in found.old_engines.runs])
        errors = (found.old_engines.current, found.old_engines.shipped, found.old_engines.left_out["model"])
        cells = "   ".join(median_and_p90(one[of_engine]) for one in errors)
        yield f"  {engine:<36} {int(of_engine.sum()):>4}   {cells}"


def _table6(found: Findings) -> Iterator[str]:
    if found.table6:
        yield ""
        yield "Table 6 of arXiv 2502.00722 (Llama-3-70B, 2,455 in, 18 out), requests/s; nothing is fitted on it:"
        yield f"  {'GPU':<12} {'TP, PP':<8} {'placement':<14} {'measured':>8} {'roofline':>9} {'low':>7} {'high':>7}"
    for one in found.table6:
        degrees = f"{one.row.tensor_parallel}, {one.row.pipeline_parallel}"
        numbers = f"{one.row.req_per_s:8.2f} {one.rate:9.2f} {one.low:7.2f} {one.high:7.2f}"
        yield f"  {one.row.gpu:<12} {degrees:<8} {one.row.placement:<14} {numbers}"


def values(runs: Sequence[ServingRun], key: Key) -> list[str]:
    """Sorted."""
    return sorted({key(run) for run in runs})


def equals(key: Key, value: str) -> Callable[[ServingRun], bool]:
    return lambda run: key(run) == value


def _is_reference_of(fold: Fold, run: ServingRun) -> bool:
    return fold.has(run) and is_reference(run)


def _is_configuration(name: str, run: ServingRun) -> bool:
    return is_reference(run) and _configuration(run) == name


def _configuration(run: ServingRun) -> str:
    return f"{run.gpu.slug} {run.spec.id} {run.precision}"
