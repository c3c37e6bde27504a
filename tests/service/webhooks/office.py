"""The service's side of webhooks, on a real store: registers, announces, and does the worker's part step by step."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Final, Self, TypeVar
from uuid import UUID, uuid4

from sqlalchemy import Engine, text
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.asynchronous import begun, conninfo, open_async_engine, reading
from sutler.service.db.engine import connected, transaction
from sutler.service.db.queue import DELIVERIES, Queue
from sutler.service.outgoing.addresses import Network
from sutler.service.web.caller import LOCAL, Caller
from sutler.service.webhooks import replays, repository
from sutler.service.webhooks import service as webhooks
from sutler.service.webhooks.repository import FailedDeliveries
from sutler.service.webhooks.schemas import DeliveryResource, ReplayedResource, WebhookDocument, WebhookResource
from sutler.service.webhooks.sealing import Sealer
from sutler.service.webhooks.sending import USUAL_SENDER, Attempt
from tests.service.webhooks.builders import LOOPBACK, SECRET

T = TypeVar("T")
URL: Final = "https://receiver.example/hook"
EVENT: Final = "plan.issued"
DATA: Final = {"deployment": "chat", "plan": {"id": "p", "revision": 1, "status": "optimal", "url": "/v1/plans/p"}}


@dataclass(frozen=True, slots=True)
class Job:
    """What waits in the queue."""

    delivery_id: UUID
    scheduled_at: datetime | None


class Office:
    """Blocks where the service awaits, all on one event loop."""

    def __init__(self, engine: Engine) -> None:
        self._sync = engine
        self._runner = asyncio.Runner()
        self.engine = open_async_engine(engine)
        self.queue = Queue(conninfo(engine))
        self.sealer = Sealer(())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.execute("DELETE FROM procrastinate_jobs")
        self.run(self.engine.dispose())
        self._runner.close()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def changed(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        """In one transaction."""

        async def change() -> T:
            async with begun(self.engine) as connection:
                return await work(connection)

        return self.run(change())

    def read(self, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        async def read() -> T:
            async with reading(self.engine) as connection:
                return await work(connection)

        return self.run(read())

    def registered(self, url: str = URL, *events: str, **options: Any) -> WebhookResource:
        return self.changed(lambda connection: self.register(connection, url, *events, **options))

    async def register(
        self, connection: AsyncConnection, url: str = URL, *events: str, secret: str | None = SECRET
    ) -> WebhookResource:
        values = {"url": url, "events": list(events or [EVENT]), "secret": secret, "description": "a test"}
        made, _ = await webhooks.register(
            connection,
            WebhookDocument.model_validate(values),
            Caller(LOCAL, "r-1"),
            allowed=LOOPBACK,
            sealer=self.sealer,
            now=datetime.now(UTC),
        )
        return made

    def fill_up(self, count: int) -> None:
        """With webhooks that want nothing."""
        for _ in range(count):
            self.execute(
                "INSERT INTO webhook (id, url, events, secret, created_by) VALUES (:id, :url, '{}', 'x', 'x')",
                id=uuid4(),
                url=URL,
            )

    def removed(self, webhook: WebhookResource) -> None:
        self.changed(lambda c: webhooks.remove(c, webhook.id, Caller(LOCAL, "r-2")))

    def announced(self, event: str = EVENT, data: Mapping[str, Any] = DATA) -> list[UUID]:
        """The deliveries that came of it."""
        before = {job.delivery_id for job in self.jobs()}
        self.changed(lambda connection: webhooks.announce(connection, self.queue, event=event, data=data))
        return [job.delivery_id for job in self.jobs() if job.delivery_id not in before]

    def delivered(
        self,
        delivery_id: UUID,
        *,
        send: webhooks.Send = USUAL_SENDER,
        allowed: tuple[Network, ...] = LOOPBACK,
        chance: float = 0.0,
    ) -> Attempt | None:
        """What a worker does for one job, which is then no longer in the queue."""
        self.take_jobs()
        return self.run(
            webhooks.deliver(
                *(self.engine, self.queue, delivery_id),
                allowed=allowed,
                sealer=self.sealer,
                send=send,
                chance=lambda: chance,
            )
        )

    def delivery(self, delivery_id: UUID) -> DeliveryResource:
        found = self.read(lambda connection: repository.delivery(connection, delivery_id))
        assert found is not None
        return found

    def replayed(self, delivery_id: UUID) -> DeliveryResource:
        return self.changed(lambda c: replays.replay(c, self.queue, delivery_id, caller=Caller(LOCAL, "r-3")))

    def all_replayed(self, webhook: WebhookResource, **which: Any) -> ReplayedResource:
        """The failed ones."""
        failed = FailedDeliveries(webhook.id, **which)
        return self.changed(lambda c: replays.replay_failed(c, self.queue, failed, caller=Caller(LOCAL, "r-4")))

    def given_up(self, delivery_id: UUID, *, ago: str = "0 s") -> UUID:
        """As after the last attempt."""
        self.take_jobs()
        self.execute(
            "UPDATE delivery SET status = 'failed', attempts = 10, last_error = 'answers 500', "
            "finished_at = now() - CAST(:ago AS interval), created_at = created_at - CAST(:ago AS interval) "
            "WHERE id = :id",
            id=delivery_id,
            ago=ago,
        )
        return delivery_id

    def deliveries(self, webhook: WebhookResource) -> list[DeliveryResource]:
        return self.read(lambda connection: repository.deliveries(connection, webhook_id=webhook.id, limit=100))

    def webhooks(self) -> list[WebhookResource]:
        return self.read(lambda connection: repository.page(connection, limit=200))

    def jobs(self) -> list[Job]:
        wanted = text(
            "SELECT args ->> 'delivery_id', scheduled_at FROM procrastinate_jobs "
            "WHERE queue_name = :queue AND status = 'todo' ORDER BY id"
        )
        with connected(self._sync) as connection:
            rows = connection.execute(wanted, {"queue": DELIVERIES}).all()
        return [Job(UUID(delivery_id), at) for delivery_id, at in rows]

    def take_jobs(self) -> None:
        self.execute("DELETE FROM procrastinate_jobs WHERE status = 'todo'")

    def execute(self, statement: str, **values: Any) -> None:
        with transaction(self._sync) as connection:
            connection.execute(text(statement), values)

    def rows(self, question: str, **values: Any) -> list[Any]:
        with self._sync.connect() as connection:
            return [*connection.execute(text(question), values)]

    def audit(self) -> list[tuple[Any, ...]]:
        with connected(self._sync) as connection:
            rows = connection.execute(text("SELECT actor, action, target, detail FROM audit ORDER BY id")).all()
        return [tuple(row) for row in rows]

    def changes_counted(self) -> int:
        with connected(self._sync) as connection:
            return connection.scalar(text("SELECT coalesce(sum(changes), 0) FROM key_use")) or 0
