"""URLs that events may not be sent to, in every spelling, and those they may."""

import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sutler.service.outgoing.addresses import why_closed
from sutler.service.outgoing.destinations import LONGEST_URL, Destination, DestinationError, check_url, networks
from tests.service.webhooks.builders import LOOPBACK, NOWHERE

CLOSED_HOSTS = [
    "127.0.0.1", "127.1", "127.0.1", "0", "0.0.0.0", "0177.0.0.1", "0x7f.0.0.1", "0x7F.1", "0x7f000001",
    "2130706433", "017700000001", "127.0.0.1.", "127.0.00000.1", "localhost", "LOCALHOST", "localhost.",
    "db.localhost", "169.254.169.254", "0xa9fea9fe", "2852039166", "0251.0376.0251.0376", "169.254.43518",
    "10.0.0.1", "0xa.1", "012.0.0.1", "192.168.1.1", "192.168.257", "172.16.0.1", "100.64.0.1", "198.18.0.1",
    "192.0.2.1", "224.0.0.1", "255.255.255.255", "4294967295", "168.63.129.16",
    "[::]", "[::1]", "[0:0:0:0:0:0:0:1]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]", "[::FFFF:a9fe:a9fe]",
    "[::127.0.0.1]", "[64:ff9b::127.0.0.1]", "[64:ff9b::a9fe:a9fe]", "[64:ff9b:1::1]", "[2002:7f00:1::]",
    "[2002:a9fe:a9fe::1]", "[2001:db8::1]", "[2001:0:7f00:1::]", "[fc00::1]", "[fd00:ec2::254]", "[fe80::1]",
    "[fec0::1]", "[ff02::1]", "[100::1]",
]  # fmt: skip
MALFORMED = [
    "", "/", "//", "http:", "http://", "https:///path", "ftp://example.org/", "file:///etc/passwd", "gopher://x.org/",
    "example.org/hook", "//example.org/", "javascript:alert(1)", "http//example.org", "unix:///run/docker.sock",
    "http://user@example.org/", "http://user:password@example.org/", "http://example.org@127.0.0.1/",
    "http://127.0.0.1@example.org/", "http://exa mple.org/", " http://example.org/", "http://example.org/ ",
    "http://example.org/\n", "http://example.org\r\nHost: x/", "http://example.org/\t", "http://exam\tple.org/",
    "http://example.org\\@127.0.0.1/", "http:\\\\127.0.0.1", "http://example.org/\x00", "http://example.org:0/",
    "http://example.org:22/", "http://example.org:65536/", "http://example.org:99999/", "http://example.org:-1/",
    "http://example.org:/", "http://example.org:8o/", "http://example.org:80:80/", "http://example.org/#part",
    "http://example.org/#", "http://[::1/", "http://::1/", "http://[]/", "http://[fe80::1%25eth0]/",
    "http://[fe80::1%eth0]/", "http://[v1.a]/", "http://[::1]x/", "http://x[::1]/", "http://127.0.0.1%2f@x.org/",
    "http://%31%32%37.0.0.1/", "http://127。0。0。1/", "http://１２７.0.0.1/", "http://①②⑦.⓪.⓪.①/", "http://exämple.org/",
    "http://.example.org/", "http://example..org/", "http://-example.org/", "http://example-.org/", "http://./",
    "http://256.1.1.1/", "http://1.2.3.4.5/", "http://08.8.8.8/", "http://0x.1.1.1/",
    "http://example.123/", "http://4294967296/", "http://99999999999999999999/", f"http://{'a' * 64}.org/",
    f"http://{'a.' * 126}org/", "http://example.org/" + "a" * LONGEST_URL, "http://example.org/'\"", "http://a/{b}",
]  # fmt: skip


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("host", CLOSED_HOSTS)
def test_hosts_that_are_not_public_are_refused_in_every_spelling(scheme: str, host: str) -> None:
    for rest in ("", "/", ":8080/hook", "/hook?token=1"):
        with pytest.raises(DestinationError, match="SUTLER_OUTGOING_NETWORKS"):
            check_url(f"{scheme}://{host}{rest}", allowed=NOWHERE)


@pytest.mark.parametrize("url", MALFORMED)
def test_what_is_no_plain_web_address_is_refused(url: str) -> None:
    with pytest.raises(DestinationError):
        check_url(url, allowed=networks(["0.0.0.0/0", "::/0"]))


