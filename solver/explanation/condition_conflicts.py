"""Which condition on the fleet is in the way: what is to be survived, shares of contracts, least numbers of replicas.

Flow: conflicts.py, where there is a fleet without these conditions and none with them, however much is paid -> here.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from sutler.solver.plan import Conflict
from sutler.solver.problem import Problem, Resilience
from sutler.solver.progress import SecondsLeft

HasFleet = Callable[[Problem], bool]
_HALVINGS = 7  # a search each: they find a fraction to within a 128th


def without_conditions(problem: Problem) -> Problem:
    """The problem with none of them."""
    limits = replace(problem.limits, max_share_per_contract_fraction={})
    models = tuple(model.without_least_replicas() for model in problem.models)
    return replace(problem, resilience=Resilience(), limits=limits, models=models)


def failed_conditions(problem: Problem, has_fleet: HasFleet, seconds_left: SecondsLeft) -> tuple[Conflict, ...]:
    """The first condition without which there is a fleet, and how far it has to give; all, where each is too much."""
    each = list(_conditions(problem))
    alone = [state for state in each if has_fleet(_given_up(problem, state))][:1]
    found = []
    for name, stated in alone or each:
        low, high = (0.0, stated) if name.startswith("resilience") else (stated, 1.0)
        for _ in range(_HALVINGS if alone and not name.startswith("limit/min_") else 0):
            if seconds_left() <= 0:
                break
            middle = (low + high) / 2
            fits = has_fleet(_with(problem, name, middle))
            if name.startswith("resilience"):
                low, high = (middle, high) if fits else (low, middle)
            else:
                low, high = (low, middle) if fits else (middle, high)
        found.append(_conflict(problem, name, stated, low if name.startswith("resilience") else high))
    return tuple(found)


def _conditions(problem: Problem) -> Iterator[tuple[str, float]]:
    """Names and what is stated."""
    if problem.resilience.survive:
        yield "resilience/load_fraction", problem.resilience.load_fraction
    for contract, share in problem.limits.max_share_per_contract_fraction.items():
        yield f"limit/max_share_per_contract_fraction/{contract}", share
    for model in problem.models:
        for field, least in model.least_replicas.items():
            yield f"limit/{field}/{model.name}", float(least)


def _given_up(problem: Problem, condition: tuple[str, float]) -> Problem:
    name, _ = condition
    return _with(problem, name, 0.0 if name.startswith("resilience") else 1.0)


def _with(problem: Problem, name: str, value: float) -> Problem:
    """The problem with another value of a condition."""
    kind, _, key = name.partition("/")
    if kind == "resilience":
        survive = problem.resilience.survive if value > 0 else ()
        return replace(problem, resilience=replace(problem.resilience, survive=survive, load_fraction=value))
    limit, _, key = key.partition("/")
    if limit.startswith("min_"):  # given up as a whole
        models = (m.without_least_replicas() if m.name == key else m for m in problem.models)
        return replace(problem, models=tuple(models))
    stated = problem.limits.max_share_per_contract_fraction
    shares = {contract: value if contract == key else share for contract, share in stated.items()}
    return replace(problem, limits=replace(problem.limits, max_share_per_contract_fraction=shares))


def _conflict(problem: Problem, name: str, stated: float, enough: float) -> Conflict:
    """What is asked for beside what there is room for, or what would do."""
    if name.startswith("resilience"):
        survived = " or ".join(problem.resilience.survive)
        remedy = (
            f"whatever is rented, after the loss of a {survived} less of the load is carried: lower "
            "resilience.load_fraction, survive less, or offer more providers, places or machines"
        )
        return Conflict(name, stated, enough, "fraction", remedy)
    field = name.removeprefix("limit/").split("/")[0]
    if field.startswith("min_"):
        model = name.rpartition("/")[2]
        which, least = ("", 1.0) if field == "min_replicas" else (" on machines that are not interruptible", 0.0)
        remedy = f"there is no room for so many replicas of {model}{which}: lower models[].{field}, or add offers"
        return Conflict(name, stated, least, "replicas", remedy)
    remedy = f"no plan keeps to this share: raise limits.{field}, or add offers of other contracts"
    return Conflict(name, enough, stated, "fraction", remedy)
