"""Of docs/accuracy.md: the simulated benchmark, layer times, an engine of 2023, the table of a paper."""

from collections.abc import Iterator, Sequence

from benchmarks.accuracy.findings import SIMULATED, Findings
from benchmarks.accuracy.held_out import KEYS
from benchmarks.accuracy.markdown import both, cells, percent, prose, table
from benchmarks.accuracy.summary import equals, values
from benchmarks.accuracy.table6 import Table6Estimate
from sutler.solver.calibration.factors import Calibration


def simulation_section(found: Findings) -> str:
    """Simulated closed loops beside measured ones."""
    header = ("factors fitted", "engine", "rows", "req/s, %", "TPOT, %", "TTFT, %")
    return (
        "## Simulation against closed-loop runs\n\n"
        + prose("""The simulator ([simulation.md](simulation.md)) plays the benchmark that measured the runs: as many
        clients as the run had start at once and send their next request when the last one ends, under the scheduler
        of the engine. No factor of the simulator itself was fitted; a step takes what the roofline says.""")
        + table(header, _simulated_rows(found), words=2)
    )


def _simulated_rows(found: Findings) -> Iterator[tuple[str, ...]]:
    cases = {f"without the run's {kind}": one for kind, one in found.simulated_left_out.items()}
    for title, answers in {**cases, "on everything (shipped)": found.sources[SIMULATED]}.items():
        for engine in values(found.runs, KEYS["engine"]):
            yield (title, engine, *cells(answers.errors("", equals(KEYS["engine"], engine))))


def compared_section(shipped: Calibration) -> str:
    """Who is asked where the operator database is installed."""
    if not shipped.compared:
        return ""
    rows = [
        (
            one.gpu,
            "experts" if one.has_experts else "dense",
            one.runs,
            percent(one.roofline_error_fraction),
            percent(one.operators_error_fraction),
            "operators" if one.operators_error_fraction < one.roofline_error_fraction else "roofline",
            f"{one.operators_band:.2f}",
        )
        for one in shipped.compared
    ]
    return (
        "## Roofline or operator database\n\n"
        + prose("""Where aiconfigurator-core is installed, plans ask whichever was nearer on vLLM's runs like these:
        the roofline by fits that saw no run of the GPU, the database as it is; medians of the errors of requests/s.
        On other GPUs the narrower band decides.""")
        + table(("GPU", "models", "runs", "roofline, %", "operators, %", "asked", "band"), rows, words=2)
    )


def others_section(found: Findings) -> str:
    """What was measured elsewhere."""
    return "## Layer times, a paper's table\n" + "".join(
        f"\n{part}" for part in (_layers(found), _table6(found)) if part
    )


def _layers(found: Findings) -> str:
    if not found.layer_errors:
        return ""
    rows = [
        (one.gpu, len(one.shipped), both(one.shipped), "–" if one.left_out is None else both(one.left_out))
        for one in found.layer_errors
    ]
    return prose("""Time of one layer without its attention kernel, from Vidur's profiles. The shipped factors saw
    these times; in the last column neither they nor any run of the GPU were seen.""") + table(
        ("GPU", "times", "shipped, %", "GPU never seen, %"), rows
    )


def _table6(found: Findings) -> str:
    if not found.table6:
        return ""
    header = ("GPU", "TP, PP", "placement", "printed", "roofline", "band", "off by, %", "of the peak, %")
    return (
        prose("""Table 6 of [arXiv 2502.00722](https://arxiv.org/abs/2502.00722): Llama-3-70B in bf16, 2,455 input
        and 18 output tokens, pipelines on eight GPUs, requests/s. Nothing is fitted on it, and no pipeline is among
        the runs above. Its figures are read as requests/s per $/h and multiplied by the price of the GPUs: as
        requests/s of the replica, those of L40 would be beyond what the card can compute. *Of the peak*: what of the
        dense bf16 peak of its slowest GPU the products with the weights alone would need, if the layers were split
        evenly.""")
        + table(header, [_table6_row(one) for one in found.table6], words=3)
        + _unexplained(found)
    )


def _table6_row(one: Table6Estimate) -> Sequence[object]:
    degrees = f"{one.row.tensor_parallel}, {one.row.pipeline_parallel}"
    rates = (f"{one.row.req_per_s:.2f}", f"{one.rate:.2f}", f"{one.low:.2f}–{one.high:.2f}")
    off = f"{100 * (one.rate / one.row.req_per_s - 1):+.0f}"
    return (one.row.gpu, degrees, one.row.placement, *rates, off, f"{100 * one.peak_fraction:.0f}")


def _unexplained(found: Findings) -> str:
    beyond = [one for one in found.table6 if one.peak_fraction > 1]
    if not beyond:
        return ""
    names = ", ".join(f"{one.row.gpu} ({100 * one.peak_fraction:.0f} %)" for one in beyond)
    return "\n" + prose(f"""Not explained: {names}. No GPU computes beyond its peak, so either the layers were not
    split evenly or the printed rate means something else. The roofline splits them by speed and memory; that makes
    such a rate possible, but nobody knows whether it is what the authors ran.""")
