"""A deployment on a real store whose engines are not as its plan counts on: shown, planned with, forgotten."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

import pytest

from sutler.service.db.asynchronous import begun
from sutler.service.deployments.rates.learning import Told
from sutler.service.deployments.traffic import repository
from sutler.service.deployments.traffic.window import Observation
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.validation import of_json
from tests.postgres import Server
from tests.service.deployments.rates.played import START, a_problem, a_truth, told
from tests.service.faults.looks import looking
from tests.service.faults.scenes import Scene, a_scene
from tests.service.running import Running, answers, until

NAME: Final = "chat"
RATE_RPS: Final = 20.0
TOLD_FOR: Final = timedelta(seconds=720)


@dataclass(frozen=True)
class Site:
    """A deployment that has its first plan, carried out, and no worker."""

    scene: Scene
    api: Running

    @property
    def id(self) -> UUID:
        return UUID(str(self.scene.rows("SELECT id FROM deployment WHERE name = %s", NAME)[0][0]))

    def get(self, path: str) -> Any:
        answer = self.api.get(f"/v1/deployments/{NAME}{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()

    def hears(self, *speeds: float, ahead: timedelta = timedelta()) -> None:
        """Ten minutes of what engines tell that are so many times as fast as estimated, and then a look."""
        plan = of_json(PlanDocument, self.get("/plan"))
        asyncio.run(self._hear([told(plan, a_truth(speed), load=0.95) for speed in speeds], ahead))

    async def _hear(self, told_by_turns: list[list[Told]], ahead: timedelta) -> None:
        async with looking(self.scene) as looks:
            looks.clock.ahead = ahead
            for readings in told_by_turns:
                shift = looks.clock.now() - (START + TOLD_FOR)
                async with begun(looks.engine) as connection:
                    for number, one in enumerate(readings):
                        await repository.add(
                            connection,
                            self.id,
                            [_observed(one, shift)],
                            digest=number.to_bytes(8),
                            now=looks.clock.now(),
                            operating=_operating(one),
                        )
            await looks.looks(self.id)


def _observed(one: Told, shift: timedelta) -> Observation:
    return Observation(one.model, one.source, one.started_at + shift, one.ended_at + shift, one.requests, one.sizes)


def _operating(one: Told) -> dict[str, Any]:
    names = ("requests", "residence_s", "cached_fraction", "replica")
    return {name: getattr(one, name) for name in names}


@contextmanager
def a_site(postgres: Server, **policy: Any) -> Iterator[Site]:
    with a_scene(postgres) as scene:
        api = scene.api()
        until(lambda: answers(api))
        body = {"name": NAME, "problem": a_problem(RATE_RPS, "l40s"), "policy": policy}
        assert api.post("/v1/deployments", body).status_code == 201
        worker = scene.worker()
        until(lambda: scene.rows("SELECT plan_id FROM deployment")[0][0] is not None)
        assert worker.stop() == 0
        assert api.post(f"/v1/deployments/{NAME}/holdings/ack", {"revision": 1}).status_code == 200
        yield Site(scene, api)


def kinds(site: Site) -> set[str]:
    return {drift["kind"] for drift in site.get("")["watch"]["drifts"]}


@pytest.mark.slow
def test_slow_engines_are_planned_for_where_the_policy_says_so_and_forgotten_when_asked(postgres: Server) -> None:
    """Also within the cool-down: the load is no longer carried."""
    with a_site(postgres, learn_rates=True) as site:
        first = site.get("/plan")
        site.hears(0.7)
        [layout] = site.get("/rates")["layouts"]
        assert (layout["gpu"], layout["is_known"]) == ("l40s", True)
        assert layout["points"][0]["faster"] == pytest.approx(0.7, rel=0.05)
        decision = site.get("/decisions")["items"][0]
        assert "rates" in {drift["kind"] for drift in decision["drifts"]}
        second = site.get("/plan")
        assert second["revision"] == 2
        assert second["cost_usd_per_hour"] > first["cost_usd_per_hour"]
        assert second["calibration"]["name"] == "learnt"
        assert "calibration learnt" in second["evidence"][0]["detail"]
        assert site.get("/rates")["layouts"][0]["beside_plan"] == pytest.approx(1.0, abs=0.02)
        assert site.api.ask("DELETE", f"/v1/deployments/{NAME}/rates").status_code == 204
        assert site.get("/rates")["layouts"] == []
        assert site.get("/plan")["revision"] == 2
        [entry] = site.scene.rows("SELECT action FROM audit WHERE action LIKE %s", "%forget_rates")
        assert entry == ("deployment.forget_rates",)


@pytest.mark.slow
def test_fast_engines_stop_no_machine_before_the_cool_down_is_over(postgres: Server) -> None:
    with a_site(postgres, learn_rates=True, horizon_s=864_000.0, payback_s=864_000.0) as site:
        first = site.get("/plan")
        site.hears(1.45)
        assert kinds(site) == {"rates"}
        assert site.get("/plan")["revision"] == 1
        site.hears(1.45, ahead=timedelta(seconds=1000))
        second = site.get("/plan")
        assert second["revision"] == 2
        assert second["cost_usd_per_hour"] < first["cost_usd_per_hour"]


@pytest.mark.slow
def test_without_the_policy_it_is_only_shown(postgres: Server) -> None:
    with a_site(postgres) as site:
        site.hears(0.7)
        found = site.get("/rates")
        assert found["applied"] is False
        assert found["layouts"][0]["beside_plan"] == pytest.approx(0.7, rel=0.05)
        assert "rates" not in kinds(site)
        page = site.api.get(f"/ui/deployments/{NAME}").text
        assert "times what this plan counts on" in page
        assert site.get("/plan")["calibration"] is None


def test_what_is_forgotten_while_a_look_goes_on_stays_forgotten(postgres: Server) -> None:
    with a_site(postgres) as site:

        async def forgotten_meanwhile() -> None:
            async with looking(site.scene) as looks:
                watched = await looks.looker.watched(site.id)
                assert watched is not None
                facts = await looks.looker.facts(watched)
                forget = asyncio.to_thread(site.api.ask, "DELETE", f"/v1/deployments/{NAME}/rates")
                assert (await forget).status_code == 204
                known = facts.lesson.learnt.model_copy(update={"left_out": 7})
                facts = replace(facts, lesson=replace(facts.lesson, learnt=known))
                from sutler.service.deployments.replanning import repository as watching

                async with begun(looks.engine) as connection:
                    now = datetime.now(UTC)
                    await watching.looked(
                        connection, watched, at=now, look_at=now, state={}, learnt=facts.lesson.stored
                    )

        asyncio.run(forgotten_meanwhile())
        assert site.get("/rates")["left_out"] == 0
        assert site.get("/rates")["since"] is not None
