"""The clients, against the running service, and against one that is scripted to fail."""

import asyncio
import inspect
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import sutler
from sutler.service.client import calls, retries
from sutler.service.client.errors import RefusedError, UnreachableError
from sutler.service.client.retries import Patience
from sutler.service.documents.examples import CHAT as EXAMPLE
from tests.adapters.server import Answer, Received, ScriptedServer, json_reply
from tests.service.running import Running, until

SCRIPT = Path(__file__).parents[3] / "examples" / "provision_short.py"
DEARER = {"objective.headroom_fraction": 0.5}
_numbers = count(1)


def key_of(service: Running) -> str:
    return str(service.session.headers["Authorization"]).removeprefix("Bearer ")


class Awaiting:
    """An `AsyncClient` whose methods wait and whose lists are lists, so that it is asked what `Client` is."""

    def __init__(self, url: str, key: str | None = None, *, retries: int = retries.MOST_RETRIES) -> None:
        self._client = sutler.AsyncClient(url, key, retries=retries)
        self._loop = asyncio.Runner()

    def __enter__(self) -> "Awaiting":
        self._loop.run(self._client.__aenter__())
        return self

    def __exit__(self, *raised: Any) -> None:
        self._loop.run(self._client.__aexit__(*raised))
        self._loop.close()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def wait_for(*given: Any, **named: Any) -> Any:
            found = method(*given, **named)
            return self._loop.run(_all(found) if isinstance(found, AsyncIterator) else found)

        return wait_for


async def _all(found: AsyncIterator[Any]) -> list[Any]:
    return [one async for one in found]


Either = sutler.Client | Any  # Any: Awaiting, which has the same methods
of_both = pytest.mark.parametrize("kind", [sutler.Client, Awaiting])


@pytest.fixture(params=[sutler.Client, Awaiting])
def client(service: Running, request: pytest.FixtureRequest) -> Iterator[Either]:
    with request.param(service.url, key_of(service)) as made:
        yield made


@pytest.fixture
def name(client: Either) -> Iterator[str]:
    chosen = f"client-{next(_numbers)}"
    yield chosen
    client.delete_deployment(chosen)


def test_a_problem_is_planned_by_the_service_as_it_is_here(client: Either, tmp_path: Path) -> None:
    problem = {**EXAMPLE, "market": {"offers": "market.json"}}
    (tmp_path / "market.json").write_text(json.dumps(EXAMPLE["market"]["offers"]), encoding="utf-8")
    plan = client.plan(problem, folder=tmp_path, changes=DEARER, timeout_s=60)
    assert plan.objective == sutler.plan(EXAMPLE, changes=DEARER).objective
    assert client.get_plan(plan.id) == plan
    assert plan.id in [one.id for one in client.plans()]
    client.delete_plan(plan.id)
    assert plan.id not in [one.id for one in client.plans()]


def test_a_deployment_is_made_read_carried_out_and_changed(client: Either, name: str) -> None:
    made = client.apply(name, EXAMPLE, policy={"automatic": False})
    assert (made.name, made.policy.automatic) == (name, False)
    assert name in [one.name for one in client.deployments()]
    first = client.current_plan(name, timeout_s=60)
    assert first is not None
    assert first == client.plan_of_revision(name, 1)
    started = client.diff(name, 1).start
    held = client.acknowledge(name, 1)
    assert {one.offer_id for one in held.holdings} == {one.offer_id for one in started}
    assert client.holdings(name).holdings == held.holdings
    lost = client.set_holdings(name, [])
    assert {one.offer_id for one in lost.lost} == {one.offer_id for one in held.holdings}
    assert client.current_plan(name, after=1, timeout_s=0) is None
    client.replan(name)
    second = client.current_plan(name, after=1, timeout_s=60)
    assert second is not None
    assert second.revision == 2
    with pytest.raises(RefusedError, match="sleeps"):
        client.wake(name)
    client.apply(name, {**EXAMPLE, "objective": {"kind": "min_cost"}}, policy={"sleep": {}})
    assert client.wake(name, "chat").models == ("chat",)
    assert [*client.decisions(name)]
    assert client.traffic(name).models
    [model] = client.traffic_history(name, since="1h", points=2).models
    assert model.model == "chat"
    assert 1 <= len(model.items) <= 2
    assert [step.revision for step in client.costs(name, since="1h").steps] == [1, 2]
    assert client.costs(since="1h", points=2).items[-1].deployments >= 1
    bucket = {"input_tokens": 500, "output_tokens": 250, "requests": 10}
    seen = {"model": "chat", "observed_at": datetime.now(UTC).isoformat(), "window_s": 60, "buckets": [bucket]}
    assert [client.observe(name, seen).duplicate for _ in range(2)] == [False, True]


