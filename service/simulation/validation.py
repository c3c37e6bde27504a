"""Plan, replay, correct: what misses its limits when it is replayed is counted on for less in another plan.

Flow: a plan -> simulated.py -> which configurations missed (here) -> Problem.derated -> solve again; a few rounds.

How much less comes from the replay itself: the same traffic with requests left out, as if other replicas had them,
until the configuration keeps its limits; that load, as a share of what it was estimated to sustain, is what it is
counted on for.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

from service.plans.plan_schema import (
    DeratedConfiguration,
    DeratedStage,
    PlanDocument,
    ValidatedLimit,
    ValidationDocument,
)
from service.plans.planned import served_models
from service.simulation.simulated import (
    Choices,
    Configuration,
    Simulated,
    configuration_of,
    derated_configuration,
    in_words,
    simulated,
)
from service.simulation.traffic import Drawn, Replayed
from solver.problem import Derating, MeasuredStage, Problem
from solver.simulation import group_results
from solver.throughput.roles import limits_in

MOST_ROUNDS: Final = 4
SHARES: Final = (0.97, 0.94, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2)


class Tried(Protocol):
    """A plan on its traffic, or on a share of it."""

    def __call__(self, *, share: float = 1.0) -> Simulated: ...


def validated(
    problem: Problem,
    plan: PlanDocument,
    traffic: Replayed | Drawn,
    choices: Choices,
    *,
    solve_again: Callable[[Problem], PlanDocument],
) -> PlanDocument:
    """The plan, or the one that takes its place; where none does, the last that runs, with what it misses.

    A plan that runs nothing is left as it is. Raises what `simulated` raises.
    """
    if not plan.replicas:
        return plan
    number = 1
    while True:
        tried = partial(simulated, plan, traffic, choices, derated=_documents(problem.derated))
        found = tried()
        slower = {} if found.resource.meets_all_limits or number == MOST_ROUNDS else _slower(plan, found, tried)
        stricter = replace(problem, derated=_joined(problem.derated, slower, plan))
        following = solve_again(stricter) if slower else None
        if following is None or not following.replicas:
            return _with_validation(plan, found, traffic, problem.derated, number)
        problem, plan, number = stricter, following, number + 1


def _slower(plan: PlanDocument, found: Simulated, tried: Tried) -> dict[Configuration, float]:
    """For each configuration that misses its limits, the share of this load under which it keeps them.

    Empty where less of it helps none of them.
    """
    open_ = _missing(plan, found)
    slower: dict[Configuration, float] = {}
    for share in SHARES:
        if not open_:
            break
        still = _missing(plan, tried(share=share))
        slower |= dict.fromkeys(open_ - still, share)
        open_ &= still
    return slower


def _missing(plan: PlanDocument, found: Simulated) -> set[Configuration]:
    configurations = list(dict.fromkeys(configuration_of(replica) for replica in plan.replicas))
    models = served_models(plan)
    results = group_results(
        found.outcome,
        [configurations.index(configuration_of(replica)) for replica in plan.replicas],
        [limits_in(models[model], role) for model, role, _ in configurations],
        warm_up_s=found.summary.warm_up_s,
    )
    return {
        configuration
        for configuration, limits in zip(configurations, results, strict=True)
        if not all(limit.is_met for limit in limits)
    }


def _joined(
    known: Sequence[Derating], slower: dict[Configuration, float], plan: PlanDocument
) -> tuple[Derating, ...]:
    busy: dict[Configuration, float] = {}
    for replica in plan.replicas:
        configuration = configuration_of(replica)
        busy[configuration] = max(busy.get(configuration, 0.0), replica.utilisation_fraction)
    fractions = {derated_configuration(one): one.fraction for one in known}
    for configuration, share in slower.items():
        fractions[configuration] = fractions.get(configuration, 1.0) * min(1.0, busy[configuration]) * share
    return tuple(
        Derating(model, tuple(MeasuredStage(gpu, degree) for gpu, degree in stages), fraction, role)
        for (model, role, stages), fraction in fractions.items()
    )


def _with_validation(
    plan: PlanDocument, found: Simulated, traffic: Replayed | Drawn, derated: Sequence[Derating], rounds: int
) -> PlanDocument:
    limits = tuple(
        ValidatedLimit(
            model=model.model,
            metric=limit.metric,
            percentile=limit.percentile,
            seconds=limit.seconds,
            within_fraction=limit.within_fraction,
            met=limit.met,
        )
        for model in found.resource.models
        for limit in model.limits
    )
    document = ValidationDocument(
        traffic=in_words(traffic),
        requests=found.resource.requests,
        rounds=rounds,
        meets_all_limits=found.resource.meets_all_limits,
        limits=limits,
        derated=_documents(derated),
    )
    missed = () if document.meets_all_limits else (_missed(limits),)
    return plan.model_copy(update={"validation": document, "warnings": (*plan.warnings, *missed)})


def _documents(derated: Sequence[Derating]) -> tuple[DeratedConfiguration, ...]:
    return tuple(
        DeratedConfiguration(
            model=one.model,
            role=one.role,
            stages=tuple(DeratedStage(gpu=s.gpu, tensor_parallel=s.tensor_parallel) for s in one.stages),
            fraction=one.fraction,
        )
        for one in derated
    )


def _missed(limits: Sequence[ValidatedLimit]) -> str:
    words = "; ".join(
        f"{limit.model}: {limit.metric} p{limit.percentile} {limit.seconds:g} s is kept by "
        f"{100 * limit.within_fraction:.2f} %"
        for limit in limits
        if not limit.met
    )
    return f"replayed, this plan misses limits ({words}): loosen them, or allow more time or other GPUs"
