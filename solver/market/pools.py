"""What is interchangeable on the market: offers fall into pools.

Flow: problem.offers -> pools (here) -> offer classes (supply.py) -> candidates -> polytope.

A pool is a set of offers whose GPUs a replica cannot tell apart: GPU type, contract, link bandwidth inside the
machine, disk terms, the models that it is unfit for, the provider and the region as far as limits and what is to be
survived ask for them, and the site only where the offer has a network between machines. Offers without one form a
single pool across all sites: their replicas stay inside one machine, so where the machine stands does not matter.

Bandwidths are rounded down and storage prices up to fixed steps, so that a pool promises no more than the worst
of its offers and hundreds of hosts fall into a handful of pools.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sutler.solver.catalog.entries import Gpu, ModelSpec, Precision
from sutler.solver.problem import Contract, Offer, Problem, ServedModel
from sutler.solver.throughput.architecture import ACTIVATION_BYTES, PRECISION_BYTES
from sutler.solver.units import BYTES_PER_GB, HOURS_PER_MONTH

PIECE_SIZES: tuple[int, ...] = (1, 2, 4, 8)
MOST_GPUS_OF_PIECE = 16  # a piece of any other size takes a whole machine, of so many GPUs at most

# 10^9 bytes/s, one direction. Steps near the rates of PCIe 3-6, NVLink 2-5 and 1-400 Gb/s networks.
INTRA_STEPS_GB_PER_S = (0, 1, 2, 4, 8, 12, 16, 20, 24, 28, 32, 40, 50, 60, 64, 100, 150, 200, 300, 400, 450, 600, 900)
INTER_STEPS_GB_PER_S = (
    0,
    0.1,
    0.125,
    0.25,
    0.5,
    0.625,
    1,
    1.25,
    2.5,
    3.125,
    5,
    6.25,
    10,
    12.5,
    25,
    50,
    100,
    200,
    400,
)
# Steps of a few cents where clouds ask some, of a quarter and more above: storage is a small part of what is paid.
STORAGE_PRICE_STEPS_USD_PER_GB_MONTH = (0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 5)
# Coarse, as little is lost below a step: free storage is cheap beside a GPU.
INCLUDED_DISK_STEPS_GB_PER_GPU = (0, 16, 64, 256, 1024)

# Room for tokenizer, index and temporary files beside the weights; chosen: none takes a tenth of a checkpoint.
CHECKPOINT_DISK_FACTOR = 1.1


@dataclass(frozen=True, slots=True)
class Pool:
    """Interchangeable GPUs. Bandwidths one direction; `disk_gb_per_gpu` inf: no limit stated, or none that matters.

    `largest_machine` is the most GPUs that one offer of the pool has; a network link is shared by all of them.
    `machine_gpus`: of all its machines, where what falls with one of them matters.
    `machine`: the pool is this one machine, inside of which keys and values are handed over (machines.py).
    """

    gpu: str
    contract: Contract
    provider: str | None
    network: str | None
    intra_gb_per_s: float
    inter_gb_per_s: float
    disk_gb_per_gpu: float
    disk_included_gb_per_gpu: float
    storage_usd_per_gb_month: float
    largest_machine: int
    unfit_for: frozenset[tuple[str, Precision]] = frozenset()
    machine: str | None = None
    region: str | None = None
    machine_gpus: int | None = None

    @property
    def hands_over_on(self) -> str | None:
        """What joins the replicas of the pool that may hand over to each other; None: nothing does."""
        return self.network or self.machine

    @property
    def name(self) -> str:
        """How constraints name the pool: GPU, site, provider, link in 10^9 bytes/s, then the unusual."""
        parts = [self.gpu, self.network, self.provider, self.region, f"link{self.intra_gb_per_s:g}"]
        if self.network is not None:
            parts.append(f"net{self.inter_gb_per_s:g}")
        if self.contract != "on_demand":
            parts.append(self.contract)
        if self.disk_gb_per_gpu != float("inf"):
            parts.append(f"disk{self.disk_gb_per_gpu:.6g}")
        if self.storage_usd_per_gb_month:
            parts.append(f"storage{self.storage_usd_per_gb_month:g}")
        if self.disk_included_gb_per_gpu:
            parts.append(f"included{self.disk_included_gb_per_gpu:g}")
        parts.extend(f"not-{model}-{precision}" for model, precision in sorted(self.unfit_for))
        if self.machine_gpus is not None:
            parts.append(f"of{self.machine_gpus}")
        parts.append(self.machine)
        return "@".join(part for part in parts if part).replace("/", ":")

    def hop_gb_per_s(self, gpus: int) -> float:
        """The share of the machine's network link that a piece of `gpus` GPUs can count on."""
        return self.inter_gb_per_s * min(1.0, gpus / self.largest_machine)

    def kv_gb_per_s(self, gpus: int) -> float:
        """What keys and values of a stage of `gpus` GPUs can count on: its share of the machine's network link, or
        inside one machine the link of a single GPU, however many send at once."""
        return self.intra_gb_per_s if self.network is None else self.hop_gb_per_s(gpus)

    def holds_checkpoint(self, disk_needed_gb: float, gpus: int) -> bool:
        return disk_needed_gb <= self.disk_gb_per_gpu * gpus * (1 + 1e-12)

    def storage_gb(self, disk_needed_gb: float, gpus: int) -> float:
        """Billed storage of a piece of `gpus` GPUs that keeps `disk_needed_gb`: what the price does not include."""
        return max(0.0, disk_needed_gb - self.disk_included_gb_per_gpu * gpus)

    def storage_usd_per_hour(self, disk_needed_gb: float, gpus: int) -> float:
        if self.storage_usd_per_gb_month == 0:
            return 0.0
        return self.storage_gb(disk_needed_gb, gpus) * self.storage_usd_per_gb_month / HOURS_PER_MONTH


