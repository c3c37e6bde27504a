"""The market snapshot document: what was for rent, where, at what price, and when that was seen."""

from collections import Counter, defaultdict
from typing import Annotated, Any, Final, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from sutler.adapters.base import LARGEST_STORED_CARD_ID, OFFER_LIMITS, AvailabilityBasis, Contract
from sutler.service.documents.fields import Document, GpuName, Name, Timestamp, UsdPerHour, reject
from sutler.service.documents.rules import repeats
from sutler.service.errors import FieldProblem, short_repr


def _interruptible(value: object) -> object:
    """Takes `spot`, as clouds say, for interruptible."""
    return "interruptible" if value == "spot" else value


ContractName = Annotated[Contract, BeforeValidator(_interruptible, json_schema_input_type=Literal[Contract, "spot"])]
MARKET_SCHEMA: Final = "sutler/market/v1"
# Chosen: 50 times the 2,000 offers of the market that benchmarks/market.py polls.
MOST_OFFERS: Final = 100_000
CardId = Annotated[int, Field(ge=0, le=LARGEST_STORED_CARD_ID)]


def _within(name: str) -> Any:
    """Returns the bounds that adapters keep: whatever offer they take, the market can show."""
    least, most = OFFER_LIMITS[name]
    return Field(ge=least, le=most)


class OfferDocument(Document):
    """Something for rent: a machine, a slice of one, or (`divisible`) any number of a machine's GPUs."""

    provider: Name
    """Who rents it out."""
    offer_id: Name
    """The provider's id. An offer's key is (provider, offer_id, contract)."""
    gpu: GpuName
    """Canonical slug of the GPU (`sutler catalog gpus`), or a name under the problem's `gpus`."""
    gpus: Annotated[int, _within("gpus")]
    """GPUs of the offer."""
    available: Annotated[int, _within("available")]
    """How many such offers can be rented; 1 where `machine_id` is given."""
    price_usd_per_hour: UsdPerHour
    """USD per hour for the whole offer, all its GPUs; 0 for machines that are owned, prepaid or committed."""
    contract: ContractName
    """`on_demand`, or `interruptible`, which covers bid and spot offers; `spot` is read as `interruptible`."""
    availability_basis: AvailabilityBasis | Literal["stated"] | None = None
    """How `available` is known: counted by the provider, a lower bound from what it says (stock words, pod sizes), a
    list price with nothing known to be for rent, or stated by the user (`market.stock`); unset: not said."""
    divisible: bool = False
    """Any k <= `gpus` GPUs of a machine can be rented, each at `price_usd_per_hour / gpus`."""
    machine_id: Name | None = None
    """The physical machine. Offers with the same provider and machine are alternative slices of it."""
    machine_gpus: Annotated[int, _within("machine_gpus")] | None = None
    """GPUs of the physical machine that can be rented now, over all its offers."""
    gpu_ids: Annotated[tuple[CardId, ...], Field(strict=False, min_length=1, max_length=1024)] | None = None
    """The cards of the offer; offers of a machine that name a common card exclude each other."""
    site: Name | None = None
    """Machines of one site share a network if they state `inter_machine_gb_per_s`."""
    region: Name | None = None
    """Where it stands, as the provider says it."""
    reliability_fraction: Annotated[float, _within("reliability_fraction")] | None = None
    """Share of the time the machine was up, as the provider measures it."""
    intra_machine_gb_per_s: Annotated[float, _within("intra_machine_gb_per_s")] | None = None
    """10^9 bytes/s, one direction, per GPU, inside the machine; unset: half of the catalogue's bidirectional link."""
    inter_machine_gb_per_s: Annotated[float, _within("inter_machine_gb_per_s")] | None = None
    """10^9 bytes/s, one direction, per machine, to others of the site; unset or 0: one-machine replicas only."""
    disk_gb: Annotated[float, _within("disk_gb")] | None = None
    """Disk that can be rented with the offer, GB; unset: unlimited."""
    disk_included_gb: Annotated[float, _within("disk_included_gb")] = 0.0
    """GB of disk that the price already holds."""
    disk_usd_per_gb_month: Annotated[float, _within("disk_usd_per_gb_month")] | None = None
    """USD per GB and month of 720 hours above `disk_included_gb`; unset: not stated, and where `disk_gb` is, the plan
    counts an estimate and says so."""
    inet_down_gb_per_s: Annotated[float, _within("inet_down_gb_per_s")] | None = None
    """10^9 bytes/s from the internet."""
    inet_up_gb_per_s: Annotated[float, _within("inet_up_gb_per_s")] | None = None
    """10^9 bytes/s to the internet."""
    inet_down_usd_per_gb: Annotated[float, _within("inet_down_usd_per_gb")] | None = None
    """USD per GB from the internet: requests, and the weights when the machine starts; unset: not stated."""
    inet_up_usd_per_gb: Annotated[float, _within("inet_up_usd_per_gb")] | None = None
    """USD per GB to the internet (egress): answers; unset: not stated."""
    host_id: Name | None = None
    """Who hosts the machine at a marketplace: machines of one host fail and vanish together."""
    is_verified: bool | None = None
    """Whether the provider has checked the host; unset: not said."""
    listed_until: Timestamp | None = None
    """When the listing ends, and with it any rental of it, RFC 3339 with time zone; unset: no end is stated."""
    ram_gb: Annotated[float, _within("ram_gb")] | None = None
    """RAM that comes with the offer, GB; of a divisible offer with all its GPUs."""
    cpu_cores: Annotated[float, _within("cpu_cores")] | None = None
    """CPU cores (vCPUs) that come with the offer; of a divisible offer with all its GPUs."""
    compute_capability: Annotated[float, _within("compute_capability")] | None = None
    """CUDA compute capability of its GPUs, such as 8.9; unset: that of the GPU type."""
    cuda_max: Annotated[float, _within("cuda_max")] | None = None
    """Newest CUDA version that the driver runs, such as 12.8."""
    open_ports: Annotated[int, _within("open_ports")] | None = None
    """Ports reachable from outside; servers need one."""
    observed_at: Timestamp | None = None
    """When the offer was last seen, RFC 3339 with time zone; unset: the snapshot's `taken_at`."""

    @property
    def key(self) -> tuple[str, str, str]:
        return (self.provider, self.offer_id, self.contract)


