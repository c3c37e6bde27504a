"""Vast.ai: a marketplace of hosts, one search per contract (https://docs.vast.ai/api-reference).

A machine shows slices of itself that overlap: offers name their cards (`gpu_ids`), and those with a common card
exclude each other. Prices are for the whole offer with `ALLOCATED_STORAGE_GB` of disk. How the searches are made is
in vastai_searches.py.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Final, TypeVar

from sutler.adapters import values
from sutler.adapters.base import LONGEST_NAME, MOST_GPUS, OFFER_LIMITS, Coverage, Offer, Poll, PriceBand
from sutler.adapters.config import Provider, ProviderConfig, ProviderOption, bearer
from sutler.adapters.cuda import cuda_of_driver
from sutler.adapters.errors import FetchError, RowError
from sutler.adapters.gpu_names import identify
from sutler.adapters.http import HttpClient
from sutler.adapters.rows import Collected
from sutler.adapters.tally import as_asked
from sutler.adapters.values import Row
from sutler.adapters.vastai_searches import (
    ALLOCATED_STORAGE_GB,
    HOSTS_ASKED,
    SEARCH_TYPES,
    Merged,
    SearchAnswer,
    SearchedContract,
    Searches,
    merged_by_contract,
)

K = TypeVar("K")

HOURS_PER_MONTH: Final = 720.0  # 30 days, as Vast.ai adds storage to a total
MIB_PER_GIB: Final = 1024.0
MB_PER_GB: Final = 1000.0
COMPUTE_CAPABILITY_UNIT: Final = 100.0  # 890 is 8.9
MBIT_PER_S_PER_GB_PER_S: Final = 8000.0
MOST_PORTS: Final = 65_536  # as many as an address has
# GB/s, one direction, by PCIe generation and lane: 16 GT/s x 16 lanes of generation 4 carry about 32 GB/s.
PCIE_LANE_GB_PER_S: Final = {3.0: 1.0, 4.0: 2.0, 5.0: 4.0, 6.0: 8.0}
# Chosen where a host states less: half a slot of generation 4 is sure, a whole one is the most to believe.
USUAL_PCIE_GB_PER_S: Final = 16.0
FASTEST_UNSTATED_PCIE_GB_PER_S: Final = 32.0
MOST_PCIE_LANES: Final = 16

CONTRACTS: Final = ProviderOption(
    "contracts",
    choices=("on_demand", "interruptible"),
    default="on_demand,interruptible",
    help="which searches a poll makes, each counts against the limits",
    several=True,
    also_called={"spot": "interruptible"},
)

HOSTS: Final = ProviderOption(
    "hosts",
    choices=tuple(HOSTS_ASKED),
    default="verified",
    help="whose offers a poll asks for; market.filter.fit.verified says which of them are rented",
)


def fetch(config: ProviderConfig, http: HttpClient) -> Poll:
    """Searches once per contract, and further where an answer was cut. Raises FetchError where all fail."""
    contracts = tuple(name for name in SEARCH_TYPES if name in config.chosen(CONTRACTS))
    (hosts,) = config.chosen(HOSTS)
    searches = Searches(http, hosts)
    for contract in contracts:
        searches.make(contract)
    if searches.failure is not None and not searches.found:
        raise searches.failure
    searches.split()
    found = parse(
        searches.found,
        configured=contracts,
        price_band=config.price_band,
        now_s=http.clock.epoch_s(),
        failure=searches.failure,
    )
    return as_asked(found, http, searches.answers, searches.failure)


def parse(
    searches: Iterable[SearchAnswer],
    *,
    price_band: PriceBand,
    now_s: float,
    configured: Collection[SearchedContract] = tuple(SEARCH_TYPES),
    failure: FetchError | None = None,
) -> Poll:
    """The poll that these answers are; with a `failure` beside them it is partial.

    `configured`: the contracts that polls search for. Those of other rows are covered by the answer they came in.
    """
    merged = merged_by_contract(searches)
    collected = Collected()
    rows_read: Counter[SearchedContract] = Counter()
    for search in merged:
        offer_of = partial(_offer, searched=search.contract, price_band=price_band, now_s=now_s)
        for row in search.rows:
            is_new = collected.is_new(row)  # a row in two answers counts once
            if is_new and collected.read(row, offer_of, values.optional_identifier(row, "id")):
                rows_read[_contract(row, search.contract)] += 1
    if any(search.is_cut for search in merged):
        collected.flags["maybe_cut"] = 1
    collected.offers = _one_gpu_type_per_machine(collected.offers)
    covered = _covered(merged, rows_read, configured)
    return collected.poll(*covered, outcome="partial" if failure else "ok", failure=failure)


def _covered(
    merged: Iterable[Merged], rows_read: Counter[SearchedContract], configured: Collection[SearchedContract]
) -> Iterator[Coverage]:
    for found in merged:
        yield Coverage(found.contract, found.certain_up_to_usd_per_hour, rows_read[found.contract])
        for contract in SEARCH_TYPES:
            if contract not in configured and rows_read[contract]:
                yield Coverage(contract, found.certain_up_to_usd_per_hour, rows_read[contract])


def _offer(row: Row, *, searched: SearchedContract, price_band: PriceBand, now_s: float) -> Offer | str:
    """The offer, or the cause why it is not for rent. Raises RowError."""
    offer_id = values.identifier(row, "id")
    gpu = _gpu(row)
    cause = _why_not_for_rent(row, now_s)
    if cause is not None:
        return cause
    gpus = values.count(row, "num_gpus", most=MOST_GPUS)
    contract = _contract(row, searched)
    cluster = values.optional_identifier(row, "cluster_id")
    host = values.optional_identifier(row, "host_id")
    return Offer(
        offer_id=offer_id,
        feed=contract,
        gpu=gpu,
        gpus=gpus,
        available=1,
        price_usd_per_hour=values.checked_price(
            _price_usd_per_hour(row), gpus=gpus, band=price_band, name="dph_total"
        ),
        contract=contract,
        machine_id=values.optional_identifier(row, "machine_id"),
        gpu_ids=_gpu_ids(row, gpus),
        site=_name(f"vastai/cluster-{cluster}" if cluster else f"vastai/host-{host}") if cluster or host else None,
        region=_region(row),
        reliability_fraction=_reliability(row),
        intra_machine_gb_per_s=_intra_machine_gb_per_s(row, gpus),
        disk_gb=values.nonnegative(row, "disk_space"),
        disk_included_gb=ALLOCATED_STORAGE_GB,
        disk_usd_per_gb_month=values.nonnegative(row, "storage_cost", most=OFFER_LIMITS["disk_usd_per_gb_month"][1]),
        inet_down_gb_per_s=_per_second(values.nonnegative(row, "inet_down")),
        inet_up_gb_per_s=values.if_stated(row, "inet_up", "inet_up_gb_per_s", per=MBIT_PER_S_PER_GB_PER_S),
        inet_down_usd_per_gb=values.if_stated(row, "inet_down_cost", "inet_down_usd_per_gb"),
        inet_up_usd_per_gb=values.if_stated(row, "inet_up_cost", "inet_up_usd_per_gb"),
        host_id=host,
        is_verified=_is_verified(row),
        listed_until=_listed_until(row, now_s),
        ram_gb=_ram_gb(row),
        cpu_cores=_cpu_cores(row),
        compute_capability=values.above_zero(row, "compute_cap", "compute_capability", per=COMPUTE_CAPABILITY_UNIT),
        cuda_max=_cuda_max(row),
        open_ports=_ports(row),
    )


def _name(found: str) -> str:
    return found[:LONGEST_NAME]


def _gpu(row: Row) -> str:
    memory_mib = values.number(row, "gpu_ram")
    nvlink_gb_per_s = values.number(row, "bw_nvlink")
    return identify(
        values.text(row, "gpu_name"),
        provider="vastai",
        memory_gb=None if memory_mib is None else memory_mib / MIB_PER_GIB,
        watts=values.number(row, "gpu_max_power"),
        nvlink=bool(nvlink_gb_per_s and nvlink_gb_per_s > 0),
    )


def _why_not_for_rent(row: Row, now_s: float) -> str | None:
    """A field that is absent says nothing: the search asked for what is for rent."""
    rentable, rented = values.flag(row, "rentable"), values.flag(row, "rented")
    if rentable is False:
        return "not_rentable"
    if rented is True:
        return "rented"
    if (rentable is None and row.get("rentable") is not None) or (rented is None and row.get("rented") is not None):
        return "unknown"
    if (values.text(row, "verification") or "").lower() == "deverified":
        return "deverified"
    end_s = _end_s(row, now_s)
    return "expired" if end_s is not None and end_s <= now_s else None


def _end_s(row: Row, now_s: float) -> float | None:
    """When the listing ends, epoch seconds: the sooner of its date and of the time that is left. Raises RowError."""
    end_s, left_s = values.number(row, "end_date"), values.number(row, "duration")
    return min((end for end in (end_s, None if left_s is None else now_s + left_s) if end is not None), default=None)


def _listed_until(row: Row, now_s: float) -> datetime | None:
    end_s = _end_s(row, now_s)
    return None if end_s is None else values.of_epoch(end_s)


def _contract(row: Row, searched: SearchedContract) -> SearchedContract:
    """A row that says whether it is a bid knows better than the search it came with."""
    is_bid = values.flag(row, "is_bid")
    if is_bid is None:
        return searched
    return "interruptible" if is_bid else "on_demand"


def _price_usd_per_hour(row: Row) -> float:
    """Returns the stated total, or GPU price and storage added up, as the total is."""
    total, base, storage = (values.number(row, name) for name in ("dph_total", "dph_base", "storage_cost"))
    if total is not None:
        return total
    if base is None or storage is None:
        raise RowError("no_on_demand_price", f"dph_total: is missing, with dph_base {base}, storage_cost {storage}")
    return base + storage * ALLOCATED_STORAGE_GB / HOURS_PER_MONTH


def _gpu_ids(row: Row, gpus: int) -> tuple[int, ...] | None:
    """The cards, where they are as many as the offer has."""
    cards = values.whole_numbers(row, "gpu_ids")
    return cards if cards is not None and len(cards) == gpus else None


def _region(row: Row) -> str | None:
    """ "Texas, US" is US-Texas: the country comes first, so that a filter on it finds all its regions."""
    place = values.text(row, "geolocation")
    if place is None:
        return None
    area, _, country = (part.strip() for part in place.rpartition(","))
    return "-".join(part for part in (country, area) if part) or None


def _reliability(row: Row) -> float | None:
    field = "reliability" if row.get("reliability") is not None else "reliability2"
    found = values.number(row, field)
    if found is not None and not 0 <= found <= 1:
        raise RowError("bad_number", f"{field}: {values.short(row[field])} is not from 0 to 1")
    return found


def _intra_machine_gb_per_s(row: Row, gpus: int) -> float | None:
    """The link between the offer's cards: None, for the catalogue's, with one card or where NVLink was seen.

    Without NVLink it is PCIe, as measured between CPU and GPU, but never more than the slot bears. `bw_nvlink`
    itself is not used as a figure: whether it counts one direction or both is not documented.
    """
    nvlink, measured = values.nonnegative(row, "bw_nvlink"), values.nonnegative(row, "pcie_bw")
    if gpus == 1 or nvlink:
        return None
    lane = PCIE_LANE_GB_PER_S.get(values.number(row, "pci_gen") or 0.0)
    lanes = values.whole(row, "gpu_lanes")
    stated = lane * min(lanes, MOST_PCIE_LANES) if lane and lanes and lanes > 0 else None
    if measured:
        return min(measured, stated or FASTEST_UNSTATED_PCIE_GB_PER_S)
    return stated or USUAL_PCIE_GB_PER_S


def _per_second(mbit_per_s: float | None) -> float | None:
    return None if mbit_per_s is None else mbit_per_s / MBIT_PER_S_PER_GB_PER_S


def _is_verified(row: Row) -> bool | None:
    """Whether the host has passed Vast.ai's tests, by its word for that, else by its flag."""
    word = (values.text(row, "verification") or "").lower()
    return {"verified": True, "unverified": False}.get(word, values.flag(row, "verified"))


