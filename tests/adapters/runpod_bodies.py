"""Bodies as RunPod's two APIs send them, with values of our own, and polls of a server that sends them."""

from collections.abc import Callable, Mapping
from typing import Any

from sutler.adapters import runpod
from sutler.adapters.base import Poll
from tests.adapters.builders import DELETE, a_poll
from tests.adapters.server import Answer, Received, Reply, ScriptedServer, json_reply

A40 = "NVIDIA A40"
L4 = "NVIDIA L4"
H200 = "NVIDIA H200"

Catalog = Callable[[str, int], list[object] | Reply]


def rest_row(type_id: object = A40, word: object = "LOW", *at: str, **changes: Any) -> dict[str, Any]:
    """A type of the catalogue; `at`: the data centres that have it with the same word."""
    row = {
        "id": type_id,
        "name": "as people call it",
        "pool": None,
        "manufacturer": "NVIDIA",
        "memory": {A40: 48, L4: 24, H200: 141}.get(str(type_id), 0),
        "secure": True,
        "community": True,
        "price": {"secure": 0.44, "community": 0.31},
        "maxCount": {"secure": 8, "community": 8},
        "availability": word,
        "dataCenters": [{"id": name, "name": name, "availability": word} for name in at] or DELETE,
        **changes,
    }
    return {name: value for name, value in row.items() if value is not DELETE}


def up_to(sizes: dict[str, int], **others: Any) -> Catalog:
    """A catalogue with A40s: `sizes` by data centre."""

    def catalog(_cloud: str, count: int) -> list[object]:
        places = [place for place, gpus in sizes.items() if gpus >= count]
        return [rest_row(A40, "MEDIUM" if places else "NONE", *places, **others)]

    return catalog


def rest_poll(catalog: Catalog, **options: Any) -> tuple[Poll, list[tuple[str, int]]]:
    """A poll of a catalogue, by cloud and count, and what was asked for; a Reply stands for itself."""

    def answer(request: Received) -> Answer:
        found = catalog(request.params["cloud"], int(request.params["count"]))
        return found if isinstance(found, Reply) else json_reply({"gpus": found})

    with ScriptedServer(answer) as server:
        found = a_poll(server.base_url, runpod.PROVIDER, **options)
        asked = [(request.params["cloud"], int(request.params["count"])) for request in server.requests]
    return found, asked


def rest_poll_of(*rows: object, **options: Any) -> Poll:
    """A poll of a catalogue that says the same whatever it is asked."""
    return rest_poll(lambda _cloud, _count: list(rows), **options)[0]


def graphql_row(
    type_id: object = A40, stock: object = "Low", lowest: Mapping[str, Any] | None = None, **changes: Any
) -> dict[str, Any]:
    """A type as the query asks for it; `lowest` changes what is in its lowestPrice."""
    inner = {"uninterruptablePrice": 0.44, "stockStatus": stock, "availableGpuCounts": [1], **(lowest or {})}
    row = {
        "id": type_id,
        "memoryInGb": {A40: 48, L4: 24, H200: 141}.get(str(type_id), 0),
        "secureCloud": True,
        "communityCloud": True,
        "securePrice": 0.44,
        "communityPrice": 0.31,
        "maxGpuCountSecureCloud": 8,
        "maxGpuCountCommunityCloud": 8,
        "lowestPrice": {name: value for name, value in inner.items() if value is not DELETE},
        **changes,
    }
    return {name: value for name, value in row.items() if value is not DELETE}


def graphql_poll(*answers: object, **options: Any) -> Poll:
    """A poll of an API that gives these answers in turn: bodies, or whole replies."""
    replies = [answer if isinstance(answer, Reply) else json_reply(answer) for answer in answers]
    with ScriptedServer(replies) as server:
        return a_poll(server.base_url, runpod.PROVIDER, api="graphql", **options)


def graphql_poll_of(*rows: object, errors: object = None, **options: Any) -> Poll:
    body: dict[str, Any] = {"data": {"gpuTypes": list(rows)}}
    return graphql_poll(body if errors is None else {**body, "errors": errors}, **options)


def for_rent(found: Poll) -> dict[str, int]:
    """GPUs by offer id, list prices left out."""
    return {offer.offer_id: offer.gpus for offer in found.offers if offer.available}


def list_prices(found: Poll) -> dict[str, float]:
    """USD per hour by offer id."""
    return {offer.offer_id: offer.price_usd_per_hour for offer in found.offers if offer.availability_basis == "list"}


def covers(found: Poll, feed: str) -> bool:
    return any(feed.startswith(coverage.feed_prefix) for coverage in found.covered)
