"""Lium: a public feed of nodes with real counts, asked without a key (https://docs.lium.io/developers/public-nodes-feed).

A node is one offer of the GPUs that are free on it, at a price per GPU. `min_rentable_gpu_count` is the smallest
order: with 1 the offer is divisible; with more it is stated whole, and with more than are free it is not for rent.
Cores and RAM are the node's, of which an order gets its GPUs' share. Of all fields only `id` is sure to be there.
"""

from functools import partial
from typing import Any, Final

from sutler.adapters import values
from sutler.adapters.base import MOST_GPUS, Coverage, Offer, Poll, PriceBand
from sutler.adapters.config import Provider, ProviderConfig
from sutler.adapters.errors import RowError
from sutler.adapters.gpu_names import identify
from sutler.adapters.http import HttpClient, of_shape
from sutler.adapters.rows import Collected
from sutler.adapters.tally import as_asked
from sutler.adapters.values import Row

NODES_PATH: Final = "/api/public/v1/nodes"
FEED: Final = "nodes"
# Chosen: both and the dash between them stay within a name.
LONGEST_COUNTRY: Final = 20
LONGEST_REGION: Final = 100


def fetch(config: ProviderConfig, http: HttpClient) -> Poll:
    """Asks once, without a key. Raises FetchError."""
    answer = http.get(NODES_PATH)
    return as_asked(parse(answer.data, price_band=config.price_band), http, [answer])


def parse(data: Any, *, price_band: PriceBand) -> Poll:
    """What the feed says. Raises AnswerError (bad_shape) where it holds no list of nodes.

    Nodes come and go, so a node of which nothing can be read is gone as one that is absent; but a feed in which no
    node tells what is free says nothing.
    """
    nodes = of_shape(values.inside(data, "nodes"), list, sent=data, cloud="Lium", what="a list of nodes")
    collected = Collected()
    offer_of = partial(_offer, price_band=price_band)
    new = (node for node in nodes if collected.is_new(node))
    read = sum(collected.read(node, offer_of, values.optional_identifier(node, "id")) for node in new)
    unknown = collected.not_available["unknown"]
    if unknown and read == unknown:
        return collected.poll(detail="no node says how many of its GPUs are free")
    return collected.poll(Coverage("", None, read - unknown))


def _offer(node: Row, *, price_band: PriceBand) -> Offer | str:
    """The offer, or the cause why nothing is for rent. Raises RowError."""
    node_id = values.identifier(node, "id")
    gpu = identify(values.text(node, "gpu_model"), provider="lium", memory_gb=values.number(node, "gpu_memory_gb"))
    free, least = _free_and_least(node)
    if free is None:
        return "unknown"
    if free <= 0 or free < least:
        return "rented" if free <= 0 else "below_minimum"
    per_gpu = values.stated(values.number(node, "price_per_gpu_hour"), "price_per_gpu_hour", "no_on_demand_price")
    return Offer(
        offer_id=node_id,
        feed=FEED,
        gpu=gpu,
        gpus=free,
        available=1,
        price_usd_per_hour=values.checked_price(
            per_gpu * free, gpus=free, band=price_band, name="price_per_gpu_hour"
        ),
        contract="interruptible" if (values.text(node, "tier") or "").lower() == "spot" else "on_demand",
        divisible=least == 1,
        machine_id=node_id,
        machine_gpus=free,
        region=_region(node),
        disk_gb=values.nonnegative(node, "disk_free_gb"),
        ram_gb=_share(node, "ram_gb", "ram_gb", free),
        cpu_cores=_share(node, "cpu_count", "cpu_cores", free),
    )


def _free_and_least(node: Row) -> tuple[int | None, int]:
    """Free GPUs and the smallest order, which without a statement is the whole node. Raises RowError."""
    free, total = values.whole(node, "available_gpu_count"), values.whole(node, "gpu_count")
    least = values.whole(node, "min_rentable_gpu_count")
    if free is not None and not 0 <= free <= min(MOST_GPUS, MOST_GPUS if total is None else total):
        shown = "" if total is None else f" of {total}"
        raise RowError("bad_number", f"available_gpu_count: {free}{shown} GPUs cannot be free")
    if least is not None and least < 0:
        raise RowError("bad_number", f"min_rentable_gpu_count: {least} is negative")
    return free, max(1, least or total or free or 1)


def _share(node: Row, name: str, figure: str, free: int) -> float | None:
    """What the free GPUs have of the node's; all of it where the node does not say how many GPUs it has."""
    of_node, gpus = values.above_zero(node, name, figure), values.whole(node, "gpu_count")
    return of_node and of_node * free / (gpus or free)


def _region(node: Row) -> str | None:
    """Country first ("US-CA"), so that a filter on it finds all its regions."""
    country, region = values.text(node, "country_code"), values.text(node, "region")
    if country is None:
        return None
    code = country.upper()[:LONGEST_COUNTRY]  # cut last: some letters become two in upper case
    return f"{code}-{region[:LONGEST_REGION]}" if region else code


PROVIDER: Final = Provider(
    name="lium",
    title="Lium",
    base_url="https://lium.io",
    fetch=fetch,
    secrets=(),
    needs_key=False,
    least_poll_interval_s=30.0,
)
