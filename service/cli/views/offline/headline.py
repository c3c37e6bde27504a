"""The first lines of an offline plan: when all is done, how good that is, on what it runs."""

from rich.text import Text

from sutler.service.cli.views.layout import headed
from sutler.service.offline.outcome_schema import GpuShares
from sutler.service.offline.plan_schema import OfflinePlanDocument, PlannedHardware
from sutler.service.wording.words import counted, machine, number, percent, price

COLOURS = {"optimal": "bold green", "feasible": "bold green", "infeasible": "bold red"}


def headline(plan: OfflinePlanDocument) -> Text:
    """A few lines of text; the first says what the plan achieves."""
    return headed(achievement(plan), proof(plan), setting(plan), style=COLOURS[plan.status])


def achievement(plan: OfflinePlanDocument) -> str:
    """One sentence: when all is done, or that there is no such plan."""
    if plan.makespan_s is None:
        return "Infeasible: no plan meets every limit"
    if plan.cost_usd is None:
        return f"All requests done in {seconds(plan.makespan_s)}"
    start_up_s = plan.application.rental.start_up_s
    since = f"{seconds(start_up_s + plan.makespan_s)} after the order for {price(plan.cost_usd)} USD"
    return f"All requests done {since}; charts and stages begin {seconds(start_up_s)} after it"


def proof(plan: OfflinePlanDocument) -> str:
    """What no plan can beat; empty where nothing is proven."""
    bound, gap = plan.objective.bound, plan.objective.relative_gap
    if bound is None or plan.makespan_s is None:
        return ""
    with_lengths = "with these lengths"
    if plan.objective.kind == "min_cost":
        claim = f"no choice costs less than {price(bound)} USD {with_lengths}"
    else:
        what = "schedule" if plan.cost_usd is None else "choice"
        claim = f"no {what} is faster than {seconds(bound)} {with_lengths}"
    if plan.status == "optimal":
        return f"Optimal: {claim}"
    return claim[0].upper() + claim[1:] + ("" if gap is None else f" (gap {percent(gap)})")


def setting(plan: OfflinePlanDocument) -> str:
    """Says on what all runs, by whom it was planned, how long that took."""
    took = f"{counted(plan.solver.evaluated_schedules, 'schedule')} tried in {plan.solver.seconds:.2f} s"
    by = "" if plan.strategy in (None, "sutler") else f", by {strategy_words(plan.strategy)}"
    revision = "" if plan.revision == 1 else f", revision {plan.revision}"
    where = "" if plan.hardware is None else f"{hardware_words(plan.hardware)}{by}{revision}; "
    return where + took


def hardware_words(hardware: PlannedHardware) -> str:
    """`8 × a100-sxm4-80gb in pairs`, or `2 machines with 16 × h100-sxm`."""
    sizes = {len(island.gpus) for island in hardware.islands}
    gpus = sum(len(island.gpus) for island in hardware.islands)
    hosts = len({island.host for island in hardware.islands})
    islands = f" on {len(hardware.islands)} islands of {min(sizes)}" if len(sizes) == 1 else ""
    words = machine(hardware.gpu, gpus) + (islands if len(hardware.islands) > hosts else "")
    return words if hosts == 1 else f"{hosts} machines with {words}"


def strategy_words(strategy: str | None) -> str:
    """`max heuristic`."""
    return (strategy or "–").replace("_", " ")


def shares_words(shares: GpuShares) -> str:
    """What the GPUs do, in one line."""
    return (
        f"GPUs compute {percent(shares.busy_fraction)} of the time, load {percent(shares.loading_fraction)}, "
        f"wait {percent(shares.idle_fraction)}"
    )


def moment(at_s: float | None) -> str:
    """Seconds from the start, to a tenth; a dash for never."""
    return "–" if at_s is None else f"{at_s:,.1f}"


def seconds(value: float | None) -> str:
    """`733 s`, with hours in brackets where there are some."""
    if value is None:
        return "–"
    hours = f" ({value / 3600:.1f} h)" if value >= 7200 else ""
    return f"{number(value)} s{hours}"