def _cpu_cores(row: Row) -> float | None:
    """The offer's share of the cores, stated or by its share of the GPUs."""
    share = values.above_zero(row, "cpu_cores_effective", "cpu_cores")
    whole = values.above_zero(row, "cpu_cores", "cpu_cores")
    return share or (whole and whole * _gpu_fraction(row))


def _ram_gb(row: Row) -> float | None:
    """The offer's share of the RAM.

    `cpu_ram` is taken for that of the whole machine, which is shared out like its cores, or else like its GPUs; where
    neither share is stated it is taken whole. Vast.ai does not document which it is.
    """
    whole = values.above_zero(row, "cpu_ram", "ram_gb", per=MB_PER_GB)
    cores, all_cores = (values.above_zero(row, name, "cpu_cores") for name in ("cpu_cores_effective", "cpu_cores"))
    share = min(cores / all_cores, 1.0) if cores and all_cores else _gpu_fraction(row)
    return whole and whole * share


def _gpu_fraction(row: Row) -> float:
    """The offer's share of the machine's GPUs, 1 where none is stated that can be."""
    found = values.above_zero(row, "gpu_frac", "reliability_fraction")
    return 1.0 if found is None else found


def _cuda_max(row: Row) -> float | None:
    """The newest CUDA that the driver runs, as stated or else by the version of the driver. Raises RowError."""
    stated = values.nonnegative(row, "cuda_max_good", most=OFFER_LIMITS["cuda_max"][1])
    return stated or cuda_of_driver(values.text(row, "driver_version"))


def _ports(row: Row) -> int | None:
    ports = values.whole(row, "direct_port_count")
    return None if ports is None or ports < 0 else min(ports, MOST_PORTS)


def _one_gpu_type_per_machine(offers: Mapping[K, Offer]) -> dict[K, Offer]:
    """A machine with cards of several types counts as several: offers of a machine are slices of the same cards."""
    types: dict[str | None, set[str]] = {}
    for offer in offers.values():
        types.setdefault(offer.machine_id, set()).add(offer.gpu)
    return {
        key: replace(offer, machine_id=_name(f"{offer.gpu}/{offer.machine_id}"))
        if offer.machine_id is not None and len(types[offer.machine_id]) > 1
        else offer
        for key, offer in offers.items()
    }


PROVIDER: Final = Provider(
    name="vastai",
    title="Vast.ai",
    base_url="https://console.vast.ai",
    fetch=fetch,
    headers=bearer,
    needs_key=False,
    options=(CONTRACTS, HOSTS),
)
