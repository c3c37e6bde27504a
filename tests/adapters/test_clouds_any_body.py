"""Whatever JSON stands where a cloud's fields belong: a poll comes of it, and its offers fit the market snapshot."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sutler.adapters import hyperstack, lambda_cloud, lium, shadeform, verda
from sutler.adapters.base import USUAL_PRICE_BAND, Poll
from sutler.adapters.errors import AnswerError, SetupError
from tests.adapters.builders import as_document
from tests.adapters.cloud_bodies import (
    hyperstack_model,
    hyperstack_prices,
    hyperstack_stocks,
    lambda_type,
    lium_node,
    shadeform_type,
    verda_location,
    verda_type,
)

NAME = "1H100.80S.30V"
ODD = st.sampled_from(
    ["", "x" * 300, "\u0000", "\u202e", "\ud800", "\u00df" * 200, "99999+", "1e300", NAME, 10**400, 1e300, -1, 2.5]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | ODD | st.text(max_size=8)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=2)
)
PRICES = hyperstack_prices(H100_80G_PCIe_NVLink=1.95)
BODIES: dict[str, Any] = {
    "lium": {"nodes": [lium_node()]},
    "lambda": {"data": {"gpu_8x": lambda_type()}},
    "hyperstack": {"stocks": hyperstack_stocks(hyperstack_model())["stocks"]},
    "shadeform": {"instance_types": [shadeform_type()]},
    "verda": {"types": [verda_type()], "on_demand": [verda_location("FIN-09", NAME)], "interruptible": []},
}


def parsed(cloud: str, body: Any) -> Poll:
    if cloud == "verda":
        stock: dict[verda.RentedAs, Any] = {"on_demand": body["on_demand"], "interruptible": body["interruptible"]}
        return verda.parse(body["types"], stock, price_band=USUAL_PRICE_BAND)
    if cloud == "hyperstack":
        return hyperstack.parse(body, PRICES, price_band=USUAL_PRICE_BAND)
    parse = {"lium": lium.parse, "lambda": lambda_cloud.parse, "shadeform": shadeform.parse}[cloud]
    return parse(body, price_band=USUAL_PRICE_BAND)


def places_in(value: Any) -> list[tuple[Any, ...]]:
    """Paths to every part of a body below its top."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path for key, part in inner for path in ((key,), *((key, *rest) for rest in places_in(part)))]


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    key, *rest = path
    copy = dict(value) if isinstance(value, dict) else list(value)
    copy[key] = changed(value[key], tuple(rest), new)
    return copy


@pytest.mark.parametrize("cloud", list(BODIES))
@settings(max_examples=120)
@given(data=st.data())
def test_any_part_may_be_anything(cloud: str, data: st.DataObject) -> None:
    body = BODIES[cloud]
    path = data.draw(st.sampled_from(places_in(body)))
    try:
        found = parsed(cloud, changed(body, path, data.draw(VALUES)))
    except (AnswerError, SetupError):
        return
    for offer in found.offers:
        as_document(offer, provider=cloud)
    for coverage in found.covered:
        assert coverage.feed_prefix.isprintable()
