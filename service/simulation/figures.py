"""Plots of a simulation: who waits how long, and what the replicas were doing meanwhile.

matplotlib is the optional extra `plots`; it is imported when something is drawn.
"""

import html
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from sutler.service.simulation.schemas import METRIC_WORDS

if TYPE_CHECKING:
    from sutler.service.simulation.simulated import Simulated

FIGURES: Final = {
    "latencies.png": "Share of the requests that are served within a time",
    "load.png": "Queue, batch and cache of the replicas over time",
}
_MOST_LINES: Final = 12
_MOST_POINTS: Final = 2_000


def draw(found: "Simulated", folder: Path) -> Path:
    """Writes the figures and index.html, which shows them; its path."""
    import matplotlib

    matplotlib.use("agg")
    folder.mkdir(exist_ok=True)
    _draw_latencies(found, folder / "latencies.png")
    _draw_load(found, folder / "load.png")
    page = folder / "index.html"
    figures = "".join(
        f'<h2>{html.escape(title)}</h2><img src="{name}" alt="{html.escape(title)}">'
        for name, title in FIGURES.items()
    )
    text = html.escape(f"plan {found.resource.plan_id}: {found.resource.traffic}")
    page.write_text(f'<!doctype html><meta charset="utf-8"><title>simulation</title><h1>{text}</h1>{figures}\n')
    return page


def _draw_latencies(found: "Simulated", path: Path) -> None:
    import matplotlib.pyplot as plt

    outcome, requests = found.outcome, found.outcome.requests
    counted = (requests.arrival_s >= found.summary.warm_up_s) & outcome.is_served
    models = [model.model for model in found.summary.models]
    figure, axes = plt.subplots(1, len(METRIC_WORDS), figsize=(12, 3.6), layout="constrained", sharey=True)
    for axis, (metric, words) in zip(axes, METRIC_WORDS.items(), strict=True):
        values = getattr(outcome, f"{metric}_s")
        for name in models:
            mine = np.isin(requests.kind, [i for i, kind in enumerate(requests.kinds) if kind.model == name])
            _cumulative(axis, values[mine & counted], name)
        for model in found.summary.models:
            for result in model.limits:
                if result.limit.metric == metric:
                    axis.axvline(result.limit.seconds, color="#c1121f", linestyle="--", linewidth=0.8)
                    axis.axhline(result.limit.percentile, color="#c1121f", linestyle=":", linewidth=0.8)
        axis.set(xlabel=f"{words}, s", xscale="log", ylim=(0, 100.5))
        axis.grid(alpha=0.3)
    axes[0].set(ylabel="requests within it, %")
    if len(models) > 1:
        axes[0].legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def _cumulative(axis: Any, seconds: "np.ndarray[Any, np.dtype[np.float64]]", label: str) -> None:
    known = np.sort(seconds[np.isfinite(seconds) & (seconds > 0)])
    if not len(known):
        return
    share = 100.0 * np.arange(1, len(known) + 1) / len(known)
    shown = np.unique(np.linspace(0, len(known) - 1, min(len(known), _MOST_POINTS)).astype(np.int64))
    axis.plot(known[shown], share[shown], label=label)


def _draw_load(found: "Simulated", path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(3, 1, figsize=(12, 7), layout="constrained", sharex=True)
    names = [replica.name for replica in found.summary.replicas]
    for name, timeline in list(zip(names, found.outcome.timelines, strict=True))[:_MOST_LINES]:
        times = (np.arange(len(timeline.running)) + 0.5) * timeline.span_s
        for axis, values in zip(
            axes, (timeline.waiting, timeline.running, 100 * timeline.cache_fraction), strict=True
        ):
            axis.plot(times, values, linewidth=0.9, label=name)
    for axis, words in zip(axes, ("requests that wait", "sequences that run", "cache used, %"), strict=True):
        axis.set(ylabel=words, ylim=(0, None))
        axis.axvspan(0, found.summary.warm_up_s, color="#7a7a7a", alpha=0.12)
        axis.grid(alpha=0.3)
    axes[-1].set(xlabel="seconds")
    axes[0].legend(ncols=6, fontsize=7)
    figure.savefig(path, dpi=120)
    plt.close(figure)
