"""Deployments whose market moves under them, a receiver of what is announced, and what holds whatever is killed."""

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, Final

from sutler.adapters.registry import PROVIDERS
from sutler.service.db.store import open_store
from sutler.service.market.polling import Poller
from sutler.service.settings import market_settings, store_settings
from tests.adapters.server import Received, Reply, ScriptedServer
from tests.postgres import Server
from tests.service.builders import CHAT, a_snapshot, an_offer, changed
from tests.service.faults.scenes import Scene, a_scene
from tests.service.running import Running, answers, until

ON_THE_STORE: Final = changed(CHAT, ("market",), {})
PLACES: Final = ("left", "right")  # never for rent at the same time
_DUE_OR_UNDER_WAY: Final = """
    SELECT count(*) FROM watch w JOIN deployment d ON d.id = w.deployment_id
    WHERE (d.plan_id IS NOT NULL AND w.touches > w.looked) OR EXISTS (
        SELECT 1 FROM procrastinate_jobs j WHERE j.status IN ('todo', 'doing') AND j.scheduled_at IS NULL)
"""


class Receiver:
    """Of webhooks: `seen` are the ids under which each revision of each deployment was told, in order.

    `is_wary`: refuses everything at first, and takes it when it comes again.
    """

    def __init__(self, *, is_wary: bool = False) -> None:
        self.seen: dict[tuple[str, int], list[str]] = defaultdict(list)
        self._is_wary, self._lock = is_wary, threading.Lock()
        self._before_answering: list[Callable[[], object]] = []
        self.server = ScriptedServer(self._answer)

    def before_answering(self, do: Callable[[], object]) -> None:
        """Once, with an event that has come and nobody knows yet."""
        self._before_answering.append(do)

    def has_heard(self, name: str, revision: int) -> bool:
        return (name, revision) in self.seen

    def ids_by_revision(self, name: str) -> dict[int, set[str]]:
        """Of one deployment."""
        return {revision: set(ids) for (of, revision), ids in list(self.seen.items()) if of == name}

    def _answer(self, request: Received) -> Reply:
        told, webhook_id = request.data["data"], request.headers["webhook-id"]
        with self._lock:
            ids = self.seen[told["deployment"], told["plan"]["revision"]]
            is_new = webhook_id not in ids
            ids.append(webhook_id)
            todo, self._before_answering = self._before_answering, []
        for do in todo:
            do()
        return Reply(500 if self._is_wary and is_new else 204)


