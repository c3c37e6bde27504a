"""Runs the schedule of a plan again: with other lengths, or with models that are slower than planned.

Flow: plan document -> simulated (here) -> solver/offline/planner/simulate_schedule -> OfflineSimulationDocument.
"""

from collections.abc import Mapping
from dataclasses import replace
from itertools import zip_longest

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.rules import either
from sutler.service.offline.outcome_schema import ModelTimes, OfflineSimulationDocument, StageTimes
from sutler.service.offline.plan_issue import issue_offline_plan
from sutler.service.offline.plan_schema import OfflinePlanDocument, SimulatedStage
from sutler.service.offline.planned import planned_application, planned_hardware, planned_schedule
from sutler.service.offline.reported_progress import planned_start
from sutler.service.offline.shares import gpu_shares
from sutler.service.offline.translate import OfflineTranslation, to_options
from sutler.solver.offline.application import Application
from sutler.solver.offline.plan import LowerBound, OfflinePlan
from sutler.solver.offline.planner import simulate_schedule
from sutler.solver.offline.sampling import sample


def simulated(
    plan: OfflinePlanDocument, *, seed: int | None = None, slower: Mapping[str, float] | None = None
) -> OfflineSimulationDocument:
    """What becomes of the plan with the lengths of `seed` (None: its own) when models take `slower` times as long.

    An adjusted plan begins where it does, at the speeds that were seen. Raises DocumentError for a plan that runs
    nothing, for other lengths than those that an adjusted plan goes on with, and for names that are not its models'.
    """
    translation = planned_translation(plan)
    given = dict(slower or {})
    used_seed = plan.seed if seed is None else seed
    options = replace(translation.options, seed=used_seed)
    application = _slowed(translation.application, given)
    hardware, schedule = planned_hardware(plan), planned_schedule(plan)
    if plan.adjustment is not None and used_seed != plan.seed:
        remedy = f"the plan goes on with requests that are under way, drawn with seed {plan.seed}: leave it out"
        raise DocumentError.of("seed", remedy, value=used_seed)
    pile = sample(application, seed=used_seed)
    start = planned_start(plan, pile)
    execution = simulate_schedule(application, hardware, schedule, options, pile=pile, start=start)
    ran = OfflinePlan(plan.strategy or "sutler", schedule, execution, pile, LowerBound(0.0, 0.0))
    issued = issue_offline_plan(ran, translation, hardware, plan_id=plan.id, created_at=plan.created_at)
    assert issued.hardware is not None, "what runs has hardware"
    return OfflineSimulationDocument(
        schema="sutler/offline-simulation/v1",
        plan_id=plan.id,
        application=plan.application.name,
        seed=used_seed,
        planned_seed=plan.seed,
        planned_makespan_s=plan.makespan_s or 0.0,
        makespan_s=execution.makespan_s,
        planned_shares=gpu_shares(plan),
        shares=gpu_shares(issued),
        hardware=issued.hardware,
        times=tuple(_times(before, after) for before, after in zip_longest(plan.stages, issued.stages)),
        stages=issued.stages,
        models=tuple(
            ModelTimes(
                model=after.name,
                slowdown=given.get(after.name, 1.0),
                requests=after.requests,
                planned_output_tokens=before.output_tokens,
                output_tokens=after.output_tokens,
                planned_finish_s=before.finish_s or 0.0,
                finish_s=after.finish_s or 0.0,
            )
            for before, after in zip(plan.models, issued.models, strict=True)
        ),
    )


def planned_translation(plan: OfflinePlanDocument) -> OfflineTranslation:
    """What a plan was made from, an adjusted one at the speeds that were seen. Raises DocumentError for one that
    runs nothing, or that does not say where it begins."""
    if not plan.stages:
        raise DocumentError.of("stages", f"the plan is {plan.status} and runs nothing: plan anew")
    if plan.adjustment is not None and plan.adjustment.start is None:
        remedy = "does not say where it begins, being of an older sutler: give the plan that it was adjusted from"
        raise DocumentError.of("adjustment.start", remedy)
    options = replace(to_options(plan.application), seed=plan.seed)
    speeds = {} if plan.adjustment is None else {seen.model: seen.slowdown for seen in plan.adjustment.speeds}
    application = _slowed(planned_application(plan), speeds)
    return OfflineTranslation(plan.application, application, planned_hardware(plan), options)


def _slowed(application: Application, slower: Mapping[str, float]) -> Application:
    names = [node.name for node in application.nodes]
    for name in slower:
        if name not in names:
            raise DocumentError.of("slower", f"is no model of this plan: use {either(names)}", value=name)
    nodes = (replace(node, slowdown=node.slowdown * slower.get(node.name, 1.0)) for node in application.nodes)
    return replace(application, nodes=tuple(nodes))


def _times(before: SimulatedStage | None, after: SimulatedStage | None) -> StageTimes:
    return StageTimes(
        planned_start_s=None if before is None else before.start_s,
        planned_end_s=None if before is None else before.end_s,
        start_s=None if after is None else after.start_s,
        end_s=None if after is None else after.end_s,
    )
