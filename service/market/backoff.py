"""When a cloud is polled next: its interval after an answer, longer after each failure, never before it allows.

Pure: times come in and go out. The result is stored, so that a restart does not forget a cloud's wish for patience.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from sutler.adapters.base import Poll

LONGEST_BACKOFF_S: Final = 1800.0  # chosen: a cloud that is back is noticed within half an hour
SETUP_BACKOFF_S: Final = 300.0  # a wrong key stays wrong until somebody corrects it
LONGEST_SILENT_WAIT_S: Final = 10.0  # longer waits are told to callers, also after an answer
LONGEST_DOUBLING: Final = 10  # so many doublings are past LONGEST_BACKOFF_S; without an end the power would overflow


@dataclass(frozen=True, slots=True)
class NextPoll:
    """`asked_to_wait_until` is the cloud's own word; `retry_at` is for callers, None where waiting is no cure."""

    at: datetime
    asked_to_wait_until: datetime | None
    retry_at: datetime | None
    failures_in_a_row: int


def next_poll(poll: Poll, *, at: datetime, interval_s: float, failures_before: int) -> NextPoll:
    """The next time to poll a cloud, after a poll that ended at `at`."""
    wait_over = None if poll.wait_s is None else at + timedelta(seconds=poll.wait_s)
    asked = wait_over if poll.wait_is_stated else None
    if poll.is_usable:
        due = at + timedelta(seconds=interval_s)
        is_long = poll.wait_s is not None and poll.wait_s > LONGEST_SILENT_WAIT_S
        return NextPoll(max(due, wait_over or due), asked, wait_over if is_long else None, 0)
    failures = failures_before + 1
    if poll.outcome in {"auth_error", "config_error", "bad_shape"}:
        due = at + timedelta(seconds=max(interval_s, SETUP_BACKOFF_S))
        return NextPoll(due, None, None, failures)
    backoff_s = min(LONGEST_BACKOFF_S, interval_s * 2.0 ** min(failures - 1, LONGEST_DOUBLING))
    due = at + timedelta(seconds=backoff_s)
    return NextPoll(max(due, wait_over or due), asked, wait_over or due, failures)
