"""What a router is told while plans, addresses and the health of replicas change; the engines are stand-ins."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sutler.service.deployments.diff.stable_ids import keyed
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.plan import PlanDocument
from sutler.service.export.envoy import envoy_clusters
from sutler.service.export.nginx import nginx_config
from sutler.service.export.router import router_json
from sutler.service.routers import following
from sutler.service.routers.addresses import read_addresses
from sutler.service.routers.configuration import Configuration
from sutler.service.routers.following import Follower, Render, Telling
from sutler.service.routers.health import Health
from sutler.service.routers.watched import Watched
from tests.service.export.plans import in_two_phases, plan_of
from tests.service.export.test_losses import a_fleet, a_loss
from tests.service.routers.listeners import Listeners, listening

EVERY_S = 0.02
SMALL = ("small-0", "small-1", "small-2")
ALL = ("large-0", "large-1", *SMALL)
PLANNED = {"small-0": 0.6, "small-1": 0.3, "small-2": 0.1}


@dataclass
class Site:
    """Engines, the files between them and a follower, what it said, and a way to give it plans."""

    engines: Listeners
    folder: Path
    said: list[str]
    plans: "asyncio.Queue[PlanDocument]"
    following: "asyncio.Task[None]"

    def weights(self) -> dict[str, float]:
        """Of the small model."""
        try:
            found = json.loads((self.folder / "router.json").read_text())["weights"]["small"]["tags"]
        except FileNotFoundError:
            return {}
        return {replica: round(weight, 6) for replica, weight in found.items()}

    def last(self) -> str:
        return self.said[-1] if self.said else ""

    def give_addresses(self, addresses: dict[str, str]) -> None:
        draft = self.folder / "draft"
        draft.write_text(json.dumps(addresses))
        draft.replace(self.folder / "addresses.json")

    async def until(self, look: Callable[[], Any]) -> None:
        async with asyncio.timeout(20):
            while not look():
                if self.following.done():
                    self.following.result()
                await asyncio.sleep(EVERY_S / 2)

    async def rounds(self, number: int = 10) -> None:
        await asyncio.sleep(number * EVERY_S)


@asynccontextmanager
async def site(
    folder: Path, *engines: str, render: Render = router_json, by_id: bool = True, check: str = "true"
) -> AsyncIterator[Site]:
    plans: asyncio.Queue[PlanDocument] = asyncio.Queue()

    async def coming() -> AsyncIterator[PlanDocument]:
        while True:
            yield await plans.get()

    said: list[str] = []
    async with listening(*engines) as listeners, Health(EVERY_S, 2) as health:
        (folder / "addresses.json").write_text(json.dumps({name: listeners.address(name) for name in engines}))
        follower = Follower(
            render,
            Configuration(folder / "router.json", ["sh", "-c", check], []),
            Watched(folder / "addresses.json", read_addresses),
            health,
            Telling(said.append),
            by_id=by_id,
        )
        task = asyncio.create_task(follower.follow(coming()))
        try:
            yield Site(listeners, folder, said, plans, task)
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, DocumentError):
                await task


def run(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scene())


def revision(number: int, *losses: dict[str, Any], **fractions: float) -> PlanDocument:
    """With these fractions of the small model."""
    plan = a_fleet(*losses, revision=number)
    if fractions:
        given = {f"small-{name[1:]}": fraction for name, fraction in fractions.items()}
        routes = [r.model_copy(update={"fractions": given}) if r.model == "small" else r for r in plan.routing]
        plan = plan.model_copy(update={"routing": tuple(routes)})
    return plan


def test_a_dead_replica_is_out_and_comes_back(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path, *ALL) as here:
            here.plans.put_nowait(revision(1, a_loss("m", ["small-1"], r0=0.9, r2=0.1)))
            await here.until(lambda: here.weights() == PLANNED)
            here.engines.up.remove("small-0")
            await here.until(lambda: here.weights() == {"small-1": 0.75, "small-2": 0.25})
            here.engines.up.add("small-0")
            await here.until(lambda: here.weights() == PLANNED)
            here.engines.up.remove("small-1")
            await here.until(lambda: here.weights() == {"small-0": 0.9, "small-2": 0.1})
            await here.until(lambda: "as planned for the loss of machine m" in here.last())
        said = "\n".join(here.said)
        assert here.said[0] == "revision 1; all 5 replicas answer"
        assert f"without small-0 ({here.engines.address('small-0')}), whose share moves in proportion" in said
        assert f"without small-1 ({here.engines.address('small-1')}), whose" in said

    run(scene)


def test_where_nothing_of_a_model_answers_its_weights_stay(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path, *ALL) as here:
            here.plans.put_nowait(revision(1))
            await here.until(lambda: here.weights() == PLANNED)
            here.engines.up -= {*SMALL}
            await here.until(lambda: "no replica of small answers" in here.last())
            assert here.weights() == PLANNED

    run(scene)


def test_a_revision_takes_over_once_as_much_of_it_answers(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path, *ALL) as here:
            here.engines.up.remove("small-2")
            here.plans.put_nowait(revision(1, r0=0.5, r1=0.5))
            await here.until(lambda: here.weights() == {"small-0": 0.5, "small-1": 0.5})
            here.plans.put_nowait(revision(2, r0=0.5, r2=0.5))  # whose small-2 still starts
            await here.until(lambda: "revision 2 waits for small-2" in here.last())
            await here.rounds()
            assert here.weights() == {"small-0": 0.5, "small-1": 0.5}
            here.engines.up.add("small-2")
            await here.until(lambda: here.weights() == {"small-0": 0.5, "small-2": 0.5})

    run(scene)


def test_a_fleet_that_dies_is_left_for_one_that_comes_up(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path, *ALL) as here:
            here.engines.up.remove("small-2")
            here.plans.put_nowait(revision(1, r1=1.0))
            await here.until(lambda: here.weights() == {"small-1": 1.0})
            here.plans.put_nowait(revision(2, r0=0.5, r2=0.5))
            await here.until(lambda: "revision 2 waits" in here.last())
            here.engines.up.remove("small-1")
            await here.until(lambda: here.weights() == {"small-0": 1.0})

    run(scene)


def test_addresses_that_come_later_count(tmp_path: Path) -> None:
    async def scene() -> None:
        async with site(tmp_path, *ALL) as here:
            known = json.loads((tmp_path / "addresses.json").read_text())
            here.give_addresses({name: place for name, place in known.items() if name != "small-0"})
            here.plans.put_nowait(revision(1))
            await here.until(lambda: "without small-0 (no address for small/aggregated/" in "".join(here.said))
            (tmp_path / "addresses.json").write_text("{small-0: nowhere}")
            await here.until(lambda: "the addresses stay as they were: " in here.last())
            here.give_addresses(known)
            await here.until(lambda: here.weights() == PLANNED)

    run(scene)


def test_of_a_deployment_replicas_are_known_by_keys_alone(tmp_path: Path) -> None:
    """Since the next plan may call another replica small-0."""

    async def scene() -> None:
        async with site(tmp_path, *ALL, by_id=False) as here:
            plan = revision(1)
            here.plans.put_nowait(plan)
            await here.until(lambda: "router keeps what it had: large-0 (no address for large/agg" in here.last())
            assert not (tmp_path / "router.json").exists()  # a router without servers is worse than what there was
            keys = {part.key: here.engines.address(part.replica.id) for part in keyed(plan).replicas}
            here.give_addresses(keys)
            await here.until(lambda: "all 5 replicas answer" in here.last())

    run(scene)


def test_what_the_router_refuses_is_said_once_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(following, "RETRY_S", 5 * EVERY_S)

    async def scene() -> None:
        check = f"test -e {tmp_path}/fine || {{ echo '[emerg] bad'; exit 1; }}"
        async with site(tmp_path, *ALL, check=check) as here:
            here.plans.put_nowait(revision(1))
            await here.until(lambda: any("[emerg] bad" in line for line in here.said))
            await here.until(lambda: not (tmp_path / "router.json").exists())
            await here.rounds(20)
            assert sum("[emerg] bad" in line for line in here.said) == 1
            (tmp_path / "fine").touch()
            await here.until(lambda: here.weights() == PLANNED)

    run(scene)


@pytest.mark.parametrize("render", [nginx_config, envoy_clusters, router_json])
def test_a_plan_that_no_router_can_follow_ends_it_at_the_start_and_is_left_out_later(
    tmp_path: Path, render: Render
) -> None:
    async def scene() -> None:
        async with site(tmp_path, *ALL, render=render) as here:
            here.plans.put_nowait(plan_of(in_two_phases()))
            with pytest.raises(DocumentError, match="prefill"):
                await here.until(lambda: False)
        async with site(tmp_path, *ALL, render=render) as here:
            here.plans.put_nowait(revision(1))
            await here.until((tmp_path / "router.json").exists)
            here.plans.put_nowait(plan_of({**in_two_phases(), "revision": 2}))
            await here.until(lambda: any("revision 2 cannot be followed" in line for line in here.said))
            here.plans.put_nowait(revision(3))
            await here.until(lambda: "revision 3; all 5" in here.last())

    run(scene)
