"""The figures of all seeds as JSON and as a text that people read, and which targets they miss."""

from collections.abc import Callable, Iterator, Sequence
from statistics import mean
from typing import Final, TypedDict

import numpy as np

from benchmarks.day.comparison import MEAN_RPS, NAMES, ORACLE_STEP_S, Compared, PolicyName
from benchmarks.day.losses import FAILING_FRACTION, LIFE_S, OUTAGE_S, WAVES
from benchmarks.day.market import MACHINES
from benchmarks.day.planning import HEADROOM_FRACTION, MODEL, PRECISION, TRUTH_SIGMA, TTFT_P90_S
from benchmarks.day.simulation import POLL_S, Outcome
from benchmarks.machine import Machine

LEAST_SAVING_FRACTION: Final = 0.10
MOST_CHURN_FRACTION: Final = 0.10
MOST_UNSERVED_FRACTION: Final = 0.5
BIN_S: Final = 600.0
TITLES: Final[dict[PolicyName, str]] = {
    "sutler": "sutler",
    "autoscaler": "autoscaler",
    "never": "(a) never replanning",
    "always": "(b) at every change",
    "oracle": "(c) oracle, changes free",
}


class Figures(TypedDict):
    """One policy on one seed. `churned_*`: paid while starting or draining."""

    revisions: int
    machines_started: int
    machines_stopped: int
    machines_lost: int
    churned_machine_hours: float
    churned_gpu_hours: float
    under_capacity_s: float
    requests: float
    unserved: float
    usd: float
    usd_per_million_served: float
    mean_gpus: float


class Curves(TypedDict):
    """By bins of `BIN_S`: the requests/s that arrive and that the fleet could carry, and what it costs."""

    arriving_rps: list[float]
    capacity_rps: list[float]
    usd_per_hour: list[float]


class AutoscaledDay(TypedDict):
    """The autoscaler with one headroom."""

    headroom_fraction: float
    usd: float
    unserved_fraction: float


class SeedReport(TypedDict):
    """`never_multiple`: of the mean traffic that (a) is planned for; `headroom_fraction`: of the autoscaler;
    `serve_as_much`: those that serve as many requests as sutler. `saving_fraction`: of sutler against (a) and
    `autoscaler_saving_fraction`: against the autoscaler, in USD per served request; `unserved_as_dear`: of the
    autoscaler's requests at sutler's cost; `churn_fraction`: of sutler's churned machine-hours in those of (b)."""

    seed: int
    never_multiple: float
    headroom_fraction: float
    serve_as_much: list[PolicyName]
    saving_fraction: float
    autoscaler_saving_fraction: float
    unserved_as_dear: int
    churn_fraction: float
    policies: dict[PolicyName, Figures]
    autoscaled: list[AutoscaledDay]


class Report(TypedDict):
    machine: Machine
    seeds: list[SeedReport]
    curves_of_seed: int
    curves: dict[PolicyName, Curves]


def report_of(machine: Machine, found: Sequence[Compared]) -> Report:
    """The curves are those of the first seed."""
    first = found[0]
    return Report(
        machine=machine,
        seeds=[_seed(each) for each in found],
        curves_of_seed=first.seed,
        curves={name: curves_of(first.outcomes[name]) for name in NAMES},
    )


def curves_of(outcome: Outcome) -> Curves:
    """Means over bins, weighted by time."""
    spans = outcome.spans
    ends = np.array([span.end_s for span in spans])
    edges = np.arange(0.0, ends[-1] + BIN_S / 2, BIN_S)

    def binned(value: Sequence[float]) -> list[float]:
        lengths = np.array([span.length_s for span in spans])
        total = np.concatenate([[0.0], np.cumsum(np.array(value) * lengths)])
        at_edges = np.interp(edges, np.concatenate([[0.0], ends]), total)
        return [round(float(each), 3) for each in np.diff(at_edges) / BIN_S]

    return Curves(
        arriving_rps=binned([span.arriving_rps for span in spans]),
        capacity_rps=binned([span.capacity_rps for span in spans]),
        usd_per_hour=binned([span.usd_per_hour for span in spans]),
    )


