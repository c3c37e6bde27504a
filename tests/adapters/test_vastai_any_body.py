"""Vast.ai: whatever a body holds, nothing is raised, no good offer is lost, and what is kept fits a snapshot."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from sutler.adapters import vastai
from sutler.adapters.base import PriceBand
from sutler.adapters.vastai_searches import SearchAnswer
from tests.adapters.builders import (
    DELETE,
    NOON_EPOCH_S,
    as_market,
    vast_row,
)

# Any body

odd_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from(
        [0, -1, 10**9, 10**18, 10**400, 1e300, -0.0, 1e-300, "N/A", "0,5", "1e400", "true", "\x00", "\ud800"]
    )
    | st.floats()
    | st.text(st.characters(), max_size=8)
    | st.just("x" * 400),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=5,
)
changes_of_a_row = st.dictionaries(st.sampled_from(sorted(vast_row())), odd_values | st.just(DELETE), max_size=4)
odd_rows = changes_of_a_row.map(lambda changes: vast_row(**{"offer_id": 9, **renamed(changes)})) | odd_values


def renamed(changes: dict[str, Any]) -> dict[str, Any]:
    """The builder's first argument is the field `id`."""
    return {("offer_id" if name == "id" else name): value for name, value in changes.items()}


@settings(max_examples=300)
@given(st.lists(odd_rows, min_size=1, max_size=4))
def test_whatever_a_row_holds_the_others_live_on_and_what_is_kept_fits_a_snapshot(odd: list[object]) -> None:
    good = [vast_row(f"good-{i}", machine_id=f"m-{i}", host_id=None, gpu_ids=[i]) for i in range(2)]
    searches = [
        SearchAnswer("on_demand", (good[0], *odd, good[1]), False),
        SearchAnswer("interruptible", tuple(odd), True),
    ]
    found = vastai.parse(searches, price_band=PriceBand(), now_s=NOON_EPOCH_S)
    assert {"good-0", "good-1"} <= {offer.offer_id for offer in found.offers}
    assert found.kept == len(found.offers) == len({offer.key for offer in found.offers})
    as_market(found)
    for row in found.rejected:
        assert row.raw.isascii()
        json.loads(row.raw)
        assert row.detail.isprintable()
        assert len(row.detail) < 500
