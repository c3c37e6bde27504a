"""Of docs/accuracy.md: what a few runs of one's own do, and how many runs the bands cover."""

from collections.abc import Iterator, Sequence

import numpy as np

from benchmarks.accuracy.calibrated import LEAST_ROWS, Recalibrated
from benchmarks.accuracy.coverage import Covered, pooled_fraction
from benchmarks.accuracy.findings import RUN_COUNTS, Findings
from benchmarks.accuracy.held_out import KEYS
from benchmarks.accuracy.markdown import both, joined, percent, prose, table
from benchmarks.accuracy.targets import COVERED
from sutler.solver.calibration.corrections import LEAST_BAND
from sutler.solver.calibration.factors import REFERENCE_ENGINE

AFTER = ("before, %", "after, %", "TTFT before, %", "TTFT after, %")


def after_section(found: Findings) -> str:
    """Before and after calibration on a few runs."""
    most, few = (found.after[count] for count in RUN_COUNTS)
    seeds = most[0].seeds if most else 0
    rows = [(f"{one.kind} {one.group}", one.engine, one.rows, *_cells([one]), percent(one.share)) for one in most]
    count = RUN_COUNTS[0]
    pooled_header = ("every", "engine", "before, %", *(f"after {count} runs, %" for count in RUN_COUNTS))
    return (
        f"## After {count} runs of your own\n\n"
        + prose(f"""`sutler calibrate` moves the factors to a user's runs and kriges what they leave. Here it starts
        from the factors that never saw a group, gets {count} random runs of one engine of it, and is asked for the
        rest; {seeds} draws per group and engine with at least {LEAST_ROWS} runs, the errors of all draws taken
        together. How errors hang together, which the kriging must know, is fitted without the group as well (to
        errors on other groups, whose fits did see it). TTFT is the closed form's. *Followed*: how far
        rates went to the fit, as far as runs predicted each other; the mean of the draws.""")
        + table((f"never seen but for {count} runs", "engine", "rows", *AFTER, "followed, %"), rows, words=2)
        + "\nTaken together, errors of requests/s:\n\n"
        + table(pooled_header, _pooled_rows(most, few), words=2)
    )


def _cells(found: Sequence[Recalibrated]) -> tuple[str, ...]:
    names = ("before", "after", "ttft_before", "ttft_after")
    return tuple(both(joined(getattr(one, name) for one in found)) for name in names)


def _pooled_rows(most: Sequence[Recalibrated], few: Sequence[Recalibrated]) -> Iterator[tuple[str, ...]]:
    for kind in KEYS:
        for engine in (*_engines(most), "all"):
            mine, fewer = (_of(each, kind, engine) for each in (most, few))
            if mine:
                yield (kind, engine, *_cells(mine)[:2], _cells(fewer)[1])


def _engines(found: Sequence[Recalibrated]) -> list[str]:
    return sorted({one.engine for one in found})


def _of(found: Sequence[Recalibrated], kind: str, engine: str) -> list[Recalibrated]:
    return [one for one in found if one.kind == kind and engine in (one.engine, "all")]


def bands_section(found: Findings) -> str:
    """How many runs lie within the stated band."""
    stated = found.shipped.measured_band
    unknown = "; ".join(f"{one.fold.group} {percent(one.fraction)} %" for one in found.engine_coverage)
    header = ("never seen", "rows", "band", "runs within it, %", "vLLM runs within it, %")
    narrowed_header = ("never seen but for 5 runs", "engine", "band before", "mean band", "runs within it, %")
    return (
        "## Bands\n\n"
        + prose(f"""A rate is stated as rate / f to rate × f. For GPU classes that were measured, f is the factor
        within which nine of ten left-out runs lie, over every GPU, model, precision and engine that was left out
        (conformal prediction): {found.band:.3f} on these runs; {stated:.2f} is shipped. To see what such a band is
        worth, each group gets one that is made of other groups' runs alone. It should cover about 90 %
        of the group.""")
        + table(header, _band_rows(found))
        + "\n"
        + prose(f"""Runs of one group are off in the same direction, so a group is covered nearly whole or clearly
        less: {_exceptions(found)}. With this few groups the share is no promise for the next one. Of an engine
        without factors of its own plans state {found.shipped.priors.engine_band:.1f} instead, which covers
        {unknown}.""")
        + prose(f"""After {RUN_COUNTS[0]} runs of the group the band is as much narrower as they leave of the
        variance that the kriging expects, {LEAST_BAND:.2f} at least:""")
        + table(narrowed_header, _narrowed_rows(found), words=2)
    )


def _exceptions(found: Findings) -> str:
    less = [one for one in found.coverage if one.rows and one.fraction < COVERED[0]]
    words = ", ".join(f"{one.fold.kind} {one.fold.group} {percent(one.fraction)} %" for one in less)
    return f"below {100 * COVERED[0]:.0f} % are {words}" if less else f"none is below {100 * COVERED[0]:.0f} % here"


def _band_rows(found: Findings) -> Iterator[tuple[str, ...]]:
    for kind in KEYS:
        pairs = [
            (one, vllm)
            for one, vllm in zip(found.coverage, found.reference_coverage, strict=True)
            if one.fold.kind == kind
        ]
        for one, vllm in pairs:
            yield (f"{kind} {one.fold.group}", str(one.rows), f"{one.band:.3f}", _share([one]), _share([vllm]))
        every, of_vllm = [one for one, _ in pairs], [vllm for _, vllm in pairs]
        rows = str(sum(one.rows for one in every))
        yield (f"**every {kind}**", rows, "", _share(every), _share(of_vllm))


def _share(found: Sequence[Covered]) -> str:
    return percent(pooled_fraction(found)) if any(one.rows for one in found) else "–"


def _narrowed_rows(found: Findings) -> Iterator[tuple[str, ...]]:
    before = {(one.fold.kind, one.fold.group): one.band for one in found.coverage}
    most = found.after[RUN_COUNTS[0]]
    for kind in KEYS:
        for one in _of(most, kind, "all"):
            band = before[one.kind, one.group]
            yield (f"{kind} {one.group}", one.engine, f"{band:.3f}", _mean_band([one]), _inside([one]))
        for engine in (REFERENCE_ENGINE, "all"):
            mine = _of(most, kind, engine)
            if mine:
                yield (f"**every {kind}**", f"**{engine}**", "", _mean_band(mine), _inside(mine))


def _mean_band(found: Sequence[Recalibrated]) -> str:
    """Writes the mean band, that of the logarithms."""
    return f"{np.exp(np.log(joined(one.bands for one in found)).mean()):.3f}"


def _inside(found: Sequence[Recalibrated]) -> str:
    return percent(float(np.concatenate([one.inside for one in found]).mean()))
