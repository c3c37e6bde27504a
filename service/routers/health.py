"""Which replicas answer: each is asked at fixed times, and counts as dead, or alive again, after several answers."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self

import httpx

from sutler.service.export.command import HEALTH_PATH

EVERY_S: Final = 2.0  # chosen: with three checks a dead replica is out within 8 s, well before its clients give up
LEAST_PATIENCE_S: Final = 1.0  # chosen: a busy engine that answers later is hardly alive
CHECKS: Final = 3  # chosen: one answer that is lost or late moves nothing


@dataclass(slots=True)
class Pulse:
    """`against`: checks in a row that said the opposite."""

    is_alive: bool
    against: int = 0


class Health:
    """Asks replicas for /health every `every_s` seconds; `checks` in a row turn what is known of one around.

    The first answer counts at once.
    """

    def __init__(self, every_s: float = EVERY_S, checks: int = CHECKS) -> None:
        self.every_s, self.checks = every_s, checks
        self._patience_s = max(every_s, LEAST_PATIENCE_S)
        self._pulses: dict[str, Pulse] = {}
        # no connection is kept, so that every check also shows that the replica still takes new ones
        self._http = httpx.AsyncClient(
            timeout=self._patience_s, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0)
        )

    @property
    def detection_s(self) -> float:
        """The longest that a dead replica counts as alive: it dies after a check, and all that follow time out."""
        return self._patience_s * (self.checks + 1)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._http.aclose()

    def is_alive(self, netloc: str) -> bool:
        """Whether what listens there answers; False for what was never asked."""
        return netloc in self._pulses and self._pulses[netloc].is_alive

    async def look(self, netlocs: Iterable[str]) -> None:
        """Asks all of them at once, and forgets all others."""
        asked = list(dict.fromkeys(netlocs))
        answers = await asyncio.gather(*map(self._answers, asked))
        earlier, self._pulses = self._pulses, {}
        for netloc, answered in zip(asked, answers, strict=True):
            pulse = self._pulses[netloc] = earlier.get(netloc, Pulse(answered))
            pulse.against = 0 if answered == pulse.is_alive else pulse.against + 1
            if pulse.against >= self.checks:
                pulse.is_alive, pulse.against = answered, 0

    async def _answers(self, netloc: str) -> bool:
        try:
            return (await self._http.get(f"http://{netloc}{HEALTH_PATH}")).is_success
        except httpx.HTTPError:
            return False
