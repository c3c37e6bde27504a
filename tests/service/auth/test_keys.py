"""Making keys, and finding them in `Authorization` headers."""

import base64
from hashlib import sha256

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sutler.service.auth.keys import SECRET_CHARS, SECRET_LENGTH, key_in, make_key, parse_key
from sutler.service.web.errors import NotAuthenticatedError, RequestError
from tests.service.auth.builders import UNKNOWN_KEY, basic, bearer, secret_of


def test_a_key_names_itself_and_carries_256_bits_of_secret() -> None:
    made = make_key()
    prefix, key_id, secret = made.text.split("_")
    assert (prefix, key_id) == ("sutler", made.id)
    assert len(key_id) == 12
    assert len(secret) == SECRET_LENGTH
    assert len(SECRET_CHARS) ** SECRET_LENGTH > 2**256


def test_no_two_keys_are_alike() -> None:
    made = [make_key() for _ in range(1_000)]
    assert len({key.id for key in made}) == len({secret_of(key.text) for key in made}) == 1_000


def test_only_a_digest_of_the_secret_is_handed_on() -> None:
    made = make_key()
    assert made.secret_sha256 == sha256(secret_of(made.text).encode()).digest()
    shown = parse_key(made.text)
    assert shown is not None
    assert (shown.id, shown.secret_sha256) == (made.id, made.secret_sha256)


def test_nobody_sees_a_key_by_printing_it() -> None:
    made = make_key()
    shown = f"{made!r} {made} {parse_key(made.text)!r}"
    assert made.id in shown
    assert secret_of(made.text) not in shown
    assert repr(made.secret_sha256) not in shown


@pytest.mark.parametrize(
    "text",
    [
        "",
        "sutler",
        UNKNOWN_KEY[:-1],
        UNKNOWN_KEY + "x",
        UNKNOWN_KEY + "\n",
        UNKNOWN_KEY.upper(),
        UNKNOWN_KEY.replace("sutler", "butler"),
        UNKNOWN_KEY.replace("abc", "a_c"),
        UNKNOWN_KEY.replace("abc", "äbc"),
        UNKNOWN_KEY.replace("abc", "١bc"),
        UNKNOWN_KEY.replace("xxx", "x\0x"),
        UNKNOWN_KEY.replace("xxx", "x-x"),
    ],
)
def test_what_only_resembles_a_key_is_none(text: str) -> None:
    assert parse_key(text) is None


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", " Bearer ", "Bearer  "])
def test_a_bearer_key_is_found(scheme: str) -> None:
    assert key_in(f"{scheme} {UNKNOWN_KEY} ") == parse_key(UNKNOWN_KEY)


@pytest.mark.parametrize("user", [b"", b"terraform", "äöü".encode(), b"any\0one", b"\xff\xfe", b"a" * 2_000])
def test_the_password_of_basic_is_the_key_whoever_the_user_is(user: bytes) -> None:
    assert key_in(basic(user + b":" + UNKNOWN_KEY.encode())) == parse_key(UNKNOWN_KEY)


@pytest.mark.parametrize(
    "header",
    [
        "",
        " ",
        "Bearer",
        "Bearer ",
        UNKNOWN_KEY,
        f"Bearer{UNKNOWN_KEY}",
        f"Bearer\t{UNKNOWN_KEY}",
        f"Bearer {UNKNOWN_KEY} {UNKNOWN_KEY}",
        f"Bearer {UNKNOWN_KEY}, Bearer {UNKNOWN_KEY}",
        f"Digest {UNKNOWN_KEY}",
        f"Basic {UNKNOWN_KEY}",
        "Basic",
        "Basic ====",
        "Basic YQ",
        "Basic äöü",
        "Basic \0",
        basic(f"user:{UNKNOWN_KEY}").replace("Basic ", "Basic !"),
        basic("no colon"),
        basic(UNKNOWN_KEY),
        basic(f"{UNKNOWN_KEY}:"),
        basic(f"a:b:{UNKNOWN_KEY}"),
        basic(f"a:{UNKNOWN_KEY}\0"),
        basic(b"a:\xff"),
        basic("a:" + base64.b64encode(UNKNOWN_KEY.encode()).decode()),
        basic("a" * 1_000_000 + f":{UNKNOWN_KEY}"),
        bearer("x" * 1_000_000),
    ],
)
def test_a_header_without_a_key_is_refused_with_a_remedy_and_never_repeated(header: str) -> None:
    with pytest.raises(NotAuthenticatedError, match="HTTP Basic with the key as password") as raised:
        key_in(header)
    assert secret_of(UNKNOWN_KEY) not in str(raised.value)
    assert len(str(raised.value)) < 300


@given(st.text() | st.from_regex(r"(?i)(bearer|basic|[a-z]+) .*", fullmatch=True))
@example("Bearer " + "9" * 5_000)
def test_any_header_without_a_key_is_refused_and_breaks_nothing(header: str) -> None:
    with pytest.raises(RequestError, match="Authorization:"):
        key_in(header)


@given(st.binary() | st.binary().map(lambda user: user + b":sutler_"))
def test_any_basic_credentials_without_a_key_are_refused(credentials: bytes) -> None:
    with pytest.raises(RequestError, match="Authorization:"):
        key_in(basic(credentials))


@given(st.binary(max_size=50).filter(lambda user: b":" not in user))
def test_no_user_name_keeps_a_key_from_being_found(user: bytes) -> None:
    assert key_in(basic(user + b":" + UNKNOWN_KEY.encode())) == parse_key(UNKNOWN_KEY)
