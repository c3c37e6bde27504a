"""The day as pictures: what each policy costs, and its capacity against what arrives."""

from pathlib import Path
from typing import Final

from benchmarks.day.comparison import NAMES, PolicyName
from benchmarks.day.report import BIN_S, TITLES, Curves, Report

_COLOURS: Final[dict[PolicyName, str]] = {
    "sutler": "#0b6e4f",
    "never": "#7a7a7a",
    "always": "#c1121f",
    "oracle": "#1d4e89",
}
_SALT: Final = "sutler"  # names inside an SVG are drawn at random otherwise


def draw(report: Report, folder: Path) -> tuple[Path, Path]:
    """Writes replanning-cost.svg and replanning-capacity.svg; the same report gives the same files."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": _SALT, "font.size": 8, "axes.spines.top": False})
    cost, capacity = folder / "replanning-cost.svg", folder / "replanning-capacity.svg"
    _draw_cost(report, cost)
    _draw_capacity(report, capacity)
    return cost, capacity


def _draw_cost(report: Report, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3), layout="constrained")
    axes = figure.add_subplot()
    for name in NAMES:
        curves = report["curves"][name]
        axes.step(_hours(curves), curves["usd_per_hour"], color=_COLOURS[name], label=TITLES[name], where="post")
    axes.set(xlabel="hour of the day (UTC)", ylabel="USD per hour", xlim=(0, None), ylim=(0, None))
    axes.set_title(f"What the fleet costs, market seed {report['curves_of_seed']}")
    axes.legend(frameon=False, ncols=4, fontsize=7)
    figure.savefig(path, format="svg", metadata={"Date": None})


def _draw_capacity(report: Report, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    grid = figure.subplots(2, 2, sharex=True, sharey=True)
    for name, axes in zip(NAMES, grid.flat, strict=True):
        curves = report["curves"][name]
        hours = _hours(curves)
        axes.fill_between(hours, curves["arriving_rps"], color="#d9d9d9", step="post", label="arriving")
        axes.step(hours, curves["capacity_rps"], color=_COLOURS[name], where="post", label="capacity")
        axes.set_title(TITLES[name], fontsize=8)
        axes.set(xlim=(0, None), ylim=(0, None))
    for axes in grid[-1]:
        axes.set_xlabel("hour of the day (UTC)")
    for axes in grid[:, 0]:
        axes.set_ylabel("requests/s")
    grid[0, 0].legend(frameon=False, fontsize=7)
    figure.savefig(path, format="svg", metadata={"Date": None})


def _hours(curves: Curves) -> list[float]:
    return [number * BIN_S / 3600.0 for number in range(len(curves["usd_per_hour"]))]
