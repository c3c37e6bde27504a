"""Rates that are learnt of engines whose true speed is known: how near, what they never follow, what a plan gains."""

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

import pytest

from sutler.service.deployments.rates.applying import NOTHING, Lesson, learn
from sutler.service.deployments.rates.learning import Learnt, Told
from sutler.service.deployments.schemas import PolicyDocument
from sutler.service.documents.calibration import CalibrationDocument
from sutler.service.documents.plan import PlanDocument
from sutler.service.library.problems import problem_document
from tests.looped import for_each
from tests.service.deployments.rates.played import START, a_plan, a_problem, a_truth, known_perfectly, told

END: Final = START + timedelta(seconds=720)
RATE_RPS: Final = 20.0


def lesson_of(
    problem: dict[str, Any], plan: PlanDocument, readings: list[Told], before: Learnt = NOTHING.learnt, **others: Any
) -> Lesson:
    now: datetime = others.pop("now", END)
    return learn(before, readings, problem_document({**problem, **others}), plan, PolicyDocument(), now)


def cost_of(plan: PlanDocument) -> float:
    assert plan.cost_usd_per_hour is not None
    return plan.cost_usd_per_hour


@for_each("gpu", ["l40s", "h100-sxm", "a100-sxm4-80gb"], quick=1)
@pytest.mark.parametrize("speed", [0.7, 1.3])
def test_estimates_that_are_far_off_are_known_after_ten_minutes_and_the_next_plan_is_as_good_as_with_the_truth(
    gpu: str, speed: float
) -> None:
    problem = a_problem(RATE_RPS, gpu)
    plan = a_plan(problem)
    for load in (0.3, 0.6):
        lesson = lesson_of(problem, plan, told(plan, a_truth(speed), load=load))
        [shift] = lesson.shifts
        assert shift.is_one
        assert shift.faster == pytest.approx(speed, rel=0.05)
        learnt = a_plan(problem, lesson.calibration)
        assert cost_of(learnt) == pytest.approx(cost_of(a_plan(problem, known_perfectly(a_truth(speed)))), rel=0.01)


@for_each("seed", range(6), quick=1)
def test_estimates_that_are_true_are_not_moved_by_noise(seed: int) -> None:
    problem = a_problem(RATE_RPS, "l40s")
    plan = a_plan(problem)
    for load in (0.3, 0.9):
        lesson = lesson_of(problem, plan, told(plan, a_truth(1.0), load=load, seed=seed))
        assert not any(shift.is_one for shift in lesson.shifts)


@pytest.fixture(scope="module")
def slow() -> tuple[dict[str, Any], PlanDocument, list[Told]]:
    """Engines that are a third slower than their plan counts on, and what they tell."""
    problem = a_problem(RATE_RPS, "l40s")
    plan = a_plan(problem)
    return problem, plan, told(plan, a_truth(0.7))


Slow = tuple[dict[str, Any], PlanDocument, list[Told]]


def test_what_is_learnt_at_once_or_reading_by_reading_is_the_same(slow: Slow) -> None:
    problem, plan, readings = slow
    at_once, learnt = lesson_of(problem, plan, readings).learnt, NOTHING.learnt
    for reading in readings:
        learnt = lesson_of(problem, plan, [reading], learnt).learnt
    assert learnt == at_once


@pytest.mark.parametrize(
    "poison",
    [
        {"residence_s": 1e-9},
        {"residence_s": 1e9},
        {"requests": 1e9},
        {"residence_s": float("nan")},
    ],
)
def test_one_engine_that_tells_nonsense_changes_nothing(slow: Slow, poison: dict[str, float]) -> None:
    problem, plan, readings = slow
    liar = readings[0].source
    without = lesson_of(problem, plan, [one for one in readings if one.source != liar])
    lied = [replace(one, **poison) if one.source == liar else one for one in readings]  # type: ignore[arg-type]
    with_liar = lesson_of(problem, plan, lied)
    assert with_liar.learnt.left_out > 0
    assert with_liar.calibration == without.calibration


@pytest.mark.parametrize(("speed", "followed"), [(0.3, 0.5), (3.0, 1.5)])
def test_no_rate_is_moved_beyond_its_bounds(speed: float, followed: float) -> None:
    problem = a_problem(RATE_RPS, "l40s")
    plan = a_plan(problem)
    [shift] = lesson_of(problem, plan, told(plan, a_truth(speed), load=0.25)).shifts
    assert shift.faster == pytest.approx(followed, rel=0.05)


def test_little_evidence_moves_nothing_and_old_evidence_is_forgotten(slow: Slow) -> None:
    problem, plan, readings = slow
    assert lesson_of(problem, plan, readings[: len(readings) // 10]).calibration is None
    known = lesson_of(problem, plan, readings).learnt
    assert lesson_of(problem, plan, [], known, now=END + timedelta(hours=1)).calibration is not None
    assert lesson_of(problem, plan, [], known, now=END + timedelta(days=3)).calibration is None


def test_a_plan_that_rests_on_what_was_learnt_is_no_longer_off(slow: Slow) -> None:
    problem, plan, readings = slow
    lesson = lesson_of(problem, plan, readings)
    [shift] = lesson_of(problem, a_plan(problem, lesson.calibration), [], lesson.learnt).shifts
    assert not shift.is_one
    assert shift.faster == pytest.approx(1.0, abs=1e-6)


def test_what_was_learnt_goes_on_from_the_users_own_calibration(slow: Slow) -> None:
    """Whose runs said that engines are a little slower: its points stay beside the new ones."""
    problem, plan, readings = slow
    own = lesson_of(problem, plan, told(plan, a_truth(0.9))).calibration
    assert own is not None
    throughput = {"calibration": own.model_dump(mode="json", by_alias=True)}
    lesson = lesson_of(problem, plan, readings, throughput=throughput)
    assert lesson.calibration is not None
    assert len(lesson.calibration.points) > len(own.points)
    [shift] = lesson.shifts
    assert shift.faster == pytest.approx(0.7, rel=0.05)


def test_other_estimates_forget_what_was_learnt_beside_the_old_ones(slow: Slow) -> None:
    problem, plan, readings = slow
    known = lesson_of(problem, plan, readings)
    assert isinstance(known.calibration, CalibrationDocument)
    throughput = {"calibration": known.calibration.model_dump(mode="json", by_alias=True)}
    assert lesson_of(problem, plan, [], known.learnt, throughput=throughput).learnt.cells == ()
