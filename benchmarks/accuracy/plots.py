"""The plots of docs/accuracy.md. matplotlib is the optional extra `plots`; it is imported when something is drawn."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import numpy as np

from benchmarks.accuracy.errors import FloatArray
from benchmarks.accuracy.findings import RUN_COUNTS, Findings
from benchmarks.accuracy.held_out import KEYS
from benchmarks.accuracy.markdown import joined
from benchmarks.accuracy.targets import COVERED
from benchmarks.scratch import tell
from sutler.solver.calibration.factors import REFERENCE_ENGINE

PLOTS: Final = {
    "scatter.png": "Predicted against measured requests/s, each run by a fit without its GPU; dashed: 20 % off",
    "errors.png": "Share of the runs that are off by less, before and after 5 runs of what was never seen",
    "coverage.png": "Share of each group within the band that other groups' runs make; shaded: 85 to 95 %",
}
COLOURS: Final = {"vllm": "#1f6feb", "trtllm": "#2a9d3c", "sglang": "#d1571b"}
OTHER_COLOUR: Final = "#6e6e6e"
OFF_BY: Final = 0.2
# Same bytes from the same findings: no version, no date.
METADATA: Final = {"Software": None}
DPI: Final = 72


def draw(found: Findings, folder: Path) -> bool:
    """Writes the plots; whether matplotlib is there to do it."""
    if find_spec("matplotlib") is None:
        tell("no plots: they need matplotlib, pip install 'sutler[plots]'")
        return False
    import matplotlib

    matplotlib.use("agg")
    folder.mkdir(exist_ok=True)
    _scatter(found, folder / "scatter.png")
    _errors(found, folder / "errors.png")
    _coverage(found, folder / "coverage.png")
    return True


def _scatter(found: Findings, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(7, 5.6), layout="constrained")
    measured = np.array([run.req_per_s for run in found.runs])
    predicted = found.left_out["GPU"].predicted.req_per_s
    for engine in sorted({run.engine for run in found.runs}):
        mine = np.array([run.engine == engine for run in found.runs])
        axis.scatter(measured[mine], predicted[mine], s=10, alpha=0.5, color=_colour(engine), label=engine)
    ends = np.array([min(measured.min(), predicted.min()), max(measured.max(), predicted.max())])
    for factor, style in ((1.0, "-"), (1 - OFF_BY, "--"), (1 + OFF_BY, "--")):
        axis.plot(ends, factor * ends, style, color="black", linewidth=0.8)
    axis.set(xscale="log", yscale="log", xlabel="measured requests/s", ylabel="predicted requests/s, GPU never seen")
    axis.legend()
    _save(figure, path)


def _errors(found: Findings, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(KEYS), figsize=(10, 3.2), layout="constrained", sharey=True)
    for axis, kind in zip(axes, KEYS, strict=True):
        for engine in sorted({one.engine for one in found.after[RUN_COUNTS[0]]}):
            mine = [one for one in found.after[RUN_COUNTS[0]] if one.kind == kind and one.engine == engine]
            for name, style in (("before", ":"), ("after", "-")):
                _cumulative(axis, joined(getattr(one, name) for one in mine), style, engine, name)
        axis.set(title=f"{kind} never seen", xlabel="error of requests/s, %", xlim=(0, 30), ylim=(0, 100))
        axis.grid(alpha=0.3)
    axes[0].set(ylabel="runs that are off by less, %")
    axes[-1].legend(fontsize=7)
    _save(figure, path)


def _cumulative(axis: Any, errors: FloatArray, style: str, engine: str, name: str) -> None:
    shares = np.linspace(0, 1, 101)
    if len(errors):
        axis.plot(
            100 * np.quantile(errors, shares), 100 * shares, style, color=_colour(engine), label=f"{engine} {name}"
        )


def _coverage(found: Findings, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8, 4.2), layout="constrained")
    names = [f"{one.fold.kind} {one.fold.group}" for one in found.coverage]
    place = np.arange(len(names))
    axis.axvspan(*(100 * one for one in COVERED), color="#2a9d3c", alpha=0.15)
    axis.barh(place - 0.2, [100 * one.fraction for one in found.coverage], 0.4, color=OTHER_COLOUR, label="all runs")
    vllm = [100 * one.fraction for one in found.reference_coverage]
    axis.barh(place + 0.2, vllm, 0.4, color=_colour(REFERENCE_ENGINE), label="vLLM runs")
    axis.set(yticks=place, yticklabels=names, xlim=(0, 100), xlabel="runs within the band, %")
    axis.invert_yaxis()
    figure.legend(loc="outside lower center", ncols=2)
    _save(figure, path)


def _colour(engine: str) -> str:
    return COLOURS.get(engine, OTHER_COLOUR)


def _save(figure: Any, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure.savefig(path, dpi=DPI, metadata=METADATA)
    plt.close(figure)
