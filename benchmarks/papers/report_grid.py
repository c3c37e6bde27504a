"""Of docs/papers.md: the MILP paper's grid."""

from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Final

from benchmarks.accuracy.markdown import prose, table
from benchmarks.papers.cells import Cell
from benchmarks.papers.claims import BUDGET_GAIN, GRID_CLAIMS, HELIX_RPS, PAPERS_RPS, GridClaim
from benchmarks.papers.grid import BUDGETS_USD_PER_HOUR, CATALOGS, HOMOGENEOUS, LONG_STAGES, MORE_BUDGETS_USD_PER_HOUR
from benchmarks.papers.reasons import BUDGET_WHY, GRID_WHY, HELIX_WHY, PIPELINES_WHY, SHARES_WHY
from benchmarks.papers.summaries import SUTLER, Outcomes, Spread, claimed, rival, shares, spread, value

_DASH: Final = "–"


def means_section(cells: Sequence[Cell], outcomes: Outcomes) -> str:
    """One row for each claim, under both catalogues."""
    header = ("sutler against", "where", "", "paper", "Table 1's GPUs", "today's", "cells", "behind")
    rows = [_row(claim, cells, outcomes) for claim in GRID_CLAIMS]
    return (
        "## In short\n\n"
        + prose("""Mean (most) in percent, over the cells of the MILP paper's grid
        ([arXiv 2502.00722](https://arxiv.org/abs/2502.00722)) that belong to the figure. *More*: sutler's requests/s
        over the rival's; *less*: what the rival loses of sutler's. Unlimited supply is what the paper gives to its
        homogeneous fleets and what no strategy on the market of Table 4 has, so that such a rival may win: *behind*
        counts the cells in which sutler is, of those under Table 1's GPU figures and of those under today's.""")
        + table(header, rows, words=3)
    )


def _row(claim: GridClaim, cells: Sequence[Cell], outcomes: Outcomes) -> tuple[str, ...]:
    found = [spread(claimed(claim, cells, outcomes, catalog=catalog)) for catalog in CATALOGS]
    paper = _DASH if claim.mean is None else f"{_percent(claim.mean)} ({_percent(claim.most or 0.0)})"
    counts = " / ".join(_DASH if one is None else f"{one.pairs}" for one in found)
    behind = " / ".join(_DASH if one is None else f"{one.behind}" for one in found)
    kind = "more" if claim.kind == "gain" else "less"
    return (claim.title, claim.place, kind, paper, *map(_shown, found), counts, behind)


def grid_section(cells: Sequence[Cell], outcomes: Outcomes, plots: Mapping[str, str]) -> str:
    """What stands behind the means."""
    parts = [
        _setting(),
        GRID_WHY,
        "### Requests/s of each fleet\n\n" + _means(cells, outcomes) + plots["grid.svg"],
        "### What is rented\n\n" + _shares(cells, outcomes) + SHARES_WHY,
        "### The budget\n\n" + _budget(cells, outcomes) + plots["budget.svg"] + "\n" + BUDGET_WHY,
        "### Helix\n\n" + _helix(cells, outcomes) + HELIX_WHY,
        "### Longer pipelines\n\n" + _pipelines(cells, outcomes) + PIPELINES_WHY,
    ]
    return "## Heterogeneous fleets (arXiv 2502.00722)\n\n" + "\n".join(part.rstrip() + "\n" for part in parts)


def _setting() -> str:
    return prose("""Three traces (Table 5), four availabilities (Table 4), 15, 30 and 60 $/h, Llama-3-8B,
    Llama-3-70B, and both with 80 % of the requests for the small one: 108 problems, each with the
    GPU figures of the paper's Table 1 and with today's ([catalogue](estimates.md)), at the prices
    of Table 1. An availability of *a* GPUs is taken as ⌊a/8⌋ machines of 8 and one of the rest,
    whose GPUs are rented one by one, on one site with 5 Gb/s between machines. Pipelines have at
    most two stages (longer ones: below), the gap is 0.2 %. Latencies (Figure 6) are not run again;
    binary search against other methods (Figure 9) is in `make bench`, Table 7 in `make
    replanning-bench`.""")


def _means(cells: Sequence[Cell], outcomes: Outcomes) -> str:
    header = ("GPU figures", "model", "$/h", "sutler", *(f"{gpu}, unlimited" for gpu in HOMOGENEOUS))
    rows = []
    for catalog in CATALOGS:
        for model in ("llama-3-8b", "llama-3-70b", "both"):
            for budget in BUDGETS_USD_PER_HOUR:
                names = [SUTLER, *(rival(f"{gpu}/unlimited", catalog) for gpu in HOMOGENEOUS)]
                own = _chosen(cells, part="grid", catalog=catalog, model=model, budget=budget)
                means = [_mean([value(outcomes, cell, name) for cell in own]) for name in names]
                rows.append((_catalog(catalog), model, budget, *(_number(mean) for mean in means)))
    return prose("Means over the traces and availabilities.") + table(header, rows, words=2)