def missed(report: Report) -> list[str]:
    """Which targets the mean of the seeds misses, a sentence each."""
    saving = mean(seed["saving_fraction"] for seed in report["seeds"])
    autoscaler = mean(seed["autoscaler_saving_fraction"] for seed in report["seeds"])
    unserved = _unserved_ratio(report)
    churn = mean(seed["churn_fraction"] for seed in report["seeds"])
    found = {
        f"sutler is {autoscaler:.1%} cheaper than the autoscaler, not {LEAST_SAVING_FRACTION:.0%}": (
            autoscaler < LEAST_SAVING_FRACTION
        ),
        f"sutler leaves {unserved:.0%} of what the autoscaler leaves unserved at the same cost, more than "
        f"{MOST_UNSERVED_FRACTION:.0%}": unserved > MOST_UNSERVED_FRACTION,
        f"sutler is {saving:.1%} cheaper than never replanning, not {LEAST_SAVING_FRACTION:.0%}": (
            saving < LEAST_SAVING_FRACTION
        ),
        f"sutler churns {churn:.1%} of what replanning at every change does, more than {MOST_CHURN_FRACTION:.0%}": (
            churn > MOST_CHURN_FRACTION
        ),
    }
    return [sentence for sentence, is_so in found.items() if is_so]


def text_of(report: Report) -> str:
    """A page: what was done, the table, the targets, seed by seed."""
    return "\n".join([*_head(report), "", *_table(report), "", *_targets(report), "", *_by_seed(report)]) + "\n"


def _seed(each: Compared) -> SeedReport:
    outcomes = each.outcomes
    cost = {name: outcomes[name].usd_per_million_served for name in NAMES}
    churn = {name: outcomes[name].idle_machine_hours for name in NAMES}
    return SeedReport(
        seed=each.seed,
        never_multiple=each.multiple,
        headroom_fraction=each.headroom_fraction,
        serve_as_much=sorted(each.are_enough),
        saving_fraction=round(1 - cost["sutler"] / cost["never"], 4),
        autoscaler_saving_fraction=round(1 - cost["sutler"] / cost["autoscaler"], 4),
        unserved_as_dear=round(each.as_dear.unserved),
        churn_fraction=round(churn["sutler"] / churn["always"], 4) if churn["always"] else 0.0,
        policies={name: _figures(outcomes[name]) for name in NAMES},
        autoscaled=[
            AutoscaledDay(
                headroom_fraction=headroom,
                usd=round(day.usd, 3),
                unserved_fraction=round(day.unserved / day.arrived, 6),
            )
            for headroom, day in sorted(each.autoscaled.items())
        ],
    )


def _figures(outcome: Outcome) -> Figures:
    return Figures(
        revisions=outcome.revisions,
        machines_started=outcome.started,
        machines_stopped=outcome.stopped,
        machines_lost=outcome.lost,
        churned_machine_hours=round(outcome.idle_machine_hours, 3),
        churned_gpu_hours=round(outcome.idle_gpu_hours, 3),
        under_capacity_s=round(outcome.under_capacity_s, 1),
        requests=round(outcome.arrived),
        unserved=round(outcome.unserved),
        usd=round(outcome.usd, 3),
        usd_per_million_served=round(outcome.usd_per_million_served, 3),
        mean_gpus=round(outcome.mean_gpus, 2),
    )


def _unserved_ratio(report: Report) -> float:
    """Sutler's unserved requests over the autoscaler's at the same cost."""
    ours = sum(seed["policies"]["sutler"]["unserved"] for seed in report["seeds"])
    return ours / max(1, sum(seed["unserved_as_dear"] for seed in report["seeds"]))


def _head(report: Report) -> Iterator[str]:
    machine = report["machine"]
    seeds = ", ".join(str(seed["seed"]) for seed in report["seeds"])
    yield "A hard day of twelve hours, simulated: five ways to keep a fleet"
    yield f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB; Python {machine['python']}; "
    yield f"sutler {machine['sutler']}; {machine['date']}"
    yield ""
    yield f"{MODEL} in {PRECISION}, min_cost, {HEADROOM_FRACTION:.0%} headroom, TTFT p90 {TTFT_P90_S:g} s;"
    yield f"{MEAN_RPS:g} requests/s on average: chats and code of the Azure traces, by each seed in another shape;"
    yield f"what GPU types truly do differs from the estimates by {TRUTH_SIGMA:.0%} (one standard deviation);"
    yield f"{MACHINES} fake machines, polled every {POLL_S:g} s; {FAILING_FRACTION:.0%} of them fail once,"
    yield f"interruptible ones go once in {LIFE_S / 3600:g} h, and nearly all of a provider {WAVES} times a day;"
    yield f"a provider fails with all of its machines for {OUTAGE_S / 60:g} min;"
    yield f"oracle in steps of {ORACLE_STEP_S:g} s. Market seeds: {seeds}. Means, and in brackets the worst seed."


