"""What a problem states of supply beside what polls have shown: machines that can be had (`market.stock`), and
networks between machines (`market.networks`).

Flow: market_source.py gives the whole market, list prices included -> with_stated (here) -> the filter, which judges
what is stated as it judges every offer.

Stock is a number of machines in all. What the market shows of them stays as it is, under its own ids; one offer of
the provider, `stated/...`, has the rest. A divisible offer with fewer free GPUs than a stated machine (RunPod says
how large a pod fits, not how many) may be one of those machines, so it gives way to one.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.market import OfferDocument
from sutler.service.documents.problem_parts import FilterDocument, MarketSourceDocument
from sutler.service.documents.stated import NetworkDocument, StockDocument
from sutler.service.errors import FieldProblem, short_repr

USUAL_SIZES: Final = (1, 2, 4, 8, 16)  # GPUs of the machines that clouds build; others only where they are listed
# What grows with a machine: an offer of half the GPUs comes with half of it.
BY_THE_GPU: Final = ("price_usd_per_hour", "disk_gb", "disk_included_gb", "ram_gb", "cpu_cores")
_MOST_NAMES = 12  # chosen: regions that an error lists
# What is true of one certain machine, and not of others like it.
OF_ONE_MACHINE: Final = (
    "machine_id",
    "machine_gpus",
    "gpu_ids",
    "host_id",
    "listed_until",
    "reliability_fraction",
)

# What hosts may differ in, and a cloud of one make does not.
OF_ONE_HOST: Final = (
    "open_ports",
    "cuda_max",
    "ram_gb",
    "cpu_cores",
    "inet_down_gb_per_s",
    "is_verified",
    "compute_capability",
)


@dataclass(frozen=True, slots=True)
class StatedMarket:
    """The offers with what is stated, which comes last; `stock` has the stated ones with all the machines that they
    stand for, held or shown elsewhere or not."""

    offers: tuple[OfferDocument, ...]
    stock: tuple[OfferDocument, ...] = ()
    notes: tuple[str, ...] = ()


def with_stated(
    offers: tuple[OfferDocument, ...], source: MarketSourceDocument, *, is_fresh: Callable[[OfferDocument], bool]
) -> StatedMarket:
    """The market with the networks and the stock of a problem; offers that are not fresh show nothing.

    Raises DocumentError for stock without a price, or of a size that there is not.
    """
    if not source.stock and not source.networks:
        return StatedMarket(offers)
    found = StatedMarket(offers)
    problems: list[FieldProblem] = []
    for number, entry in sorted(enumerate(source.stock), key=lambda one: _narrowest_first(one[1])):
        at = f"market.stock[{number}]"
        if (name := _left_out_by(entry, source.filter)) is not None:
            found = _noted(found, f"{at} counts for nothing: {name} leaves it out.")
            continue
        try:
            found = _with_entry(found, at, entry, source.filter, is_fresh)
        except DocumentError as error:
            problems += error.problems
    if problems:
        raise DocumentError(problems)
    offers, stock = (_networked(part, source.networks) for part in (found.offers, found.stock))
    return replace(found, offers=offers, stock=stock, notes=(*found.notes, *_idle_networks(offers, source.networks)))


def in_regions(region: str | None, wanted: Sequence[str]) -> bool:
    """Whether the region is one of these or part of one: `us` holds for US and for US-TX."""
    return region is not None and any(f"{region.lower()}-".startswith(f"{name}-") for name in wanted)


def is_of(provider: str, offer: OfferDocument) -> bool:
    """Whether it is the provider's, or on a list with the prices of several clouds, whose ids begin with theirs."""
    name = provider.lower()
    is_listed = offer.availability_basis == "list" and offer.offer_id.lower().startswith(f"{name}/")
    return offer.provider.lower() == name or is_listed


def _narrowest_first(entry: StockDocument) -> tuple[int, int]:
    """What is stated of a region, or of large machines, is part of what is stated of more."""
    return -len(entry.region or ""), -entry.gpus


def _left_out_by(entry: StockDocument, wanted: FilterDocument) -> str | None:
    """The filter's field that leaves out whatever the entry states, so that it needs no price, either."""
    name = entry.provider.lower()
    if wanted.providers and name not in {one.lower() for one in wanted.providers}:
        return "market.filter.providers"
    if wanted.contracts and entry.contract not in wanted.contracts:
        return f"market.filter.contracts (without {entry.contract})"
    if wanted.gpus and entry.gpu not in wanted.gpus:
        return "market.filter.gpus"
    return "market.filter.exclude" if name in {one.lower() for one in wanted.exclude.providers} else None


