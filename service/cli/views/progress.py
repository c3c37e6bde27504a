"""How far a solve or a comparison is, in one line."""

from collections.abc import Sequence

from sutler.service.wording.words import number, objective_unit, percent
from sutler.solver.problem import ObjectiveKind
from sutler.solver.progress import Progress
from sutler.solver.strategies.comparing import Ran


def progress_line(progress: Progress, kind: ObjectiveKind, *, limit_s: float | None = None) -> str:
    """One line such as `1.2 of 30 s · incumbent · best 7.1 req/s · proven 7.14 (gap 0.56 %) · 2,055 candidates`."""
    limit = "" if limit_s is None else f" of {limit_s:g}"
    parts = [f"{progress.seconds:.1f}{limit} s", progress.phase]
    if progress.value is not None:
        parts.append(f"best {number(progress.value)} {objective_unit(kind)}")
    if progress.bound is not None:
        gap = "" if progress.relative_gap is None else f" (gap {percent(progress.relative_gap)})"
        parts.append(f"proven {number(progress.bound)}{gap}")
    if progress.candidates is not None:
        parts.append(f"{progress.candidates:,} candidates")
    return " · ".join(parts)


def strategies_line(seconds: float, ran: Sequence[Ran], expected: int = 0) -> str:
    """One line such as `12.4 s · 5 of 84 done · uniform: 6.1 req/s`; `expected` 0: nobody knows how many come."""
    of = f" of {expected}" if expected else ""
    parts = [f"{seconds:.1f} s", f"{len(ran)}{of} done"]
    if ran:
        parts.append(f"{ran[-1].strategy.name}: {_outcome(ran[-1])}")
    return " · ".join(parts)


def _outcome(ran: Ran) -> str:
    if ran.planned is None:
        return "not applicable"
    plan = ran.planned.plan
    return plan.status if plan.value is None else f"{number(plan.value)} {objective_unit(plan.objective)}"