@pytest.mark.parametrize(
    ("url", "host", "port", "target"),
    [
        ("https://example.org", "example.org", 443, "/"),
        ("http://example.org", "example.org", 80, "/"),
        ("HTTPS://Example.ORG./Hook?a=b&c", "example.org", 443, "/Hook?a=b&c"),
        ("https://example.org:8443?x", "example.org", 8443, "/?x"),
        ("https://xn--exmple-cua.org/a%20b;c=1", "xn--exmple-cua.org", 443, "/a%20b;c=1"),
        ("http://receiver:9000/", "receiver", 9000, "/"),
        ("http://my_host.internal/", "my_host.internal", 80, "/"),
        ("http://134744072/", "8.8.8.8", 80, "/"),
        ("http://8.8.2056/", "8.8.8.8", 80, "/"),
        ("http://[::ffff:8.8.8.8]:8080/", "8.8.8.8", 8080, "/"),
        ("https://[2606:4700:0::1111]/", "2606:4700::1111", 443, "/"),
    ],
)
def test_a_url_is_taken_apart(url: str, host: str, port: int, target: str) -> None:
    found = check_url(url, allowed=NOWHERE)
    assert (found.host, found.port, found.target) == (host, port, target)
    assert found.is_https == url.lower().startswith("https")
    assert (found.address is None) == (not host.replace(".", "").isdigit() and ":" not in host)


@pytest.mark.parametrize("host", ["127.0.0.1", "0x7f.1", "localhost", "db.localhost", "[::ffff:127.0.0.1]"])
def test_an_allowed_network_can_be_named(host: str) -> None:
    check_url(f"http://{host}:9000/", allowed=LOOPBACK)


def test_an_allowed_network_allows_no_other() -> None:
    for host in ("10.0.0.1", "169.254.169.254", "[::1]", "0.0.0.0"):
        with pytest.raises(DestinationError):
            check_url(f"http://{host}/", allowed=LOOPBACK)


@pytest.mark.parametrize(
    "url",
    [
        "https://user:hunter2@example.org/",
        "https://example.org:1/hunter2",
        "http://127.0.0.1/hunter2?hunter2",
        "https://example.org/hunter2 ",
        "https://example.org/#hunter2",
        "ftp://example.org/hunter2",
        "https://exa%mple.org/hunter2",
        "https://example.org/hunter2" + "2" * LONGEST_URL,
    ],
)
def test_an_error_shows_neither_passwords_nor_paths(url: str) -> None:
    with pytest.raises(DestinationError) as caught:
        check_url(url, allowed=NOWHERE)
    assert "hunter2" not in f"{caught.value} {caught.value.shown} {caught.value.remedy}"


def spelled(number: int, bases: list[int], parts: int) -> str:
    """An IPv4 address in one to four parts, each decimal, octal or hexadecimal."""
    octets = list(number.to_bytes(4, "big"))
    values = [*octets[: parts - 1], int.from_bytes(bytes(octets[parts - 1 :]), "big")]
    formats = {8: "0{:o}", 10: "{:d}", 16: "0x{:x}"}
    return ".".join(formats[base].format(value) for value, base in zip(values, bases, strict=False))


ipv4_spellings = st.builds(
    spelled,
    st.integers(0, 2**32 - 1) | st.sampled_from([0x7F000001, 0x0A000001, 0xA9FEA9FE, 0xC0A80001, 0]),
    st.lists(st.sampled_from([8, 10, 16]), min_size=4, max_size=4),
    st.integers(1, 4),
)
ipv6_spellings = (st.ip_addresses(v=6) | st.ip_addresses(network="::ffff:0:0/96")).flatmap(
    lambda address: st.sampled_from([f"[{address}]", f"[{address.exploded}]", f"[{address.exploded.upper()}]"])
)


@given(host=ipv4_spellings | ipv6_spellings, scheme=st.sampled_from(["http", "https"]))
def test_no_spelling_lets_an_address_through_that_is_not_public(host: str, scheme: str) -> None:
    try:
        found = check_url(f"{scheme}://{host}/", allowed=NOWHERE)
    except DestinationError:
        return
    assert found.address is not None
    assert why_closed(found.address, NOWHERE) is None
    assert found.address.is_global


@given(st.text("0123456789abcdefx.", min_size=1, max_size=14) | ipv4_spellings)
def test_the_system_reads_numbers_in_a_host_as_the_check_does(host: str) -> None:
    try:
        found = check_url(f"http://{host}/", allowed=networks(["0.0.0.0/0"]))
    except DestinationError:
        return
    try:
        (answer, *_) = socket.getaddrinfo(host, 80, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        assert found.address is None or host.endswith(".")
    else:
        assert answer[4][0] == str(found.address)


url_parts = st.sampled_from(
    ["http", "https", "://", ":", "//", "/", "@", "[", "]", "127.0.0.1", "localhost", "example.org", ".", "%", "\\",
     "#", "?", "\n", "\t", " ", "::1", "0x", "00", "xn--", "\ud800", "。", "ⅷ", "8080", "-"]
)  # fmt: skip


@given(st.text() | st.lists(url_parts | st.text(max_size=2), max_size=12).map("".join))
def test_any_text_is_a_destination_or_an_error_that_says_why(url: str) -> None:
    found: Destination | None = None
    remedy = ""
    try:
        found = check_url(url, allowed=NOWHERE)
    except DestinationError as error:
        remedy = error.remedy
    assert remedy or (found is not None and found.host and found.target.startswith("/") and 0 < found.port < 65_536)
