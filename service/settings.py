"""The only reader of the environment: typed, frozen settings, from SUTLER_* variables and a `.env` file.

A variable that is set wins over the file. Secrets never show in a repr, and errors name variables, not values.
"""

import os
import re
from base64 import b64decode
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from ipaddress import ip_network
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from sutler.service.errors import Exit, SutlerError

if TYPE_CHECKING:
    from sutler.adapters.base import PriceBand
    from sutler.adapters.config import Provider, ProviderConfig

DOTENV = Path(".env")
PREFIX = "SUTLER_"
OF_EXAMPLES = frozenset({"SUTLER_URL", "SUTLER_KEY"})  # what programs that call the service read
WITHHELD = "withheld"
LONGEST_INTERVAL_S = 86_400.0  # a day
SECRETS_KEY_BYTES = 32  # of AES-256
_CONTAINER_BYTES = Path("/sys/fs/cgroup/memory.max")


class SettingsError(SutlerError):
    """A setting that cannot be meant; the message names the variable and the remedy."""

    exit_status = Exit.BAD_INPUT


@dataclass(frozen=True, slots=True)
class Settings:
    """`debug`: show the traceback of a defect (SUTLER_DEBUG). `no_color`: plain tables (https://no-color.org).

    Both are on when set to anything but nothing. `columns` (COLUMNS): how wide tables are that go into no terminal.
    """

    debug: bool = False
    no_color: bool = False
    columns: int | None = None


DEFAULT_PROJECT = "default"  # which there always is


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where the market's history lives: a PostgreSQL server, or (`database_url` None) a private one in `data_dir`."""

    data_dir: Path
    database_url: str | None = field(default=None, repr=False)
    history_days: float = 90.0
    project: str = DEFAULT_PROJECT
    """Whose the measurements and calibrations are that commands on the store work with."""

    @property
    def private_database(self) -> Path:
        """The folder of the private PostgreSQL."""
        return self.data_dir / "postgres"

    @property
    def has_private_database(self) -> bool:
        return (self.private_database / "PG_VERSION").exists()


@dataclass(frozen=True, slots=True)
class Pace:
    """How often one cloud is polled, and how many requests a UTC day may cost; None: no setting of its own."""

    poll_interval_s: float | None = None
    requests_per_day: float | None = None


@dataclass(frozen=True, slots=True)
class MarketSettings:
    """`providers`: what is polled when nobody names any; `configs` has every cloud's settings.

    `paces` has the clouds that the operator wants polled at a pace of their own; `poll_interval_s` holds for the
    rest, None where each cloud's own default does.
    """

    providers: tuple[str, ...]
    configs: Mapping[str, "ProviderConfig"] = field(repr=False)
    poll_interval_s: float | None = None
    paces: Mapping[str, Pace] = field(default_factory=dict)


def _number(usual: float, *, most: float) -> Any:
    """A setting above 0 whose variable has its name; a whole number where `usual` is one."""
    return field(default=usual, metadata={"most": most})


@dataclass(frozen=True, slots=True)
class ServiceSettings:
    """How the API listens, what it takes, and how plans are made behind it.

    `require_key`: keys also on loopback. `longest_solve_s`: the most that `solver.time_limit_s` may ask for;
    `longest_wait_s`: who asks to be kept waiting longer is answered after that. `most_solve_bytes`: of memory for one
    solver process; half of the machine's by default.
    `reads_per_second` and `changes_per_minute` are limits per key. `outgoing_networks`: private networks that
    webhooks may go to. `secrets_keys` encrypt webhooks' secrets, the first of them those that are stored from now on.
    `worker_silent_s`: a worker unheard of for longer is dead, and its jobs are taken up again.
    """

    require_key: bool = False
    hosts: tuple[str, ...] = ()
    most_body_bytes: int = _number(16_000_000, most=1e9)
    longest_solve_s: float = _number(300.0, most=LONGEST_INTERVAL_S)
    most_solve_bytes: int = _number(4_000_000_000, most=1e15)
    longest_wait_s: float = _number(60.0, most=3_600.0)
    most_models: int = _number(50, most=1_000)
    most_variants: int = _number(20, most=100)
    most_workloads: int = _number(2_000, most=1e6)
    most_waiting_plans: int = _number(1_000, most=1e6)
    reads_per_second: float = _number(2_000.0, most=1e6)
    changes_per_minute: int = _number(600, most=1e6)
    solves_at_once: int = _number(1, most=1_000)
    worker_silent_s: float = _number(10.0, most=3_600.0)
    outgoing_networks: tuple[str, ...] = ()
    secrets_keys: tuple[bytes, ...] = field(default=(), repr=False)
    log_format: Literal["text", "json"] | None = None


