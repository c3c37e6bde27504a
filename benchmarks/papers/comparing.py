"""Asks the planner's strategies about one cell."""

from benchmarks.papers.cells import Cell, Outcome, outcome_of
from sutler.solver.strategies.comparing import Ran
from sutler.solver.strategies.registry import compare, strategies_of


def compared(cell: Cell) -> list[Outcome]:
    """What those of the cell's strategies did that this version has; what it lacks is left for a later one."""
    problem = cell.problem()
    known = {strategy.name for strategy in strategies_of(problem)}
    names = [name for name in cell.strategies if name in known]
    if not names:
        return []
    return [_outcome(cell.name, ran) for ran in compare(problem, names=names) if ran.strategy.name in names]


def _outcome(cell: str, ran: Ran) -> Outcome:
    name, own_market = ran.strategy.name, ran.strategy.own_market
    if ran.planned is None:
        return Outcome(
            cell,
            name,
            "not applicable",
            own_market=own_market,
            reason=ran.reason,
            violations=ran.violations,
            seconds=ran.seconds,
        )
    plan = ran.planned.plan
    return outcome_of(cell, name, plan, own_market=own_market, violations=ran.violations, seconds=ran.seconds)
