"""Processes that are killed while they poll: no half poll, nothing lost, and the next one needs no hands."""

import random
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from sutler.service.settings import StoreSettings
from tests.service.market.builders import Store

ROOT: Final = Path(__file__).parents[3]
ROUNDS: Final = 15
PATIENCE_S: Final = 60.0

HALF_POLLS: Final = """
SELECT p.at, p.opened, p.closed, count(o.id) FILTER (WHERE lower(o.valid) = p.at) AS begun,
       count(o.id) FILTER (WHERE upper(o.valid) = p.at) AS ended
FROM poll p LEFT JOIN offer o ON o.provider_id = p.provider_id AND p.at IN (lower(o.valid), upper(o.valid))
GROUP BY p.id
HAVING count(o.id) FILTER (WHERE lower(o.valid) = p.at) <> p.opened
    OR count(o.id) FILTER (WHERE upper(o.valid) = p.at) <> p.closed
"""
OF_NO_POLL: Final = """
SELECT o.valid FROM (SELECT provider_id, valid FROM offer UNION ALL SELECT provider_id, valid FROM rejected_row) AS o
WHERE lower(o.valid) NOT IN (SELECT at FROM poll)
   OR upper(o.valid) IS NOT NULL AND upper(o.valid) NOT IN (SELECT at FROM poll)
"""
AT_ONCE: Final = """
SELECT a.offer_id FROM offer a JOIN offer b USING (provider_id, offer_id, contract)
WHERE a.id < b.id AND a.valid && b.valid
"""

STATEMENTS: Final = (
    "SELECT pg_try_advisory_lock",
    "INSERT INTO provider",
    "SELECT provider.id",
    "INSERT INTO offer",
    "INSERT INTO rejected_row",
    "UPDATE offer",
    "INSERT INTO poll",
    "UPDATE provider",
    "COMMIT",
    "SELECT pg_advisory_unlock",
)


def assert_whole(store: Store) -> None:
    """Every poll row has exactly the changes that it counts, no change is without its poll, no key is there twice."""
    assert store.rows(HALF_POLLS) == []
    assert store.rows(OF_NO_POLL) == []
    assert store.rows(AT_ONCE) == []


def run_killed_poller(settings: StoreSettings, *moments: str) -> None:
    seed = str(random.randrange(10**6))
    command = [sys.executable, "-m", "tests.service.market.killed_poller", str(settings.database_url), seed, *moments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
    assert done.returncode == 0, f"seed {seed}: {done.stderr}"


@pytest.mark.slow
def test_a_poller_killed_at_random_moments_leaves_no_half_poll(store: Store, empty_store: StoreSettings) -> None:
    run_killed_poller(empty_store, str(ROUNDS))
    assert_whole(store)
    assert store.scalar("SELECT count(*) FROM poll") > 2


@pytest.mark.slow
def test_a_poller_killed_right_after_any_statement_leaves_no_half_poll(
    store: Store, empty_store: StoreSettings
) -> None:
    run_killed_poller(empty_store, *STATEMENTS)
    assert_whole(store)
    of_the_last_process, before_the_first_update, before_the_unlock = 2, 1, 1
    assert (
        store.scalar("SELECT count(*) FROM poll") == of_the_last_process + before_the_first_update + before_the_unlock
    )