@dataclass(frozen=True, slots=True)
class CallerSettings:
    """The service that commands call over HTTP, and the key that they show it, if it asks for one."""

    url: str = "http://127.0.0.1:8400"
    key: str | None = field(default=None, repr=False)


def settings_from(environment: Mapping[str, str] = os.environ) -> Settings:
    """Reads what every command needs."""
    columns = environment.get("COLUMNS", "")
    return Settings(
        debug=bool(environment.get("SUTLER_DEBUG")),
        no_color=bool(environment.get("NO_COLOR")),
        columns=int(columns) if columns.isdecimal() and int(columns) > 0 else None,
    )


def for_a_child(**others: str) -> dict[str, str]:
    """The environment of this process, for one that it starts, with other values of some variables."""
    return {**os.environ, **others}


def withheld_secrets() -> dict[str, str]:
    """The clouds' secrets by variable, for the scheduler among the processes that this one starts.

    The environment of the others has WITHHELD instead, also of what `.env` says, so that they know which clouds are
    set up.
    """
    from sutler.adapters.registry import PROVIDERS

    values = _with_dotenv(os.environ)
    names = [variable(name, secret) for name, provider in PROVIDERS.items() for secret in provider.secrets]
    found = {name: given for name in names if (given := values.get(name))}
    os.environ.update(dict.fromkeys(found, WITHHELD))
    return found


def give_secrets(secrets: Mapping[str, str]) -> None:
    """Has this process know the clouds' secrets again."""
    os.environ.update(secrets)


def notify_socket(environment: Mapping[str, str] = os.environ) -> str:
    """Where systemd hears signs of life, as a socket's address; empty: nobody wants to."""
    return re.sub("^@", "\0", environment.get("NOTIFY_SOCKET", ""))


def store_settings(environment: Mapping[str, str] = os.environ) -> StoreSettings:
    """Raises SettingsError."""
    values = _with_dotenv(environment)
    given = values.get("SUTLER_DATA_DIR")
    return StoreSettings(
        data_dir=Path(given).expanduser() if given else _usual_data_dir(),
        database_url=_database_url(values.get("SUTLER_DATABASE_URL")),
        history_days=_positive(values, "SUTLER_HISTORY_DAYS", 90.0, most=36_500.0) or 90.0,
        project=values.get("SUTLER_PROJECT") or DEFAULT_PROJECT,
    )


def market_settings(environment: Mapping[str, str] = os.environ) -> MarketSettings:
    """Raises SettingsError."""
    from sutler.adapters.registry import PROVIDERS

    values = _with_dotenv(environment)
    band = _price_band(values)
    configs = {name: _provider_config(name, values, band) for name in PROVIDERS}
    return MarketSettings(
        providers=_chosen_providers(values),
        configs=configs,
        poll_interval_s=_positive(values, "SUTLER_POLL_INTERVAL_S", None, most=LONGEST_INTERVAL_S),
        paces={name: _pace(name, values) for name in PROVIDERS},
    )


