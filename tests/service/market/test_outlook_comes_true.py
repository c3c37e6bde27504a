"""What plans state of offers comes true on the living fake market, with and without spares."""

from statistics import fmean

import pytest

from benchmarks.outlook import trials

OFF_BY = 0.05  # what plans promise


@pytest.mark.slow
@pytest.mark.parametrize("churn", [0.7, 6.0])
def test_stated_chances_come_true(churn: float) -> None:
    found = trials(churn, seed=7, machines=100, days=5, learnt_days=4, every_polls=53)
    assert len(found) > 100
    assert fmean(one.stated for one in found) == pytest.approx(fmean(one.was for one in found), abs=OFF_BY)
    assert fmean(one.stated_with_spares for one in found) == pytest.approx(
        fmean(one.was_with_spares for one in found), abs=OFF_BY
    )
