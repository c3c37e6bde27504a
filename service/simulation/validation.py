"""Plan, replay, correct: what misses its limits when it is replayed is counted on for less in other plans.

Flow: a plan -> simulated.py -> what it missed -> corrections.py -> Problem.derated -> solve again, over all
configurations and over those of the first plan alone (of_configurations), so that more of the same is tried as well;
a few rounds. Where a plan meets its limits then, corrections half way back to those of the round before are tried,
since they may have been more than it takes. The best of all plans that were replayed is the one that is returned.

Of the other configurations, what a search leaves out would waste time; what it cannot is counted on for nothing.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Final

from sutler.service.documents.plan import (
    DeratedConfiguration,
    PlanDocument,
    TriedPlan,
    ValidatedLimit,
    ValidationDocument,
)
from sutler.service.simulation.corrections import (
    Fractions,
    ReplayOfShare,
    between,
    corrections,
    deratings,
    on_top,
    stricter,
)
from sutler.service.simulation.simulated import (
    Choices,
    Configuration,
    Simulated,
    configuration_of,
    in_words,
    simulated,
)
from sutler.service.simulation.traffic import PoissonTraffic, TraceTraffic
from sutler.solver.candidates.enumerate import roles_of
from sutler.solver.candidates.shapes import pipeline_shapes
from sutler.solver.market.pools import checkpoint_disk_gb
from sutler.solver.market.supply import Supply, build_supply
from sutler.solver.problem import Derating, MeasuredStage, Problem, ServedModel

# Chosen: a round is one or two solves and replays, and the later ones find little.
MOST_ROUNDS: Final = 3
HALVINGS: Final = 2
LEAST_GAIN: Final = 0.01  # of the objective: below it, plans with fewer corrections are not worth another solve


@dataclass(frozen=True, slots=True)
class _Tried:
    """A plan that was replayed; `is_same`: of the configurations of the first plan alone."""

    plan: PlanDocument
    found: Simulated
    fractions: Fractions
    derated: tuple[Derating, ...]
    round: int
    is_same: bool
    replay: ReplayOfShare

    @property
    def meets_all_limits(self) -> bool:
        return self.found.resource.meets_all_limits

    @property
    def most_missed_fraction(self) -> float:
        limits = [limit for model in self.found.resource.models for limit in model.limits if not limit.met]
        return max((limit.percentile / 100 - limit.within_fraction for limit in limits), default=0.0)

    @property
    def signed_value(self) -> float:
        """The smaller, the better."""
        value = self.plan.objective.value or 0.0
        return -value if self.plan.objective.kind == "max_throughput" else value

    @property
    def rank(self) -> tuple[bool, int, float]:
        """The smaller, the better: limits first, to a percent of the requests, then the objective's value."""
        return (not self.meets_all_limits, round(100 * self.most_missed_fraction), self.signed_value)


@dataclass(slots=True)
class _Search:
    """The plans that were tried, in `every`."""

    problem: Problem
    first: PlanDocument
    traffic: TraceTraffic | PoissonTraffic
    solve_again: Callable[[Problem], PlanDocument]
    every: list[_Tried] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._replay(self.first, {}, 0, is_same=False)

    @property
    def best(self) -> _Tried:
        return min(self.every, key=lambda one: one.rank)

    def correct(self) -> None:
        """Rounds of corrections, until a plan over all configurations meets its limits or is no better than one that
        does."""
        fractions: Fractions = {}
        for number in range(1, MOST_ROUNDS + 1):
            if not self._is_open():
                return
            latest = [one for one in self.every if one.round == number - 1 and not one.meets_all_limits]
            found = [on_top(one.fractions, corrections(one.plan, one.found, one.replay)) for one in latest]
            before, fractions = fractions, stricter(fractions, *found)
            if fractions == before:
                return
            free = self._free(fractions, number)
            if free is None:
                return
            if not any(one.is_same and one.meets_all_limits for one in self.every):
                self._same(fractions, number, free=free)

    def halve(self) -> None:
        """Half of the last corrections, and half of what is left, where the best plan meets its limits by them."""
        best = self.best
        if not best.meets_all_limits or best.round == 0:
            return
        before = self._free_of(best.round - 1)
        low, high = before.fractions, best.fractions
        for _ in range(HALVINGS):
            if self.best.signed_value - before.signed_value <= LEAST_GAIN * abs(self.best.signed_value):
                return
            middle, is_same = between(low, high), best.is_same
            tried = self._same(middle, best.round, free=before) if is_same else self._free(middle, best.round)
            low, high = (low, middle) if tried is not None and tried.meets_all_limits else (middle, high)

    def _free_of(self, number: int) -> _Tried:
        """The plan over all configurations that a round began with."""
        return next(one for one in self.every if one.round == number and not one.is_same)

    def _is_open(self) -> bool:
        last = [one for one in self.every if not one.is_same][-1]
        return not last.meets_all_limits and all(
            last.signed_value < one.signed_value for one in self.every if one.meets_all_limits
        )

    def _stricter(self, fractions: Fractions) -> Problem:
        return replace(self.problem, derated=(*self.problem.derated, *deratings(fractions)))

    def _free(self, fractions: Fractions, number: int) -> _Tried | None:
        """Tries a plan over all configurations; None: there is none."""
        plan = self.solve_again(self._stricter(fractions))
        return self._replay(plan, fractions, number, is_same=False) if plan.replicas else None

    def _same(self, fractions: Fractions, number: int, *, free: _Tried) -> _Tried | None:
        """Tries a plan over the configurations of the first one; None: there is none, or it is `free`, which was made
        over all configurations with these corrections or fewer."""
        own = {configuration_of(replica) for replica in self.first.replicas}
        plan = self.solve_again(of_configurations(self._stricter(fractions), own))
        if not plan.replicas or _is_same_fleet(plan, free.plan):
            return None
        plan = _proven_by(free.plan, plan, relative_gap=self.problem.options.relative_gap)
        return self._replay(plan, fractions, number, is_same=True)

    def _replay(self, plan: PlanDocument, fractions: Fractions, number: int, *, is_same: bool) -> _Tried:
        derated = (*self.problem.derated, *deratings(fractions))

        def replay(share: float) -> Simulated:
            return simulated(plan, self.traffic, Choices(), share=share, derated=derated)

        self.every.append(_Tried(plan, replay(1.0), fractions, derated, number, is_same, replay))
        return self.every[-1]


