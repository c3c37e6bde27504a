"""Makes a schedule better by local changes, looked up on forecasts.

Flow: greedy.py, heuristics.py, beam.py -> improved (here) -> planner.py, which executes what comes out.

One change at a time: another execution plan for a model from some stage on, a model more or less in a stage, two
models exchanged, a stage split at some progress of one of its models, a stage left out. A change that makes it longer
is kept with a probability that falls to zero (simulated annealing, Kirkpatrick et al. 1983); what is returned is the
best that was seen.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import exp
from typing import Final, TypeVar

import numpy as np

from sutler.solver.offline.forecast import Forecast, Forecaster
from sutler.solver.offline.stages import ExecutionPlan, Schedule, ScheduleStage

# Shares of a model's work at which a stage is split; chosen: dense near the end, where models leave GPUs idle.
SPLITS: Final = (0.25, 0.5, 0.65, 0.8, 0.9, 0.95, 0.98)


Choice = TypeVar("Choice")


def improved(
    forecaster: Forecaster,
    found: Forecast,
    *,
    steps: int,
    seed: int,
    temperature: float = 0.01,
    stop: Callable[[], bool] = lambda: False,
) -> Forecast:
    """After so many tries, or when `stop` says so; never later than `found`.

    `temperature`: to begin with, in parts of the time that is left.
    """
    draw = np.random.default_rng(seed)
    best = current = found
    first_s = temperature * (found.end_s - found.begin.at_s)
    for step in range(steps):
        if not current.stages or (step % 16 == 0 and stop()):
            break
        change = one_change(forecaster, current.stages, draw)
        if change is None:
            continue
        at, rest = change
        tail = forecaster.run(rest, current.before(at))
        changed = Forecast(
            found.begin, (*current.stages[:at], *tail.stages), (*current.standings[:at], *tail.standings)
        )
        longer_s = changed.end_s - current.end_s
        if longer_s <= 0 or draw.random() < exp(-longer_s / max(first_s * (1.0 - step / steps), 1e-9)):
            current = changed
        if current.end_s < best.end_s:
            best = current
    return best


def one_change(forecaster: Forecaster, schedule: Schedule, draw: np.random.Generator) -> tuple[int, Schedule] | None:
    """(a stage, what the schedule is from there on); None where what was drawn cannot be done."""
    at = int(draw.integers(0, len(schedule)))
    rest = _CHANGES[draw.integers(0, len(_CHANGES))](forecaster, schedule[at:], draw)
    return None if rest is None else (at, rest)


def _other_plan(forecaster: Forecaster, rest: Schedule, draw: np.random.Generator) -> Schedule | None:
    """Gives a model of the first stage another plan, in that stage or from there on."""
    if not rest[0].plans:
        return None
    node = _one(draw, list(rest[0].plans))
    plan = _one(draw, forecaster.costs.plans[node])
    through = len(rest) if draw.random() < 0.6 else 1
    return tuple(
        _with(stage, node, plan) if position < through and node in stage.plans else stage
        for position, stage in enumerate(rest)
    )


def _two_plans(forecaster: Forecaster, rest: Schedule, draw: np.random.Generator) -> Schedule | None:
    """Gives two models of the first stage other plans at once: what one needs more the other may need less."""
    if len(rest[0].plans) < 2:
        return None
    plans = dict(rest[0].plans)
    for node in draw.choice(list(plans), 2, replace=False).tolist():
        plans[node] = _one(draw, forecaster.costs.plans[node])
    return (replace(rest[0], plans=plans), *rest[1:])


def _one_more(forecaster: Forecaster, rest: Schedule, draw: np.random.Generator) -> Schedule:
    """A model in the first stage, or in all from there on; it comes before what is there."""
    node = int(draw.integers(0, len(forecaster.costs.plans)))
    plan = _one(draw, forecaster.costs.plans[node])
    through = len(rest) if draw.random() < 0.6 else 1
    return tuple(_with(stage, node, plan) if position < through else stage for position, stage in enumerate(rest))


def _one_less(forecaster: Forecaster, rest: Schedule, draw: np.random.Generator) -> Schedule | None:
    """A model later: not in the first stage, but at the end where no other stage has it."""
    if len(rest[0].plans) < 2:
        return None
    node = _one(draw, list(rest[0].plans))
    plan = rest[0].plans[node]
    without = replace(rest[0], plans={other: kept for other, kept in rest[0].plans.items() if other != node})
    last = () if any(node in stage.plans for stage in rest[1:]) else (ScheduleStage({node: plan}),)
    return (without, *rest[1:], *last)


def _exchange(forecaster: Forecaster, rest: Schedule, draw: np.random.Generator) -> Schedule | None:
    """One model where another was, from the first stage on."""
    nodes = len(forecaster.costs.plans)
    one, other = (int(draw.integers(0, nodes)) for _ in range(2))
    if one == other:
        return None
    named = {one: other, other: one}

    def exchanged(plans: Mapping[int, ExecutionPlan]) -> dict[int, ExecutionPlan]:
        found = {}
        for node, plan in plans.items():
            to = named.get(node, node)
            possible = forecaster.costs.plans[to]
            found[to] = plan if plan in possible else possible[0]
        return found

    return tuple(replace(stage, plans=exchanged(stage.plans)) for stage in rest)


def _split(forecaster: Forecaster, rest: Schedule, draw: np.random.Generator) -> Schedule | None:
    """The first stage ends at some progress of one of its models; then one of them goes on in another way."""
    if not rest[0].plans:
        return None
    node = _one(draw, list(rest[0].plans))
    first = ScheduleStage(rest[0].plans, node, SPLITS[draw.integers(0, len(SPLITS))])
    change = _CHANGES[draw.integers(0, 3)](forecaster, rest, draw)
    return (first, *(change or rest))


def _shift(forecaster: Forecaster, rest: Schedule, draw: np.random.Generator) -> Schedule | None:
    """The end of a split stage earlier or later; of another stage, the stage left out."""
    if rest[0].until_node is None or draw.random() < 0.3:
        return rest[1:] or None
    fraction = float(np.clip(rest[0].until_fraction + 0.1 * draw.normal(), 0.02, 0.99))
    return (replace(rest[0], until_fraction=fraction), *rest[1:])


_CHANGES: Final = (_other_plan, _one_more, _one_less, _exchange, _split, _shift, _two_plans)


def _with(stage: ScheduleStage, node: int, plan: ExecutionPlan) -> ScheduleStage:
    others = {other: kept for other, kept in stage.plans.items() if other != node}
    return ScheduleStage({node: plan, **others}, stage.until_node, stage.until_fraction)


def _one(draw: np.random.Generator, among: Sequence[Choice]) -> Choice:
    return among[int(draw.integers(0, len(among)))]
