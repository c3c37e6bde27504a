"""RunPod: list prices, words for scarcity and no counts; its REST API v2, or GraphQL behind a switch."""

from typing import Final

from sutler.adapters.adapter import Adapter
from sutler.adapters.config import Option, Provider, ProviderConfig, bearer
from sutler.adapters.runpod_graphql import GraphqlAdapter
from sutler.adapters.runpod_rest import RestAdapter
from sutler.adapters.runpod_rows import Cloud

KNOWN_CLOUDS: Final[tuple[Cloud, ...]] = ("SECURE", "COMMUNITY")
API: Final = Option(
    "api", choices=("v2", "graphql"), default="v2", help="which API a poll asks; GraphQL is to be retired in 2027"
)
CLOUDS: Final = Option(
    "clouds",
    choices=KNOWN_CLOUDS,
    default="SECURE",
    help="RunPod's own data centres, or also those of its partners",
    several=True,
)


def _build(config: ProviderConfig) -> Adapter:
    chosen = config.chosen(CLOUDS)
    clouds = tuple(cloud for cloud in KNOWN_CLOUDS if cloud in chosen)
    if config.chosen(API) == ("graphql",):
        return GraphqlAdapter(clouds, config.price_band)
    return RestAdapter(clouds, config.price_band)


PROVIDER: Final = Provider(
    name="runpod",
    title="RunPod",
    base_url="https://api.runpod.io",
    build=_build,
    headers=bearer,
    options=(API, CLOUDS),
    marks=("api",),
    poll_interval_s=120.0,
    least_poll_interval_s=60.0,
)
