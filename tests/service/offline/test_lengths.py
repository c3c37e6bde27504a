"""Lengths of an application file as the solver's distributions."""

import numpy as np
import pytest

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.validation import validate
from sutler.service.offline.application_schema import ApplicationDocument
from sutler.service.offline.lengths import solver_lengths
from sutler.service.offline.lengths_schema import LengthsDocument
from sutler.solver.offline.application import LengthDistribution
from tests.service.offline.builders import an_application, an_asker


def document_of(given: object) -> LengthsDocument:
    model = an_asker(output_tokens=given)
    checked = validate(ApplicationDocument, an_application(models=[model], edges=[])).models[0].output_tokens
    assert checked is not None
    return checked


def lengths(given: object, *, least: int = 1) -> LengthDistribution:
    return solver_lengths(document_of(given), field="models[0].output_tokens", least=least)


def shares(found: LengthDistribution) -> dict[int, float]:
    return dict(zip(found.values, np.diff(found.cumulative, prepend=0.0).tolist(), strict=True))


def test_a_number_is_always_that_number() -> None:
    assert lengths(180) == LengthDistribution.always(180)


def test_uniform_lengths_are_all_whole_numbers_evenly() -> None:
    assert shares(lengths({"uniform": {"low": 3, "high": 6}})) == pytest.approx({3: 0.25, 4: 0.25, 5: 0.25, 6: 0.25})
    assert lengths({"uniform": {"low": 4, "high": 4}}) == LengthDistribution.always(4)


def test_wide_uniform_lengths_are_a_thousand_points_with_both_ends() -> None:
    found = lengths({"uniform": {"low": 1, "high": 100_001}})
    assert len(found.values) == 1000
    assert (found.values[0], found.values[-1]) == (1, 100_001)
    assert found.mean == pytest.approx(50_001, rel=1e-3)


def test_a_lognormal_has_its_own_mean_and_deviation() -> None:
    found = lengths({"lognormal": {"mean": 320, "standard_deviation": 180}})
    values, weights = np.array(found.values), np.diff(found.cumulative, prepend=0.0)
    assert found.mean == pytest.approx(320, rel=0.01)
    assert np.sqrt(weights @ (values - found.mean) ** 2) == pytest.approx(180, rel=0.03)


def test_a_lognormal_is_cut_at_both_ends_and_keeps_what_is_beyond_there() -> None:
    found = lengths({"lognormal": {"mean": 320, "standard_deviation": 180, "low": 100, "high": 512}})
    assert (found.values[0], found.most) == (100, 512)
    uncut = lengths({"lognormal": {"mean": 320, "standard_deviation": 180}})
    beyond = sum(share for value, share in shares(uncut).items() if value >= 512)
    assert shares(found)[512] == pytest.approx(beyond)
    assert beyond > 0.05


def test_a_lognormal_without_deviation_is_one_number() -> None:
    assert lengths({"lognormal": {"mean": 320, "standard_deviation": 0}}) == LengthDistribution.always(320)


def test_an_absurd_lognormal_stays_below_the_limit_of_tokens() -> None:
    assert lengths({"lognormal": {"mean": 1e7, "standard_deviation": 1e7}}).most <= 10_000_000


def test_seen_lengths_count_by_their_weights() -> None:
    found = lengths({"empirical": {"tokens": [9, 4, 9, 7], "weights": [1, 2, 1, 0]}})
    assert shares(found) == pytest.approx({4: 0.5, 9: 0.5})
    assert shares(lengths({"empirical": {"tokens": [9, 4, 9, 7]}})) == pytest.approx({4: 0.25, 7: 0.25, 9: 0.5})


def test_quantiles_are_joined_by_straight_lines() -> None:
    found = lengths({"quantiles": {"fractions": [0, 0.5, 1], "tokens": [1, 101, 10_101]}})
    assert found.at(np.array([0.25, 0.4995, 0.75])) == pytest.approx([51, 101, 5101], rel=0.01)
    assert found.mean == pytest.approx(0.5 * 51 + 0.5 * 5101, rel=0.01)


@pytest.mark.parametrize(
    "given",
    [
        3,
        {"uniform": {"low": 1, "high": 7}},
        {"lognormal": {"mean": 50, "standard_deviation": 30}},
        {"empirical": {"tokens": [1, 2, 3], "weights": [0.1, 0.1, 0.1]}},
        {"quantiles": {"fractions": [0, 1], "tokens": [1, 9]}},
    ],
)
def test_lengths_ascend_and_their_shares_end_at_exactly_one(given: object) -> None:
    found = lengths(given)
    assert found.cumulative[-1] == 1.0
    assert list(found.values) == sorted(set(found.values))
    assert list(found.cumulative) == sorted(set(found.cumulative))
    assert len(found.values) == len(found.cumulative) <= 1000


def test_lengths_below_the_least_are_named() -> None:
    with pytest.raises(DocumentError, match=r"models\[0\].output_tokens: .*comes to lengths of 0: .* at least 1"):
        lengths({"uniform": {"low": 0, "high": 7}})
    assert lengths({"uniform": {"low": 0, "high": 7}}, least=0).values[0] == 0


def test_a_path_is_refused_where_there_are_no_files() -> None:
    with pytest.raises(DocumentError, match=r"models\[0\].output_tokens.file.path: .*command line only"):
        lengths({"file": {"path": "x.csv", "column": "GeneratedTokens"}})
