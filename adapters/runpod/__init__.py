"""RunPod: list prices, words for scarcity and no counts; its REST API v2, or GraphQL behind a switch.

`rest` and `graphql` ask and read rows into `listing.Listing`; `tally.Tally` makes the poll of them.
"""

from typing import Final

from sutler.adapters.base import Poll
from sutler.adapters.config import Provider, ProviderConfig, ProviderOption, bearer
from sutler.adapters.errors import FetchError
from sutler.adapters.http import HttpClient
from sutler.adapters.runpod import graphql, rest
from sutler.adapters.runpod.listing import Cloud
from sutler.adapters.runpod.tally import Tally

KNOWN_CLOUDS: Final[tuple[Cloud, ...]] = ("SECURE", "COMMUNITY")
API: Final = ProviderOption(
    "api", choices=("v2", "graphql"), default="v2", help="which API a poll asks; GraphQL is to be retired in 2027"
)
CLOUDS: Final = ProviderOption(
    "clouds",
    choices=KNOWN_CLOUDS,
    default="SECURE",
    help="RunPod's own data centres, or also those of its partners",
    several=True,
)


def fetch(config: ProviderConfig, http: HttpClient) -> Poll:
    """Asks cloud by cloud until one fails. Raises FetchError where the first does."""
    chosen = config.chosen(CLOUDS)
    ask = graphql.ask if config.chosen(API) == ("graphql",) else rest.ask
    tally = Tally()
    failure = None
    try:
        for cloud in KNOWN_CLOUDS:
            if cloud in chosen:
                ask(http, cloud, tally, price_band=config.price_band)
    except FetchError as error:
        failure = error
    return tally.poll(requests_sent=http.requests_sent, failure=failure)


PROVIDER: Final = Provider(
    name="runpod",
    title="RunPod",
    base_url="https://api.runpod.io",
    fetch=fetch,
    headers=bearer,
    options=(API, CLOUDS),
    marks=("api",),
)
