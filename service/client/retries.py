"""What is worth another try, and when: only what can be sent twice without doing anything twice."""

import random
from dataclasses import dataclass
from typing import Final

from sutler.service.client.errors import RefusedError, ServiceError, UnreachableError

# Chosen: four more tries at 0.5, 1, 2 and 4 s outlast a service that is restarted; the draw keeps clients apart.
MOST_RETRIES: Final = 4
FIRST_RETRY_S: Final = 0.5
LONGEST_RETRY_S: Final = 30.0
PASSING: Final = frozenset({429, 502, 503, 504})
STANDING: Final = frozenset({"no-market-data", "not-yet"})  # 503s that say what is, not that something is amiss


@dataclass(slots=True)
class Patience:
    """How often a call was tried. Raises nothing: `wait_s` says how long to wait, or None to give up."""

    retries: int = MOST_RETRIES
    tried: int = 0

    def wait_s(self, error: ServiceError, *, can_repeat: bool) -> float | None:
        """Seconds until the next try after this error; None: there is none."""
        if not can_repeat or self.tried >= self.retries or not _passes(error):
            return None
        self.tried += 1
        asked_s = error.retry_after_s if isinstance(error, RefusedError) else None
        own_s = FIRST_RETRY_S * 2.0 ** (self.tried - 1) * random.uniform(0.75, 1.25)
        return min(LONGEST_RETRY_S, own_s if asked_s is None else max(own_s, asked_s))


def _passes(error: ServiceError) -> bool:
    if isinstance(error, RefusedError):
        return error.status in PASSING and error.slug not in STANDING
    return isinstance(error, UnreachableError)
