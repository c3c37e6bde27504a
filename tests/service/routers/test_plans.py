"""Where plans come from: a deployment of a service that may be away, and a file that may be broken."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import sutler
from sutler.service.client.errors import RefusedError
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.plan import PlanDocument
from sutler.service.routers import plans
from sutler.service.routers.plans import of_deployment, of_file
from sutler.service.routers.watched import Watched
from tests.adapters.server import Answer, Received, Reply, ScriptedServer, json_reply
from tests.service.export.plans import plan_of, with_values


def a_plan(revision: int) -> PlanDocument:
    return plan_of(with_values("single_gpu", (("revision",), revision)))


def sent(plan: PlanDocument) -> Reply:
    return Reply(200, plan.model_dump_json(by_alias=True).encode())


def refusal(status: int, slug: str = "not-found") -> Answer:
    return json_reply({"type": f"urn:sutler:problem:{slug}", "detail": "for a reason"}, status=status)


async def first(of: AsyncIterator[PlanDocument], number: int) -> list[int]:
    return [(await anext(of)).revision for _ in range(number)]


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "RETRY_S", 0.01)


def test_each_revision_is_asked_for_once_and_a_service_that_is_away_waited_for() -> None:
    answers = [
        *(refusal(503, "not-yet"), sent(a_plan(1)), Reply(304), refusal(503), refusal(404), refusal(401)),
        *(Reply(200, b"no plan"), sent(a_plan(3))),
    ]
    asked: list[str | None] = []
    told: list[str] = []

    def answer(received: Received) -> Answer:
        asked.append(received.params.get("after"))
        return answers[len(asked) - 1]

    async def ask() -> list[int]:
        with ScriptedServer(answer) as server:
            async with sutler.AsyncClient(server.base_url, "secret-key", retries=0) as client:
                return await first(of_deployment(client, "a deployment", told.append), 2)

    assert asyncio.run(ask()) == [1, 3]
    assert asked == [None, None, *["1"] * 6]
    troubles = [told_of for told_of in told if told_of]
    assert len(troubles) == 5
    assert troubles[1] == "no plan from the service, the weights stay: for a reason"
    assert "secret-key" not in "".join(told)
    assert told[-1] == ""


@pytest.mark.parametrize("status", [401, 404])
def test_who_is_refused_before_the_first_plan_is_told(status: int) -> None:
    async def ask() -> None:
        with ScriptedServer([refusal(status)]) as server:
            async with sutler.AsyncClient(server.base_url, retries=0) as client:
                await anext(of_deployment(client, "x", lambda _: None))

    with pytest.raises(RefusedError, match="for a reason"):
        asyncio.run(ask())


def test_a_file_is_followed_while_it_is_changed_and_broken(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    told: list[str] = []

    def write(plan: PlanDocument) -> None:
        path.write_text(plan.model_dump_json(by_alias=True))

    def read(file: Path) -> PlanDocument:
        try:
            return PlanDocument.model_validate_json(file.read_text())
        except ValueError:
            raise DocumentError.of("PLAN", "is no plan") from None

    async def follow() -> None:
        found = of_file(Watched(path, read), 0.01, told.append)
        with pytest.raises(DocumentError, match="no such file"):
            await anext(found)
        write(a_plan(1))
        found = of_file(Watched(path, read), 0.01, told.append)
        assert await first(found, 1) == [1]
        coming = asyncio.ensure_future(first(found, 1))
        path.write_text("{")
        while not told or not told[-1]:
            await asyncio.sleep(0.01)
        assert told[-1] == "no plan from the file, the weights stay: PLAN: is no plan"
        write(a_plan(2))
        assert await coming == [2]

    asyncio.run(follow())