def reserved_gpus(gpus: int, machine_gpus: int) -> int:
    """What a piece keeps to itself: a machine that it fills, else the next of PIECE_SIZES; above the largest, which
    no piece may be, `gpus`."""
    if gpus == machine_gpus:
        return gpus
    return next((size for size in PIECE_SIZES if size >= gpus), gpus)


def disk_needed_gb(problem: Problem) -> tuple[float, ...]:
    """What the problem has to keep: `checkpoint_disk_gb` of each model at each of its precisions."""
    return tuple(checkpoint_disk_gb(one) for model in problem.models for one in model.at_each_precision)


def checkpoint_disk_gb(model: ServedModel) -> float:
    """Disk that one piece of it needs: its whole checkpoint with some room; 0 where the architecture is unknown."""
    return 0.0 if model.spec is None else checkpoint_gb(model.spec, model.precision) * CHECKPOINT_DISK_FACTOR


def checkpoint_gb(spec: ModelSpec, precision: Precision) -> float:
    """Size of a model's weights on disk; embeddings and output head stay 16-bit in quantised checkpoints."""
    vocabulary = float(spec.vocab_size) * spec.hidden_size * (1 if spec.tied_embeddings else 2)
    body = max(0.0, spec.total_params - vocabulary)
    return (body * PRECISION_BYTES[precision] + vocabulary * ACTIVATION_BYTES) / BYTES_PER_GB


def group_offers(problem: Problem) -> tuple[tuple[Pool, ...], tuple[int, ...]]:
    """Pools, and for every offer of the problem the index of its pool."""
    needs = disk_needed_gb(problem)
    keys = [_pool_key(offer, problem, needs) for offer in problem.offers]
    largest: dict[Pool, int] = {}
    for key, offer in zip(keys, problem.offers, strict=True):
        largest[key] = max(largest.get(key, 1), offer.gpus)
    order = {key: index for index, key in enumerate(largest)}
    pools = tuple(replace(key, largest_machine=gpus) for key, gpus in largest.items())
    return pools, tuple(order[key] for key in keys)


