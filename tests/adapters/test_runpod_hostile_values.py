"""Whatever JSON stands where RunPod's fields belong: a poll comes of it, and its offers are fit to be stored."""

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sutler.adapters.base import LONGEST_NAME, USUAL_PRICE_BAND, Poll
from sutler.adapters.runpod import graphql, rest
from sutler.adapters.runpod.tally import Tally
from tests.adapters.runpod_bodies import A40, L4, graphql_row, rest_row

WORDS = st.sampled_from(
    ["LOW", "High", "NONE", "true", "1", "-1", "0.5", "1e400", A40, L4, "EU-1", "\u0000", "\ud800"]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | WORDS | st.text(max_size=20)
KEYS = st.sampled_from(["id", "secure", "availability", "stockStatus", "availableGpuCounts", "path", "message", "x"])
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=8
)
REST_ROW: dict[str, Any] = rest_row(A40, "LOW", "EU-1")
GRAPHQL_ROW: dict[str, Any] = graphql_row(A40)


def changed(row: dict[str, Any]) -> st.SearchStrategy[object]:
    """A good row with some fields replaced, or no row at all."""
    some_fields = st.dictionaries(st.sampled_from(sorted(row)), VALUES, max_size=3)
    return some_fields.map(lambda fields: {**row, **fields}) | VALUES


def assert_fit_to_store(found: Poll, rows: list[object]) -> None:
    keys = [offer.key for offer in found.offers]
    assert len(set(keys)) == len(keys)
    for offer in found.offers:
        for name in (offer.offer_id, offer.region, offer.site, offer.machine_id):
            assert name is None or (0 < len(name) <= LONGEST_NAME and name.isprintable())
        assert 1 <= offer.gpus <= 64
        assert math.isfinite(offer.price_usd_per_hour)
        assert 0.01 <= offer.price_usd_per_hour / offer.gpus <= 50.0
    assert found.kept + sum(found.not_available.values()) + len(found.rejected) <= 2 * len(rows)


@pytest.mark.slow
@settings(max_examples=150)
@given(st.lists(changed(REST_ROW), max_size=4), st.lists(changed(REST_ROW), max_size=4), st.booleans())
def test_any_rows_of_the_rest_api_become_a_poll(first: list[object], second: list[object], is_complete: bool) -> None:
    tally = Tally()
    for count, rows in ((1, first), (2, second)):
        rest.read(rows, tally, cloud="SECURE", count=count, price_band=USUAL_PRICE_BAND)
    tally.cloud("SECURE").is_complete = is_complete
    assert_fit_to_store(tally.poll(requests_sent=2), first + second)


@settings(max_examples=150)
@given(st.lists(changed(GRAPHQL_ROW), max_size=4), st.lists(VALUES, max_size=3))
def test_any_rows_and_errors_of_graphql_become_a_poll(rows: list[object], errors: list[object]) -> None:
    tally = Tally()
    graphql.read(rows, errors, tally, cloud="COMMUNITY", price_band=USUAL_PRICE_BAND)
    assert_fit_to_store(tally.poll(requests_sent=1), rows)