def _table(report: Report) -> Iterator[str]:
    columns: list[tuple[str, str, Callable[[Figures], float]]] = [
        ("revisions", ".0f", lambda f: f["revisions"]),
        ("started", ".0f", lambda f: f["machines_started"]),
        ("stopped", ".0f", lambda f: f["machines_stopped"]),
        ("churned machine-h", ".2f", lambda f: f["churned_machine_hours"]),
        ("churned GPU-h", ".2f", lambda f: f["churned_gpu_hours"]),
        ("under capacity, s", ".0f", lambda f: f["under_capacity_s"]),
        ("unserved, %", ".2f", lambda f: 100 * f["unserved"] / f["requests"]),
        ("GPUs", ".1f", lambda f: f["mean_gpus"]),
        ("USD", ".2f", lambda f: f["usd"]),
        ("USD per million served", ".2f", lambda f: f["usd_per_million_served"]),
    ]
    yield f"{'':24s}" + "".join(f"{TITLES[name]:>26s}" for name in NAMES)
    for title, form, value in columns:
        cells = []
        for name in NAMES:
            values = [value(seed["policies"][name]) for seed in report["seeds"]]
            cells.append("-" if np.isnan(values).any() else f"{mean(values):{form}} ({max(values):{form}})")
        yield f"{title:24s}" + "".join(f"{cell:>26s}" for cell in cells)


def _targets(report: Report) -> Iterator[str]:
    saving = [seed["saving_fraction"] for seed in report["seeds"]]
    churn = [seed["churn_fraction"] for seed in report["seeds"]]
    autoscaler = [seed["autoscaler_saving_fraction"] for seed in report["seeds"]]
    yield (
        f"cheaper than the autoscaler, per served request: {mean(autoscaler):.1%} "
        f"(worst seed {min(autoscaler):.1%}), target {LEAST_SAVING_FRACTION:.0%}"
    )
    yield (
        f"unserved requests of all seeds, against the autoscaler's at the same cost: {_unserved_ratio(report):.0%}, "
        f"target {MOST_UNSERVED_FRACTION:.0%}"
    )
    yield (
        f"cheaper than never replanning, per served request: {mean(saving):.1%} (worst seed {min(saving):.1%}), "
        f"target {LEAST_SAVING_FRACTION:.0%}"
    )
    yield (
        f"churned machine-hours against replanning at every change: {mean(churn):.1%} (worst seed {max(churn):.1%}), "
        f"target {MOST_CHURN_FRACTION:.0%}"
    )
    yield from (f"MISSED: {sentence}" for sentence in missed(report))


def _by_seed(report: Report) -> Iterator[str]:
    yield "        cheaper than       churn    planned with or for   unserved %: sutler, autoscaler at the same"
    yield "seed   autoscaler   (a)   of (b)   autoscaler      (a)    cost and with that headroom, (a), (b)"
    for seed in report["seeds"]:
        found = seed["policies"]
        names: tuple[PolicyName, ...] = ("sutler", "autoscaler", "never", "always")
        counts = [found[name]["unserved"] for name in names]
        counts.insert(1, seed["unserved_as_dear"])
        lost = ", ".join(f"{100 * count / found['sutler']['requests']:.2f}" for count in counts)
        less = [TITLES[name] for name in ("autoscaler", "never") if name not in seed["serve_as_much"]]
        note = f"  less served: {', '.join(less)}" if less else ""
        yield (
            f"{seed['seed']:4d}      {seed['autoscaler_saving_fraction']:6.1%} {seed['saving_fraction']:6.1%}"
            f"   {seed['churn_fraction']:6.1%}        {seed['headroom_fraction']:+5.0%}"
            f"   {seed['never_multiple']:.2f} x   {lost}{note}"
        )
