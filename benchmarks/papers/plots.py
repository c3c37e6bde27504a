"""The plots of docs/papers.md. matplotlib is the optional extra `plots`; it is imported when something is drawn."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from benchmarks.papers.cells import Cell
from benchmarks.papers.claims import GRID_CLAIMS
from benchmarks.papers.grid import BUDGETS_USD_PER_HOUR, CATALOGS, HOMOGENEOUS, MODELS, MORE_BUDGETS_USD_PER_HOUR
from benchmarks.papers.melange import RATES_RPS
from benchmarks.papers.melange_summary import over_best, rows
from benchmarks.papers.summaries import SUTLER, Outcomes, claimed, rival, value
from benchmarks.scratch import tell

PLOTS: Final = {
    "gains.svg": "Sutler against every rival, from least to most; strokes: means, diamonds: the paper's means",
    "grid.svg": "Requests/s over the budget, means over traces and availabilities, the rivals with unlimited supply",
    "budget.svg": "Sutler over each homogeneous fleet with unlimited supply, by budget",
    "melange.svg": "Saving over the cheapest fleet of one GPU type, by request rate",
}
COLOURS: Final = {SUTLER: "#1f6feb", "h100": "#d1571b", "a6000": "#2a9d3c", "4090": "#8250df"}
TITLES: Final = {"paper_table1": "Table 1's figures", "default": "today's figures"}
# Same bytes from the same outcomes: no version, no date, no random identifiers.
METADATA: Final = {"Creator": None, "Date": None}
SALT: Final = "papers"


def draw(cells: Sequence[Cell], outcomes: Outcomes, folder: Path) -> bool:
    """Writes the plots; whether matplotlib is there to do it."""
    if find_spec("matplotlib") is None:
        tell("no plots: they need matplotlib, pip install 'sutler[plots]'")
        return False
    import matplotlib

    matplotlib.use("agg")
    matplotlib.rcParams.update({"svg.hashsalt": SALT, "svg.fonttype": "none"})
    folder.mkdir(parents=True, exist_ok=True)
    _gains(cells, outcomes, folder / "gains.svg")
    _grid(cells, outcomes, folder / "grid.svg")
    _budget(cells, outcomes, folder / "budget.svg")
    _melange(cells, outcomes, folder / "melange.svg")
    return True


def _gains(cells: Sequence[Cell], outcomes: Outcomes, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 5.6), layout="constrained", sharey=True)
    for axis, catalog in zip(axes, CATALOGS, strict=True):
        for place, claim in enumerate(GRID_CLAIMS):
            found = [100 * one for one in claimed(claim, cells, outcomes, catalog=catalog)]
            if found:
                axis.plot([min(found), max(found)], [place] * 2, color=COLOURS[SUTLER], linewidth=5, alpha=0.4)
                axis.plot([fmean(found)], [place], "|", markersize=14, markeredgewidth=2, color="black")
            if claim.mean is not None:
                axis.plot([100 * claim.mean], [place], "D", markersize=5, color=COLOURS["h100"])
        axis.axvline(0, color="black", linewidth=0.8)
        axis.set(title=TITLES[catalog], xlabel="sutler more, or rival less, %", xlim=(-40, 220))
        axis.grid(alpha=0.3, axis="x")
    axes[0].set(yticks=range(len(GRID_CLAIMS)), yticklabels=[claim.title for claim in GRID_CLAIMS])
    axes[0].invert_yaxis()
    _save(figure, path)


def _grid(cells: Sequence[Cell], outcomes: Outcomes, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(10, 5.6), layout="constrained", sharex=True)
    for row, catalog in zip(axes, CATALOGS, strict=True):
        for axis, model in zip(row, MODELS, strict=True):
            for name in (SUTLER, *HOMOGENEOUS):
                strategy = name if name == SUTLER else rival(f"{name}/unlimited", catalog)
                means = [_mean(cells, outcomes, strategy, catalog, model, b) for b in BUDGETS_USD_PER_HOUR]
                axis.plot(BUDGETS_USD_PER_HOUR, means, "o-", markersize=3, color=COLOURS[name], label=name)
            axis.set(title=f"{model}, {TITLES[catalog]}", ylim=(0, None), xlim=(0, None))
            axis.grid(alpha=0.3)
        row[0].set(ylabel="requests/s")
    axes[-1][1].set(xlabel="$/h")
    axes[0][0].legend(fontsize=8)
    _save(figure, path)


def _mean(cells: Sequence[Cell], outcomes: Outcomes, strategy: str, catalog: str, model: str, budget: int) -> float:
    wanted = ("grid", catalog, model, budget)
    own = [cell for cell in cells if _key(cell) == wanted]
    known = [one for cell in own if (one := value(outcomes, cell, strategy)) is not None]
    return fmean(known) if known else float("nan")


def _key(cell: Cell) -> tuple[object, ...]:
    known = dict(cell.parameters)
    return (cell.part, known.get("catalog"), known.get("model"), known.get("budget"))


def _budget(cells: Sequence[Cell], outcomes: Outcomes, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained", sharey=True)
    own = [cell for cell in cells if cell.part == "budget"]
    for trace, axis in enumerate(axes, start=1):
        for gpu in HOMOGENEOUS:
            gains = []
            for budget in MORE_BUDGETS_USD_PER_HOUR:
                cell = next(c for c in own if (c.get("trace"), c.get("budget")) == (trace, budget))
                ours, theirs = (
                    value(outcomes, cell, SUTLER),
                    value(outcomes, cell, rival(f"{gpu}/unlimited", "paper_table1")),
                )
                gains.append(100 * (ours / theirs - 1) if ours and theirs else float("nan"))
            axis.plot(MORE_BUDGETS_USD_PER_HOUR, gains, "o-", markersize=3, color=COLOURS[gpu], label=gpu)
        axis.axhline(0, color="black", linewidth=0.8)
        axis.set(title=f"trace {trace}", xlabel="$/h")
        axis.grid(alpha=0.3)
    axes[0].set(ylabel="sutler more, %")
    axes[-1].legend(fontsize=8)
    _save(figure, path)


def _melange(cells: Sequence[Cell], outcomes: Outcomes, path: Path) -> None:
    import matplotlib.pyplot as plt

    found = rows(cells, outcomes)
    panels = list(dict.fromkeys((row.tpot_ms, row.dataset) for row in found)) or [(0, "")]
    figure, axes = plt.subplots(2, 3, figsize=(10, 5.2), layout="constrained", sharex=True, sharey=True)
    for axis, panel in zip(axes.flat, panels, strict=False):
        own = [row for row in found if (row.tpot_ms, row.dataset) == panel]
        lines = {
            "paper": [over_best(row.paper, row.papers_singles) for row in own],
            "melange": [over_best(row.ours["melange"], row.singles) for row in own],
            SUTLER: [over_best(row.ours[SUTLER], row.singles) for row in own],
        }
        for (name, savings), style in zip(lines.items(), ("D--", "s-", "o-"), strict=True):
            colour = COLOURS.get(name, COLOURS["h100"] if name == "paper" else COLOURS["a6000"])
            shown = [float("nan") if one is None else 100 * one for one in savings]
            axis.plot([row.rate for row in own], shown, style, markersize=4, color=colour, label=name)
        axis.set(title=f"{panel[1]}, {panel[0]} ms", xscale="log", xticks=RATES_RPS)
        axis.set_xticklabels(RATES_RPS)
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[1][1].set(xlabel="requests/s")
    axes[0][0].set(ylabel="saved, %")
    axes[0][0].legend(fontsize=8)
    _save(figure, path)


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure.savefig(path, metadata=METADATA)
    plt.close(figure)
