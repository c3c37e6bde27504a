"""Pages whose data is being made, or has grown old."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Final

import pytest
import requests

from sutler.service.cli.pages_demo import CHAT
from tests.postgres import Server, a_folder
from tests.service.running import serving, settings
from tests.ui.conftest import KeptTab
from tests.ui.test_every_page import inspected, looks

AGED: Final = (
    "UPDATE poll SET at = at - interval '2 hours', ended_at = ended_at - interval '2 hours'",
    "UPDATE offer SET valid = tstzrange(lower(valid) - interval '2 hours', upper(valid))",
)


@pytest.fixture(scope="module")
def unattended(postgres: Server) -> Iterator[str]:
    """The URL of an API alone: its market was polled two hours ago, and nobody makes the plan it is asked for."""
    postgres.run("CREATE DATABASE unattended")
    with a_folder() as folder:
        environment = settings(folder, SUTLER_DATABASE_URL=postgres.url("unattended"))
        command = [sys.executable, "-m", "sutler", "market", "poll"]
        subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
        postgres.run(*AGED, database="unattended")
        with serving(folder, environment, "--role", "api") as running:
            made = requests.put(f"{running.url}/v1/deployments/chat", json={"problem": CHAT}, timeout=60)
            assert made.status_code == 201, made.text
            yield running.url


@looks
def test_a_plan_that_is_being_made(kept_tab: KeptTab, unattended: str, width: int, scheme: str) -> None:
    with kept_tab(unattended, width, scheme) as tab:
        tab.open("/ui/deployments/chat")
        assert "The next plan is queued" in tab.page.inner_text("#live")
        inspected(tab, "loading", width, scheme)


@looks
def test_a_market_that_has_grown_old(kept_tab: KeptTab, unattended: str, width: int, scheme: str) -> None:
    with kept_tab(unattended, width, scheme) as tab:
        tab.open("/ui/market")
        assert "silent" in tab.page.inner_text("#live table")
        assert "0 of 1 fresh" in tab.page.inner_text("#clouds-title")
        inspected(tab, "stale", width, scheme)
        tab.open("/ui")
        assert "The service is not ready" in tab.page.inner_text("#live")
        inspected(tab, "not-ready", width, scheme)