def test_studies_are_those_of_the_library(client: Either, name: str) -> None:
    found = client.what_if(EXAMPLE, [DEARER], timeout_s=60)
    here = sutler.what_if(EXAMPLE, [DEARER])
    assert [one.objective for one in found.variants] == [one.objective for one in here.variants]
    client.apply(name, EXAMPLE)
    plan = client.current_plan(name, timeout_s=60)
    assert plan is not None
    of_name, of_plan = client.simulate(deployment=name, duration_s=20), client.simulate(plan, duration_s=20)
    assert of_name.requests == of_plan.requests == sutler.simulate(plan, duration_s=20).requests
    compared = client.compare(deployment=name, only=["homogeneous/*"], timeout_s=60)
    assert compared.strategies[0].objective is not None
    assert compared.strategies[0].objective.value == plan.objective.value
    asked: dict[str, Any] = {"precision": "bf16", "input_tokens": 500, "output_tokens": 250}
    assert client.estimate("llama-3.1-8b", "h100-sxm", **asked) == sutler.estimate(
        "llama-3.1-8b", "h100-sxm", **asked
    )
    with pytest.raises(RefusedError, match="exactly one of"):
        client.what_if(None, [DEARER])


def test_what_is_refused_says_why(client: Either, service: Running) -> None:
    with pytest.raises(RefusedError, match="no deployment") as refused:
        client.deployment("nobody")
    assert (refused.value.status, refused.value.slug) == (404, "not-found")
    with pytest.raises(RefusedError) as wrong:
        client.ask(calls.sending("PUT", "/v1/deployments/x", lambda reply: reply, {"problem": {}}))
    assert any("objective" in line for line in wrong.value.wrong)
    with sutler.Client(service.url, "sutler_wrong") as stranger, pytest.raises(RefusedError) as unknown:
        stranger.deployment("x")
    assert unknown.value.status == 401


def test_no_plan_in_time_is_a_timeout(client: Either) -> None:
    never = calls.get("/v1/offers", lambda reply: None)
    with pytest.raises(TimeoutError, match="no plan after 0"):
        client._until(lambda wait_s: never, lambda found: found, 0)


def test_offers_are_read_while_a_plan_is_waited_for(service: Running) -> None:
    async def both() -> tuple[sutler.PlanDocument, list[object]]:
        async with sutler.AsyncClient(service.url, key_of(service)) as client:
            plan, offers = await asyncio.gather(
                client.plan(EXAMPLE, timeout_s=60), _all(client.offers(gpu="h100-sxm"))
            )
            return plan, offers

    plan, offers = asyncio.run(both())
    assert plan.objective == sutler.plan(EXAMPLE).objective
    assert isinstance(offers, list)


def test_the_market_is_listed_sorted_and_shown_over_time(client: Either) -> None:
    until(lambda: [*client.polls("file")])
    assert [one.offer_id for one in client.offers(sort="-usd_per_hour")] == ["acme/large", "acme/small"]
    assert [one.offer_id for one in client.offers(q="RTX small")] == ["acme/small"]
    several = client.history("h100-sxm", "rtx-4090", since="1h", points=2)
    assert [series.gpu for series in several.series] == ["h100-sxm", "rtx-4090"]
    assert client.history("rtx-4090", since="1h", points=2).series == []
    assert [one.provider for one in client.providers()] == ["file"]
    assert [one.outcome for one in client.polls("file")][-1] == "ok"
    with pytest.raises(RefusedError, match="no cloud 'nobody'"):
        [*client.polls("nobody")]


