"""Inequalities of whole replicas: kept by fleets that carry enough, broken by the fractions they are made for."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from sutler.solver.polytope.column_generation import FleetRow
from sutler.solver.polytope.rounding_cuts import rounding_cuts
from tests.looped import for_each

EVERYTHING = np.arange(4)


def a_row(seed: int) -> FleetRow:
    """What each of four candidates earns: some nothing, some round numbers, some much more than is asked."""
    rng = np.random.default_rng(seed)
    earned = rng.choice([0.0, 0.25, 0.5, 3.0, *rng.uniform(0.05, 1.5, 4)], 4)
    return FleetRow(earned, lam=float(rng.choice([1.0, 0.7])), fixed=float(rng.choice([0.0, 0.2])))


@for_each("seed", range(400), quick=60)
def test_every_fleet_of_whole_replicas_that_carries_enough_keeps_all_cuts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows, least = [a_row(seed + 1000 * number) for number in range(4)], float(rng.uniform(0.5, 2.0))
    point = rng.uniform(0.0, 2.0, 4) * (rng.random(4) < 0.8)
    fleets = np.array(list(product(range(5), repeat=4)))
    for cut in rounding_cuts(rows, EVERYTHING, point, least):
        left = cut.left(EVERYTHING)
        assert left @ point < cut.right
        enough = fleets @ cut.row.earned >= least * cut.row.lam + cut.row.fixed
        assert (fleets[enough] @ left >= cut.right).all()


def test_two_replicas_are_needed_where_one_is_too_little() -> None:
    row = FleetRow(np.array([0.5, 0.45, 0.0, 0.0]))
    (cut,) = rounding_cuts([row], EVERYTHING, np.array([1.8, 0.0, 0.0, 0.0]), 0.9)
    assert cut.right == pytest.approx(2.0)
    assert cut.left(EVERYTHING) == pytest.approx([1.0, 1.0, 0.0, 0.0])


def test_a_cut_holds_for_candidates_beside_those_of_the_point() -> None:
    row = FleetRow(np.array([0.5, 2.0, 0.6, 0.1]))
    (cut,) = rounding_cuts([row], EVERYTHING[:1], np.array([1.8]), 0.9)
    assert cut.left(EVERYTHING) == pytest.approx([1.0, 4.0, 1.25, 0.25])


@pytest.mark.parametrize(
    ("row", "replicas", "least"),
    [
        pytest.param(FleetRow(np.array([0.5])), 2.0, 0.9, id="whole replicas"),
        pytest.param(FleetRow(np.array([0.5])), 1.8, 0.0, id="nothing has to be carried"),
        pytest.param(FleetRow(np.array([0.0])), 1.8, 0.9, id="nothing is earned"),
        pytest.param(replace(FleetRow(np.array([0.5])), falling=np.array([0.5])), 1.8, 0.9, id="replicas may fall"),
        pytest.param(FleetRow(np.array([0.5]), machine=0.1), 1.8, 0.9, id="machines count"),
    ],
)
def test_no_cuts(row: FleetRow, replicas: float, least: float) -> None:
    assert rounding_cuts([row], np.zeros(1, dtype=np.int64), np.array([replicas]), least) == []


def test_of_alike_cuts_there_is_one() -> None:
    row = FleetRow(np.array([0.5, 0.3, 0.0, 0.0]))
    assert len(rounding_cuts([row, row], EVERYTHING, np.array([1.0, 1.2, 0.0, 0.0]), 0.9)) == 1
