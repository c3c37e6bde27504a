"""The market as the API tells it."""

from datetime import datetime

from pydantic import Field

from sutler.service.documents.described import Described
from sutler.service.documents.market import OfferDocument
from sutler.service.web.resource import Resource


class OffersPage(Described):
    """Offers, the cheapest GPU-hour first unless `sort` says otherwise. All pages of a list show the market at the
    same instant."""

    taken_at: datetime
    """The instant that is shown."""
    items: list[OfferDocument]
    """The offers."""
    next: str | None
    """`cursor` of the next page; null at the end."""
    total: int = 0
    """Offers on all pages."""
    facets: dict[str, dict[str, int]] = Field(default_factory=dict)
    """With `facets`: of `gpu`, `provider`, `region` (the part before the first hyphen; `?`: not said) and `contract`,
    how many offers there are of each value, the most first, if only that filter were left out."""


class HistoryResource(Resource):
    """Supply and price of a GPU at an instant; null where nobody had looked shortly before."""

    at: datetime
    """The instant."""
    gpus: float | None
    """GPUs for rent: distinct cards, not the sum of overlapping offers."""
    offers: int | None
    """Offers; null also where only hourly means are kept."""
    least_usd_per_gpu_hour: float | None
    """The cheapest."""
    median_usd_per_gpu_hour: float | None
    """The median."""


class HistorySeries(Resource):
    """Samples of one GPU."""

    gpu: str
    """Its slug."""
    contract: str
    """The contract that was asked for."""
    items: list[HistoryResource]
    """By time, at the instants of all other series."""


class HistoryPage(Resource):
    """Samples of the market over time."""

    items: list[HistoryResource]
    """Of the GPU that was asked for, or of the first of them; by time."""
    next: str | None
    """Null: there is no other page."""
    gpu: str
    """Its slug."""
    contract: str
    """The contract that was asked for."""
    series: list[HistorySeries] = Field(default_factory=list)
    """Where several GPUs were asked for: the samples of each, in that order, the first among them."""


class ChanceResource(Resource):
    """The chance that an offer is still there after a time."""

    fraction: float
    """The chance, the mean over what its rate may be."""
    low_fraction: float
    """Low end of its 90 % interval."""
    high_fraction: float
    """High end of its 90 % interval."""


class OutlookResource(Resource):
    """What is to be expected of offers of one kind: of those for rent now on average, else of new ones."""

    provider: str
    """Name of the cloud."""
    gpu: str
    """Slug of the GPU."""
    contract: str
    """As in the market snapshot."""
    gpus: int
    """A machine counts as there while at least so many of its GPUs are for rent."""
    for_rent: int
    """Machines that are there now."""
    within: ChanceResource
    """To be there after `within_s`, when you come, still or again."""
    lasting: ChanceResource
    """To be there all the time until `for_s` later."""
    expected_lifetime_s: float
    """Seconds that such an offer goes on to be there, on average, at the mean rates; a year at most."""
    rate_per_hour: float
    """At which they go now."""
    rate_low_per_hour: float
    """Low end of its 90 % interval."""
    rate_high_per_hour: float
    """High end of its 90 % interval."""
    machines: int
    """Machines of this kind that were watched."""
    lives: int
    """Stretches of time that they were there for."""
    deaths: int
    """How many of these were seen to end."""
    machine_hours: float
    """For how long they were watched while there."""
    cell: tuple[str, ...]
    """By what rates are told apart at this cloud, the coarsest first."""


class OutlookPage(Described):
    """Kinds of offers that machines were watched of, by GPU, size, contract and provider."""

    within_s: float
    """Seconds until you come."""
    for_s: float
    """Seconds that it is to last."""
    items: list[OutlookResource]
    """The kinds, all of them."""
    next: str | None
    """Null: there is no other page."""


class InterruptionsResource(Resource):
    """How often rented machines of a kind are taken away, as reports of holdings have told."""

    contract: str
    """As in the market snapshot."""
    provider: str | None
    """Name of the cloud; null: all."""
    gpu: str | None
    """Slug of the GPU; null: all."""
    per_hour: float
    """Times per machine and hour."""
    low_per_hour: float
    """Low end of its 90 % interval."""
    high_per_hour: float
    """High end of its 90 % interval."""
    losses: int
    """Machines of this kind that were lost."""
    machine_hours: float
    """For how long they were held; 0: nothing was seen, and the rate is assumed or that of its like."""


class InterruptionsPage(Described):
    """What was learnt, of contracts as a whole, of providers and of their GPUs."""

    items: list[InterruptionsResource]
    """All of it."""
    next: str | None
    """Null: there is no other page."""


class LastPollResource(Resource):
    """What came of a poll."""

    ended_at: datetime
    """When."""
    outcome: str
    """ok, partial, prices_only, or why there was no usable answer."""
    kept: int
    """Offers in it."""
    rejected: dict[str, int]
    """Rows that no offer could be made of, by reason."""
    not_available: dict[str, int]
    """Rows that are not for rent, by reason."""
    flags: dict[str, int]
    """What was odd."""
    retry_at: datetime | None
    """When the cloud asked to be polled next."""
    detail: str
    """What went wrong, if anything."""


class PollResource(LastPollResource):
    """One poll of a cloud."""

    at: datetime
    """When it took effect: `ended_at`, unless the clock had been set back."""
    seconds: float
    """How long it took."""
    http_status: int | None
    """Of the answer that ended it; null: there was none."""
    requests: int
    """Requests that it made."""
    opened: int
    """Offers that were new or had changed."""
    closed: int
    """Offers that were gone or had changed."""


class ProviderResource(Resource):
    """A cloud that is polled."""

    provider: str
    """Name of the cloud."""
    offers: int
    """For rent now, as far as is known."""
    last_seen_at: datetime | None
    """When it last said what is for rent."""
    age_s: float | None
    """Seconds since then."""
    fresh: bool
    """Whether that is recent enough to plan with by default."""
    next_poll_at: datetime | None
    """When it is due."""
    failures_in_a_row: int
    """Polls without a usable answer since the last one with."""
    last_poll: LastPollResource | None
    """The last poll, whatever came of it."""