def test_both_clients_have_the_same_methods() -> None:
    public = [name for name in vars(sutler.Client) if not name.startswith("_")]
    assert public == [name for name in vars(sutler.AsyncClient) if not name.startswith("_")]
    for name in public:
        one, other = getattr(sutler.Client, name), getattr(sutler.AsyncClient, name)
        assert [*map(str, inspect.signature(one).parameters.values())] == [
            *map(str, inspect.signature(other).parameters.values())
        ]
        assert one.__doc__ == other.__doc__


@pytest.mark.parametrize("client", [sutler.Client], indirect=True)
def test_a_script_of_twenty_lines_carries_out_what_a_deployment_plans(
    client: Either, name: str, service: Running
) -> None:
    assert len(SCRIPT.read_text("utf-8").splitlines()) <= 20
    client.apply(name, EXAMPLE)
    environment = {**os.environ, "SUTLER_URL": service.url, "SUTLER_KEY": key_of(service)}
    with subprocess.Popen([sys.executable, str(SCRIPT), name], env=environment, stdout=subprocess.PIPE) as running:
        try:
            first = until(lambda: client.holdings(name).holdings or None)
            client.apply(name, {**EXAMPLE, "objective": {"kind": "min_cost", "headroom_fraction": 1.0}})
            until(lambda: client.holdings(name).holdings != first or None)
        finally:
            running.kill()
        assert running.stdout is not None
        said = running.stdout.read().decode()
    assert "rent 3 x small" in said
    assert said.count("rent") >= 2


def answering(*statuses: int) -> ScriptedServer:
    left = list(statuses)

    def answer(received: Received) -> Answer:
        status = left.pop(0) if left else 200
        return json_reply({"items": [], "next": None} if status == 200 else {}, status=status)

    return ScriptedServer(answer)


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "FIRST_RETRY_S", 0.001)


@of_both
@pytest.mark.usefixtures("hasty")
def test_what_passes_is_tried_again_and_what_stands_is_not(kind: type[Either]) -> None:
    with answering(503, 429, 502) as server, kind(server.base_url) as client:
        assert list(client.deployments()) == []
        assert len(server.requests) == 4
    with answering(404) as server, kind(server.base_url) as client, pytest.raises(RefusedError):
        list(client.deployments())
    assert len(server.requests) == 1
    with answering(*[503] * 9) as server, kind(server.base_url, retries=2) as client:
        with pytest.raises(RefusedError, match="HTTP 503 without a reason"):
            list(client.deployments())
        assert len(server.requests) == 3


@of_both
@pytest.mark.usefixtures("hasty")
def test_a_repeated_request_for_a_plan_is_the_same_one(kind: type[Either]) -> None:
    with answering(503, 503, 404) as server, kind(server.base_url) as client:
        with pytest.raises(RefusedError):
            client.plan(EXAMPLE)
        keys = {request.headers["idempotency-key"] for request in server.requests}
        assert (len(server.requests), len(keys)) == (3, 1)


@of_both
@pytest.mark.usefixtures("hasty")
def test_a_service_that_is_away_is_named_and_no_secret_is(kind: type[Either]) -> None:
    with ScriptedServer([]) as server:
        url = server.base_url
    with kind(url, "sutler_secret", retries=1) as client:
        with pytest.raises(UnreachableError, match=url) as away:
            client.deployment("chat")
        assert "secret" not in f"{away.value!r}{client!r}"


def test_what_cannot_be_repeated_is_not() -> None:
    patience = Patience()
    assert patience.wait_s(UnreachableError("x"), can_repeat=False) is None
    assert (patience.wait_s(RefusedError(429, "x", retry_after_s=7.0), can_repeat=True) or 0) >= 7
    assert patience.wait_s(RefusedError(503, "x", kind="urn:sutler:problem:no-market-data"), can_repeat=True) is None
