"""Where calls may go: only to addresses of the public Internet, and to networks that the operator names.

A URL is checked when it is given and again at every call. A name is resolved once per call, every address
that it has must be allowed, and the connection goes to an address that was checked, never to the name.
https://cheatsheetseries.owasp.org/cheatsheets/Server_Side_Request_Forgery_Prevention_Cheat_Sheet.html
"""

import re
import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any, Final
from urllib.parse import urlsplit

from sutler.service.outgoing.addresses import Address, Network, address_of, ipv4_of, looks_like_ipv4, why_closed

Lookup = Callable[[str, int], Iterable[str]]

LONGEST_URL: Final = 2_000  # chosen: few URLs are longer; errors and rows stay short
LONGEST_NAME: Final = 253  # RFC 1035, without the final dot
MOST_ADDRESSES: Final = 4  # chosen: each may take `connect_s`, and all share `whole_s`
USUAL_PORTS: Final = {"http": 80, "https": 443}
FIRST_FREE_PORT: Final = 1_024  # below it are services of systems, which must not be spoken to

_URL_CHARACTERS: Final = re.compile(r"[!#-;=?-\[\]_a-z~]+")
_NETLOC: Final = re.compile(r"(?:\[(?P<ipv6>[0-9A-Fa-f:.]+)\]|(?P<name>[A-Za-z0-9._-]+))(?::(?P<port>[0-9]{1,5}))?")
_LABEL: Final = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_LOOPBACK: Final = address_of("127.0.0.1"), address_of("::1")


class DestinationError(Exception):
    """The address is one to which nothing may be sent.

    `shown` is the part of the URL that is wrong, never a password, path or query."""

    def __init__(self, remedy: str, *, shown: str | None = None) -> None:
        self.remedy = remedy
        self.shown = None if shown is None else shown[:LONGEST_NAME]
        super().__init__(remedy if shown is None else f"{self.shown}: {remedy}")


@dataclass(frozen=True, slots=True)
class Destination:
    """A URL taken apart: `host` in lower case, addresses in their usual spelling; `target` is path and query."""

    is_https: bool
    host: str
    port: int
    target: str
    address: Address | None


def networks(texts: Iterable[str]) -> tuple[Network, ...]:
    """The setting SUTLER_OUTGOING_NETWORKS, which was checked when it was read."""
    return tuple(ip_network(text) for text in texts)


def check_url(url: str, *, allowed: tuple[Network, ...]) -> Destination:
    """The URL's parts, where calls may go there as far as can be said without asking DNS.

    Addresses are recognised in every spelling that a resolver takes. Raises DestinationError.
    """
    if len(url) > LONGEST_URL:
        raise DestinationError(f"is too long: at most {LONGEST_URL} characters are allowed")
    if not _URL_CHARACTERS.fullmatch(url):
        raise DestinationError("has characters that a URL cannot have: escape them, and write names in Punycode")
    try:
        parts = urlsplit(url)
    except ValueError:
        raise DestinationError("is not a URL: write https://host/path") from None
    if parts.scheme not in USUAL_PORTS or not parts.netloc:
        raise DestinationError("must begin with https:// or http:// and a host")
    if "#" in url:
        raise DestinationError("has a fragment (#), which is never sent: remove it")
    host, port, address = _checked_netloc(parts.netloc, USUAL_PORTS[parts.scheme], allowed)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Destination(parts.scheme == "https", host, port, target, address)


def resolve(host: str, port: int, *, allowed: tuple[Network, ...], lookup: Lookup) -> tuple[Address, ...]:
    """The addresses of a name, best first, all of them checked: one that is not allowed forbids the name.

    `lookup` answers a name and a port with addresses, and is asked once. Raises DestinationError, and what `lookup`
    raises.
    """
    found = tuple(dict.fromkeys(address_of(text) for text in lookup(host, port)))
    if not found:
        raise DestinationError("the name has no address: correct it", shown=host)
    for address in found:
        _check_address(address, allowed, shown=f"{host} ({address})")
    return found[:MOST_ADDRESSES]


def system_lookup(host: str, port: int) -> list[str]:
    """What the system's resolver says. Raises OSError."""
    found: list[Any] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return [entry[4][0] for entry in found]


def _checked_netloc(netloc: str, usual_port: int, allowed: tuple[Network, ...]) -> tuple[str, int, Address | None]:
    if "@" in netloc:
        raise DestinationError("has a user or password: remove them, nothing is sent with credentials")
    parts = _NETLOC.fullmatch(netloc)
    if parts is None:
        raise DestinationError("has a host or port that cannot be: write https://host:port/path")
    port = usual_port if parts["port"] is None else int(parts["port"])
    if not (port in USUAL_PORTS.values() or FIRST_FREE_PORT <= port <= 65_535):
        raise DestinationError(f"the port must be 80, 443 or {FIRST_FREE_PORT} to 65535", shown=str(port))
    if parts["ipv6"] is None and not looks_like_ipv4(parts["name"]):
        return _checked_name(parts["name"], allowed), port, None
    address = _literal(parts["ipv6"], parts["name"])
    _check_address(address, allowed, shown=parts["ipv6"] or parts["name"])
    return str(address), port, address


def _literal(ipv6: str | None, ipv4: str) -> Address:
    try:
        return ipv4_of(ipv4) if ipv6 is None else address_of(ipv6)
    except ValueError:
        raise DestinationError("is not an address", shown=ipv6 or ipv4) from None


def _checked_name(given: str, allowed: tuple[Network, ...]) -> str:
    name = given.lower().removesuffix(".")
    if len(name) > LONGEST_NAME or not all(_LABEL.fullmatch(label) for label in name.split(".")):
        raise DestinationError("is not a host name", shown=given)
    if name.rpartition(".")[2] == "localhost" and all(why_closed(address, allowed) for address in _LOOPBACK):
        raise _closed("loopback", shown=given)
    return name


def _check_address(address: Address, allowed: tuple[Network, ...], *, shown: str) -> None:
    kind = why_closed(address, allowed)
    if kind is not None:
        raise _closed(kind, shown=shown)


def _closed(kind: str, *, shown: str) -> DestinationError:
    remedy = "name a public one, or have the operator allow its network with SUTLER_OUTGOING_NETWORKS"
    return DestinationError(f"nothing is sent to this address ({kind}): {remedy}", shown=shown)
