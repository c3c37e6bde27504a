"""How far a plan is carried out, by what was reported."""

from datetime import timedelta

import pytest

from sutler.service.deployments.holdings.comparison import carry_out, counted, rented_by
from sutler.service.deployments.holdings.schemas import HoldingDocument
from sutler.service.deployments.watch_schema import CarryOutResource
from tests.service.deployments.diff.fleets import AT, a_fleet, a_machine
from tests.service.deployments.holdings.test_comparison import a_holding

PLAN = a_fleet(a_machine("a", count=3), a_machine("b", count=2), revision=4)
SOON, LATE = timedelta(seconds=600), timedelta(seconds=601)


def found(*held: HoldingDocument, after: timedelta = SOON) -> CarryOutResource:
    planned = counted(rented_by(PLAN))
    return carry_out(planned, held, revision=4, issued_at=AT, patience_s=600.0, now=AT + after)


def test_what_was_never_reported_is_not_known() -> None:
    planned = counted(rented_by(PLAN))
    unknown = carry_out(planned, None, revision=4, issued_at=AT, patience_s=600.0, now=AT + LATE)
    assert (unknown.state, unknown.missing_machines, unknown.held_machines_not_planned) == ("unreported", None, None)
    assert (unknown.revision, unknown.issued_at, unknown.planned_machines) == (4, AT, 5)


def test_machines_of_the_plan_that_are_not_held_are_missing() -> None:
    some = found(a_holding("a", count=2), a_holding("b"))
    assert (some.state, some.missing_machines, some.held_machines_not_planned) == ("unmet", 2, 0)


@pytest.mark.parametrize(("after", "state"), [(SOON, "unmet"), (LATE, "overdue")])
def test_what_is_missing_for_too_long_is_overdue(after: timedelta, state: str) -> None:
    assert found(a_holding("a"), after=after).state == state


def test_a_plan_whose_machines_are_all_held_is_met_whatever_else_is_held_and_however_late() -> None:
    whole = found(a_holding("a", count=4), a_holding("b", count=2), a_holding("c"), after=LATE)
    assert (whole.state, whole.missing_machines, whole.held_machines_not_planned) == ("met", 0, 2)


def test_another_price_is_the_same_machine() -> None:
    assert found(a_holding("a", count=3, price_usd_per_hour=1.0), a_holding("b", count=2)).state == "met"
