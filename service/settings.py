"""The only reader of the environment: typed, frozen settings, from SUTLER_* variables and a `.env` file.

A variable that is set wins over the file. Secrets never show in a repr, and errors name variables, not values.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from adapters.base import PriceBand
    from adapters.config import Provider, ProviderConfig

DOTENV = Path(".env")
PREFIX = "SUTLER_"
LONGEST_INTERVAL_S = 86_400.0


class SettingsError(Exception):
    """A setting that cannot be meant; the message names the variable and the remedy."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`debug`: show the traceback of a defect (SUTLER_DEBUG). `no_color`: plain tables (https://no-color.org).

    Both are on when set to anything but nothing.
    """

    debug: bool = False
    no_color: bool = False


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where the market's history lives: a PostgreSQL server, or (`database_url` None) a private one in `data_dir`."""

    data_dir: Path
    database_url: str | None = field(default=None, repr=False)
    history_days: float = 90.0

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


def settings_from(environment: Mapping[str, str] = os.environ) -> Settings:
    """What every command needs."""
    return Settings(debug=bool(environment.get("SUTLER_DEBUG")), no_color=bool(environment.get("NO_COLOR")))


def store_settings(environment: Mapping[str, str] = os.environ) -> StoreSettings:
    """Raises SettingsError."""
    values = _with_dotenv(environment)
    given = values.get("SUTLER_DATA_DIR")
    return StoreSettings(
        data_dir=Path(given).expanduser() if given else _usual_data_dir(),
        database_url=_database_url(values.get("SUTLER_DATABASE_URL")),
        history_days=_positive(values, "SUTLER_HISTORY_DAYS", 90.0, most=36_500.0) or 90.0,
    )


def market_settings(environment: Mapping[str, str] = os.environ) -> MarketSettings:
    """Raises SettingsError."""
    from adapters.registry import PROVIDERS

    values = _with_dotenv(environment)
    band = _price_band(values)
    configs = {name: _provider_config(name, values, band) for name in PROVIDERS}
    return MarketSettings(
        providers=_chosen_providers(values),
        configs=configs,
        poll_interval_s=_positive(values, "SUTLER_POLL_INTERVAL_S", None, most=LONGEST_INTERVAL_S),
        paces={name: _pace(name, values) for name in PROVIDERS},
    )


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
    """With the driver that sutler uses; the URL may hold a password and is never shown."""
    if not given:
        return None
    scheme, separator, rest = given.strip().partition("://")
    if not separator or scheme not in {"postgresql", "postgres", "postgresql+psycopg"}:
        raise SettingsError("SUTLER_DATABASE_URL: must be postgresql://user:password@host:port/database")
    return f"postgresql+psycopg://{rest}"


def _price_band(values: Mapping[str, str]) -> "PriceBand":
    from adapters.base import USUAL_PRICE_BAND, PriceBand

    least = _positive(values, "SUTLER_LEAST_USD_PER_GPU_HOUR", USUAL_PRICE_BAND.least_usd_per_gpu_hour, most=1e6)
    most = _positive(values, "SUTLER_MOST_USD_PER_GPU_HOUR", USUAL_PRICE_BAND.most_usd_per_gpu_hour, most=1e6)
    if least is None or most is None or least >= most:
        raise SettingsError("SUTLER_LEAST_USD_PER_GPU_HOUR: must be below SUTLER_MOST_USD_PER_GPU_HOUR")
    return PriceBand(least, most)


def _provider_config(name: str, values: Mapping[str, str], band: "PriceBand") -> "ProviderConfig":
    from adapters.config import ProviderConfig
    from adapters.registry import PROVIDERS

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
    """SUTLER_PROVIDERS; else the clouds that were given a setting; else those that need no key."""
    from adapters.registry import PROVIDERS

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
