"""A beam over stage choices: at the end of every stage, what each rule would do next, and the best few of all that.

Flow: Forecaster -> beam (here) -> improvement.py. The rules are the greedy search, the two heuristics, and what runs
kept as it is with the free GPUs given away greedily. States are ranked by when all could be done at best: the time so
far plus what is left of every model at its cheapest plan, loaded where it is not up, on all GPUs without a gap.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Final

from sutler.solver.offline.forecast import Forecast, Forecaster
from sutler.solver.offline.greedy import best_stage, greedy
from sutler.solver.offline.heuristics import max_heuristic, min_heuristic
from sutler.solver.offline.stages import RunState, Schedule, ScheduleStage

WIDTH: Final = 4  # chosen: as many states as rules; the time of a beam grows in proportion

Rule = Callable[[Forecaster, RunState], ScheduleStage]


def kept(forecaster: Forecaster, now: RunState) -> ScheduleStage:
    """What runs stays; free GPUs go where they bring the most."""
    return ScheduleStage(best_stage(forecaster, now, dict(now.running)))


RULES: Final[tuple[Rule, ...]] = (greedy, kept, min_heuristic, max_heuristic)


@dataclass(frozen=True, slots=True)
class _State:
    rank_s: float
    stages: Schedule
    standings: tuple[RunState, ...]


def beam(forecaster: Forecaster, now: RunState, *, stop: Callable[[], bool] = lambda: False) -> Forecast | None:
    """The best schedule that the rules make together; None where `stop` came first."""
    states, best = [_State(0.0, (), (now,))], None
    while states and not stop():
        found: dict[tuple[object, ...], _State] = {}
        for state in states:
            for rule in RULES:
                longer = _longer(forecaster, state, rule(forecaster, state.standings[-1]))
                last = longer.standings[-1]
                if last.at_s == inf:
                    continue
                if last.all_done:
                    best = longer if best is None or longer.rank_s < best.rank_s else best
                else:
                    key = (round(last.at_s, 3), tuple(round(progress, 4) for progress in last.progress))
                    found.setdefault(key, longer)
        ranked = sorted(found.values(), key=lambda state: state.rank_s)
        states = [state for state in ranked if best is None or state.rank_s < best.rank_s][:WIDTH]
    return None if best is None else Forecast(now, best.stages, best.standings[1:])


def rolled_out(forecaster: Forecaster, rule: Rule, now: RunState) -> Forecast:
    """One rule until all is done; where it cannot go on, what is left as Forecaster.run has it."""
    stages, standings = list[ScheduleStage](), list[RunState]()
    last = now
    while not last.all_done:
        stages.append(rule(forecaster, last))
        last = forecaster.stage(last, stages[-1])
        if last.at_s == inf:
            return forecaster.run(tuple(stages[:-1]), now)
        standings.append(last)
    return Forecast(now, tuple(stages), tuple(standings))


def _longer(forecaster: Forecaster, state: _State, stage: ScheduleStage) -> _State:
    after = forecaster.stage(state.standings[-1], stage)
    return _State(
        after.at_s + forecaster.least_gpu_s(after) / forecaster.costs.hardware.gpus,
        (*state.stages, stage),
        (*state.standings, after),
    )
