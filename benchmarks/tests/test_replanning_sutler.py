"""Sutler's own policy in the simulated world: the service's looks, fed from it."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from benchmarks.day.fleet import Fleet
from benchmarks.day.market import left_over
from benchmarks.day.policies import NeverReplan
from benchmarks.day.simulation import Outcome, Setting, live
from benchmarks.day.sutler import SutlerPolicy, sutler_policy
from benchmarks.tests.replanning_builders import STEADY_S, setting
from sutler.service.deployments.schemas import PolicyDocument


def test_it_begins_with_the_plan_for_the_mean_traffic() -> None:
    made = setting()
    policy, first = sutler_policy(made, PolicyDocument())
    rates = np.array([bucket.rate_rps for bucket in made.planner.buckets])
    cheapest = made.planner.fleet(made.planner.problem(rates, left_over(made.market.offers(0.0), ()), 0.0))
    assert cheapest is not None
    assert first.usd_per_hour == pytest.approx(cheapest.usd_per_hour, rel=made.planner.relative_gap)
    assert policy.plan.revision == 1


@cache
def steady_day() -> tuple[Setting, SutlerPolicy, Fleet, Outcome]:
    """Forty minutes under a policy that shrinks after ten, lived once: its fleet at first, and what came of it."""
    made = replace(setting(), length_s=STEADY_S)
    policy, first = sutler_policy(made, PolicyDocument(shrink_after_s=600.0))
    return made, policy, first, live(made, policy, first)


def test_every_change_is_a_revision_with_its_reason_and_no_number_is_left_out() -> None:
    _, policy, _, outcome = steady_day()
    assert outcome.revisions == len(policy.reasons) == policy.plan.revision - 1 > 0
    assert all(reason for _, reason in policy.reasons)


def test_a_fleet_for_twice_the_traffic_is_made_smaller_and_still_serves() -> None:
    """The day's mean is twice what its first forty minutes have."""
    made, _, first, ours = steady_day()
    theirs = live(made, NeverReplan(first), first)
    assert ours.usd < 0.9 * theirs.usd
    assert ours.served > 0.98 * ours.arrived


def test_a_policy_that_is_not_automatic_changes_nothing() -> None:
    made = replace(setting(), length_s=600.0)
    policy, first = sutler_policy(made, PolicyDocument(automatic=False))
    outcome = live(made, policy, first)
    assert (outcome.revisions, outcome.started, outcome.stopped) == (0, 0, 0)
    assert outcome.usd == pytest.approx(first.usd_per_hour / 6)
