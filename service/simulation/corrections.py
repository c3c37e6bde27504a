"""What of their rates replicas are counted on for that missed limits when their plan was replayed.

It comes from the replay itself: the same traffic with requests left out, as if other replicas had them, until the
configuration keeps its limits; that load, as a share of what it was planned for, is what it is counted on for. The
workloads under the limit pay for it, where most of the load is theirs: their rates fall so far that the mixture as it
was fills a replica at that load, and others, on replicas without them, lose nothing. Else all pay: a charge on few
would only have them spread thinly over replicas as full as before.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from sutler.service.documents.plan import PlanDocument
from sutler.service.simulation.simulated import Configuration, Simulated, configuration_of
from sutler.service.translation.to_plan import served_models
from sutler.solver.problem import Derating, LatencyLimit, MeasuredStage, Role, ServedModel
from sutler.solver.simulation.requests import RequestKind
from sutler.solver.simulation.summary import group_results
from sutler.solver.throughput.roles import limits_in

LEAST_PART: Final = 0.5  # of the load: from there on, what is under the limit pays alone; chosen: most of it
# Chosen: the first that keeps the limits is taken, so fine steps near 1, where most plans end; each costs a replay.
SHARES: Final = (0.97, 0.94, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05)

Served = tuple[Configuration, str]
"""A configuration and a workload that it serves."""
Fractions = Mapping[Served, float]
"""What it is counted on for, of its rate; what is not in it, for all."""
Missed = tuple[str, str | None, LatencyLimit]
"""Model, workload that has it for itself, and the limit."""
ReplayOfShare = Callable[[float], Simulated]
"""A plan on that share of its traffic."""


def corrections(plan: PlanDocument, found: Simulated, replay: ReplayOfShare) -> dict[Served, float]:
    """What keeps the limits that were missed, in the mixture as it is; empty where less of it helps nowhere."""
    missed = {
        (model.model, result.workload, result.limit)
        for model in found.summary.models
        for result in model.limits
        if not result.is_met
    }
    misses = partial(_misses, plan, missed=missed)
    at_first = misses(found)
    still, kept_at = set(at_first), dict[Configuration, float]()
    for share in SHARES:
        if not still:
            break
        lighter = set(misses(replay(share)))
        kept_at |= dict.fromkeys(still - lighter, share)
        still &= lighter
    return dict(_charged(plan, at_first, kept_at))


def stricter(*each: Fractions) -> dict[Served, float]:
    """The least that is counted on by any of them."""
    every = {served for fractions in each for served in fractions}
    return {served: min(fractions.get(served, 1.0) for fractions in each) for served in sorted(every)}


def on_top(known: Fractions, corrected: Fractions) -> dict[Served, float]:
    """Corrections of a plan that was made with what was known."""
    return {**known, **{served: known.get(served, 1.0) * fraction for served, fraction in corrected.items()}}


def between(one: Fractions, other: Fractions) -> dict[Served, float]:
    """The geometric means of both."""
    every = sorted({*one, *other})
    return {served: (one.get(served, 1.0) * other.get(served, 1.0)) ** 0.5 for served in every}


def deratings(fractions: Fractions) -> tuple[Derating, ...]:
    """The same for the solver."""
    return tuple(
        Derating(model, tuple(MeasuredStage(*stage) for stage in stages), fraction, role, workload, ranks, precision)
        for ((model, role, stages, ranks, precision), workload), fraction in fractions.items()
    )


def _misses(plan: PlanDocument, found: Simulated, *, missed: Collection[Missed]) -> dict[Configuration, set[str]]:
    """Configurations that miss some of these limits with what they served, and the workloads under those limits."""
    models, kinds = served_models(plan), found.outcome.requests.kinds
    of_replica = [configuration_of(replica) for replica in plan.replicas]
    configurations = list(dict.fromkeys(of_replica))
    asked = [_asked(models[name], role, kinds, missed) for name, role, *_ in configurations]
    groups = [configurations.index(one) for one in of_replica]
    results = group_results(found.outcome, groups, asked, warm_up_s=found.summary.warm_up_s)
    under: dict[Configuration, set[str]] = defaultdict(set)
    for configuration, limits, of_limits in zip(configurations, asked, results, strict=True):
        for (_, members), result in zip(limits, of_limits, strict=True):
            if members and not result.is_met:
                under[configuration].update(kinds[kind].workload for kind in members)
    return under


def _asked(
    model: ServedModel, role: Role, kinds: Sequence[RequestKind], missed: Collection[Missed]
) -> list[tuple[LatencyLimit, list[int]]]:
    """The limits that were missed and that the role can break, each with the kinds of requests that are under it."""
    breaks = {limit.metric for limit in limits_in(model, role)}
    limits = {workload.name: model.limits_of(workload) for workload in model.workloads}

    def under(workload: str | None, limit: LatencyLimit) -> list[int]:
        of_model = ((i, kind.workload) for i, kind in enumerate(kinds) if kind.model == model.name)
        return [i for i, own in of_model if workload in (None, own) and limit in limits[own]]

    return [
        (limit, under(workload, limit))
        for name, workload, limit in sorted(missed, key=str)
        if name == model.name and limit.metric in breaks
    ]


def _charged(
    plan: PlanDocument, misses: Mapping[Configuration, Collection[str]], kept_at: Mapping[Configuration, float]
) -> Iterator[tuple[Served, float]]:
    """What is counted on so that the mixture as it is fills a replica at the share of its load that keeps limits.

    Of a load of 1 with a part m under the limits, a share s is kept where the rates of m are s m / (1 - s (1 - m)) of
    what they were.
    """
    for configuration, share in kept_at.items():
        load, pays = _load(plan, configuration), misses[configuration]
        part = sum(load.get(workload, 0.0) for workload in pays) / sum(load.values())
        if part < LEAST_PART:
            part, pays = 1.0, load.keys()
        fraction = share * part / (1 - share * (1 - part)) * min(1.0, _fullest(plan, configuration))
        for workload in pays:
            yield (configuration, workload), fraction


def _load(plan: PlanDocument, configuration: Configuration) -> dict[str, float]:
    """The time of the replicas of a configuration, added up, by workload."""
    sustained = {(one.replica, one.workload): one.rps for one in plan.evidence}
    found: dict[str, float] = defaultdict(float)
    for replica in plan.replicas:
        if configuration_of(replica) == configuration:
            for workload, rps in replica.throughput_rps.items():
                found[workload] += rps / sustained[replica.id, workload]
    return found


def _fullest(plan: PlanDocument, configuration: Configuration) -> float:
    """How near the busiest replica is to the load that it may carry."""
    return max(
        replica.utilisation_fraction / (replica.max_load_fraction or 1.0)
        for replica in plan.replicas
        if configuration_of(replica) == configuration
    )
