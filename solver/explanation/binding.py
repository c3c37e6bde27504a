"""Why a plan is what it is: what binds, and what one more unit of it would bring."""

from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from sutler.solver.market.pools import MOST_GPUS_OF_PIECE, PIECE_SIZES
from sutler.solver.market.supply import room_of
from sutler.solver.plan import Binding
from sutler.solver.polytope.relaxation import Relaxation
from sutler.solver.polytope.rows import Polytope
from sutler.solver.problem import ObjectiveKind

VALUE_UNITS: Final[dict[ObjectiveKind, str]] = {
    "max_throughput": "rps",
    "min_makespan": "s",
    "min_cost": "usd_per_hour",
    "min_power": "watts",
}

_LEAST_SHARE = 1e-6  # shadow prices below this share of the largest are noise


def binding(polytope: Polytope, relaxation: Relaxation) -> tuple[Binding, ...]:
    """Binding constraints with their shadow prices: duals of the LP relaxation, in the objective's unit.

    For pools with rental variables the shadow price of a GPU is what the next machine would bring beyond its
    own price: the reduced cost of the classes rented to the last machine.
    """
    factor, value_unit = _factor(polytope, relaxation), VALUE_UNITS[polytope.problem.objective.kind]
    prices: dict[str, float] = {}
    for name, price in [*_row_prices(polytope, relaxation), *_class_prices(polytope, relaxation)]:
        prices[name] = max(prices.get(name, 0.0), float(factor * price), key=abs)
    found = [Binding(name, price, f"{value_unit} per {resource_unit(name)}") for name, price in prices.items()]
    if not polytope.problem.objective.maximises_rate:
        for demand, dual in zip(polytope.demands, relaxation.demand_duals, strict=False):
            price = float(dual) * polytope.problem.objective.carried_load / polytope.scale_rps
            found.append(Binding(demand.name, price, f"{value_unit} per rps"))
    largest = max((abs(b.shadow_price) for b in found), default=0.0)
    return tuple(b for b in found if abs(b.shadow_price) > _LEAST_SHARE * largest)


def _factor(polytope: Polytope, relaxation: Relaxation) -> float:
    """What to multiply a dual of the minimised goal by for the objective's unit."""
    kind = polytope.problem.objective.kind
    if kind == "max_throughput":
        return -polytope.scale_rps
    if kind == "min_makespan":
        return polytope.problem.total_demand / (relaxation.lam * polytope.scale_rps) / relaxation.lam
    return 1.0


def resource_unit(name: str) -> str:
    """The unit in which a resource row counts."""
    if name.startswith("limit/max_machines_per_host/"):
        return "machine"
    return {"budget": "usd_per_hour", "limit/max_power_watts": "watt"}.get(name, "gpu")


def _row_prices(polytope: Polytope, relaxation: Relaxation) -> Iterator[tuple[str, float]]:
    """Names and duals of the rows; rental machines are priced by their classes instead of their supply row."""
    supply, sizes = polytope.supply, range(1, MOST_GPUS_OF_PIECE + 1)
    pool_of = {f"supply/{pool.name}/{size}": index for index, pool in enumerate(supply.pools) for size in sizes}
    offered = _offered_gpus(polytope)
    for name, dual in zip(polytope.resources, relaxation.resource_duals, strict=True):
        pool = pool_of.get(name)
        if pool is not None and pool in supply.gpu_price_usd_per_hour:
            size = int(name.rsplit("/", 1)[1])
            if supply.room_gpus[pool, size] < offered[pool, size]:
                yield _what_cut(polytope, pool, supply.gpu_price_usd_per_hour[pool], dual)
                continue
        if name and (pool is None or pool in supply.gpu_price_usd_per_hour):
            yield name, dual


def _offered_gpus(polytope: Polytope) -> dict[tuple[int, int], int]:
    """Returns (pool, size) -> GPUs that pieces of the size could use if budget and limits allowed."""
    offered: dict[tuple[int, int], int] = defaultdict(int)
    for offer, pool in zip(polytope.problem.offers, polytope.supply.pool_of_offer, strict=True):
        for size in PIECE_SIZES:
            offered[pool, size] += room_of(size, offer.gpus) * offer.available
    return offered


def _class_prices(polytope: Polytope, relaxation: Relaxation) -> Iterator[tuple[str, float]]:
    """What one more GPU of a class that is rented out would bring beyond its own price."""
    for index, offer_class in enumerate(polytope.supply.classes):
        per_gpu = relaxation.reduced_cost_rent[index] / offer_class.gpus
        if per_gpu >= 0 or relaxation.rented[index] < offer_class.count - 1e-6:
            continue
        if offer_class.count < sum(available for _, available in offer_class.offers):
            price = offer_class.price_usd_per_hour / offer_class.gpus
            yield _what_cut(polytope, offer_class.pool, price, per_gpu, offer_class.provider)
        else:
            pool = polytope.supply.pools[polytope.supply.kind_of(offer_class)]
            yield f"supply/{pool.name}/{offer_class.gpus}", per_gpu


def _what_cut(
    polytope: Polytope, pool: int, gpu_usd_per_hour: float, per_gpu: float, provider: str = ""
) -> tuple[str, float]:
    """The limit that kept a pool below what the market has, priced in its own unit."""
    problem = polytope.problem
    slug = polytope.supply.pools[pool].gpu
    tdp = problem.gpus[slug].tdp_watts or 0.0
    limits = {  # (name, what one GPU takes of it): how much there is
        ("budget", gpu_usd_per_hour): problem.budget_usd_per_hour,
        ("limit/max_power_watts", tdp): problem.limits.max_power_watts,
        (f"limit/max_gpus/{slug}", 1.0): problem.limits.max_gpus.get(slug),
        (f"limit/max_gpus_per_provider/{provider}", 1.0): problem.limits.max_gpus_per_provider.get(provider),
    }
    most = {key: limit / key[1] for key, limit in limits.items() if limit is not None and key[1] > 0}
    name, per_unit = min(most, key=lambda key: most[key], default=("budget", 1.0))
    return name, per_gpu / per_unit