class MarketDocument(Document):
    """A market snapshot. Bandwidths are 10^9 bytes/s in one direction, prices USD per hour of a whole offer."""

    schema_: Annotated[Literal["sutler/market/v1"], Field(alias="schema")] = MARKET_SCHEMA
    """Version of this format."""
    taken_at: Timestamp
    """When the snapshot was taken, RFC 3339 with time zone."""
    offers: Annotated[tuple[OfferDocument, ...], Field(strict=False, min_length=1, max_length=MOST_OFFERS)]
    """Everything for rent."""

    @model_validator(mode="after")
    def _check_offers(self) -> Self:
        reject([*_repeated_keys(self.offers), *_single_offer_rules(self.offers), *_machine_rules(self.offers)])
        return self


class ProviderUsed(Document):
    """What one provider adds to the market."""

    provider: str
    """Name of the provider."""
    offers: int
    """Its offers that passed the filter."""
    last_seen_at: Timestamp
    """When its newest offer was last seen."""
    stale: bool
    """Whether some of its offers were older than `market.filter.max_age_s`; `notes` says what became of them."""


def _repeated_keys(offers: tuple[OfferDocument, ...]) -> list[FieldProblem]:
    problems = []
    for i, earlier in repeats(offer.key for offer in offers):
        remedy = f"offers[{earlier}] has the same provider, offer_id and contract: give each offer its own id"
        problems.append(FieldProblem(f"offers[{i}].offer_id", short_repr(offers[i].offer_id), remedy))
    return problems


def _single_offer_rules(offers: tuple[OfferDocument, ...]) -> list[FieldProblem]:
    problems = []
    for i, offer in enumerate(offers):
        at = f"offers[{i}]"
        if offer.machine_id is not None and offer.available > 1:
            remedy = "must be 1 where machine_id is given: list each machine as an offer of its own"
            problems.append(FieldProblem(f"{at}.available", str(offer.available), remedy))
        problems.extend(_card_rules(at, offer))
    return problems


def _card_rules(at: str, offer: OfferDocument) -> list[FieldProblem]:
    cards = offer.gpu_ids
    if cards is None:
        return []
    if len(cards) != offer.gpus:
        remedy = f"has {len(cards)} cards for gpus: {offer.gpus}; name each card once, or leave gpu_ids out"
        return [FieldProblem(f"{at}.gpu_ids", short_repr(list(cards)), remedy)]
    repeated = [card for card, times in Counter(cards).items() if times > 1]
    if repeated:
        return [FieldProblem(f"{at}.gpu_ids", short_repr(list(cards)), f"card {repeated[0]} is named twice")]
    return []


def _machine_rules(offers: tuple[OfferDocument, ...]) -> list[FieldProblem]:
    """Slices of one machine must agree on what the machine is."""
    slices: dict[tuple[str, str], list[int]] = defaultdict(list)
    for i, offer in enumerate(offers):
        if offer.machine_id is not None:
            slices[offer.provider, offer.machine_id].append(i)
    problems = []
    for first, *others in slices.values():
        for i in others:
            for name in ("gpu", "machine_gpus"):
                mine, theirs = getattr(offers[i], name), getattr(offers[first], name)
                if mine != theirs:
                    remedy = (
                        f"offers[{first}] of the same machine {offers[i].machine_id!r} says {short_repr(theirs)}: "
                        "offers of one machine must agree"
                    )
                    problems.append(FieldProblem(f"offers[{i}].{name}", short_repr(mine), remedy))
    return problems
