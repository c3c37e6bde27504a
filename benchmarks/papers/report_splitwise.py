"""Of docs/papers.md: Splitwise."""

from collections.abc import Sequence
from typing import Final

from benchmarks.accuracy.markdown import prose, table
from benchmarks.papers.cells import Cell, Outcome
from benchmarks.papers.claims import SPLITWISE_CLAIMS, SplitwiseClaim
from benchmarks.papers.reasons import SPLITWISE_WHY
from benchmarks.papers.splitwise import (
    A100_USD_PER_HOUR,
    DGX_GPUS,
    GOALS,
    H100_PRICE_RATIO,
    MIXES,
    MODELS,
    POWER_CAP_FRACTION,
    RATE_RPS,
    REFERENCE_H100,
    STRATEGIES,
)
from benchmarks.papers.summaries import Outcomes, less_is_better

_WATTS_PER_KW: Final = 1000.0
TITLE: Final = "## Cluster designs for power and cost (Splitwise, arXiv 2311.18677)\n\n"


def splitwise_section(cells: Sequence[Cell], outcomes: Outcomes) -> str:
    own = [cell for cell in cells if cell.part == "splitwise"]
    if not any((cell.name, name) in outcomes for cell in own for name in cell.strategies):
        return TITLE + "Not run yet.\n"
    header = ("model", "requests", "goal", "design", "allowed", "machines", "req/s", "kW", "$/h", "busy, %")
    body = [
        row for model in MODELS for mix in MIXES for goal in GOALS for row in _rows(own, outcomes, model, mix, goal)
    ]
    return TITLE + _setting() + _claims(own, outcomes) + "\n" + table(header, body, words=6) + "\n" + SPLITWISE_WHY


def _setting() -> str:
    dearer = A100_USD_PER_HOUR * H100_PRICE_RATIO
    return prose(f"""DGX-A100 and DGX-H100 with one engine of eight GPUs each; {A100_USD_PER_HOUR:g} $/h and
    {dearer:g} $/h, in the ratio of its Table V; the power that counts is that of the GPUs. Requests have the median
    lengths of its two traces. Equal power and equal cost are those of {REFERENCE_H100} DGX-H100, equal throughput is
    {RATE_RPS:g} requests/s. The nine limits of its Table VI are multiples of what we estimate of an unloaded
    DGX-A100. Every design is given the utilisation at which it does best. *Allowed* is: replicas that do both, as in
    the paper's baselines; replicas for prefill or decode as well; or those, and GPUs at
    {100 * POWER_CAP_FRACTION:.0f} % of their power. Sutler is asked under each. In the first table less than 1 is
    better where the goal is the least power or cost. A dash: no plan holds the limits.""")


def _claims(cells: Sequence[Cell], outcomes: Outcomes) -> str:
    header = ("goal", "requests", "ratio", "where", "paper", *MODELS)
    body = [
        (
            claim.goal,
            claim.mix,
            f"{claim.design} over {claim.over}",
            claim.place,
            "–" if claim.ratio is None else f"{claim.ratio:g}",
            *(_ratio(cells, outcomes, claim, model) for model in MODELS),
        )
        for claim in SPLITWISE_CLAIMS
    ]
    return table(header, body, words=4)


def _ratio(cells: Sequence[Cell], outcomes: Outcomes, claim: SplitwiseClaim, model: str) -> str:
    own = _of(cells, model, claim.mix, claim.goal)
    found = [best_of(own, outcomes, name) for name in (claim.design, claim.over)]
    values = [one[1].value for one in found if one and one[1].value]
    return f"{values[0] / values[1]:.2f}" if len(values) == len(found) else "–"


def _of(cells: Sequence[Cell], model: str, mix: str, goal: str) -> list[Cell]:
    return [cell for cell in cells if (cell.get("model"), cell.get("mix"), cell.get("goal")) == (model, mix, goal)]


def _rows(cells: Sequence[Cell], outcomes: Outcomes, model: str, mix: str, goal: str) -> list[tuple[object, ...]]:
    own = _of(cells, model, mix, goal)
    found: list[tuple[object, ...]] = []
    for allowed, name in ((allowed, name) for allowed, names in STRATEGIES.items() for name in names):
        best = best_of([cell for cell in own if cell.get("allowed") == allowed], outcomes, name)
        if best is not None:
            cell, one = best
            found.append(
                (
                    model,
                    mix,
                    goal,
                    name,
                    allowed,
                    *_figures(one),
                    f"{100 * float(cell.get('utilisation')):.0f}",
                )
            )
    return found


def best_of(cells: Sequence[Cell], outcomes: Outcomes, strategy: str) -> tuple[Cell, Outcome] | None:
    """The cell in which the strategy does best, with what it does."""
    found = [(cell, one) for cell in cells if (one := outcomes.get((cell.name, strategy))) and one.value is not None]
    if not found:
        return None
    sign = 1.0 if less_is_better(found[0][0]) else -1.0
    return min(found, key=lambda each: sign * (each[1].value or 0.0))


def _figures(one: Outcome) -> tuple[str, ...]:
    machines = ", ".join(f"{count // DGX_GPUS} {gpu}" for gpu, count in one.gpus.items())
    watts, usd = one.power_watts or 0.0, one.cost_usd_per_hour or 0.0
    return (machines, f"{one.throughput_rps or 0.0:.1f}", f"{watts / _WATTS_PER_KW:.0f}", f"{usd:.0f}")
