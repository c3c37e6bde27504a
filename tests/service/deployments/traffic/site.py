"""A deployment whose traffic is reported, on the whole application and a real store; no worker looks at it."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import httpx
from sqlalchemy import select

from sutler.service.db.watch_tables import ObservationRow, WatchRow
from tests.service.builders import CHAT
from tests.service.webhooks.api import Api

QUESTION: Final = {"input_tokens": 480, "output_tokens": 210}
DOCUMENT: Final = {"input_tokens": 3100, "output_tokens": 280}


def before_now(seconds: float) -> str:
    """So many seconds ago, by the service's clock."""
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()


def a_window(questions: float = 1200, *, window_s: float = 60, **others: Any) -> dict[str, Any]:
    """A minute of questions that has just ended."""
    buckets = [{**QUESTION, "requests": questions}] if questions else []
    usual = {"model": "chat", "observed_at": before_now(0), "window_s": window_s, "buckets": buckets}
    return {**usual, **others}


def requests_at(*times: str, **others: Any) -> dict[str, Any]:
    """Single questions."""
    return {"model": "chat", "requests": [{"at": at, **QUESTION} for at in times], **others}


@dataclass(frozen=True)
class Deployed:
    """A deployment."""

    api: Api
    name: str

    @classmethod
    def of(cls, api: Api, name: str = "chat", problem: dict[str, Any] = CHAT, **policy: Any) -> "Deployed":
        made = api.ask_at("POST", "/deployments", json={"name": name, "problem": problem, "policy": policy})
        assert made.status_code == 201, made.text
        return cls(api, name)

    def observe(self, body: Any, **options: Any) -> httpx.Response:
        return self.api.ask_at("POST", f"/deployments/{self.name}/observations", json=body, **options)

    def accepted(self, body: Any) -> dict[str, Any]:
        answer = self.observe(body)
        assert answer.status_code == 202, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def remedies(self, body: Any) -> dict[str, str]:
        """Of what is refused, by field."""
        answer = self.observe(body)
        assert answer.status_code == 422, answer.text
        return {error["field"]: error["remedy"] for error in answer.json()["errors"]}

    def traffic(self, model: str = "chat") -> dict[str, Any]:
        answer = self.api.ask_at("GET", f"/deployments/{self.name}/traffic")
        assert answer.status_code == 200, answer.text
        document = answer.json()
        assert document["deployment"] == self.name
        found: dict[str, Any] = next(entry for entry in document["models"] if entry["model"] == model)
        return found

    @property
    def id(self) -> UUID:
        answer = self.api.ask_at("GET", f"/deployments/{self.name}")
        return UUID(answer.json()["id"])

    @property
    def touches(self) -> int:
        """How often something has happened that calls for a look."""
        wanted = select(WatchRow.touches).where(WatchRow.deployment_id == self.id)
        found: int | None = self.api.office.read(lambda connection: connection.scalar(wanted))
        assert found is not None
        return found

    @property
    def rows(self) -> int:
        """Observations in the store."""
        wanted = select(ObservationRow.id).where(ObservationRow.deployment_id == self.id)
        return len(self.api.office.read(lambda connection: connection.scalars(wanted)).all())
