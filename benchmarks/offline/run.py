"""Plans every setting by every strategy, one after the other, and keeps what is done.

Flow: settings.py -> run (here), with solver/offline/planner and adjustment.py -> outcomes, losses and recoveries ->
results.py, report.py. Every one is a line of JSON in a file under build/: an interrupted run goes on where it was
ended. Planning is timed, and limited, by the processor's time, so that what else the machine does changes no plan.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from benchmarks.offline.adjustment import recoveries
from benchmarks.offline.applications import paper_hardware
from benchmarks.offline.settings import (
    KNOWN_SEEDS,
    VARIANTS,
    Loss,
    Outcome,
    Recovery,
    Setting,
    Variant,
    loss_from,
    outcome_from,
    recovery_from,
)
from sutler.solver.errors import SolverError
from sutler.solver.offline.application import Application
from sutler.solver.offline.plan import OfflineOptions, OfflinePlan, Strategy
from sutler.solver.version import VERSION

RUN: Final = f"{VERSION}, {OfflineOptions().time_limit_s:g} s of the processor"
Tell = Callable[[str], None]


def run(settings: Sequence[Setting], *, kept: Path, tell: Tell, known_seeds: int = KNOWN_SEEDS) -> None:
    """Everything that `kept` does not have yet; added there."""
    outcomes, losses, recovered = read(kept)
    done = {(one.setting, one.variant, one.strategy) for one in outcomes}
    tried = {(one.setting, one.seed) for one in losses}
    adjusted = {(one.setting, one.node, one.factor) for one in recovered}
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.open("a", encoding="utf-8") as file:
        for number, setting in enumerate(settings, start=1):
            tell(f"{number}/{len(settings)} {setting.name}")
            application = setting.build()
            for outcome in _outcomes(setting, application, done, tell):
                _keep(file, "outcome", asdict(outcome))
            if setting.compares_known:
                for loss in _losses(setting, application, known_seeds, tried, tell):
                    _keep(file, "loss", asdict(loss))
            for recovery in recoveries(setting, application, adjusted, tell):
                _keep(file, "recovery", asdict(recovery))


def read(kept: Path) -> tuple[list[Outcome], list[Loss], list[Recovery]]:
    """What earlier runs of this version left; a last line that was not finished is passed over."""
    outcomes: list[Outcome] = []
    losses: list[Loss] = []
    recovered: list[Recovery] = []
    for line in kept.read_text(encoding="utf-8").splitlines() if kept.exists() else []:
        try:
            row: dict[str, Any] = json.loads(line)
            if row.pop("run") != RUN:
                continue
            kind = row.pop("kind")
            if kind == "loss":
                losses.append(loss_from(row))
            elif kind == "recovery":
                recovered.append(recovery_from(row))
            else:
                outcomes.append(outcome_from(row))
        except (ValueError, TypeError, KeyError):
            continue
    return outcomes, losses, recovered


def _outcomes(
    setting: Setting, application: Application, done: set[tuple[str, Any, Any]], tell: Tell
) -> Iterator[Outcome]:
    for variant in VARIANTS:
        for strategy in variant.strategies if variant.name in setting.variants else ():
            if (setting.name, variant.name, strategy) in done:
                continue
            outcome = _outcome(setting, application, variant, strategy)
            found = outcome.reason if outcome.makespan_s is None else f"{outcome.makespan_s:.1f} s"
            tell(f"  {variant.name}, {strategy}: {found}, planned in {outcome.planning_s:.1f} s")
            yield outcome


def _outcome(setting: Setting, application: Application, variant: Variant, strategy: Strategy) -> Outcome:
    from sutler.solver.offline.planner import plan_application

    options = replace(variant.options, seed=setting.seed)
    begun_s = time.monotonic()
    try:
        plan = plan_application(application, paper_hardware(), options, strategy=strategy, clock=time.process_time)
    except SolverError as error:
        return Outcome(setting.name, variant.name, strategy, reason=str(error))
    wall_s = time.monotonic() - begun_s
    stages = plan.execution.stages
    return Outcome(
        setting.name,
        variant.name,
        strategy,
        makespan_s=plan.execution.makespan_s,
        planning_s=plan.seconds,
        planning_wall_s=wall_s,
        forecast_s=_forecast_s(application, plan, options) if strategy == "sutler" else None,
        area_s=plan.bound.area_s,
        critical_path_s=plan.bound.critical_path_s,
        stages=len(stages),
        loads=sum(replica.is_loaded for stage in stages for replica in stage.replicas),
        evaluated_schedules=plan.evaluated_schedules,
        hit_time_limit=plan.hit_time_limit,
    )


def _forecast_s(application: Application, plan: OfflinePlan, options: OfflineOptions) -> float:
    from sutler.solver.offline.costs import Costs
    from sutler.solver.offline.forecast import Forecaster

    return Forecaster(Costs(application, paper_hardware(), plan.pile, options)).run(plan.schedule).end_s


def _losses(
    setting: Setting, application: Application, seeds: int, tried: set[tuple[str, int]], tell: Tell
) -> Iterator[Loss]:
    """One plan on sampled answers, run on the answers that each other seed draws to the same requests."""
    from sutler.solver.offline.planner import plan_application, simulate_schedule
    from sutler.solver.offline.sampling import sample

    left = [seed for seed in range(1, seeds + 1) if (setting.name, seed) not in tried]
    if not left:
        return
    hardware, options = paper_hardware(), OfflineOptions(seed=setting.seed)
    sampled = plan_application(application, hardware, options, clock=time.process_time)
    for seed in left:
        truth = sample(application, seed=setting.seed, answers_seed=seed)
        executed = simulate_schedule(application, hardware, sampled.schedule, options, pile=truth)
        known = plan_application(application, hardware, options, pile=truth, clock=time.process_time)
        loss = Loss(
            setting.name,
            seed,
            expected_s=sampled.execution.makespan_s,
            executed_s=executed.makespan_s,
            known_s=known.execution.makespan_s,
        )
        tell(f"  answers {seed}: {100 * loss.fraction:+.1f} %")
        yield loss


def _keep(file: Any, kind: str, row: dict[str, Any]) -> None:
    file.write(json.dumps({"run": RUN, "kind": kind, **row}) + "\n")
    file.flush()