def service_settings(environment: Mapping[str, str] = os.environ) -> ServiceSettings:
    """Raises SettingsError."""
    values = _with_dotenv(environment)
    usual = ServiceSettings(solves_at_once=max(1, (os.cpu_count() or 2) // 2), most_solve_bytes=_machine_bytes() // 2)

    def number(name: str, most: float) -> Any:
        default = getattr(usual, name)
        return type(default)(_positive(values, f"{PREFIX}{name.upper()}", default, most=most))

    return ServiceSettings(
        require_key=_switch(values, "SUTLER_REQUIRE_KEY"),
        hosts=_words(values, "SUTLER_HOSTS"),
        outgoing_networks=_networks(values, "SUTLER_OUTGOING_NETWORKS"),
        secrets_keys=_keys(values, "SUTLER_SECRETS_KEYS"),
        log_format=_log_format(values),
        **{one.name: number(one.name, one.metadata["most"]) for one in fields(usual) if one.metadata},
    )


def _machine_bytes() -> int:
    """The memory of the machine, or of the container that this is in."""
    found = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # no container, or "max": without a limit of its own
        found = min(found, int(_CONTAINER_BYTES.read_text("ascii")))
    return found


def caller_settings(environment: Mapping[str, str] = os.environ) -> CallerSettings:
    """Raises SettingsError."""
    values = _with_dotenv(environment)
    usual = CallerSettings()
    url = values.get("SUTLER_URL", "").strip().rstrip("/") or usual.url
    if _is_no_service(url):
        raise SettingsError("SUTLER_URL: must be http(s)://HOST[:PORT] and, at most, a path; the key is SUTLER_KEY")
    key = values.get("SUTLER_KEY", "").strip() or None
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
        raise SettingsError("SUTLER_KEY: must be a key as `sutler keys create` prints it")
    return CallerSettings(url, key)


def _is_no_service(url: str) -> bool:
    try:
        parts = urlsplit(url)
        known = parts.scheme in {"http", "https"} and parts.hostname and (parts.port or True)
    except ValueError:
        return True
    return not known or bool(parts.query or parts.fragment or "@" in url or " " in url)


def replica_key(environment: Mapping[str, str] = os.environ) -> str | None:
    """The key that replicas ask for, which `sutler trial` shows to them (SUTLER_REPLICA_KEY). Raises
    SettingsError."""
    key = _with_dotenv(environment).get("SUTLER_REPLICA_KEY", "").strip() or None
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
        raise SettingsError("SUTLER_REPLICA_KEY: must be the key that the engines were started with (--api-key)")
    return key


def unknown_variables(environment: Mapping[str, str] = os.environ) -> list[str]:
    """Variables that look like settings and are none: misspelled ones. Raises SettingsError."""
    values = _asked(_with_dotenv(environment))
    return sorted(name for name in values if name.startswith(PREFIX) and name not in values.asked | OF_EXAMPLES)


def known_variables() -> list[str]:
    """The names of all settings."""
    return sorted(name for name in _asked({}).asked if name.startswith(PREFIX))


class _Recording(dict[str, str]):
    """Remembers what was asked for."""

    def __init__(self, values: Mapping[str, str]) -> None:
        super().__init__(values)
        self.asked: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return super().get(name, default)


def _asked(given: Mapping[str, str]) -> _Recording:
    """Returns the values after all settings were read from them. Raises SettingsError."""
    values = _Recording(given)
    for read in (settings_from, store_settings, market_settings, service_settings, replica_key):
        read(values)
    return values


def variable(provider: str, name: str) -> str:
    """The variable of a cloud's setting: `SUTLER_VASTAI_API_KEY`."""
    return f"{PREFIX}{provider}_{name}".upper()


def _with_dotenv(environment: Mapping[str, str]) -> Mapping[str, str]:
    if environment is not os.environ or not DOTENV.is_file():
        return environment
    from dotenv import dotenv_values

    try:
        found = dotenv_values(DOTENV, interpolate=False)
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f".env: cannot be read ({type(error).__name__}): correct or remove it") from None
    ours = {name: value for name, value in found.items() if name.startswith(PREFIX) and value is not None}
    return {**ours, **environment}


def _usual_data_dir() -> Path:
    from platformdirs import user_data_path

    return user_data_path("sutler", appauthor=False)


def _database_url(given: str | None) -> str | None:
    """Returns the URL with the driver that sutler uses; the URL may hold a password and is never shown."""
    if not given:
        return None
    scheme, separator, rest = given.strip().partition("://")
    if not separator or scheme not in {"postgresql", "postgres", "postgresql+psycopg"}:
        raise SettingsError("SUTLER_DATABASE_URL: must be postgresql://user:password@host:port/database")
    return f"postgresql+psycopg://{rest}"


def _price_band(values: Mapping[str, str]) -> "PriceBand":
    from sutler.adapters.base import USUAL_PRICE_BAND, PriceBand

    least = _positive(values, "SUTLER_LEAST_USD_PER_GPU_HOUR", USUAL_PRICE_BAND.least_usd_per_gpu_hour, most=1e6)
    most = _positive(values, "SUTLER_MOST_USD_PER_GPU_HOUR", USUAL_PRICE_BAND.most_usd_per_gpu_hour, most=1e6)
    if least is None or most is None or least >= most:
        raise SettingsError("SUTLER_LEAST_USD_PER_GPU_HOUR: must be below SUTLER_MOST_USD_PER_GPU_HOUR")
    return PriceBand(least, most)


def _provider_config(name: str, values: Mapping[str, str], band: "PriceBand") -> "ProviderConfig":
    from sutler.adapters.config import ProviderConfig
    from sutler.adapters.registry import PROVIDERS

    provider = PROVIDERS[name]
    given = {setting: values.get(variable(name, setting)) for setting in _settings_of(provider)}
    return ProviderConfig(
        base_url=given["base_url"] or provider.base_url,
        secrets={secret: value for secret in provider.secrets if (value := given[secret])},
        options={option.name: value for option in provider.options if (value := given[option.name])},
        price_band=band,
    )


def _pace(name: str, values: Mapping[str, str]) -> Pace:
    interval, budget = variable(name, "poll_interval_s"), variable(name, "requests_per_day")
    return Pace(
        poll_interval_s=_positive(values, interval, None, most=LONGEST_INTERVAL_S),
        requests_per_day=_positive(values, budget, None, most=1e6),
    )


def _settings_of(provider: "Provider") -> tuple[str, ...]:
    return (*provider.secrets, "base_url", *(option.name for option in provider.options))


def _chosen_providers(values: Mapping[str, str]) -> tuple[str, ...]:
    """Returns those of SUTLER_PROVIDERS; else the clouds that were given a setting; else those that need no key."""
    from sutler.adapters.registry import PROVIDERS

    given = tuple(name.strip().lower() for name in values.get("SUTLER_PROVIDERS", "").split(",") if name.strip())
    unknown = [name for name in given if name not in PROVIDERS]
    if unknown:
        raise SettingsError(f"SUTLER_PROVIDERS: {unknown[0]!r} is not one of {', '.join(PROVIDERS)}")
    configured = tuple(
        name
        for name, provider in PROVIDERS.items()
        if any(values.get(variable(name, setting)) for setting in (*provider.secrets, "base_url", *provider.marks))
    )
    open_to_all = tuple(name for name, provider in PROVIDERS.items() if not provider.needs_key and not provider.marks)
    return given or configured or open_to_all


def _words(values: Mapping[str, str], name: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in values.get(name, "").split(",") if word.strip())


def _switch(values: Mapping[str, str], name: str) -> bool:
    given = values.get(name, "").strip().lower()
    if given not in {"", "0", "1", "false", "true", "no", "yes"}:
        raise SettingsError(f"{name}: {given[:40]!r} must be 1 or 0")
    return given in {"1", "true", "yes"}


def _networks(values: Mapping[str, str], name: str) -> tuple[str, ...]:
    for network in _words(values, name):
        try:
            ip_network(network)
        except ValueError:
            remedy = "must be a network such as 10.20.0.0/16, or several with commas between them"
            raise SettingsError(f"{name}: {network[:60]!r} {remedy}") from None
    return _words(values, name)


def _keys(values: Mapping[str, str], name: str) -> tuple[bytes, ...]:
    try:
        found = tuple(b64decode(word, validate=True) for word in _words(values, name))
    except ValueError:
        found = (b"",)
    if any(len(key) != SECRETS_KEY_BYTES for key in found):
        raise SettingsError(
            f"{name}: must be keys as `openssl rand -base64 32` prints them, with commas between them"
        )
    return found


def _log_format(values: Mapping[str, str]) -> Literal["text", "json"] | None:
    given = values.get("SUTLER_LOG_FORMAT", "").strip().lower()
    known: dict[str, Literal["text", "json"] | None] = {"": None, "text": "text", "json": "json"}
    if given not in known:
        raise SettingsError(f"SUTLER_LOG_FORMAT: {given[:40]!r} must be text or json")
    return known[given]


def _positive(values: Mapping[str, str], name: str, default: float | None, *, most: float) -> float | None:
    given = values.get(name)
    if not given:
        return default
    try:
        found = float(given)
    except ValueError:
        found = -1.0
    if not 0 < found <= most:
        raise SettingsError(f"{name}: {given[:40]!r} must be a number above 0, at most {most:g}")
    return found