@dataclass
class Standing:
    """A scene with deployments that rent what is for rent at one of two places, and an API to see them by."""

    scene: Scene
    api: Running
    receivers: tuple[Receiver, ...]
    names: Sequence[str]
    _places: Iterator[str] = field(default_factory=lambda: cycle(PLACES))
    place: str = ""

    def deploy(self, name: str, policy: dict[str, Any]) -> None:
        """A deployment that is to be planned on the market, says that it runs nothing, and moves with each poll."""
        policy = {"carry_out_s": 0, "settle_s": 0, **policy}
        deployment = {"name": name, "problem": ON_THE_STORE, "policy": policy}
        assert self.api.post("/v1/deployments", deployment).status_code == 201
        assert self.api.put(f"/v1/deployments/{name}/holdings", {"holdings": []}).status_code == 200

    def move(self) -> None:
        """All that the deployments rent is taken off the market, and the same is for rent elsewhere."""
        self.place = next(self._places)
        self._write(a_market_at(self.place))

    def offer(self, market: dict[str, Any]) -> None:
        """A poll has landed, and this is for rent."""
        self._write(market)
        self.land()

    def _write(self, market: dict[str, Any]) -> None:
        path = Path(self.scene.environment["SUTLER_FILE_PATH"])
        written = path.with_suffix(".new")
        written.write_text(json.dumps(market), encoding="utf-8")
        written.rename(path)

    def land(self) -> None:
        """A poll of the market as it is."""
        settings = market_settings(self.scene.environment)
        engine = open_store(store_settings(self.scene.environment))
        try:
            Poller(engine, settings.configs, settings.poll_interval_s).poll(PROVIDERS["file"], insist=True)
        finally:
            engine.dispose()

    def drift(self) -> None:
        """A poll has landed that takes away what the plans rent."""
        self.move()
        self.land()

    def revision(self, name: str) -> int:
        """Of the newest plan."""
        return int(self.scene.rows("SELECT revision FROM deployment WHERE name = %s", name)[0][0])

    @property
    def revisions(self) -> dict[str, int]:
        return {name: self.revision(name) for name in self.names}

    def is_calm(self) -> bool:
        """Nothing is due, queued or under way, except what is to be delivered once more later."""
        return self.scene.rows(_DUE_OR_UNDER_WAY) == [(0,)]

    def until_moved(self, before: dict[str, int]) -> None:
        """Each deployment has one more plan than before, which is right, and nothing else is to come."""
        until(lambda: all(self.revision(name) > before[name] for name in self.names))
        until(self.is_calm)
        assert self.revisions == {name: revision + 1 for name, revision in before.items()}
        for name in self.names:
            plan = self.api.get(f"/v1/deployments/{name}/plan").json()
            assert plan["revision"] == before[name] + 1
            assert {rental["offer_id"] for rental in plan["rentals"]} == {f"acme/{self.place}"}

    def assert_whole(self, *others: str) -> None:
        """Revisions without a gap, each with one plan and, but the first, one decision; each told by one id."""
        for name in (*self.names, *others):
            wanted = list(range(1, self.revision(name) + 1))
            assert self._revisions_of("plan", name) == wanted
            assert self._revisions_of("decision", name) == wanted[1:]
            for receiver in self.receivers:
                until(partial(receiver.has_heard, name, wanted[-1]))
                told = receiver.ids_by_revision(name)
                assert sorted(told) == wanted
                assert {len(ids) for ids in told.values()} == {1}

    def _revisions_of(self, table: str, name: str) -> list[int]:
        questions = {
            "plan": "SELECT p.revision FROM plan p JOIN deployment d ON d.id = p.deployment_id "
            "WHERE d.name = %s AND p.revision IS NOT NULL ORDER BY 1",
            "decision": "SELECT c.revision FROM decision c JOIN deployment d ON d.id = c.deployment_id "
            "WHERE d.name = %s AND c.revision IS NOT NULL ORDER BY 1",
        }
        return [revision for (revision,) in self.scene.rows(questions[table], name)]


def a_market_at(place: str) -> dict[str, Any]:
    """One kind of machine, for rent now."""
    offer = an_offer(provider="acme", offer_id=place, gpu="h100-sxm", gpus=1, available=4, price_usd_per_hour=2.2)
    return {**a_snapshot(offer), "taken_at": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"}


@contextmanager
def standing(
    server: Server, *names: str, wary: bool = False, policy: dict[str, Any] | None = None, **settings: str
) -> Iterator[Standing]:
    """An API, deployments that nobody has planned yet, and a market. No worker, no scheduler."""
    environment = {"SUTLER_OUTGOING_NETWORKS": "127.0.0.0/8", **settings}
    receivers = (Receiver(), *([Receiver(is_wary=True)] if wary else []))
    with ExitStack() as stack:
        for receiver in receivers:
            stack.enter_context(receiver.server)
        scene = stack.enter_context(a_scene(server, **environment))
        api = scene.api()
        until(lambda: answers(api))
        made = Standing(scene, api, receivers, names)
        made.drift()
        for receiver in receivers:
            hook = {"url": f"{receiver.server.base_url}/hook", "events": ["plan.issued"]}
            assert api.post("/v1/webhooks", hook).status_code == 201
        for name in names:
            made.deploy(name, policy or {})
        yield made