def _pool_key(offer: Offer, problem: Problem, needs_gb: Sequence[float]) -> Pool:
    """The offer's pool, its largest machine still to be found."""
    network, survived = network_of(offer), problem.resilience.survive
    tells_provider = problem.limits.max_share_per_provider_fraction < 1 or {"provider", "place"} & {*survived}
    inter = round_down(offer.inter_machine_gb_per_s or 0.0, INTER_STEPS_GB_PER_S)
    networked = network is not None
    storage_price = round_up(offer.disk_usd_per_gb_month, STORAGE_PRICE_STEPS_USD_PER_GB_MONTH)
    included = round_down(offer.disk_included_gb / offer.gpus, INCLUDED_DISK_STEPS_GB_PER_GPU)
    return Pool(
        gpu=offer.gpu,
        contract=offer.contract,
        provider=offer.provider if tells_provider else None,
        network=network,
        intra_gb_per_s=round_down(_intra_gb_per_s(offer, problem.gpus[offer.gpu]), INTRA_STEPS_GB_PER_S),
        inter_gb_per_s=inter if networked else 0.0,
        disk_gb_per_gpu=_disk_gb_per_gpu(offer, problem.gpus[offer.gpu], needs_gb, networked=networked),
        disk_included_gb_per_gpu=included if storage_price else 0.0,
        storage_usd_per_gb_month=storage_price,
        largest_machine=0,
        unfit_for=offer.unfit_for,
        region=offer.region if "place" in survived else None,
        machine_gpus=offer.gpus if "machine" in survived else None,
    )


def network_of(offer: Offer) -> str | None:
    """The network between the machines of the offer's site; None: there is none, or too thin a one."""
    inter = round_down(offer.inter_machine_gb_per_s or 0.0, INTER_STEPS_GB_PER_S)
    return f"{offer.provider}:{offer.site}" if offer.site is not None and inter > 0 else None


def _intra_gb_per_s(offer: Offer, gpu: Gpu) -> float:
    """A single-GPU offer has no link of its own, so it counts as one with the card's usual link."""
    if offer.intra_machine_gb_per_s is None or offer.gpus == 1:
        return gpu.link_gb_per_s or 0.0
    return offer.intra_machine_gb_per_s


def _disk_gb_per_gpu(offer: Offer, gpu: Gpu, needs_gb: Sequence[float], *, networked: bool) -> float:
    """Disk per GPU rounded down to what a piece of some model and size needs; inf where it holds all of them.

    A disk that holds the checkpoints of all models together is shared by the pieces of its machine, each checkpoint
    once. Slices of a divisible machine are rented one by one and share nothing. Elsewhere every piece counts on its
    share of the disk for a checkpoint of its own: a replica inside one machine must also fit its weights into GPU
    memory, so sizes too small for that do not matter; a stage of a pipeline across machines keeps the whole
    checkpoint whatever its size.
    """
    if offer.disk_gb is None or (not offer.divisible and sum(needs_gb) <= offer.disk_gb):
        return float("inf")
    steps = {
        need / size
        for need in needs_gb
        for size in PIECE_SIZES
        if size <= offer.gpus and (networked or need <= size * gpu.memory_gb * CHECKPOINT_DISK_FACTOR)
    }
    held = round_down(offer.disk_gb / offer.gpus, sorted({0.0, *steps}))
    return float("inf") if held >= max(steps, default=0.0) else held


def disk_of(offer: Offer) -> float:
    """GB that can be stored on one machine of the offer; inf: no limit stated."""
    return float("inf") if offer.disk_gb is None else offer.disk_gb


def round_down(value: float, steps: Sequence[float]) -> float:
    """The largest step not above `value`; above the last step the last one."""
    return float(steps[max(0, bisect_right(steps, value * (1 + 1e-9)) - 1)])


def round_up(value: float, steps: Sequence[float]) -> float:
    """The smallest step not below `value`; above the last step the value itself."""
    index = bisect_left(steps, value * (1 - 1e-9))
    return float(steps[index]) if index < len(steps) else value
