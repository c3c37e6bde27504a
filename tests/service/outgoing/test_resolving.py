"""Names: every address that a name has must be allowed, and what was checked is what is returned."""

from collections.abc import Callable

import pytest

from sutler.service.outgoing.destinations import MOST_ADDRESSES, DestinationError, networks, resolve, system_lookup
from tests.service.webhooks.builders import LOOPBACK, NOWHERE


def answers(*addresses: str) -> Callable[[str, int], tuple[str, ...]]:
    return lambda host, port: addresses


def test_a_name_with_public_addresses_is_resolved_in_order() -> None:
    lookup = answers("2606:4700::1111", "1.1.1.1", "1.1.1.1", "::ffff:1.0.0.1")
    found = resolve("one.example", 443, allowed=NOWHERE, lookup=lookup)
    assert [str(address) for address in found] == ["2606:4700::1111", "1.1.1.1", "1.0.0.1"]


@pytest.mark.parametrize(
    "hidden", ["127.0.0.1", "169.254.169.254", "10.1.2.3", "::1", "::ffff:10.0.0.1", "fe80::1%2"]
)
def test_one_private_address_among_public_ones_forbids_the_name(hidden: str) -> None:
    for mixed in (("1.1.1.1", hidden), (hidden, "1.1.1.1"), ("1.1.1.1", *["8.8.8.8"] * MOST_ADDRESSES, hidden)):
        with pytest.raises(DestinationError, match=r"two-faced\.example"):
            resolve("two-faced.example", 443, allowed=NOWHERE, lookup=answers(*mixed))


def test_a_private_address_is_allowed_where_its_network_is() -> None:
    lookup = answers("10.20.0.1", "1.1.1.1")
    assert len(resolve("inner.example", 443, allowed=networks(["10.20.0.0/16"]), lookup=lookup)) == 2


def test_a_name_without_addresses_is_refused() -> None:
    with pytest.raises(DestinationError, match="no address"):
        resolve("empty.example", 443, allowed=NOWHERE, lookup=answers())


def test_no_more_than_a_few_addresses_are_tried() -> None:
    lookup = answers(*(f"1.1.1.{last}" for last in range(1, 40)))
    assert len(resolve("many.example", 443, allowed=NOWHERE, lookup=lookup)) == MOST_ADDRESSES


def test_the_system_is_asked_for_stream_addresses() -> None:
    assert system_lookup("127.0.0.1", 80) == ["127.0.0.1"]
    assert system_lookup("0x7f.1", 80) == ["127.0.0.1"]


def test_what_the_system_says_of_localhost_is_loopback() -> None:
    allowed = networks(["127.0.0.0/8", "::1/128"])
    assert resolve("localhost", 80, allowed=allowed, lookup=system_lookup)
    with pytest.raises(DestinationError, match="loopback"):
        resolve("localhost", 80, allowed=networks(["10.0.0.0/8"]), lookup=system_lookup)
    assert resolve("name.example", 80, allowed=LOOPBACK, lookup=answers("127.0.0.9"))