def _shares(cells: Sequence[Cell], outcomes: Outcomes) -> str:
    cases: tuple[tuple[str, str, bool, dict[str, object]], ...] = (
        ("70B, traces 1 and 2, 60 $/h: $/h", "51 % data centre", False, {"budget": 60, "trace": (1, 2)}),
        ("70B, traces 1 and 2, 15 $/h: $/h", "mostly workstation", False, {"budget": 15, "trace": (1, 2)}),
        ("70B, trace 3: requests", "93 % workstation", True, {"trace": 3}),
        ("8B: requests", "53 % consumer", True, {"model": "llama-3-8b"}),
    )
    rows = []
    for catalog in CATALOGS:
        for title, paper, served, chosen in cases:
            own = _chosen(cells, part="grid", catalog=catalog, **{"model": "llama-3-70b", **chosen})
            found = shares(own, outcomes, served=served)
            ours = [
                _percent(found[kind]) if kind in found else _DASH
                for kind in ("data centre", "workstation", "consumer")
            ]
            rows.append((_catalog(catalog), title, paper, *ours))
    header = ("GPU figures", "shares of", "paper", "data centre, %", "workstation, %", "consumer, %")
    return table(header, rows, words=3)


def _budget(cells: Sequence[Cell], outcomes: Outcomes) -> str:
    rows = []
    for budget in MORE_BUDGETS_USD_PER_HOUR:
        own = _chosen(cells, part="budget", budget=budget)
        gains = {gpu: [_gain(outcomes, cell, [gpu]) for cell in own] for gpu in HOMOGENEOUS}
        best = [_gain(outcomes, cell, HOMOGENEOUS) for cell in own]
        paper = BUDGET_GAIN.get(budget)
        rows.append(
            (
                budget,
                _DASH if paper is None else f"about {_percent(paper)}",
                *(_gains(gains[gpu]) for gpu in HOMOGENEOUS),
                _gains(best),
            )
        )
    header = ("$/h", "paper, %", *(f"over {gpu}, %" for gpu in HOMOGENEOUS), "over the best, %")
    return prose("""Llama-3-70B on the first availability, means over the three traces, Table 1's GPU figures. A
        dash: that fleet cannot hold the model for so little.""") + table(header, rows, words=0)


def _gain(outcomes: Outcomes, cell: Cell, gpus: Sequence[str]) -> float | None:
    ours = value(outcomes, cell, SUTLER)
    theirs = [
        one for gpu in gpus if (one := value(outcomes, cell, rival(f"{gpu}/unlimited", f"{cell.get('catalog')}")))
    ]
    return ours / max(theirs) - 1 if ours and theirs else None


def _helix(cells: Sequence[Cell], outcomes: Outcomes) -> str:
    rows: list[tuple[object, ...]] = [
        ("Helix, by the paper", HELIX_RPS, "", "", ""),
        ("the paper", PAPERS_RPS, "", "", ""),
    ]
    for catalog in CATALOGS:
        own = _chosen(cells, part="grid", catalog=catalog, model="llama-3-70b", trace=2, budget=15)
        rows.append((f"sutler, {_catalog(catalog)}", *(_number(value(outcomes, cell, SUTLER)) for cell in own)))
    return table(("requests/s", "availability 1", "2", "3", "4"), rows)


def _pipelines(cells: Sequence[Cell], outcomes: Outcomes) -> str:
    rows = []
    for catalog in CATALOGS:
        for budget in BUDGETS_USD_PER_HOUR:
            own = _chosen(cells, part="pipelines", catalog=catalog, budget=budget)
            short = [cell for cell in own if cell.get("stages") != LONG_STAGES]
            long = [cell for cell in own if cell.get("stages") == LONG_STAGES]
            values = [
                (value(outcomes, a, SUTLER), value(outcomes, b, SUTLER)) for a, b in zip(short, long, strict=True)
            ]
            gains = [b / a - 1 for a, b in values if a and b]
            rows.append((_catalog(catalog), budget, _gains(gains), _percent(max(gains)) if gains else _DASH))
    return table(("GPU figures", "$/h", "four stages over two, mean %", "most, %"), rows)


def _chosen(cells: Sequence[Cell], *, part: str, **wanted: object) -> list[Cell]:
    """Cells of a part with these parameters; a tuple: any of them."""
    return [
        cell
        for cell in cells
        if cell.part == part
        and all(cell.get(name) in (one if isinstance(one, tuple) else (one,)) for name, one in wanted.items())
    ]


def _catalog(catalog: str) -> str:
    return "Table 1's" if catalog == "paper_table1" else "today's"


def _mean(values: Sequence[float | None]) -> float | None:
    known = [one for one in values if one is not None]
    return fmean(known) if known else None


def _gains(values: Sequence[float | None]) -> str:
    mean = _mean(values)
    return _DASH if mean is None else _percent(mean)


def _number(number: float | None) -> str:
    return _DASH if number is None else f"{number:.2f}"


def _shown(found: Spread | None) -> str:
    return _DASH if found is None else f"{_percent(found.mean)} ({_percent(found.most)})"


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.0f}" if abs(fraction) >= 0.095 else f"{100 * fraction:.1f}"
