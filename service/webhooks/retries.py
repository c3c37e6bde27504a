"""When a delivery that failed is tried again, as the Standard Webhooks specification suggests.

https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md#deliverability-and-reliability
"""

from typing import Final

MINUTE_S: Final = 60.0
HOUR_S: Final = 3_600.0

# After each attempt but the last; three days in all.
WAITS_S: Final = (
    5.0,
    5 * MINUTE_S,
    30 * MINUTE_S,
    2 * HOUR_S,
    5 * HOUR_S,
    10 * HOUR_S,
    14 * HOUR_S,
    20 * HOUR_S,
    24 * HOUR_S,
)
MOST_ATTEMPTS: Final = len(WAITS_S) + 1
JITTER_FRACTION: Final = 0.1  # chosen: spreads receivers that failed together, and hardly delays
LONGEST_STATED_WAIT_S: Final = 24 * HOUR_S


def wait_s(attempts: int, *, stated_s: float | None, chance: float) -> float | None:
    """Seconds until the next attempt after `attempts` have failed; None: there is none.

    `stated_s` is what the receiver asks for, which may lengthen the wait to a day. `chance` in [0, 1] spreads
    receivers that failed together.
    """
    if attempts >= MOST_ATTEMPTS:
        return None
    usual_s = WAITS_S[attempts - 1] * (1.0 + JITTER_FRACTION * chance)
    return max(usual_s, min(stated_s or 0.0, LONGEST_STATED_WAIT_S))
