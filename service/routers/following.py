"""A router follows a plan: its file has the weights of the revision in force, without the replicas that are dead.

A new revision takes over once the replicas that answer carry as much of its requests as of those of the revision in
force: machines that still start take nothing over, and a fleet that dies is left for one that comes up.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Final

from sutler.service.deployments.diff.stable_ids import keyed
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.plan import PlanDocument
from sutler.service.errors import SutlerError
from sutler.service.export.layout import Layout, layout_of, refuse_phases
from sutler.service.export.losses import loss_that_happened, served_fraction, unserved, without
from sutler.service.export.router import ReplicaAddress
from sutler.service.routers.addresses import Address
from sutler.service.routers.configuration import Configuration
from sutler.service.routers.health import Health
from sutler.service.routers.watched import Watched

Render = Callable[[Layout, Mapping[str, ReplicaAddress]], str]
ROUNDING: Final = 1e-9
RETRY_S: Final = 10.0  # chosen: while a file is tried that the router refuses, the router could not be started anew


class Telling:
    """Tells what is new about each topic: the same again is not said again."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell = tell
        self._last: dict[str, str] = {}

    def __call__(self, topic: str, message: str) -> None:
        if message and self._last.get(topic) != message:
            self._tell(message)
        self._last[topic] = message


class Revision:
    """A plan that is followed, or waits to be."""

    def __init__(self, plan: PlanDocument, *, by_id: bool) -> None:
        self.plan = plan
        self._keys = {part.replica.id: part.key for part in keyed(plan).replicas}
        self._by_id = by_id
        self.endpoints: dict[str, ReplicaAddress] = {}
        self.dead: set[str] = set()

    def find(self, addresses: Mapping[str, Address]) -> None:
        """Says where its replicas answer, as far as it is known."""
        by_id = addresses if self._by_id else {}
        self.endpoints = {
            replica.id: ReplicaAddress(replica.model, *address)
            for replica in self.plan.replicas
            if (address := addresses.get(self._keys[replica.id]) or by_id.get(replica.id))
        }

    def judge(self, health: Health) -> None:
        """Says which of its replicas do not answer; those without an address do not."""
        alive = {id for id, endpoint in self.endpoints.items() if health.is_alive(endpoint.netloc)}
        self.dead = {replica.id for replica in self.plan.replicas} - alive

    @property
    def served_fraction(self) -> float:
        return served_fraction(self.plan, self.dead)

    def named(self, ids: Iterable[str]) -> str:
        """These replicas, with their addresses."""
        unknown = {id: f"no address for {key}" for id, key in self._keys.items()}
        places = unknown | {id: endpoint.netloc for id, endpoint in self.endpoints.items()}
        return ", ".join(f"{id} ({places[id]})" for id in sorted(ids))


class Follower:
    """`by_id`: whether addresses may be by the ids of the plan's replicas, which the next plan numbers anew."""

    def __init__(
        self,
        render: Render,
        configuration: Configuration,
        addresses: Watched[dict[str, Address]],
        health: Health,
        telling: Telling,
        *,
        by_id: bool,
    ) -> None:
        self._render, self._configuration, self._health, self._telling = render, configuration, health, telling
        self._file, self._by_id = addresses, by_id
        self._addresses: Mapping[str, Address] = {}
        self._in_force: Revision | None = None
        self._coming: Revision | None = None
        self._applied: object = None
        self._refused: tuple[object, float] = (None, 0.0)

    async def follow(self, plans: AsyncIterator[PlanDocument]) -> None:
        """Never ends by itself. Raises what `plans` raises, and DocumentError for addresses or a first plan that
        cannot be followed."""
        self._addresses = self._file.news() or {}
        taking = asyncio.create_task(self._take(plans))
        clock = asyncio.get_running_loop().time
        try:
            while True:
                started = clock()
                if taking.done():
                    taking.result()
                await self._round()
                await asyncio.wait((taking,), timeout=max(0.0, started + self._health.every_s - clock()))
        finally:
            taking.cancel()

    async def _take(self, plans: AsyncIterator[PlanDocument]) -> None:
        async for plan in plans:
            try:
                refuse_phases(layout_of(plan, may_sleep=True), "weights to follow")
            except SutlerError as error:
                if self._in_force is None:
                    raise
                self._telling("plan", f"revision {plan.revision} cannot be followed: {error.detail}")
            else:
                self._coming = Revision(plan, by_id=self._by_id)

    async def _round(self) -> None:
        try:
            self._addresses = self._file.news() or self._addresses
            self._telling("addresses", "")
        except DocumentError as error:
            self._telling("addresses", f"the addresses stay as they were: {error.detail}")
        old, new = self._in_force, self._coming
        revisions = [revision for revision in (old, new) if revision is not None]
        for revision in revisions:
            revision.find(self._addresses)
        await self._health.look(one.netloc for revision in revisions for one in revision.endpoints.values())
        for revision in revisions:
            revision.judge(self._health)
        if new is not None and (old is None or new.served_fraction >= old.served_fraction - ROUNDING):
            self._in_force = new
            if self._coming is new:
                self._coming = None
        if self._in_force is not None and await self._apply(self._in_force):
            self._telling("state", self._state(self._in_force))

    async def _apply(self, revision: Revision) -> bool:
        """Whether the router works by it now."""
        if revision.plan.replicas and not revision.endpoints:
            self._telling("state", f"the router keeps what it had: {revision.named(revision.dead)}")
            return False
        wanted, now = (revision, frozenset(revision.dead), revision.endpoints), asyncio.get_running_loop().time()
        if wanted == self._applied:
            return True
        if wanted == self._refused[0] and now < self._refused[1] + RETRY_S:
            return False
        layout = layout_of(without(revision.plan, revision.dead), may_sleep=True)
        try:
            await self._configuration.put(self._render(layout, revision.endpoints).encode())
        except SutlerError as error:
            self._refused = (wanted, now)
            self._telling("state", f"the router keeps what it had, this is tried again: {error}")
            return False
        self._applied = wanted
        return True

    def _state(self, revision: Revision) -> str:
        plan, dead = revision.plan, revision.dead
        parts = [f"revision {plan.revision}"]
        if dead:
            loss = loss_that_happened(plan, dead)
            way = "in proportion" if loss is None else f"as planned for the loss of {loss.kind} {loss.name}"
            parts.append(f"without {revision.named(dead)}, whose share moves {way}")
        else:
            parts.append(f"all {len(plan.replicas)} replicas answer")
        parts += [f"no replica of {model} answers, its weights stay as planned" for model in unserved(plan, dead)]
        if self._coming is not None and self._coming.dead:
            late = self._coming.named(self._coming.dead)
            parts.append(f"revision {self._coming.plan.revision} waits for {late}")
        return "; ".join(parts)
