"""Every adapter is registered, tested and documented."""

import importlib
import pkgutil
import string
from pathlib import Path

import pytest

from sutler import adapters
from sutler.adapters import shadeform
from sutler.adapters.config import Provider, ProviderConfig
from sutler.adapters.polling import poll
from sutler.adapters.registry import PROVIDERS
from sutler.adapters.resellers import OURS
from sutler.solver.catalog import load_gpus
from tests.adapters.builders import ToldTime
from tests.adapters.server import unused_base_url

TESTS = Path(__file__).parent
ROOT = TESTS.parent.parent
each_provider = pytest.mark.parametrize("provider", PROVIDERS.values(), ids=list(PROVIDERS))


def modules_with_a_provider() -> dict[str, Provider]:
    """Provider by module name, from a walk over the package."""
    names = [module.name for module in pkgutil.iter_modules(adapters.__path__)]
    modules = {name: importlib.import_module(f"sutler.adapters.{name}") for name in names}
    return {name: module.PROVIDER for name, module in modules.items() if hasattr(module, "PROVIDER")}


def test_every_module_with_a_provider_is_registered() -> None:
    found = modules_with_a_provider()
    assert {provider.name: provider for provider in found.values()} == dict(PROVIDERS)
    assert len(found) == len(PROVIDERS)


def test_every_module_with_a_provider_has_tests() -> None:
    tests = [path.stem for path in TESTS.glob("test_*.py")]
    missing = [
        name for name in modules_with_a_provider() if not any(stem.startswith(f"test_{name}") for stem in tests)
    ]
    assert missing == []


@each_provider
def test_every_provider_is_documented_with_its_settings(provider: Provider) -> None:
    page = (ROOT / "docs" / "providers.md").read_text(encoding="utf-8")
    names = [*provider.secrets, *(option.name for option in provider.options)]
    missing = [name for name in names if f"SUTLER_{provider.name}_{name}".upper() not in page]
    assert (f"`{provider.name}`" in page, missing) == (True, [])


@each_provider
def test_names_make_settings_and_intervals_are_polite(provider: Provider) -> None:
    assert set(provider.name) <= set(string.ascii_lowercase)
    assert 0 < provider.least_poll_interval_s <= provider.poll_interval_s
    assert set(provider.marks) <= {option.name for option in provider.options}


@each_provider
def test_a_poll_never_raises_and_covers_nothing_when_nobody_answers(provider: Provider) -> None:
    secrets = dict.fromkeys(provider.secrets, "canary-0123456789abcdef")
    options = {"path": "nowhere", "catalog_dir": "nowhere"}
    found = poll(provider, ProviderConfig(unused_base_url(), secrets, options), clock=ToldTime().clock)
    assert (found.is_usable, found.offers, found.covered) == (False, (), ())
    assert "canary" not in repr(found)


RESELLERS = {"gpuhunt", "shadeform"}
NO_CLOUDS = {"file"}


def test_a_cloud_that_is_polled_directly_is_left_out_of_every_reseller() -> None:
    assert set(OURS.values()) == set(PROVIDERS) - RESELLERS - NO_CLOUDS
    usual = ProviderConfig("")
    for name in RESELLERS:
        known = {choice for option in PROVIDERS[name].options for choice in option.choices} & set(OURS)
        by_option = {option.name: set(usual.chosen(option)) for option in PROVIDERS[name].options if option.choices}
        left_out = by_option.get("leave_out", known - by_option.get("clouds", set()))
        assert known <= left_out, f"{name} leaves out {sorted(known)} by default"
    assert set(OURS) <= set(usual.chosen(shadeform.LEAVE_OUT)), "of Shadeform's clouds there is no list"


def test_every_gpu_of_the_name_table_is_in_the_catalogue() -> None:
    from sutler.adapters.gpu_names import known_gpus

    assert set(known_gpus()) <= set(load_gpus())