def _noted(found: StatedMarket, note: str) -> StatedMarket:
    return replace(found, notes=(*found.notes, note))


def _with_entry(
    found: StatedMarket,
    at: str,
    entry: StockDocument,
    wanted: FilterDocument,
    is_fresh: Callable[[OfferDocument], bool],
) -> StatedMarket:
    like = [offer for offer in found.offers if _is_like(entry, offer)]
    near = [offer for offer in like if _is_near(entry, offer, wanted)]
    _check_size(at, entry, like)
    stated = _stated(at, entry, near, found.offers, divisible=_is_by_the_gpu(entry, like, found.offers))
    shown = [offer for offer in near if offer.available > 0 and is_fresh(offer)]
    machines = max(0, entry.machines - sum(_machines_of(entry, offer) for offer in shown if _is_in(entry, offer)))
    smaller = [one for one in shown if one.divisible and one.gpus < entry.gpus and _is_in(entry, one)]
    hidden = {one.key for one in sorted(smaller, key=lambda one: (-one.gpus, one.key))[:machines]}
    offers = tuple(one.model_copy(update={"available": 0}) if one.key in hidden else one for one in found.offers)
    rest = (stated.model_copy(update={"available": machines}),) if machines else ()
    more = replace(found, offers=(*offers, *rest), stock=(*found.stock, stated))
    if near:
        return more
    where = f" in {entry.region}" if like and entry.region is not None else ""
    return _noted(more, f"{at}: the market shows nothing of the kind{where}; it counts as stated.")


def _is_like(entry: StockDocument, offer: OfferDocument) -> bool:
    return is_of(entry.provider, offer) and (offer.gpu, offer.contract) == (entry.gpu, entry.contract)


def _is_near(entry: StockDocument, offer: OfferDocument, wanted: FilterDocument) -> bool:
    """Whether it tells of the place that is meant; a list price without a region is that of every place."""
    if entry.region is not None:
        return _is_in(entry, offer) or (offer.region is None and offer.availability_basis == "list")
    regions = [name.lower() for name in wanted.regions]
    return not regions or offer.region is None or in_regions(offer.region, regions)


def _is_in(entry: StockDocument, offer: OfferDocument) -> bool:
    return entry.region is None or in_regions(offer.region, [entry.region.lower()])


def _check_size(at: str, entry: StockDocument, like: Sequence[OfferDocument]) -> None:
    sizes = {offer.gpus for offer in like}
    if entry.gpus not in {*USUAL_SIZES, *sizes}:
        listed = ", ".join(str(size) for size in sorted({*USUAL_SIZES, *sizes}))
        remedy = f"is no size of {entry.provider}'s machines with {entry.gpu}: use one of {listed}"
        raise DocumentError.of(f"{at}.gpus", remedy, value=entry.gpus)


