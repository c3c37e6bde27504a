"""What one look leaves for the next may be lost, old or nonsense, and no look is wrong for it."""

from datetime import UTC, datetime
from typing import Any

import pytest

from sutler.service.deployments.replanning.memory import Memory, remembered

AT = datetime(2026, 11, 20, 12, tzinfo=UTC)


def test_what_was_remembered_of_this_revision_is_known() -> None:
    memory = Memory(revision=3, most_net_usd=1.5, searched_at=AT, market_version=7, alert="short: x")
    assert remembered(memory.model_dump(mode="json"), revision=3) == memory


def test_of_another_revision_only_the_alert_is_known() -> None:
    memory = Memory(revision=3, most_net_usd=1.5, searched_at=AT, market_version=7, alert="short: x")
    assert remembered(memory.model_dump(mode="json"), revision=4) == Memory(revision=4, alert="short: x")


@pytest.mark.parametrize(
    "stored", [{}, {"revision": "three"}, {"searched_at": "yesterday"}, {"most_net_usd": []}, {"alert": 5}]
)
def test_nonsense_is_nothing_remembered(stored: dict[str, Any]) -> None:
    assert remembered(stored, revision=4) == Memory(revision=4)


def test_what_a_later_version_remembers_besides_is_passed_over() -> None:
    assert remembered({"revision": 4, "mood": "calm"}, revision=4) == Memory(revision=4)
