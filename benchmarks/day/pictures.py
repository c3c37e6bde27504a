"""The day as pictures: what each policy costs, its capacity against what arrives, what is served for the money."""

from pathlib import Path
from typing import Final

from benchmarks.day.comparison import NAMES, PolicyName
from benchmarks.day.report import BIN_S, TITLES, Curves, Report

_COLOURS: Final[dict[PolicyName, str]] = {
    "sutler": "#0b6e4f",
    "autoscaler": "#e07a00",
    "never": "#7a7a7a",
    "always": "#c1121f",
    "oracle": "#1d4e89",
}
_SALT: Final = "sutler"  # names inside an SVG are drawn at random otherwise


def draw(report: Report, folder: Path) -> tuple[Path, Path, Path]:
    """Writes replanning-cost.svg, replanning-capacity.svg and replanning-served.svg; the same report gives the same
    files."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": _SALT, "font.size": 8, "axes.spines.top": False})
    cost, capacity, served = (folder / f"replanning-{name}.svg" for name in ("cost", "capacity", "served"))
    _draw_cost(report, cost)
    _draw_capacity(report, capacity)
    _draw_served(report, served)
    return cost, capacity, served


def _draw_cost(report: Report, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 3), layout="constrained")
    axes = figure.add_subplot()
    for name in NAMES:
        curves = report["curves"][name]
        axes.step(_hours(curves), curves["usd_per_hour"], color=_COLOURS[name], label=TITLES[name], where="post")
    axes.set(xlabel="hours", ylabel="USD per hour", xlim=(0, None), ylim=(0, None))
    axes.set_title(f"What the fleet costs, market seed {report['curves_of_seed']}")
    axes.legend(frameon=False, ncols=5, fontsize=7)
    figure.savefig(path, format="svg", metadata={"Date": None})


def _draw_capacity(report: Report, path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 7), layout="constrained")
    grid = figure.subplots(3, 2, sharex=True, sharey=True)
    grid[-1, -1].set_axis_off()
    for name, axes in zip(NAMES, grid.flat, strict=False):
        curves = report["curves"][name]
        hours = _hours(curves)
        axes.fill_between(hours, curves["arriving_rps"], color="#d9d9d9", step="post", label="arriving")
        axes.step(hours, curves["capacity_rps"], color=_COLOURS[name], where="post", label="capacity")
        axes.set_title(TITLES[name], fontsize=8)
        axes.set(xlim=(0, None), ylim=(0, None))
    for axes in grid[-1]:
        axes.set_xlabel("hours")
    for axes in grid[:, 0]:
        axes.set_ylabel("requests/s")
    grid[0, 0].legend(frameon=False, fontsize=7)
    figure.savefig(path, format="svg", metadata={"Date": None})


def _draw_served(report: Report, path: Path) -> None:
    """Of each seed the autoscaler's days by their headroom as a line, and sutler's day."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.add_subplot()
    for number, seed in enumerate(report["seeds"]):
        days, sutler = sorted(seed["autoscaled"], key=lambda day: day["usd"]), seed["policies"]["sutler"]
        unserved = 100 * sutler["unserved"] / sutler["requests"]
        title = TITLES["autoscaler"] + ", by its headroom" if number == 0 else None
        axes.plot(
            [day["usd"] for day in days],
            [100 * day["unserved_fraction"] for day in days],
            ".-",
            color=_COLOURS["autoscaler"],
            label=title,
            linewidth=0.7,
            markersize=2,
        )
        label = TITLES["sutler"] if number == 0 else None
        axes.plot(sutler["usd"], unserved, "o", color=_COLOURS["sutler"], label=label)
        axes.annotate(
            str(seed["seed"]), (sutler["usd"], unserved), fontsize=6, textcoords="offset points", xytext=(4, 2)
        )
    axes.set(xlabel="USD of the day", ylabel="unserved, % of the requests", xlim=(0, None), ylim=(0, None))
    axes.set_title("What is served for the money: below and left is better")
    axes.legend(frameon=False, fontsize=7)
    figure.savefig(path, format="svg", metadata={"Date": None})


def _hours(curves: Curves) -> list[float]:
    return [number * BIN_S / 3600.0 for number in range(len(curves["usd_per_hour"]))]
