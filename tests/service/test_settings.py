"""Settings: from SUTLER_* variables and a `.env` file, checked by name, secrets never shown."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from sutler.adapters.registry import PROVIDERS
from sutler.service.settings import (
    MarketSettings,
    SettingsError,
    StoreSettings,
    market_settings,
    settings_from,
    store_settings,
    variable,
)

CANARY: Final = "canary-91c2"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current one, with no settings at all."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SUTLER_DATA_DIR")
    return tmp_path


def secret(market: MarketSettings, provider: str = "vastai", name: str = "api_key") -> str | None:
    return market.configs[provider].secret(name)


def test_a_variable_and_a_line_of_the_env_file_say_the_same(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / ".env").write_text(f"SUTLER_VASTAI_API_KEY={CANARY}\nSUTLER_HISTORY_DAYS=7\n")
    assert secret(market_settings()) == CANARY
    assert store_settings().history_days == 7
    (folder / ".env").unlink()
    monkeypatch.setenv("SUTLER_VASTAI_API_KEY", CANARY)
    monkeypatch.setenv("SUTLER_HISTORY_DAYS", "7")
    assert secret(market_settings()) == CANARY
    assert store_settings().history_days == 7


def test_a_variable_wins_over_the_file_even_where_it_is_empty(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / ".env").write_text("SUTLER_VASTAI_API_KEY=of-the-file\nSUTLER_HISTORY_DAYS=7\n")
    monkeypatch.setenv("SUTLER_VASTAI_API_KEY", "of-the-shell")
    monkeypatch.setenv("SUTLER_HISTORY_DAYS", "")
    assert secret(market_settings()) == "of-the-shell"
    assert store_settings().history_days == 90


def test_values_of_the_env_file_are_taken_to_the_letter(folder: Path) -> None:
    (folder / ".env").write_text(
        'export SUTLER_VASTAI_API_KEY="a#b $HOME ${HOME}"\n# a comment\nHOME=elsewhere\nSUTLER_RUNPOD_API_KEY\n'
    )
    assert market_settings().configs["vastai"].secrets == {"api_key": "a#b $HOME ${HOME}"}
    assert secret(market_settings(), "runpod") is None


def test_an_env_file_that_is_no_text_is_named(folder: Path) -> None:
    (folder / ".env").write_bytes(b"SUTLER_VASTAI_API_KEY=\xff\xfe" + CANARY.encode())
    with pytest.raises(SettingsError, match=r"\.env: cannot be read") as caught:
        market_settings()
    assert CANARY not in str(caught.value)


def test_an_environment_that_is_handed_in_is_all_there_is(folder: Path) -> None:
    (folder / ".env").write_text(f"SUTLER_VASTAI_API_KEY={CANARY}\n")
    assert secret(market_settings({})) is None


def test_without_settings_the_store_is_private_and_in_the_users_data_folder() -> None:
    settings = store_settings({})
    assert settings.database_url is None
    assert settings.data_dir.name == "sutler"
    assert settings.data_dir.is_absolute()
    assert settings.history_days == 90


def test_a_home_folder_may_be_written_short() -> None:
    assert store_settings({"SUTLER_DATA_DIR": "~/market"}).data_dir == Path.home() / "market"


@pytest.mark.parametrize(
    "given",
    [
        "postgresql://sutler:pw@db:5432/market",
        "postgres://sutler:pw@db:5432/market",
        "postgresql+psycopg://sutler:pw@db:5432/market",
        "  postgresql://sutler:pw@db:5432/market\n",
    ],
)
def test_a_database_url_may_be_spelled_as_other_programs_want_it(given: str) -> None:
    settings = store_settings({"SUTLER_DATABASE_URL": given})
    assert settings.database_url == "postgresql+psycopg://sutler:pw@db:5432/market"


@pytest.mark.parametrize(
    "given", [f"sqlite:///{CANARY}", f"postgresql:{CANARY}", CANARY, f"psycopg2://u:{CANARY}@h/d"]
)
def test_another_database_is_refused_with_the_form_that_is_wanted(given: str) -> None:
    with pytest.raises(SettingsError) as caught:
        store_settings({"SUTLER_DATABASE_URL": given})
    assert str(caught.value) == "SUTLER_DATABASE_URL: must be postgresql://user:password@host:port/database"


@pytest.mark.parametrize(
    "name",
    [
        "SUTLER_HISTORY_DAYS",
        "SUTLER_POLL_INTERVAL_S",
        "SUTLER_LEAST_USD_PER_GPU_HOUR",
        "SUTLER_VASTAI_POLL_INTERVAL_S",
    ],
)
@pytest.mark.parametrize("given", ["0", "-1", "nan", "inf", "1e99", "soon", "1,5", "0x10"])
def test_a_number_that_cannot_be_meant_is_named_with_its_bounds(name: str, given: str) -> None:
    with pytest.raises(SettingsError, match=rf"^{name}: .* must be a number above 0, at most \d"):
        (store_settings if name == "SUTLER_HISTORY_DAYS" else market_settings)({name: given})


def test_the_price_band_is_the_operators(folder: Path) -> None:
    given = {"SUTLER_LEAST_USD_PER_GPU_HOUR": "0.05", "SUTLER_MOST_USD_PER_GPU_HOUR": "20"}
    bands = {config.price_band for config in market_settings(given).configs.values()}
    assert [(band.least_usd_per_gpu_hour, band.most_usd_per_gpu_hour) for band in bands] == [(0.05, 20.0)]


def test_an_empty_price_band_is_refused() -> None:
    with pytest.raises(
        SettingsError, match="SUTLER_LEAST_USD_PER_GPU_HOUR: must be below SUTLER_MOST_USD_PER_GPU_HOUR"
    ):
        market_settings({"SUTLER_LEAST_USD_PER_GPU_HOUR": "5", "SUTLER_MOST_USD_PER_GPU_HOUR": "5"})


def chosen(given: Mapping[str, str]) -> tuple[str, ...]:
    return market_settings(given).providers


def test_clouds_are_those_that_are_named_else_those_set_up_else_those_open_to_all() -> None:
    key = {"SUTLER_RUNPOD_API_KEY": CANARY}
    assert chosen({"SUTLER_PROVIDERS": "lium, VASTAI ,", **key}) == ("lium", "vastai")
    assert chosen(key) == ("runpod",)
    open_to_all = chosen({})
    assert open_to_all
    assert all(not PROVIDERS[name].needs_key and not PROVIDERS[name].marks for name in open_to_all)


def test_a_cloud_counts_as_set_up_by_a_secret_a_base_url_or_a_mark_but_not_by_any_option() -> None:
    assert chosen({"SUTLER_LIUM_BASE_URL": "http://127.0.0.1:9"}) == ("lium",)
    assert chosen({"SUTLER_VERDA_CLIENT_ID": "x"}) == ("verda",)
    assert chosen({"SUTLER_FILE_PATH": "market.json"}) == ("file",)
    assert chosen({"SUTLER_VASTAI_CONTRACTS": "on_demand"}) == chosen({})
    assert chosen({"SUTLER_RUNPOD_API_KEY": ""}) == chosen({})


def test_a_cloud_that_does_not_exist_is_refused_with_those_that_do() -> None:
    with pytest.raises(SettingsError, match=r"SUTLER_PROVIDERS: 'nimbus' is not one of .*vastai"):
        market_settings({"SUTLER_PROVIDERS": "vastai,nimbus"})


@pytest.mark.parametrize("name", list(PROVIDERS))
def test_every_setting_of_every_cloud_has_a_variable(name: str) -> None:
    provider = PROVIDERS[name]
    secrets = {secret: f"{secret}-{CANARY}" for secret in provider.secrets}
    options = {option.name: f"{option.name}-value" for option in provider.options}
    given = {variable(name, key): value for key, value in {**secrets, **options}.items()}
    config = market_settings({**given, variable(name, "base_url"): "http://127.0.0.1:9"}).configs[name]
    assert (config.base_url, config.secrets, config.options) == ("http://127.0.0.1:9", secrets, options)
    assert market_settings({}).configs[name].base_url == provider.base_url


def test_no_repr_and_no_text_shows_a_secret() -> None:
    given = {variable(name, secret): CANARY for name, provider in PROVIDERS.items() for secret in provider.secrets}
    given["SUTLER_LIUM_BASE_URL"] = f"http://user:{CANARY}@127.0.0.1"
    given["SUTLER_DATABASE_URL"] = f"postgresql://sutler:{CANARY}@db/market"
    market, store = market_settings(given), store_settings(given)
    assert isinstance(store, StoreSettings)
    assert CANARY not in f"{market!r} {market} {store!r} {store} {market.configs} {list(market.configs.values())!r}"


def test_debug_and_color_are_off_and_on_by_any_value() -> None:
    assert settings_from({}) == settings_from({"SUTLER_DEBUG": "", "NO_COLOR": ""})
    assert settings_from({"SUTLER_DEBUG": "1", "NO_COLOR": "0"}).debug
    assert settings_from({"SUTLER_DEBUG": "1", "NO_COLOR": "0"}).no_color


def test_a_private_database_is_there_once_it_was_made(tmp_path: Path) -> None:
    settings = store_settings({"SUTLER_DATA_DIR": str(tmp_path)})
    assert not settings.has_private_database
    settings.private_database.mkdir()
    (settings.private_database / "PG_VERSION").write_text("18")
    assert settings.has_private_database
