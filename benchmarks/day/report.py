"""The figures of all seeds as JSON and as a text that people read, and which targets they miss."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import mean
from typing import Final, TypedDict

import numpy as np

from benchmarks.day.comparison import HEADROOMS, MEAN_RPS, NAMES, ORACLE_STEP_S, POLICY, Compared, PolicyName
from benchmarks.day.losses import FAILING_FRACTION, LIFE_S, OUTAGE_S, WAVES
from benchmarks.day.market import MACHINES
from benchmarks.day.planning import HEADROOM_FRACTION, MODEL, PRECISION, TRUTH_SIGMA, TTFT_P90_S
from benchmarks.day.simulation import POLL_S, Outcome
from benchmarks.machine import Machine

LEAST_SAVING_FRACTION: Final = 0.10
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
    """`never_multiple`: of the mean traffic that (a) is planned for; `saving_fraction`: of sutler against (a), in USD
    per served request; `churn_fraction`: of sutler's churned machine-hours in those of (b)."""

    seed: int
    never_multiple: float
    never_serves_as_much: bool
    saving_fraction: float
    churn_fraction: float
    policies: dict[PolicyName, Figures]
    autoscaled: list[AutoscaledDay]


class Report(TypedDict):
    """`headroom_fraction`: of the autoscaler, the smallest with which it serves as many requests as sutler on all
    seeds together, if `autoscaler_serves_as_much`; else that with which it serves most. `as_dear_headroom_fraction`:
    the smallest with which it costs as much, if `autoscaler_costs_as_much`; else the largest."""

    machine: Machine
    headroom_fraction: float
    autoscaler_serves_as_much: bool
    as_dear_headroom_fraction: float
    autoscaler_costs_as_much: bool
    seeds: list[SeedReport]
    curves_of_seed: int
    curves: dict[PolicyName, Curves]


