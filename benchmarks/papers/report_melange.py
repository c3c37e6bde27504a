"""Of docs/papers.md: Melange."""

from collections.abc import Callable, Sequence
from statistics import fmean

from benchmarks.accuracy.markdown import prose, table
from benchmarks.papers.cells import Cell
from benchmarks.papers.claims import MELANGE_GPUS
from benchmarks.papers.melange import LENGTHS, PUBMED_SHARE
from benchmarks.papers.melange_summary import Row, over_best, rows, saving
from benchmarks.papers.reasons import MELANGE_WHY
from benchmarks.papers.summaries import SUTLER, Outcomes

TITLE = "## Cheapest fleets of single GPUs (Mélange, arXiv 2404.14527)\n\n"
_DASH = "–"
_Saving = Callable[[Row], float | None]


def melange_section(cells: Sequence[Cell], outcomes: Outcomes) -> str:
    found = rows(cells, outcomes)
    if not found:
        return TITLE + "Not run yet.\n"
    return TITLE + _setting() + _savings(found) + "\n" + _costs(found) + "\n" + MELANGE_WHY


def _setting() -> str:
    arena, pubmed = LENGTHS["arena"], LENGTHS["pubmed"]
    return prose(f"""Llama-2-7b in FP16 on single L4, A10G, A100-80G and H100 at the prices of its Table 1; 1 to 32
    requests/s, and of ours 64 and 128 as well; the median request within a TPOT of 120 or 40 ms. The paper draws its
    lengths and lists none: ours are log-normal, Arena with means of {arena.input_mean:.0f} in and
    {arena.output_mean:.0f} out (σ {arena.input_sigma:g} and {arena.output_sigma:g}), PubMed {pubmed.input_mean:.0f}
    and {pubmed.output_mean:.0f} (σ {pubmed.input_sigma:g} and {pubmed.output_sigma:g}), in eight buckets each;
    {100 * PUBMED_SHARE:.0f} % of the mixed requests are PubMed's. We know the means from captions that a machine
    wrote for its Figure 10, so they may be somewhat off; the spreads are ours.""")


def _savings(found: Sequence[Row]) -> str:
    header = ("saved over", "dataset", "TPOT", "paper, mean (range)", "melange by ours", "sutler")
    body = []
    for position, gpu in enumerate((*MELANGE_GPUS, "the cheapest of them")):
        for dataset, tpot_ms in dict.fromkeys((row.dataset, row.tpot_ms) for row in found):
            own = [row for row in found if (row.dataset, row.tpot_ms) == (dataset, tpot_ms)]
            cases = _cases(position)
            cells = [_range([case(row) for row in own]) for case in cases]
            if any(cell != _DASH for cell in cells):
                body.append((gpu, dataset, f"{tpot_ms} ms", *cells))
    return prose(
        """Savings in percent, mean (least to most) over the rates: six in the paper, eight of ours. A dash: no fleet
        of that type alone."""
    ) + (table(header, body, words=3))


def _cases(position: int) -> tuple[_Saving, ...]:
    if position == len(MELANGE_GPUS):
        return (
            lambda row: over_best(row.paper, row.papers_singles),
            lambda row: over_best(row.ours["melange"], row.singles),
            lambda row: over_best(row.ours[SUTLER], row.singles),
        )
    return (
        lambda row: saving(row.paper, row.papers_singles[position]),
        lambda row: saving(row.ours["melange"], row.singles[position]),
        lambda row: saving(row.ours[SUTLER], row.singles[position]),
    )


def _range(savings: Sequence[float | None]) -> str:
    known = [100 * one for one in savings if one is not None]
    return f"{fmean(known):.0f} ({min(known):.0f} to {max(known):.0f})" if known else _DASH


def _costs(found: Sequence[Row]) -> str:
    header = ("$/h", "TPOT", "req/s", "paper's Mélange", "melange by ours", "sutler")
    body = [
        (
            row.dataset,
            f"{row.tpot_ms} ms",
            row.rate,
            _usd(row.paper),
            *(_usd(row.ours[name]) for name in ("melange", SUTLER)),
        )
        for row in found
    ]
    return table(header, body, words=2)


def _usd(cost: float | None) -> str:
    return _DASH if cost is None else f"{cost:.2f}"
