"""What is best rented for an application, against planning every set of machines in full."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import inf
from random import Random

import pytest

from sutler.solver.errors import InvalidProblemError
from sutler.solver.offline.application import Application
from sutler.solver.offline.costs import Costs, weights_gb
from sutler.solver.offline.forecast import Forecaster
from sutler.solver.offline.hardware import Loading
from sutler.solver.offline.machine_sets import BillingTerms, Unit, billed, hardware_of, unit_sets
from sutler.solver.offline.renting import RentalGoal, Rented, rent
from sutler.solver.offline.sampling import sample
from sutler.solver.offline.search import searched
from sutler.solver.problem import Offer
from tests.looped import for_each
from tests.solver.offline.renting_builders import (
    GPUS,
    QUICK,
    a_market,
    a_node,
    an_a100,
    an_l40s,
    two_models,
    writer_and_reader,
)

pytestmark = pytest.mark.slow

SOON = BillingTerms(start_up_s=30.0)
CLOSE = 1.02  # forecasts choose what is planned
AT_LEAST_ONE_SET = RentalGoal("min_time")


@dataclass(frozen=True)
class Tried:
    """A set, planned in full."""

    units: tuple[Unit, ...]
    makespan_s: float
    usd: float


def tried(
    application: Application, offers: Sequence[Offer], goal: RentalGoal, terms: BillingTerms = SOON
) -> list[Tried]:
    """Every set of machines."""
    pile = sample(application, seed=QUICK.seed)
    disk_gb = sum(map(weights_gb, application.nodes))
    found = []
    for units in unit_sets(offers, disk_gb=disk_gb, max_gpus=goal.max_gpus, max_machines=goal.max_machines):
        if sum(unit.price_usd_per_hour for unit in units) <= (goal.budget_usd_per_hour or inf):
            costs = Costs(application, hardware_of(units, GPUS[units[0].offer.gpu], Loading()), pile, QUICK)
            best = searched(Forecaster(costs), deadline_s=inf, clock=lambda: 0.0, most_executed=1)
            usd = sum(machine.usd for machine in billed(units, best.execution, terms))
            found.append(Tried(units, terms.start_up_s + best.execution.makespan_s, usd))
    return found


def rented(application: Application, offers: Sequence[Offer], goal: RentalGoal, terms: BillingTerms = SOON) -> Rented:
    return rent(application, *a_market(*offers), goal, terms=terms, options=QUICK, clock=lambda: 0.0)


def random_market(draw: Random) -> list[Offer]:
    made = []
    for number in range(draw.choice((2, 3))):
        gpus = draw.choice((1, 2, 2, 4))
        made.append(
            draw.choice((an_l40s, an_a100))(
                gpus,
                price=round(gpus * draw.uniform(0.8, 2.0), 2),
                available=draw.choice((1, 2)),
                offer_id=f"offer-{number}",
                divisible=draw.random() < 0.3,
                inet_down_gb_per_s=draw.choice((None, None, 0.5)),
            )
        )
    return made


@for_each("seed", range(2))
def test_what_is_rented_is_as_good_as_the_best_of_all_sets(seed: int) -> None:
    draw = Random(seed)
    offers = random_market(draw)
    application = draw.choice((two_models, writer_and_reader))(draw.choice((300, 900)))
    terms = draw.choice((SOON, BillingTerms(60.0, 60.0, 30.0)))
    anything = RentalGoal("min_time", max_gpus=4, max_machines=3)
    every = tried(application, offers, anything, terms)
    middling = sorted(every, key=lambda one: one.usd)[len(every) // 2]
    for goal in (
        replace(anything, budget_usd=1.05 * middling.usd),
        replace(anything, kind="min_cost", deadline_s=1.05 * middling.makespan_s),
    ):
        found = rented(application, offers, goal, terms)
        meeting = [one for one in every if goal.is_met(one.makespan_s, one.usd)]
        least = min(goal.value(one.makespan_s, one.usd)[0] for one in meeting)
        assert found.best is not None
        assert found.plan is not None
        assert goal.is_met(found.best.makespan_s, found.best.usd)
        assert goal.value(found.best.makespan_s, found.best.usd)[0] <= CLOSE * least
        assert found.bound is not None
        assert found.bound <= least * (1 + 1e-9)
        assert found.considered == len(every)
        assert found.best.makespan_s == pytest.approx(terms.start_up_s + found.plan.execution.makespan_s)
        check_front(found)


def check_front(found: Rented) -> None:
    """Fastest first, and the slower the cheaper; what was chosen is on it."""
    assert found.best is not None
    for one, other in pairwise(found.frontier):
        assert one.makespan_s < other.makespan_s
        assert one.usd > other.usd
    assert (found.best.makespan_s, found.best.usd) in [(one.makespan_s, one.usd) for one in found.frontier]


def test_two_slow_machines_are_rented_where_one_is_too_late() -> None:
    application, offers = two_models(600), [an_l40s(1, price=1.0, available=2)]
    one, two = tried(application, offers, AT_LEAST_ONE_SET)
    assert one.makespan_s > two.makespan_s
    patient = rented(application, offers, RentalGoal("min_cost", deadline_s=2 * one.makespan_s))
    hurried = rented(application, offers, RentalGoal("min_cost", deadline_s=0.9 * one.makespan_s))
    assert patient.best is not None
    assert hurried.best is not None
    assert (patient.best.hardware.gpus, hurried.best.hardware.gpus) == (1, 2)
    assert hurried.best.makespan_s <= 0.9 * one.makespan_s


def test_without_any_set_that_meets_the_goal_what_it_would_take_is_said() -> None:
    application, offers = two_models(150), [an_l40s(1), an_a100(1)]
    every = tried(application, offers, AT_LEAST_ONE_SET)
    late = rented(application, offers, RentalGoal("min_cost", deadline_s=31.0))
    assert (late.best, late.plan, late.bound) == (None, None, None)
    assert late.least_s == pytest.approx(min(one.makespan_s for one in every), rel=CLOSE - 1)
    poor = rented(application, offers, RentalGoal("min_time", budget_usd=0.001))
    assert poor.best is None
    assert poor.least_usd == pytest.approx(min(one.usd for one in every), rel=CLOSE - 1)


def test_sets_that_miss_a_limit_come_after_all_others_the_nearest_first() -> None:
    sets = [(90.0, 9.0), (100.0, 2.0), (500.0, 0.1), (101.0, 1.0)]
    cheapest = ordered(sets, RentalGoal("min_cost", deadline_s=100.0))
    assert cheapest == [(100.0, 2.0), (90.0, 9.0), (101.0, 1.0), (500.0, 0.1)]
    fastest = ordered(sets, RentalGoal("min_time", budget_usd=5.0))
    assert fastest == [(100.0, 2.0), (101.0, 1.0), (500.0, 0.1), (90.0, 9.0)]


def ordered(sets: Sequence[tuple[float, float]], goal: RentalGoal) -> list[tuple[float, float]]:
    return sorted(sets, key=lambda one: goal.rank(*one))


def test_prices_per_hour_beyond_the_budget_are_left_out() -> None:
    offers = [an_l40s(1, price=1.0, available=4)]
    found = rented(two_models(150), offers, RentalGoal("min_time", budget_usd_per_hour=2.0))
    assert found.best is not None
    assert found.considered == 2
    assert found.best.hardware.gpus <= 2
    none = rented(two_models(150), offers, RentalGoal("min_time", budget_usd_per_hour=0.5))
    assert (none.best, none.considered) == (None, 0)
    assert none.least_usd_per_hour == 1.0
    assert found.least_usd_per_hour == 1.0


def test_a_model_that_fits_on_nothing_for_rent_is_an_error() -> None:
    large = Application("large", (a_node("large", 10, model="llama-2-70b"),))
    with pytest.raises(InvalidProblemError, match="does not fit on"):
        rented(large, [an_l40s(1, available=2)], RentalGoal("min_time"))


def test_sets_too_small_for_a_model_are_passed_over() -> None:
    large = Application("large", (a_node("large", 10, model="llama-2-70b"),))
    found = rented(large, [an_l40s(1, price=0.1), an_a100(2)], RentalGoal("min_cost", deadline_s=1e6))
    assert found.best is not None
    assert [machine.unit.offer.gpu for machine in found.best.machines] == ["a100-sxm4-80gb"]


def test_the_same_question_has_the_same_answer() -> None:
    offers = [an_l40s(2, price=2.0, divisible=True), an_a100(1)]
    first, second = (rented(two_models(150), offers, RentalGoal("min_cost", deadline_s=600.0)) for _ in range(2))
    assert first.best == second.best
    assert first.frontier == second.frontier
    assert first.bound == second.bound


def test_models_are_downloaded_before_they_are_loaded() -> None:
    application = two_models(50)
    near = rented(application, [an_l40s(1)], AT_LEAST_ONE_SET)
    far = rented(application, [an_l40s(1, inet_down_gb_per_s=0.5)], AT_LEAST_ONE_SET)
    assert far.plan is not None
    node, ready_s = first_ready(far)
    download_s = weights_gb(application.nodes[node]) / 0.5
    load_s = Loading().seconds("any", weights_gb(application.nodes[node]), 1)
    assert ready_s == pytest.approx(download_s + load_s)
    assert first_ready(near)[1] < 50.0
    whole_s = sum(weights_gb(node) for node in application.nodes) / 0.5
    assert far.plan.execution.makespan_s > whole_s
    assert far.bound is not None
    assert far.bound > whole_s


def first_ready(found: Rented) -> tuple[int, float]:
    """Which model serves first, and when."""
    assert found.plan is not None
    first = min(found.plan.execution.stages[0].replicas, key=lambda replica: replica.ready_s)
    return first.node, first.ready_s


def test_a_dearer_market_never_has_a_cheaper_plan_for_the_same_machines() -> None:
    goal = RentalGoal("min_cost", deadline_s=1e4)
    cheap, dear, one_dearer = (
        rented(two_models(150), [an_l40s(2, price=first), an_a100(2, price=second)], goal).best
        for first, second in ((2.0, 3.0), (4.0, 6.0), (2.0, 30.0))
    )
    assert cheap is not None
    assert dear is not None
    assert one_dearer is not None
    assert dear.usd == pytest.approx(2 * cheap.usd)
    assert dear.makespan_s == cheap.makespan_s
    assert one_dearer.usd >= cheap.usd


def test_longer_minimum_rentals_and_start_ups_cost_more() -> None:
    offers = [an_l40s(1, price=3.6)]
    plain = rented(two_models(150), offers, AT_LEAST_ONE_SET)
    hourly = rented(two_models(150), offers, AT_LEAST_ONE_SET, BillingTerms(minimum_s=3600.0, start_up_s=30.0))
    slow = rented(two_models(150), offers, AT_LEAST_ONE_SET, BillingTerms(start_up_s=130.0))
    assert plain.best is not None
    assert hourly.best is not None
    assert slow.best is not None
    assert hourly.best.usd == pytest.approx(3.6)
    assert slow.best.makespan_s == pytest.approx(plain.best.makespan_s + 100.0)
    assert slow.best.usd == pytest.approx(plain.best.usd + 0.1, abs=0.002)
    assert slow.bound is not None
    assert plain.bound is not None
    assert slow.bound == pytest.approx(plain.bound + 100.0)


def test_when_time_is_up_one_set_is_planned_still() -> None:
    ticks = iter(range(10**6))
    offers = [an_l40s(2, available=2, divisible=True), an_a100(2, divisible=True)]
    found = rent(
        two_models(150),
        *a_market(*offers),
        RentalGoal("min_cost", deadline_s=1e5),
        terms=SOON,
        options=replace(QUICK, time_limit_s=0.5),
        clock=lambda: float(next(ticks)),
    )
    assert found.best is not None
    assert found.plan is not None
    assert found.plan.hit_time_limit