def validated(
    problem: Problem,
    plan: PlanDocument,
    traffic: TraceTraffic | PoissonTraffic,
    *,
    solve_again: Callable[[Problem], PlanDocument],
    corrects: bool = True,
) -> PlanDocument:
    """The best plan of those that were tried, this one first, with what it misses; `corrects` False: this one.

    A plan that runs nothing is left as it is. Raises what `simulated` raises.
    """
    if not plan.replicas:
        return plan
    search = _Search(problem, plan, traffic, solve_again)
    if corrects:
        search.correct()
        search.halve()
    return _with_validation(search.best, search.every, traffic)


def _is_same_fleet(one: PlanDocument, other: PlanDocument) -> bool:
    return one.rentals == other.rentals and sorted(map(configuration_of, one.replicas)) == sorted(
        map(configuration_of, other.replicas)
    )


def _proven_by(free: PlanDocument, same: PlanDocument, *, relative_gap: float) -> PlanDocument:
    """What was searched over few configurations proves nothing of the others; what was over all does."""
    value, bound = same.objective.value, free.objective.bound
    gap = None if bound is None or not value else abs(bound - value) / abs(value)
    objective = same.objective.model_copy(update={"bound": bound, "relative_gap": gap})
    status = "optimal" if gap is not None and gap <= relative_gap + 1e-9 else "feasible"
    return same.model_copy(update={"objective": objective, "status": status, "binding": free.binding})


def _with_validation(best: _Tried, every: Sequence[_Tried], traffic: TraceTraffic | PoissonTraffic) -> PlanDocument:
    resource = best.found.resource
    limits = tuple(
        ValidatedLimit(model=model.model, **limit.model_dump(exclude={"at_percentile_s"}))
        for model in resource.models
        for limit in model.limits
    )
    document = ValidationDocument(
        traffic=in_words(traffic),
        requests=resource.requests,
        rounds=len(every),
        meets_all_limits=resource.meets_all_limits,
        limits=limits,
        derated=tuple(DeratedConfiguration(**asdict(one)) for one in best.derated),
        tried=tuple(
            TriedPlan(
                round=one.round,
                fleet="same" if one.is_same else "any",
                value=one.plan.objective.value,
                cost_usd_per_hour=one.plan.cost_usd_per_hour,
                meets_all_limits=one.meets_all_limits,
                most_missed_fraction=one.most_missed_fraction,
            )
            for one in every
        ),
    )
    missed = () if document.meets_all_limits else (_missed(limits),)
    return best.plan.model_copy(update={"validation": document, "warnings": (*best.plan.warnings, *missed)})


def _missed(limits: Sequence[ValidatedLimit]) -> str:
    words = "; ".join(
        f"{limit.owner}: {limit.metric} p{limit.percentile} {limit.seconds:g} s is kept by "
        f"{100 * limit.within_fraction:.2f} %"
        for limit in limits
        if not limit.met
    )
    return f"replayed, this plan misses limits ({words}): loosen them, or allow more time or other GPUs"


def of_configurations(problem: Problem, own: Collection[Configuration]) -> Problem:
    """The problem, only with replicas of these configurations; without alternatives, which would be of other GPUs."""
    stages = [stages for _, _, stages, *_ in own]
    degrees = {size for *_, one, ranks, _ in own for _, degree in one for size in (degree, degree * ranks)}
    gpus = {gpu for one in stages for gpu, _ in one}
    smaller = replace(
        problem,
        offers=tuple(offer for offer in problem.offers if offer.gpu in gpus),
        search=replace(
            problem.search,
            tensor_parallel=tuple(sorted(degrees)),
            max_pipeline_stages=max(len(one) for one in stages),
            mixed_gpu_pipelines=any(len({gpu for gpu, _ in one}) > 1 for one in stages),
        ),
        options=replace(problem.options, alternatives=False),
    )
    others = (
        Derating(
            model,
            tuple(MeasuredStage(*stage) for stage in stages),
            0.0,
            role,
            data_parallel=ranks,
            precision=precision,
        )
        for model, role, stages, ranks, precision in sorted(_configurations(smaller) - set(own), key=str)
    )
    return replace(smaller, derated=(*problem.derated, *others))


def _configurations(problem: Problem) -> set[Configuration]:
    """All that the search would look at."""
    supply = build_supply(problem)
    each = (one for model in problem.models for one in model.at_each_precision)
    return {found for model in each for found in _of_model(problem, supply, model)}


def _of_model(problem: Problem, supply: Supply, model: ServedModel) -> set[Configuration]:
    found: set[Configuration] = set()
    for role in roles_of(problem):
        shapes = pipeline_shapes(problem, supply, model, checkpoint_disk_gb(model), role)
        columns = (shapes.pool.tolist(), shapes.tensor_parallel.tolist(), shapes.data_parallel.tolist())
        for pools, degrees, ranks in zip(*columns, strict=True):
            stages = tuple(
                (supply.pools[pool].gpu, degree) for pool, degree in zip(pools, degrees, strict=True) if pool >= 0
            )
            found.add((model.name, role, stages, ranks, model.precision))
    return found