def _machines_of(entry: StockDocument, offer: OfferDocument) -> int:
    """Machines of the stated kind that an offer shows."""
    if offer.divisible:
        return offer.available * (offer.gpus // entry.gpus)
    has_room = offer.machine_gpus is None or offer.gpus <= offer.machine_gpus
    return offer.available if offer.gpus == entry.gpus and has_room else 0


def _is_by_the_gpu(entry: StockDocument, like: Sequence[OfferDocument], market: Sequence[OfferDocument]) -> bool:
    """Whether any number of a machine's GPUs can be rented, as the provider's other offers of them say."""
    for_rent = [offer for offer in like if offer.availability_basis != "list"]
    return any(offer.divisible for offer in for_rent or market if is_of(entry.provider, offer))


def _stated(
    at: str,
    entry: StockDocument,
    near: Sequence[OfferDocument],
    market: Sequence[OfferDocument],
    *,
    divisible: bool,
) -> OfferDocument:
    """All machines of an entry as one offer: like the offer that tells most of them, at its price unless stated."""
    name = entry.provider.lower()
    own = {
        "provider": next((one.provider for one in market if one.provider.lower() == name), entry.provider),
        "offer_id": "/".join(filter(None, ("stated", entry.region, f"{entry.gpus}x{entry.gpu}"))),
        "gpu": entry.gpu,
        "gpus": entry.gpus,
        "available": entry.machines,
        "contract": entry.contract,
        "availability_basis": "stated",
        "divisible": divisible,
    }
    if not near:
        if entry.price_usd_per_hour is None:
            raise DocumentError([_no_price(f"{at}.price_usd_per_hour", entry, market)])
        return OfferDocument.model_validate(
            {**own, "price_usd_per_hour": entry.price_usd_per_hour, "region": entry.region}
        )
    model = min(near, key=lambda one: (not _is_in(entry, one), one.gpus != entry.gpus, *_dearest_first(one)))
    each = entry.gpus / model.gpus
    scaled = {name: value * each for name in BY_THE_GPU if (value := getattr(model, name)) is not None}
    regions = {one.region for one in near if _is_in(entry, one)}
    region = model.region if len(regions) == 1 or _is_same(entry.region, model.region) else entry.region
    update = {
        **scaled,
        **dict.fromkeys((*OF_ONE_MACHINE, *_in_dispute(near))),
        **own,
        "region": region,
        "site": model.site if region == model.region else None,
        "intra_machine_gb_per_s": model.intra_machine_gb_per_s if model.gpus > 1 else None,
    }
    if entry.price_usd_per_hour is not None:
        update["price_usd_per_hour"] = entry.price_usd_per_hour
    return model.model_copy(update=update)


def _in_dispute(near: Sequence[OfferDocument]) -> Iterator[str]:
    """What the hosts of a marketplace differ in: nobody knows it of machines that are not shown."""
    for name in OF_ONE_HOST:
        stated = [(one.gpus if name in BY_THE_GPU else 1, getattr(one, name)) for one in near]
        if len({value / parts for parts, value in stated if value is not None}) > 1:
            yield name


def _dearest_first(offer: OfferDocument) -> tuple[float, tuple[str, str, str]]:
    """Where nobody says which of several places is meant, no plan is to cost more than it says."""
    return -offer.price_usd_per_hour / offer.gpus, offer.key


def shortened(names: Sequence[str]) -> str:
    """The first names of a list that may be long."""
    more = len(names) - _MOST_NAMES
    return ", ".join(names[:_MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def _is_same(region: str | None, other: str | None) -> bool:
    return region is not None and other is not None and region.lower() == other.lower()


def _no_price(field: str, entry: StockDocument, market: Sequence[OfferDocument]) -> FieldProblem:
    where = "" if entry.region is None else f" in {entry.region}"
    known = ", ".join(sorted({offer.provider for offer in market if offer.availability_basis != "stated"}))
    has = f"the market has offers of {known or 'nobody'}"
    kind = entry.contract.replace("_", " ")
    regions = sorted({offer.region for offer in market if offer.region is not None and _is_like(entry, offer)})
    if regions and entry.region is not None:
        has = f"it has them in {shortened(regions)}"
    remedy = (
        f"no offer or list price of {entry.provider} tells what {entry.gpu}{where} costs {kind} ({has}): state it"
        f"{' or name one of these regions' if regions and entry.region is not None else ''}"
    )
    return FieldProblem(field, short_repr(None), remedy)


def _networked(offers: tuple[OfferDocument, ...], networks: Sequence[NetworkDocument]) -> tuple[OfferDocument, ...]:
    """A network joins the machines of a site. Machines of which only the region is known share that."""
    return tuple(_joined(offer, networks) for offer in offers) if networks else offers


def _joined(offer: OfferDocument, networks: Sequence[NetworkDocument]) -> OfferDocument:
    network = None if offer.inter_machine_gb_per_s is not None else _network_of(offer, networks)
    site = _site_of(offer)
    if network is None or site is None:
        return offer
    return offer.model_copy(update={"site": site, "inter_machine_gb_per_s": network.inter_machine_gb_per_s})


def _site_of(offer: OfferDocument) -> str | None:
    return offer.site or (offer.region and f"{offer.provider}/{offer.region}")


def _network_of(offer: OfferDocument, networks: Sequence[NetworkDocument]) -> NetworkDocument | None:
    here = [one for one in networks if _reaches(one, offer)]
    return max(here, key=lambda one: len(one.region or ""), default=None)


def _reaches(network: NetworkDocument, offer: OfferDocument) -> bool:
    is_here = network.region is None or in_regions(offer.region, [network.region.lower()])
    return is_of(network.provider, offer) and is_here


def _idle_networks(offers: Sequence[OfferDocument], networks: Sequence[NetworkDocument]) -> Iterator[str]:
    for number, network in enumerate(networks):
        reached = [offer for offer in offers if _reaches(network, offer)]
        nothing = f"market.networks[{number}] joins nothing"
        if not reached:
            where = "" if network.region is None else f" in {network.region}"
            yield f"{nothing}: there are no offers of {network.provider}{where}."
        elif all(_site_of(offer) is None for offer in reached):
            yield f"{nothing}: the offers of {network.provider} state neither site nor region."
