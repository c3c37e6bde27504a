"""What can be announced, and the body that tells of it. A new event is one more line here."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, Literal, get_args

Event = Literal[
    "plan.issued", "plan.infeasible", "plan.failed", "deployment.attention", "market.stale", "market.fresh"
]
EVENTS: Final[tuple[Event, ...]] = get_args(Event)
TEST_EVENT: Final = "webhook.test"


def body_of(event: str, data: Mapping[str, Any], *, at: datetime) -> str:
    """The body as it is signed and sent. Raises ValueError for what JSON does not know, such as NaN."""
    timestamp = at.astimezone(UTC).isoformat().replace("+00:00", "Z")
    return json.dumps({"type": event, "timestamp": timestamp, "data": data}, separators=(",", ":"), allow_nan=False)
