"""Which IP addresses belong to the public Internet, and what the spellings of an address mean.

The ranges are written out here: what Python's `is_global` says differs between its versions, and it takes multicast
and much of IPv6 for global. https://www.iana.org/assignments/iana-ipv4-special-registry and
https://www.iana.org/assignments/iana-ipv6-special-registry
"""

import re
import socket
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

_CLOSED: Final[tuple[tuple[Network, str], ...]] = tuple(
    (ip_network(network), kind)
    for network, kind in (
        ("0.0.0.0/8", "unspecified"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "carrier-grade NAT"),
        ("127.0.0.0/8", "loopback"),
        # Azure answers its machines there: https://learn.microsoft.com/azure/virtual-network/what-is-ip-address-168-63-129-16
        ("168.63.129.16/32", "a cloud's own"),
        ("169.254.0.0/16", "link-local"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "reserved"),
        ("192.0.2.0/24", "for documentation"),
        ("192.88.99.0/24", "reserved"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "for benchmarks"),
        ("198.51.100.0/24", "for documentation"),
        ("203.0.113.0/24", "for documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved"),
        ("::/128", "unspecified"),
        ("::1/128", "loopback"),
        ("2001::/23", "reserved"),
        ("2001:db8::/32", "for documentation"),
        ("2002::/16", "6to4"),
        ("3fff::/20", "for documentation"),
        ("fc00::/7", "unique local"),
        ("fe80::/10", "link-local"),
        ("ff00::/8", "multicast"),
    )
)
# The only part of IPv6 in public use: https://www.iana.org/assignments/ipv6-address-space
_OPEN_IPV6: Final = IPv6Network("2000::/3")
_NAT64: Final = IPv6Network("64:ff9b::/96")  # RFC 6052: its last 32 bits are an IPv4 address
_ENDS_IN_A_NUMBER: Final = re.compile(r"(?:.*\.)?(?:[0-9]+|0x[0-9a-f]*)\.?", re.IGNORECASE)


def why_closed(address: Address, allowed: tuple[Network, ...]) -> str | None:
    """What kind of address this is, where neither the public Internet nor an allowed network has it; None: one does.

    IPv4 addresses inside of IPv6 ones (mapped, NAT64) are judged themselves.
    """
    inner = _innermost(address)
    if any(_is_in(network, address) or _is_in(network, inner) for network in allowed):
        return None
    for network, kind in _CLOSED:
        if _is_in(network, inner):
            return kind
    return None if inner.version == 4 or inner in _OPEN_IPV6 else "reserved"


def address_of(text: str) -> Address:
    """An address as resolvers and sockets write it; a mapped IPv4 address as what it is. Raises ValueError."""
    found = ip_address(text)
    return found.ipv4_mapped or found if isinstance(found, IPv6Address) else found


def looks_like_ipv4(name: str) -> bool:
    """Whether a host can only be an address: no top-level domain is a number. https://url.spec.whatwg.org/#host-parsing"""
    return _ENDS_IN_A_NUMBER.fullmatch(name) is not None


def ipv4_of(name: str) -> IPv4Address:
    """An IPv4 address in any spelling that resolvers take: decimal, octal, hexadecimal, of one to four parts.

    Raises ValueError.
    """
    try:
        return IPv4Address(socket.inet_aton(name.removesuffix(".")))
    except OSError:
        raise AddressValueError(name) from None


def _innermost(address: Address) -> Address:
    if isinstance(address, IPv6Address):
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
        if address in _NAT64:
            return IPv4Address(int(address) & 0xFFFF_FFFF)
    return address


def _is_in(network: Network, address: Address) -> bool:
    return network.version == address.version and address in network
