"""A database that is there, but refuses work: full or read-only. What the operator has to see to."""

import os
from collections.abc import Iterator
from random import Random
from typing import Final

import pytest
from requests import Response

from tests.postgres import Server, a_folder
from tests.service.builders import CHAT, a_snapshot, an_offer
from tests.service.faults.scenes import Scene, a_scene
from tests.service.market.test_lost_database import a_small_disk, fill
from tests.service.running import Running, answers, until

_random: Final = Random(1)
LARGE: Final = {  # and hard to compress
    **CHAT,
    "market": {"offers": a_snapshot(*(an_offer(offer_id=_random.randbytes(80).hex()) for _ in range(2000)))},
}


@pytest.fixture(scope="module")
def scene(postgres: Server) -> Iterator[Scene]:
    with a_scene(postgres) as made:
        yield made


@pytest.fixture(scope="module")
def service(scene: Scene) -> Running:
    """An API and a worker."""
    api = scene.api()
    until(lambda: answers(api))
    scene.worker()
    assert api.post("/v1/deployments", {"name": "chat", "problem": CHAT}).status_code == 201
    assert api.get("/v1/deployments/chat/plan", params={"wait_s": 60}).ok
    return api


def assert_refused(answer: Response) -> None:
    assert (answer.status_code, answer.headers["Content-Type"]) == (503, "application/problem+json"), answer.text
    assert answer.json()["type"] == "urn:sutler:problem:database-away"
    assert int(answer.headers["Retry-After"]) >= 1


def unless_taken(answer: Response) -> list[Response]:
    """Nothing where it was; an answer that refuses would itself be taken for nothing."""
    return [] if answer.status_code == 202 else [answer]


def disconnect_all(scene: Scene) -> None:
    scene.server.run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{scene.database}'")


def test_a_read_only_database_is_read_and_what_would_change_it_is_refused(scene: Scene, service: Running) -> None:
    scene.server.run(f"ALTER DATABASE {scene.database} SET default_transaction_read_only = on")
    disconnect_all(scene)
    until(lambda: service.get("/v1/plans").ok)
    assert service.get("/v1/deployments/chat/plan").json()["revision"] == 1
    assert_refused(service.post("/v1/plans", CHAT))
    assert_refused(service.put("/v1/deployments/chat", {"problem": CHAT, "policy": {"window_s": 60}}))
    assert_refused(service.delete("/v1/deployments/chat"))
    scene.server.run(f"ALTER DATABASE {scene.database} RESET default_transaction_read_only")
    disconnect_all(scene)
    until(lambda: service.post("/v1/plans", CHAT).status_code == 201)


def test_a_full_disk_is_told_and_room_heals_it(postgres: Server) -> None:
    with a_folder() as folder, a_small_disk(folder, mebibytes=32), a_scene(postgres) as scene:
        os.chown(folder, postgres.folder.stat().st_uid, -1)
        postgres.run(
            f"CREATE TABLESPACE little LOCATION '{folder}'", f"ALTER DATABASE {scene.database} SET TABLESPACE little"
        )
        try:
            api = scene.api()
            until(lambda: answers(api))
            scene.worker()
            assert api.post("/v1/plans", CHAT).status_code == 201
            filler = fill(folder)
            ask = {"headers": {"Prefer": "respond-async"}}
            (refused,) = until(lambda: unless_taken(api.post("/v1/plans", LARGE, **ask)))
            assert_refused(refused)
            assert api.get("/v1/plans").ok
            filler.unlink()
            assert api.post("/v1/plans", CHAT).status_code == 201
        finally:
            scene.stack.close()
            postgres.run(f"DROP DATABASE {scene.database} WITH (FORCE)", "DROP TABLESPACE little")
