"""Of docs/papers.md: Cauchy."""

from collections.abc import Sequence
from typing import Final

from benchmarks.accuracy.markdown import prose, table
from benchmarks.papers.cauchy import INTER_MACHINE_GB_PER_S, TRAFFIC, Dataset, tokens_per_usd
from benchmarks.papers.cells import Cell, Outcome
from benchmarks.papers.claims import (
    CAUCHY_AGGREGATED_OVER_MELANGE,
    CAUCHY_OVER_MELANGE,
    CO_LP_OVER_MC_LP,
    CO_LP_OVER_MCE_LP,
)
from benchmarks.papers.reasons import CAUCHY_WHY
from benchmarks.papers.summaries import Outcomes
from solver.units import TOKENS_PER_MILLION

TITLE: Final = "## Prefill and decode on GPUs of their own (Cauchy)\n\n"


def cauchy_section(cells: Sequence[Cell], outcomes: Outcomes) -> str:
    own = [cell for cell in cells if cell.part == "cauchy"]
    body = [row for cell in own for name in cell.strategies if (row := _row(cell, outcomes.get((cell.name, name))))]
    if not body:
        return TITLE + "Not run yet: it needs prefill and decode roles.\n"
    header = ("requests", "req/s", "strategy", "rented", "GPUs for prefill / decode", "$/h", "10⁶ tokens/$")
    return TITLE + _setting() + table(header, body, words=5) + "\n" + CAUCHY_WHY


def _setting() -> str:
    low, high = CAUCHY_OVER_MELANGE
    least, most = CAUCHY_AGGREGATED_OVER_MELANGE
    return prose(f"""8 H800, 8 A800 and 8 H20 in servers of two GPUs, the prices of its Table 1, Llama-3.1-8B,
    requests of the mean lengths of its three datasets, its limits for 90 % of them. How fast its network is it does
    not say; we take {8 * INTER_MACHINE_GB_PER_S:g} Gb/s. The paper: {100 * low:.1f} to {100 * high:.1f} % more
    tokens per dollar than Mélange, {100 * least:.1f} to {100 * most:.1f} % without roles; on DailyMail its CO-LP
    {100 * CO_LP_OVER_MCE_LP:.1f} % more than MCE-LP and {100 * CO_LP_OVER_MC_LP:.1f} % over MC-LP.""")


def _row(cell: Cell, outcome: Outcome | None) -> tuple[object, ...] | None:
    if outcome is None:
        return None
    dataset, rate = cell.get("dataset"), cell.get("rate")
    if outcome.value is None:
        return (dataset, rate, outcome.strategy, outcome.reason or outcome.status, "–", "–", "–")
    found: Dataset = next(known for known in TRAFFIC if known == dataset)
    worth = tokens_per_usd(found, float(rate), outcome.value) / TOKENS_PER_MILLION
    rented = ", ".join(f"{count} {gpu}" for gpu, count in outcome.gpus.items())
    roles = f"{outcome.prefill_gpus} / {outcome.decode_gpus}" if outcome.decode_gpus else "–"
    return (dataset, rate, outcome.strategy, rented, roles, f"{outcome.value:.2f}", f"{worth:.2f}")
