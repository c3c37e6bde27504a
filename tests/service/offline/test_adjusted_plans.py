"""Plans of what is left: from a plan and what its models have done, as often as anyone asks."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from typer.testing import CliRunner

from sutler.service.cli.app import app
from sutler.service.cli.offline.reading import read_plan
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.fields import document_json
from sutler.service.documents.validation import validate
from sutler.service.json_schemas import json_schema
from sutler.service.offline.adjusting import adjusted, rebilled
from sutler.service.offline.application_schema import ApplicationDocument
from sutler.service.offline.market import market_of
from sutler.service.offline.plan_issue import CUT_SHORT
from sutler.service.offline.plan_schema import OfflinePlanDocument
from sutler.service.offline.planning import planned
from sutler.service.offline.progress_schema import ProgressDocument
from sutler.service.offline.reported_progress import planned_start
from sutler.service.offline.simulating import planned_translation, simulated
from sutler.service.offline.translate import translate
from sutler.solver.errors import InvalidProblemError
from sutler.solver.offline.sampling import sample
from sutler.solver.offline.stages import ExecutedStage, Execution, RunningReplica, ScheduleStage
from tests.service.builders import NOW, a_snapshot, an_offer
from tests.service.offline.builders import an_asker
from tests.service.offline.plan_builders import PLAN_ID, a_small_application

pytestmark = pytest.mark.slow

POLL_S = 2.0
BIG = {"hardware": {"gpu": "l40s", "gpus": 2}, "search": {"tensor_parallel": [1, 2]}}
RENTED = {
    "hardware": None,
    "market": {"offers": a_snapshot(an_offer(gpu="l40s", gpus=1, price_usd_per_hour=0.9, available=2))},
    "objective": {"kind": "min_time", "budget_usd": 5},
    "rental": {"start_up_s": 100},
    "search": {"tensor_parallel": [1, 2]},
}


@cache
def the_plan(*, is_rented: bool = False) -> OfflinePlanDocument:
    """Two models with 1,500 and 3,000 requests on two GPUs."""
    answers: dict[str, Any] = {"output_tokens": {"uniform": {"low": 20, "high": 200}}}
    models = [an_asker(count=1500, **answers), an_asker("two", 3000, **answers)]
    document = validate(ApplicationDocument, a_small_application(models=models, **(RENTED if is_rented else BIG)))
    market = market_of(document, folder=None, now=NOW)
    return planned(translate(document, folder=None), market=market, plan_id=PLAN_ID, created_at=NOW)


def at_share(plan: OfflinePlanDocument, share: float) -> int:
    """That far from when the first replica serves, or the plan begins, to the end."""
    ready_s = min(replica.ready_s for model in plan.stages[0].models for replica in model.replicas)
    begun_s = max(ready_s, plan.stages[0].start_s)
    return round(begun_s + share * ((plan.makespan_s or 0.0) - begun_s))


def a_report(at_s: float, **finished: int) -> ProgressDocument:
    models = [{"model": name, "finished_requests": count} for name, count in finished.items()]
    return validate(ProgressDocument, {"at_s": at_s, "models": models})


def the_adjusted(plan: OfflinePlanDocument, progress: ProgressDocument) -> OfflinePlanDocument:
    return adjusted(plan, progress, plan_id=PLAN_ID, created_at=NOW)


@cache
def slow(*, is_rented: bool = False) -> OfflinePlanDocument:
    """The plan adjusted when the model that runs first has done fewer requests than it should have."""
    plan = the_plan(is_rented=is_rented)
    name = plan.stages[0].models[0].model
    return the_adjusted(plan, a_report(at_share(plan, 0.3), **{name: 300}))


def test_the_rest_begins_where_the_report_says_and_counts_from_the_start() -> None:
    plan, rest = the_plan(), slow()
    jsonschema.Draft202012Validator(json_schema("offline-plan")).validate(json.loads(document_json(rest)))
    assert rest.adjustment is not None
    assert (rest.revision, rest.adjustment.of) == (2, plan.id)
    assert rest.stages[0].start_s == rest.adjustment.at_s
    assert rest.makespan_s is not None
    assert rest.adjustment.at_s < rest.makespan_s <= rest.adjustment.unadjusted_makespan_s
    assert rest.adjustment.speeds[0].slowdown > 1.1
    assert (rest.lower_bound.seconds if rest.lower_bound else 0) <= rest.makespan_s
    for model in rest.models:
        last = [one for stage in rest.stages for one in stage.models if one.model == model.name][-1]
        assert last.finished_requests == model.requests


def test_an_adjusted_plan_says_where_it_begins_and_comes_back_from_its_file(tmp_path: Path) -> None:
    rest = slow()
    assert rest.adjustment is not None
    (tmp_path / "rest.json").write_text(document_json(rest))
    read = read_plan(tmp_path / "rest.json")
    assert read == rest
    name = the_plan().stages[0].models[0].model
    begun = {model.model: model for model in read.adjustment.start or ()} if read.adjustment else {}
    assert sum(last - first + 1 for first, last in begun[name].finished) == 300
    assert begun[name].replicas
    pile = sample(planned_translation(read).application, seed=read.seed)
    start = planned_start(read, pile)
    assert start.at_s == rest.adjustment.at_s
    assert len(start.finished) == sum(last - first + 1 for model in begun.values() for first, last in model.finished)
    for request, tokens in start.written.items():
        assert 0 < tokens < pile.output_tokens[request]
        assert request not in start.finished


def test_an_adjusted_plan_is_simulated_as_it_was_planned() -> None:
    rest = slow()
    found = simulated(rest)
    assert found.makespan_s == pytest.approx(rest.makespan_s)
    assert found.stages[0].start_s == rest.stages[0].start_s
    slower = {model.name: 2.0 for model in rest.models}
    assert simulated(rest, slower=slower).makespan_s > found.makespan_s
    with pytest.raises(DocumentError, match=r"seed: 7: .*under way"):
        simulated(rest, seed=7)


def test_a_plan_is_adjusted_again_and_again() -> None:
    first = slow()
    assert first.adjustment is not None
    at_s = at_share(first, 0.5)
    second = the_adjusted(first, a_report(at_s, **{done.model: done.finished_requests for done in running(first)}))
    assert second.adjustment is not None
    assert (second.revision, second.stages[0].start_s) == (3, at_s)
    assert second.makespan_s is not None
    assert second.makespan_s <= second.adjustment.unadjusted_makespan_s
    names = {seen.model for seen in first.adjustment.speeds}
    assert names <= {seen.model for seen in second.adjustment.speeds}
    assert simulated(second).makespan_s == pytest.approx(second.makespan_s)
    with pytest.raises(DocumentError, match=r"models\[0\]\.finished_requests.*had finished where the plan begins"):
        the_adjusted(first, a_report(at_s, **{next(iter(names)): 1}))
    with pytest.raises(DocumentError, match=r"at_s: .*the plan begins at"):
        the_adjusted(first, a_report(first.adjustment.at_s, two=3000))


def running(plan: OfflinePlanDocument) -> list[Any]:
    """What the first stage has done by its end: a report of good progress."""
    return [model for model in plan.stages[0].models if model.finished_requests]


def test_a_speed_seen_twice_is_beside_the_first_plan() -> None:
    first = slow()
    assert first.adjustment is not None
    (seen,) = first.adjustment.speeds
    stage = first.stages[0]
    (done,) = [model.finished_requests for model in stage.models if model.model == seen.model]
    at_s, by_then = (stage.start_s + stage.end_s) / 2, round((300 + done) / 2)
    second = the_adjusted(first, a_report(at_s, **{seen.model: by_then}))
    assert second.adjustment is not None
    (again,) = second.adjustment.speeds
    assert again.slowdown == pytest.approx(seen.slowdown, rel=0.2)


def test_a_model_that_was_done_before_keeps_its_time() -> None:
    plan = the_plan()
    done = min(plan.models, key=lambda model: model.finish_s or 0.0)
    at_s = round((done.finish_s or 0.0) + 3)
    if at_s >= (plan.makespan_s or 0.0):
        at_s = round((done.finish_s or 0.0) - 3)
    rest = the_adjusted(plan, a_report(at_s, **{done.name: done.requests}))
    found = next(model for model in rest.models if model.name == done.name)
    assert found.finish_s == pytest.approx(min(done.finish_s or 0.0, at_s))


def test_a_rented_plan_is_billed_for_what_it_takes_now() -> None:
    plan, rest = the_plan(is_rented=True), slow(is_rented=True)
    assert rest.makespan_s is not None
    assert plan.makespan_s is not None
    assert rest.objective.value == pytest.approx(100 + rest.makespan_s)
    assert rest.objective.bound is not None
    assert rest.objective.bound <= 100 + rest.makespan_s
    assert sorted(host for rental in rest.rentals for host in rental.hosts) == [0, 1]
    for rental in rest.rentals:
        assert rental.usd == pytest.approx(rental.count * rental.price_usd_per_hour * rental.billed_s / 3600)
        assert rental.billed_s <= 100 + rest.makespan_s + 1
    assert max(rental.billed_s for rental in rest.rentals) == pytest.approx(100 + rest.makespan_s, abs=1)
    assert rest.cost_usd == pytest.approx(sum(rental.usd for rental in rest.rentals))


def test_a_machine_that_nothing_uses_any_more_is_billed_until_now_at_most() -> None:
    plan = the_plan(is_rented=True)
    (rental,) = plan.rentals
    assert rental.hosts == (0, 1)
    used_on_0 = RunningReplica(0, 0, ((0, 0),), 20.0, is_loaded=True)
    stage = ExecutedStage(50.0, 300.0, ScheduleStage({}), (used_on_0,), (0, 0), (0, 0), 0.0, 0.0)
    execution = Execution((stage,), 300.0, np.zeros(0), np.zeros(0), (0.0, 0.0))
    busy, idle = rebilled(rental, plan, execution, 60.0)
    assert (busy.hosts, busy.billed_s, idle.hosts, idle.billed_s) == ((0,), 400.0, (1,), 160.0)
    assert busy.usd == pytest.approx(400 * 0.9 / 3600)
    given_back = rental.model_copy(update={"billed_s": 130.0})
    assert [again.billed_s for again in rebilled(given_back, plan, execution, 60.0)] == [400.0, 130.0]


def test_that_the_first_search_was_cut_short_is_not_said_of_the_second() -> None:
    plan = the_plan().model_copy(update={"warnings": (CUT_SHORT, "mind the gap")})
    rest = the_adjusted(plan, a_report(at_share(plan, 0.3), **{plan.stages[0].models[0].model: 300}))
    assert rest.warnings == ("mind the gap",)


def test_a_plan_that_does_not_say_where_it_begins_is_refused(tmp_path: Path) -> None:
    rest = slow()
    assert rest.adjustment is not None
    older = rest.model_copy(update={"adjustment": rest.adjustment.model_copy(update={"start": None})})
    with pytest.raises(DocumentError, match="give the plan that it was adjusted from"):
        the_adjusted(older, a_report(rest.adjustment.at_s + 1, two=3000))
    (tmp_path / "older.json").write_text(document_json(older))
    result = command("simulate", tmp_path / "older.json")
    assert result.exit_code == 2
    assert "adjustment.start" in result.stderr


def test_everything_done_leaves_nothing_to_plan() -> None:
    with pytest.raises(InvalidProblemError, match="nothing left to be planned"):
        the_adjusted(the_plan(), a_report(60, one=1500, two=3000))


def test_replicas_of_a_size_that_does_not_fit_are_named() -> None:
    gpus = [{"host": 0, "gpu": 0}, {"host": 0, "gpu": 1}, {"host": 0, "gpu": 2}]
    plan = the_plan()
    assert plan.hardware is not None
    island = plan.hardware.islands[0].model_copy(update={"gpus": (0, 1, 2)})
    larger = plan.model_copy(update={"hardware": plan.hardware.model_copy(update={"islands": (island,)})})
    report = {"at_s": 30, "models": [{"model": "one", "finished_requests": 300}]}
    replicas = [{"model": "one", "number": 0, "gpus": gpus}]
    with pytest.raises(InvalidProblemError, match=r"replicas\[0\]\.gpus: 3: one runs on 1 or 2 GPUs"):
        the_adjusted(larger, validate(ProgressDocument, {**report, "replicas": replicas}))


def test_the_command_adjusts_a_plan_and_the_adjusted_plan(tmp_path: Path) -> None:
    plan = the_plan()
    name = plan.stages[0].models[0].model
    (tmp_path / "plan.json").write_text(document_json(plan))
    (tmp_path / "first.json").write_text(a_report(at_share(plan, 0.3), **{name: 300}).model_dump_json())
    result = command("adjust", tmp_path / "plan.json", "--progress", tmp_path / "first.json", "--out", tmp_path / "2")
    assert (result.exit_code, result.stderr) == (0, "")
    assert "slower" in result.stdout
    assert "revision 2" in result.stdout
    assert max(len(line) for line in result.stdout.splitlines()) <= 100
    second = read_plan(tmp_path / "2")
    (tmp_path / "second.json").write_text(a_report(at_share(second, 0.2), **{name: 1400}).model_dump_json())
    result = command("adjust", tmp_path / "2", "--progress", tmp_path / "second.json", "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    assert json.loads(result.stdout)["revision"] == 3
    assert command("simulate", tmp_path / "2").exit_code == 0


def command(*arguments: Any) -> Any:
    return CliRunner().invoke(app, ["offline", *map(str, arguments)])
