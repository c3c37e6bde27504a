"""Plans an application, or compares strategies on it: from what was translated to the documents.

Flow: translate.py, market.py -> planned, compared (here) -> solver/offline -> plan_issue.py, outcome_schema.py.
Shared by the command line and the API.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Final
from uuid import UUID

from sutler.service.documents.errors import DocumentError
from sutler.service.offline.market import OfflineMarket
from sutler.service.offline.outcome_schema import ComparedPlan, OfflineComparisonDocument, SeededTimes
from sutler.service.offline.plan_issue import Renting, cut_short, issue_infeasible, issue_offline_plan
from sutler.service.offline.plan_schema import MachineChoice, OfflineConflict, OfflinePlanDocument, OfflineRental
from sutler.service.offline.shares import gpu_shares
from sutler.service.offline.translate import OfflineTranslation, to_loading, to_rental_terms
from sutler.solver.catalog.entries import Gpu
from sutler.solver.errors import InvalidProblemError
from sutler.solver.offline.application import Application, Recorded
from sutler.solver.offline.costs import weights_gb
from sutler.solver.offline.hardware import Hardware
from sutler.solver.offline.machine_sets import MOST_GPUS, RentedMachines
from sutler.solver.offline.plan import OfflinePlan, Strategy
from sutler.solver.offline.planner import compare_strategies, plan_application, simulate_schedule
from sutler.solver.offline.renting import MachineSet, RentalGoal, Rented, rent
from sutler.solver.offline.sampling import sample
from sutler.solver.problem import Offer

DRAWN: Final = (
    "Lengths of answers are drawn from their distributions (seed {seed}): other lengths give other times "
    "(`sutler offline simulate --seed`)."
)


def planned(
    translation: OfflineTranslation,
    *,
    market: OfflineMarket | None,
    plan_id: UUID,
    created_at: datetime,
    strategy: Strategy = "sutler",
) -> OfflinePlanDocument:
    """The plan, on the hardware at hand or on what is best rented; infeasible where no model fits or no limit can be
    kept. Raises DocumentError and InvalidProblemError for fields that are wrong."""
    if market is not None and strategy != "sutler":
        remedy = "plans on GPUs at hand: give hardware, or let sutler choose what to rent"
        raise DocumentError.of("strategy", remedy, value=strategy)
    begun_s = time.monotonic()
    notes = (*translation.notes, *(() if market is None else market.notes), *_warnings(translation))

    def infeasible(conflicts: Sequence[OfflineConflict], *more: str) -> OfflinePlanDocument:
        return issue_infeasible(
            translation,
            conflicts,
            pile=sample(translation.application, seed=translation.options.seed),
            plan_id=plan_id,
            created_at=created_at,
            seconds=time.monotonic() - begun_s,
            warnings=(*more, *notes),
        )

    try:
        hardware, plan, renting = _found(translation, market, strategy)
    except _NothingFitsError as error:
        return infeasible(error.conflicts)
    except InvalidProblemError as error:
        conflicts = _too_large(translation, market, error)
        if not conflicts:
            raise
        return infeasible(conflicts, str(error))
    return issue_offline_plan(
        plan,
        translation,
        hardware,
        plan_id=plan_id,
        created_at=created_at,
        renting=renting,
        warnings=(*cut_short(plan), *notes),
    )


def compared(
    translation: OfflineTranslation,
    *,
    market: OfflineMarket | None,
    created_at: datetime,
    seeds: int = 0,
) -> OfflineComparisonDocument:
    """Every strategy on the same hardware and lengths, and each schedule with the lengths of `seeds` other draws; on
    a market, on what sutler rents. Raises DocumentError and InvalidProblemError, also where nothing fits."""
    hardware = translation.hardware
    if hardware is None:
        try:
            hardware, _, _ = _found(translation, market, "sutler")
        except _NothingFitsError as error:
            shown = ", ".join(conflict.constraint for conflict in error.conflicts)
            raise DocumentError.of(
                "objective", "nothing that can be rented meets it: loosen it", value=shown
            ) from None
    plans = compare_strategies(translation.application, hardware, translation.options)
    others = range(translation.options.seed + 1, translation.options.seed + 1 + seeds)
    times = {name: _times(translation, hardware, plan, others) for name, plan in plans.items()}
    issued = {
        name: issue_offline_plan(plan, translation, hardware, plan_id=UUID(int=0), created_at=created_at)
        for name, plan in plans.items()
    }
    first = next(iter(issued.values()))
    assert first.hardware is not None, "what runs has hardware"
    assert first.lower_bound is not None, "what was planned has a bound"
    return OfflineComparisonDocument(
        schema="sutler/offline-comparison/v1",
        created_at=created_at,
        application=translation.application.name,
        seed=translation.options.seed,
        hardware=first.hardware,
        lower_bound=first.lower_bound,
        strategies=tuple(
            _compared(issued[name], name, plan, plans["sutler"], _seeded(others, times[name], times["sutler"]))
            for name, plan in plans.items()
        ),
        warnings=(*translation.notes, *_warnings(translation)),
    )


class _NothingFitsError(Exception):
    """Nothing that is for rent meets the goal; caught in this module."""

    def __init__(self, conflicts: Sequence[OfflineConflict]) -> None:
        self.conflicts = conflicts
        super().__init__()


def _found(
    translation: OfflineTranslation, market: OfflineMarket | None, strategy: Strategy
) -> tuple[Hardware, OfflinePlan, Renting | None]:
    hardware = translation.hardware
    if hardware is not None:
        plan = plan_application(translation.application, hardware, translation.options, strategy=strategy)
        return hardware, plan, None
    assert market is not None, "an application without hardware has a market"
    document, goal = translation.document, _goal(translation)
    rented = rent(
        translation.application,
        market.offers,
        market.gpus,
        goal,
        terms=to_rental_terms(document),
        loading=to_loading(document.rental.loading),
        options=translation.options,
    )
    if rented.best is None or rented.plan is None:
        raise _NothingFitsError(_missed(rented, goal, translation.application, market.offers))
    rentals = tuple(_rental(machine) for machine in rented.best.machines)
    front = tuple(_choice(choice) for choice in rented.frontier)
    return rented.best.hardware, rented.plan, Renting(rentals, front, rented.bound, document.rental.start_up_s)


def _goal(translation: OfflineTranslation) -> RentalGoal:
    objective, limits = translation.document.objective, translation.document.limits
    return RentalGoal(
        objective.kind,
        budget_usd=getattr(objective, "budget_usd", None),
        budget_usd_per_hour=objective.budget_usd_per_hour,
        deadline_s=getattr(objective, "deadline_s", None),
        max_gpus=limits.max_gpus,
        max_machines=limits.max_machines,
    )


def _missed(
    rented: Rented, goal: RentalGoal, application: Application, offers: Sequence[Offer]
) -> tuple[OfflineConflict, ...]:
    """The limits that nothing keeps, and what they would have to be."""
    wanted = (
        ("budget", rented.least_usd, goal.budget_usd, "usd"),
        ("deadline", rented.least_s, goal.deadline_s, "seconds"),
        ("budget_per_hour", rented.least_usd_per_hour, goal.budget_usd_per_hour, "usd_per_hour"),
    )
    found = tuple(
        OfflineConflict(constraint=name, needed=needed, available=limit, unit=unit)
        for name, needed, limit, unit in wanted
        if needed is not None and limit is not None and needed > limit
    )
    return found or (_nothing_for_rent(sum(map(weights_gb, application.nodes)), goal, offers),)


def _nothing_for_rent(disk_gb: float, goal: RentalGoal, offers: Sequence[Offer]) -> OfflineConflict:
    """Not one machine may be rented: all disks are too small, or all machines too large."""
    roomy = [offer for offer in offers if offer.disk_gb is None or offer.disk_gb >= disk_gb]
    if not roomy:
        largest_gb = max(offer.disk_gb or 0.0 for offer in offers)
        return OfflineConflict(constraint="disk", needed=disk_gb, available=largest_gb, unit="gb")
    least = min(1 if offer.divisible else offer.gpus for offer in roomy)
    return OfflineConflict(constraint="gpus", needed=least, available=goal.max_gpus or MOST_GPUS, unit="gpus")


def _rental(machine: RentedMachines) -> OfflineRental:
    given = asdict(machine.unit.offer) | asdict(machine.unit) | asdict(machine)
    return OfflineRental(**{name: given[name] for name in OfflineRental.model_fields if name in given})


def _choice(found: MachineSet) -> MachineChoice:
    counts: Counter[tuple[int, str]] = Counter()
    for one in found.machines:
        counts[one.unit.gpus, one.unit.offer.gpu] += one.count
    return MachineChoice(
        machines=" + ".join(f"{count} × ({gpus} × {gpu})" for (gpus, gpu), count in counts.items()),
        gpu=found.hardware.gpu.slug,
        gpus=found.hardware.gpus,
        makespan_s=found.makespan_s,
        cost_usd=found.usd,
    )


def _too_large(
    translation: OfflineTranslation, market: OfflineMarket | None, error: InvalidProblemError
) -> tuple[OfflineConflict, ...]:
    """Returns how weights exceed memory where the error is that a model fits on no allowed number of GPUs."""
    nodes = {f"models[{position}]": node for position, node in enumerate(translation.application.nodes)}
    node = nodes.get(error.field)
    if node is None or error.value != node.name:
        return ()
    available_gb = max(_replica_gb(translation, market))
    constraint = f"memory/{node.name}"
    return (OfflineConflict(constraint=constraint, needed=weights_gb(node), available=available_gb, unit="gb"),)


def _replica_gb(translation: OfflineTranslation, market: OfflineMarket | None) -> Iterator[float]:
    """Memory of the largest replica that each machine allows."""
    machines: list[tuple[Gpu, int]] = []
    if translation.hardware is not None:
        machines = [(translation.hardware.gpu, translation.hardware.gpus)]
    elif market is not None:
        most = translation.document.limits.max_gpus or MOST_GPUS
        machines = [(market.gpus[offer.gpu], min(offer.gpus, most)) for offer in market.offers]
    for gpu, gpus in machines:
        yield gpu.memory_gb * max((size for size in translation.options.tensor_parallel if size <= gpus), default=1)


def _warnings(translation: OfflineTranslation) -> Iterator[str]:
    if not _knows_lengths(translation.application):
        yield DRAWN.format(seed=translation.options.seed)


def _knows_lengths(application: Application) -> bool:
    return all(
        isinstance(node.requests, Recorded) and node.requests.output_tokens and not application.sources(node.name)
        for node in application.nodes
    )


def _times(
    translation: OfflineTranslation, hardware: Hardware, plan: OfflinePlan, seeds: Sequence[int]
) -> tuple[float, ...]:
    drawn = (replace(translation.options, seed=seed) for seed in seeds)
    application, schedule = translation.application, plan.schedule
    return tuple(simulate_schedule(application, hardware, schedule, options).makespan_s for options in drawn)


def _seeded(seeds: Sequence[int], times: Sequence[float], sutlers: Sequence[float]) -> SeededTimes | None:
    if not seeds:
        return None
    ratios = [taken / best for taken, best in zip(times, sutlers, strict=True)]
    return SeededTimes(seeds=tuple(seeds), makespan_s=tuple(times), ratio_to_sutler=sum(ratios) / len(ratios))


def _compared(
    issued: OfflinePlanDocument, name: Strategy, plan: OfflinePlan, best: OfflinePlan, seeded: SeededTimes | None
) -> ComparedPlan:
    makespan_s = plan.execution.makespan_s
    return ComparedPlan(
        strategy=name,
        makespan_s=makespan_s,
        ratio_to_sutler=makespan_s / best.execution.makespan_s if best.execution.makespan_s else 1.0,
        shares=gpu_shares(issued),
        loads=sum(replica.loaded for stage in issued.stages for model in stage.models for replica in model.replicas),
        seconds=plan.seconds,
        evaluated_schedules=plan.evaluated_schedules,
        hit_time_limit=plan.hit_time_limit,
        stages=issued.stages,
        finish_s=finish_s_of(issued),
        over_seeds=seeded,
    )


def finish_s_of(plan: OfflinePlanDocument) -> dict[str, float]:
    """When each model is done, in the order of the application."""
    return {model.name: model.finish_s for model in plan.models if model.finish_s is not None}
