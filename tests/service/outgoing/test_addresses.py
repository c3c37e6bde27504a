"""Which addresses are of the public Internet: written out, and never wider than what Python takes for it."""

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sutler.service.outgoing.addresses import Address, why_closed
from sutler.service.outgoing.destinations import networks
from tests.service.webhooks.builders import NOWHERE

CLOSED = {
    "0.0.0.0": "unspecified",
    "0.1.2.3": "unspecified",
    "10.0.0.1": "private",
    "10.255.255.255": "private",
    "100.64.0.1": "carrier-grade NAT",
    "100.100.100.200": "carrier-grade NAT",
    "100.127.255.255": "carrier-grade NAT",
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "168.63.129.16": "a cloud's own",
    "169.254.169.254": "link-local",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.0.0.192": "reserved",
    "192.0.2.1": "for documentation",
    "192.168.0.1": "private",
    "198.18.0.1": "for benchmarks",
    "198.19.255.255": "for benchmarks",
    "198.51.100.7": "for documentation",
    "203.0.113.7": "for documentation",
    "224.0.0.1": "multicast",
    "239.255.255.255": "multicast",
    "240.0.0.1": "reserved",
    "255.255.255.255": "reserved",
    "::": "unspecified",
    "::1": "loopback",
    "::7f00:1": "reserved",
    "::ffff:127.0.0.1": "loopback",
    "::ffff:169.254.169.254": "link-local",
    "64:ff9b::7f00:1": "loopback",
    "64:ff9b::a9fe:a9fe": "link-local",
    "64:ff9b:1::808:808": "reserved",
    "100::1": "reserved",
    "2001::1": "reserved",
    "2001:db8::1": "for documentation",
    "2002:7f00:1::": "6to4",
    "2002:808:808::1": "6to4",
    "3fff::1": "for documentation",
    "5f00::1": "reserved",
    "fc00::1": "unique local",
    "fd00:ec2::254": "unique local",
    "fe80::1": "link-local",
    "fe80::1%eth0": "link-local",
    "fec0::1": "reserved",
    "ff02::1": "multicast",
}
OPEN = ["1.1.1.1", "8.8.8.8", "100.63.255.255", "100.128.0.1", "172.32.0.1", "192.169.0.1", "223.255.255.254"]
OPEN_IPV6 = ["2606:4700::1111", "2a00:1450::200e", "::ffff:8.8.8.8", "64:ff9b::808:808"]


@pytest.mark.parametrize(("text", "kind"), CLOSED.items())
def test_an_address_that_is_not_public_says_what_it_is(text: str, kind: str) -> None:
    assert why_closed(ip_address(text), NOWHERE) == kind


@pytest.mark.parametrize("text", OPEN + OPEN_IPV6)
def test_a_public_address_is_open(text: str) -> None:
    assert why_closed(ip_address(text), NOWHERE) is None


@given(st.ip_addresses(v=4))
def test_no_ipv4_address_is_open_that_python_takes_for_closed(address: IPv4Address) -> None:
    if why_closed(address, NOWHERE) is None:
        assert address.is_global
        assert not address.is_multicast


@given(st.ip_addresses(v=6) | st.ip_addresses(network="2000::/3") | st.ip_addresses(network="2000::/13"))
def test_no_ipv6_address_is_open_that_python_takes_for_closed(address: IPv6Address) -> None:
    if why_closed(address, NOWHERE) is None and address in ip_network("2000::/3"):
        assert address.is_global
        assert (address.is_multicast, address.is_reserved, address.is_site_local) == (False, False, False)


@given(st.ip_addresses(v=6))
def test_outside_of_the_public_ipv6_nothing_is_open_but_ipv4_in_disguise(address: IPv6Address) -> None:
    disguises = (ip_network("::ffff:0:0/96"), ip_network("64:ff9b::/96"))
    if address not in ip_network("2000::/3") and not any(address in network for network in disguises):
        assert why_closed(address, NOWHERE) is not None


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_inside_of_an_ipv6_one_is_judged_as_itself(address: IPv4Address) -> None:
    mapped = ip_address(f"::ffff:{address}")
    translated = IPv6Address(int(ip_address("64:ff9b::")) + int(address))
    expected = why_closed(address, NOWHERE)
    assert (why_closed(mapped, NOWHERE), why_closed(translated, NOWHERE)) == (expected, expected)


@pytest.mark.parametrize(
    ("network", "inside", "outside"),
    [
        ("10.20.0.0/16", "10.20.255.1", "10.21.0.1"),
        ("10.20.0.0/16", "::ffff:10.20.0.1", "::ffff:10.21.0.1"),
        ("10.20.0.0/16", "64:ff9b::a14:1", "64:ff9b::a15:1"),
        ("fd00:1::/32", "fd00:1::9", "fd00:2::9"),
        ("127.0.0.0/8", "127.0.0.1", "::1"),
        ("::/0", "::1", "127.0.0.1"),
    ],
)
def test_an_allowed_network_opens_itself_and_nothing_else(network: str, inside: str, outside: str) -> None:
    def closed(text: str) -> str | None:
        address: Address = ip_address(text)
        return why_closed(address, networks([network]))

    assert closed(inside) is None
    assert closed(outside) is not None