def report_of(machine: Machine, found: Sequence[Compared]) -> Report:
    """The curves are those of the first seed."""
    served = sum(each.outcomes["sutler"].served for each in found)
    usd = sum(each.outcomes["sutler"].usd for each in found)
    by_served = {headroom: sum(each.autoscaled[headroom].served for each in found) for headroom in HEADROOMS}
    by_usd = {headroom: sum(each.autoscaled[headroom].usd for each in found) for headroom in HEADROOMS}
    most = max(HEADROOMS, key=lambda headroom: by_served[headroom])
    headroom = next((each for each in HEADROOMS if by_served[each] >= served), most)
    all_of = [{**each.outcomes, "autoscaler": each.autoscaled[headroom]} for each in found]
    return Report(
        machine=machine,
        headroom_fraction=headroom,
        autoscaler_serves_as_much=by_served[headroom] >= served,
        as_dear_headroom_fraction=next((each for each in HEADROOMS if by_usd[each] >= usd), HEADROOMS[-1]),
        autoscaler_costs_as_much=max(by_usd.values()) >= usd,
        seeds=[_seed(each, outcomes) for each, outcomes in zip(found, all_of, strict=True)],
        curves_of_seed=found[0].seed,
        curves={name: curves_of(all_of[0][name]) for name in NAMES},
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
    """Which targets the seeds miss, a sentence each."""
    saving = mean(seed["saving_fraction"] for seed in report["seeds"])
    autoscaler, unserved = _autoscaler_saving(report), _unserved_ratio(report)
    found = {
        f"sutler is {autoscaler:.1%} cheaper than the autoscaler, not {LEAST_SAVING_FRACTION:.0%}": (
            autoscaler < LEAST_SAVING_FRACTION
        ),
        f"sutler leaves {unserved:.0%} of what the autoscaler leaves unserved at the same cost, more than "
        f"{MOST_UNSERVED_FRACTION:.0%}": unserved > MOST_UNSERVED_FRACTION,
        f"sutler is {saving:.1%} cheaper than never replanning, not {LEAST_SAVING_FRACTION:.0%}": (
            saving < LEAST_SAVING_FRACTION
        ),
    }
    return [sentence for sentence, is_so in found.items() if is_so]


def _autoscaler_saving(report: Report) -> float:
    """In USD per served request, over all seeds together."""
    cost = {}
    for name in ("sutler", "autoscaler"):
        days = [seed["policies"][name] for seed in report["seeds"]]
        cost[name] = sum(day["usd"] for day in days) / sum(day["requests"] - day["unserved"] for day in days)
    return 1 - cost["sutler"] / cost["autoscaler"]


def _unserved_ratio(report: Report) -> float:
    """Sutler's unserved requests over the autoscaler's at the same cost, over all seeds together."""
    ours = sum(seed["policies"]["sutler"]["unserved"] for seed in report["seeds"])
    return ours / max(1.0, sum(_as_dear(report, seed) for seed in report["seeds"]))


def _as_dear(report: Report, seed: SeedReport) -> float:
    """Unserved requests of the autoscaler at sutler's cost over all seeds."""
    headroom = report["as_dear_headroom_fraction"]
    (day,) = [day for day in seed["autoscaled"] if day["headroom_fraction"] == headroom]
    return day["unserved_fraction"] * seed["policies"]["sutler"]["requests"]


def text_of(report: Report) -> str:
    """A page: what was done, the table, the targets, seed by seed."""
    return "\n".join([*_head(report), "", *_table(report), "", *_targets(report), "", *_by_seed(report)]) + "\n"


def _seed(each: Compared, outcomes: Mapping[PolicyName, Outcome]) -> SeedReport:
    cost = {name: outcomes[name].usd_per_million_served for name in NAMES}
    churn = {name: outcomes[name].idle_machine_hours for name in NAMES}
    return SeedReport(
        seed=each.seed,
        never_multiple=each.multiple,
        never_serves_as_much=each.is_enough,
        saving_fraction=round(1 - cost["sutler"] / cost["never"], 4),
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


def _head(report: Report) -> Iterator[str]:
    machine = report["machine"]
    seeds = ", ".join(str(seed["seed"]) for seed in report["seeds"])
    yield "A hard day of twelve hours, simulated: five ways to keep a fleet"
    yield f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']} GB; Python {machine['python']}; "
    yield f"sutler {machine['sutler']}; {machine['date']}"
    yield ""
    yield f"{MODEL} in {PRECISION}, min_cost, {HEADROOM_FRACTION:.0%} headroom, TTFT p90 {TTFT_P90_S:g} s;"
    own = POLICY.model_dump(exclude_unset=True)
    yield f"policy {', '.join(f'{name} {value:g}' for name, value in own.items())}, else the default;"
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
    as_dear = "which costs as much" if report["autoscaler_costs_as_much"] else "which costs less with any"
    as_much = "which serves as much" if report["autoscaler_serves_as_much"] else "which serves less with any"
    yield (
        f"cheaper than the autoscaler with {report['headroom_fraction']:.0%} headroom, {as_much}, per served request "
        f"of all seeds: {_autoscaler_saving(report):.1%}, target {LEAST_SAVING_FRACTION:.0%}"
    )
    yield (
        f"unserved requests of all seeds, against those of the autoscaler with "
        f"{report['as_dear_headroom_fraction']:.0%}, {as_dear}: {_unserved_ratio(report):.0%}, "
        f"target {MOST_UNSERVED_FRACTION:.0%}"
    )
    yield (
        f"cheaper than never replanning, per served request: {mean(saving):.1%} (worst seed {min(saving):.1%}), "
        f"target {LEAST_SAVING_FRACTION:.0%}"
    )
    yield (
        f"churned machine-hours against replanning at every change: {mean(churn):.1%} (worst seed {max(churn):.1%})"
    )
    yield from (f"MISSED: {sentence}" for sentence in missed(report))


def _by_seed(report: Report) -> Iterator[str]:
    yield "seed   cheaper than (a)   churn of (b)   (a) planned for   unserved %: sutler, autoscaler, (a), (b)"
    for seed in report["seeds"]:
        found = seed["policies"]
        names: tuple[PolicyName, ...] = ("sutler", "never", "always")
        counts = [found[name]["unserved"] for name in names]
        counts.insert(1, _as_dear(report, seed))
        lost = ", ".join(f"{100 * count / found['sutler']['requests']:.2f}" for count in counts)
        note = "" if seed["never_serves_as_much"] else "  (a) serves less"
        yield (
            f"{seed['seed']:4d}   {seed['saving_fraction']:16.1%}   {seed['churn_fraction']:12.1%}"
            f"   {seed['never_multiple']:13.2f} x   {lost}{note}"
        )
