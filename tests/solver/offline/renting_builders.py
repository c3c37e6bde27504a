"""Markets and applications for renting and adjusting, small enough to plan in well under a second."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.catalog.entries import Gpu
from sutler.solver.offline.application import Application, Drawn, Edge, LengthDistribution, Node
from sutler.solver.offline.plan import OfflineOptions
from sutler.solver.problem import Offer
from tests.builders import an_offer

GPUS: Mapping[str, Gpu] = load_gpus("default")
QUICK = OfflineOptions(seed=3, tensor_parallel=(1, 2), time_limit_s=1e6)


def a_node(name: str, requests: int | None, *, model: str = "llama-2-7b", **others: Any) -> Node:
    """Answers of 20 to 200 tokens; no requests of its own where `requests` is None."""
    given: dict[str, Any] = {
        "output_tokens": LengthDistribution((20, 60, 120, 200), (0.25, 0.5, 0.75, 1.0)),
        "requests": None if requests is None else Drawn(requests, LengthDistribution.always(200)),
        **others,
    }
    return Node(name, load_models()[model], "bf16", "bf16", **given)


def two_models(requests: int = 400) -> Application:
    """Independent of one another."""
    return Application("two", (a_node("one", requests), a_node("two", requests // 2, model="llama-2-13b")))


def writer_and_reader(requests: int = 400) -> Application:
    """The second reads every answer of the first."""
    reader = a_node("reader", None, prompt_tokens=LengthDistribution.always(50))
    return Application("pair", (a_node("writer", requests), reader), (Edge("writer", "reader"),))


def slower(application: Application, name: str, factor: float) -> Application:
    nodes = (replace(node, slowdown=factor) if node.name == name else node for node in application.nodes)
    return replace(application, nodes=tuple(nodes))


def a_market(*offers: Offer) -> tuple[Sequence[Offer], Mapping[str, Gpu]]:
    return offers, {offer.gpu: GPUS[offer.gpu] for offer in offers}


def an_l40s(gpus: int = 1, *, price: float = 1.0, **others: Any) -> Offer:
    return an_offer("l40s", gpus, price=price, **others)


def an_a100(gpus: int = 1, *, price: float = 1.6, **others: Any) -> Offer:
    return an_offer("a100-sxm4-80gb", gpus, price=price, **others)
