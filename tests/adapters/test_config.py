"""What an operator can set per cloud: choices, keys and base URLs, checked without showing what may be secret."""

from collections.abc import Mapping

import pytest

from sutler.adapters.config import ProviderConfig, ProviderOption, bearer, key_in
from sutler.adapters.errors import SetupError

ONE = ProviderOption("api", ("v2", "graphql"), "v2", "which API")
SEVERAL = ProviderOption("clouds", ("SECURE", "COMMUNITY"), "SECURE", "which clouds", several=True)


def a_config(base_url: str = "https://cloud.example", **options: str) -> ProviderConfig:
    return ProviderConfig(base_url, {}, options)


def with_key(key: str) -> ProviderConfig:
    return ProviderConfig("https://cloud.example", {"api_key": key})


# Options


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("v2",)),
        ({"api": ""}, ("v2",)),
        ({"api": "graphql"}, ("graphql",)),
        ({"api": " GraphQL "}, ("graphql",)),
        ({"other": "x"}, ("v2",)),
    ],
)
def test_a_choice_is_the_default_or_what_is_set(given: Mapping[str, str], expected: tuple[str, ...]) -> None:
    assert a_config(**given).chosen(ONE) == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, ("SECURE",)),
        ({"clouds": "community"}, ("COMMUNITY",)),
        ({"clouds": "community, secure"}, ("COMMUNITY", "SECURE")),
        ({"clouds": "secure,,secure , SECURE"}, ("SECURE",)),
    ],
)
def test_several_choices_come_once_each(given: Mapping[str, str], expected: tuple[str, ...]) -> None:
    assert a_config(**given).chosen(SEVERAL) == expected


@pytest.mark.parametrize("given", ["v3", "v2,graphql", "  ", "v2 graphql"])
def test_an_unknown_choice_names_the_setting_the_value_and_the_choices(given: str) -> None:
    with pytest.raises(SetupError) as caught:
        a_config(api=given).chosen(ONE)
    assert caught.value.outcome == "config_error"
    assert str(caught.value) == f"api is {given!r}: must be v2 or graphql"


@pytest.mark.parametrize("given", ["SECURE,PRIVATE", ",", " , "])
def test_unknown_or_no_choices_of_several_are_refused(given: str) -> None:
    with pytest.raises(SetupError, match="must be SECURE or COMMUNITY, comma-separated"):
        a_config(clouds=given).chosen(SEVERAL)


# Keys


def test_a_key_goes_into_the_header_without_its_outer_blanks() -> None:
    assert bearer(with_key(" sk-abc.DEF_123+/= \n")) == {"Authorization": "Bearer sk-abc.DEF_123+/="}
    assert key_in("X-Key")(with_key("sk-abc")) == {"X-Key": "sk-abc"}


@pytest.mark.parametrize("key", ["", "   ", "\n"])
def test_no_key_means_no_header(key: str) -> None:
    assert bearer(with_key(key)) == {}
    assert with_key(key).secret("api_key") is None
    assert with_key(key).secret("another") is None


@pytest.mark.parametrize(
    "key", ["sk-one\nsk-two", "sk-one\r\nX-Evil: 1", "sk one", "sk-öne", "sk\x00one", "“sk-one”"]
)
def test_a_key_that_no_header_can_hold_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(SetupError) as caught:
        bearer(with_key(key))
    assert caught.value.outcome == "config_error"
    assert str(caught.value).startswith("api_key: ")
    assert "one" not in str(caught.value)


# Base URLs


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("https://cloud.example", "https://cloud.example"),
        ("https://cloud.example/", "https://cloud.example"),
        (" http://127.0.0.1:8400/ ", "http://127.0.0.1:8400"),
        ("HTTPS://Cloud.example", "https://Cloud.example"),
        ("http://[::1]:8400", "http://[::1]:8400"),
        ("https://cloud.example?", "https://cloud.example"),
        ("https://cloud.example#", "https://cloud.example"),
    ],
)
def test_a_base_url_is_scheme_host_and_port(given: str, expected: str) -> None:
    assert a_config(given).checked_base_url() == expected


@pytest.mark.parametrize(
    "given",
    [
        "",
        "cloud.example",
        "//cloud.example",
        "ftp://cloud.example",
        "file://cloud.example",
        "https://",
        "https://:8400",
        "https://cloud.example:0",
        "https://cloud.example:99999",
        "https://cloud.example:port",
        "https://[::1",
        "https://cloud.example/v2",
        "https://cloud.example?api_key=hunter2",
        "https://cloud.example#hunter2",
        "https://user:hunter2@cloud.example",
        "https://hunter2@cloud.example",
        "https://:hunter2@cloud.example",
        "https://cloud.example\\@hunter2.example",
        "https://clo ud.example",
        "https://cloud.example\n.hunter2.example",
    ],
)
def test_any_other_base_url_is_refused_without_showing_it(given: str) -> None:
    with pytest.raises(SetupError) as caught:
        a_config(given).checked_base_url()
    assert caught.value.outcome == "config_error"
    assert "base_url: must be http(s)://host[:port]" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_repr_shows_neither_keys_nor_the_url() -> None:
    config = ProviderConfig("https://user:hunter2@cloud.example", {"api_key": "sk-hunter2"}, {"api": "v2"})
    assert "hunter2" not in repr(config)
    assert "v2" in repr(config)
