"""What an operator can set per cloud, and what a cloud's adapter has to be told to exist."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import urlsplit

from sutler.adapters.base import USUAL_PRICE_BAND, Poll, PriceBand
from sutler.adapters.errors import SetupError
from sutler.adapters.http import HttpClient


@dataclass(frozen=True, slots=True)
class ProviderOption:
    """A setting of one cloud, `SUTLER_<PROVIDER>_<NAME>`.

    `several`: a comma-separated choice of them; no choices: any text. `also_called`: other words for some of them.
    """

    name: str
    choices: tuple[str, ...]
    default: str
    help: str
    several: bool = False
    also_called: Mapping[str, str] = field(default_factory=dict)


OWNER: Final = ProviderOption(
    "project", choices=(), default="default", help="whose offers they are: no other project sees them; *: everybody's"
)
"""Of a cloud that shows machines of one's own."""
EVERYBODY: Final = "*"


@dataclass(frozen=True, slots=True)
class ProviderConfig:
    """The settings of one cloud. `secrets` by name (`api_key`); no repr shows them or the URL, which may hold one."""

    base_url: str = field(repr=False)
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    options: Mapping[str, str] = field(default_factory=dict)
    price_band: PriceBand = USUAL_PRICE_BAND

    def chosen(self, option: ProviderOption) -> tuple[str, ...]:
        """The value, or values, of an option. Raises SetupError for one that the cloud does not know."""
        given = self.options.get(option.name) or option.default
        parts = [part.strip() for part in given.split(",") if part.strip()] if option.several else [given.strip()]
        by_lower = {choice.lower(): choice for choice in option.choices} | dict(option.also_called)
        unknown = [part for part in parts if part.lower() not in by_lower]
        if unknown or not parts:
            remedy = f"{option.name} is {given!r}: must be {' or '.join(option.choices)}"
            raise SetupError("config_error", f"{remedy}{', comma-separated' if option.several else ''}")
        return tuple(dict.fromkeys(by_lower[part.lower()] for part in parts))

    def text(self, option: ProviderOption) -> str:
        """The text that an option without choices was given, or its default."""
        return self.options.get(option.name, option.default).strip()

    def secret(self, name: str) -> str | None:
        """A secret fit for a header. Raises SetupError, without its value, for one that is not."""
        value = self.secrets.get(name, "").strip()
        if not value:
            return None
        if not (value.isascii() and value.isprintable() and " " not in value):
            raise SetupError("config_error", f"{name}: holds characters that no HTTP header can; copy the key again")
        return value

    def checked_base_url(self) -> str:
        """Scheme, host and port. Raises SetupError for anything else, without showing what may be a password."""
        url = self.base_url.strip().rstrip("/")
        try:
            parts = urlsplit(url)
            is_plain = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
        except ValueError:
            is_plain = False
        is_plain = is_plain and url.isprintable() and " " not in url
        if not is_plain or parts.username or parts.password or parts.path or parts.query or parts.fragment:
            raise SetupError("config_error", "base_url: must be http(s)://host[:port], with no path and no user")
        return f"{parts.scheme}://{parts.netloc}"


@dataclass(frozen=True, slots=True)
class Provider:
    """A cloud that can be polled. `needs_key`: it answers nobody without `secrets`.

    `fetch` asks the cloud once and parses what it says, or raises FetchError where there is no answer to parse.
    `poll_interval_s` is a polite default and `least_poll_interval_s` what its limits bear. A cloud counts as set up
    when one of its secrets, its base URL or one of the options in `marks` is given.
    """

    name: str
    title: str
    base_url: str
    fetch: Callable[[ProviderConfig, HttpClient], Poll]
    headers: Callable[[ProviderConfig], Mapping[str, str]] = lambda _: {}
    secrets: tuple[str, ...] = ("api_key",)
    needs_key: bool = True
    options: tuple[ProviderOption, ...] = ()
    marks: tuple[str, ...] = ()
    poll_interval_s: float = 120.0
    least_poll_interval_s: float = 60.0


def key_in(header: str, scheme: str = "") -> Callable[[ProviderConfig], Mapping[str, str]]:
    """Headers with the API key in one of them, or none where there is no key."""

    def headers(config: ProviderConfig) -> Mapping[str, str]:
        key = config.secret("api_key")
        return {header: f"{scheme}{key}"} if key else {}

    return headers


bearer: Final = key_in("Authorization", "Bearer ")
