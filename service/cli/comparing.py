"""Runs strategies one after the other and says, meanwhile, how far it is."""

from dataclasses import dataclass, field

from sutler.service.cli.views.wording import number, objective_unit
from sutler.solver.problem import Problem
from sutler.solver.strategies.comparing import Ran
from sutler.solver.strategies.registry import compare


@dataclass(slots=True)
class Comparing:
    """Strategies by name (None: all) beside sutler, run on one problem after the other."""

    names: tuple[str, ...] | None
    _expected: int = 0
    _ran: list[Ran] = field(default_factory=list)

    def run(self, problem: Problem) -> tuple[Ran, ...]:
        """What each of them makes of the problem, sutler first. Raises what an unknown name raises."""
        return compare(problem, names=self.names, on_ran=self._ran.append)

    def expect(self, more: int) -> None:
        """How many runs are still to come, so that the words can say so."""
        self._expected = len(self._ran) + more

    def words(self, seconds: float) -> str:
        """One line such as `12.4 s · 5 of 84 done · uniform: 6.1 req/s`."""
        ran = list(self._ran)
        of = f" of {self._expected}" if self._expected else ""
        parts = [f"{seconds:.1f} s", f"{len(ran)}{of} done"]
        if ran:
            parts.append(f"{ran[-1].strategy.name}: {_outcome(ran[-1])}")
        return " · ".join(parts)


def _outcome(ran: Ran) -> str:
    if ran.planned is None:
        return "not applicable"
    plan = ran.planned.plan
    return plan.status if plan.value is None else f"{number(plan.value)} {objective_unit(plan.objective)}"
