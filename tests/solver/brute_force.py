"""The exact optimum of a tiny problem with measured rates, found by trying everything.

Written from the meaning of a market alone: it rents machines one by one, fills their GPUs one by one and shares
no code with candidates, supply or allocation. Two facts keep it small without touching the optimum: a fuller
machine never serves less, and a fleet matters only through the replicas it can run and what it costs.

A replica without a network runs in one machine, where it keeps 1, 2, 4 or 8 GPUs to itself: other sizes are rounded
up, unless it fills the machine. At a networked site each stage may run on any machine of the site. Replicas that only
prefill or only decode hand over within a site, or within one machine without a site whose GPUs have a link.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations_with_replacement, product

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from sutler.solver.problem import MeasuredRate, Offer, Problem

SIZES = (1, 2, 4, 8)
ROLES = {"off": ("aggregated",), "auto": ("aggregated", "prefill", "decode"), "only": ("prefill", "decode")}

# Replicas by kind: of each row of the problem's table, for each place that counts (see `_places`) in turn.
Fleet = tuple[int, ...]
Site = tuple[str, str | None]
Place = tuple[str, Site | None]
Counts = tuple[tuple[object, int], ...]


@dataclass(frozen=True, slots=True)
class Machine:
    """A rented machine or slice. `site` is None without a network; `number`: of those of its offer."""

    offer: int
    gpu: str
    gpus: int
    site: Site | None
    number: int = 0


@dataclass(frozen=True, slots=True)
class Price:
    usd_per_hour: float
    watts: float


@dataclass(frozen=True, slots=True)
class Optimum:
    """`value` in the objective's unit, `usd_per_hour` the least cost of a fleet that reaches it; None: infeasible."""

    value: float | None
    usd_per_hour: float | None


def optimum(problem: Problem) -> Optimum:
    """The best value over every fleet, and the least that it costs."""
    roles = ROLES[problem.search.disaggregation]
    problem = replace(problem, measured=tuple(row for row in problem.measured if row.role in roles))
    fleets = affordable_fleets(problem)
    kind = problem.objective.kind
    if kind in ("max_throughput", "min_makespan"):
        multiples = load_multiples(problem, list(fleets))
        most = max(multiples, default=0.0)
        if most <= 1e-9:
            return Optimum(None, None)
        cheapest = min(
            _least_cost(fleets[fleet])
            for fleet, multiple in zip(fleets, multiples, strict=True)
            if multiple >= most * (1 - 1e-7)
        )
        demand = sum(workload.demand for model in problem.models for workload in model.workloads)
        return Optimum(most * demand if kind == "max_throughput" else 1 / most, cheapest)
    return _cheapest(problem, fleets)


def _cheapest(problem: Problem, fleets: Mapping[Fleet, list[Price]]) -> Optimum:
    """Least cost or power of a fleet that carries the demand with its headroom."""
    needed = (1 + problem.objective.headroom_fraction) * (1 - 1e-9)
    listed = list(fleets)
    prices = [
        price
        for fleet, multiple in zip(listed, load_multiples(problem, listed), strict=True)
        if multiple >= needed
        for price in fleets[fleet]
    ]
    if not prices:
        return Optimum(None, None)
    if problem.objective.kind == "min_cost":
        least = min(price.usd_per_hour for price in prices)
        return Optimum(least, least)
    least = min(price.watts for price in prices)
    return Optimum(least, min(price.usd_per_hour for price in prices if price.watts <= least * (1 + 1e-9)))


def _least_cost(prices: Iterable[Price]) -> float:
    return min(price.usd_per_hour for price in prices)


def affordable_fleets(problem: Problem) -> dict[Fleet, list[Price]]:
    """Every set of replicas that some affordable rental can run, with what such rentals cost."""
    found: dict[Fleet, list[Price]] = {}
    for machines in _rentals(problem):
        price = _price(problem, machines)
        if price is None:
            continue
        for fleet in _fleets_on(problem, machines):
            known = found.setdefault(fleet, [])
            if price not in known:
                known.append(price)
    return found


def _rentals(problem: Problem) -> Iterator[tuple[Machine, ...]]:
    """Every multiset of machines and slices that the market lets us rent at once."""
    choices = [_rentals_of_offer(index, offer) for index, offer in enumerate(problem.offers)]
    for chosen in product(*choices):
        machines = tuple(machine for part in chosen for machine in part)
        if _machines_are_compatible(problem, machines):
            yield machines


def _rentals_of_offer(index: int, offer: Offer) -> list[tuple[Machine, ...]]:
    site = _site(offer)
    if not offer.divisible:
        sets = [(offer.gpus,) * count for count in range(offer.available + 1)]
        return [_numbered(index, offer, site, sizes) for sizes in sets]
    slicings = sorted(_slicings(offer.gpus))
    rented = set()
    for per_machine in combinations_with_replacement(slicings, offer.available):
        rented.add(tuple(sorted(size for slices in per_machine for size in slices)))
    return [_numbered(index, offer, site, sizes) for sizes in sorted(rented)]


def _numbered(index: int, offer: Offer, site: Site | None, sizes: tuple[int, ...]) -> tuple[Machine, ...]:
    largest_first = sorted(sizes, reverse=True)
    return tuple(Machine(index, offer.gpu, size, site, number) for number, size in enumerate(largest_first))


def _slicings(gpus: int) -> set[tuple[int, ...]]:
    """Multisets of slices that one machine can be cut into, some of its GPUs left over."""
    found: set[tuple[int, ...]] = {()}
    for size in SIZES:
        if size <= gpus:
            found |= {tuple(sorted((size, *rest))) for rest in _slicings(gpus - size)}
    return found


def _machines_are_compatible(problem: Problem, machines: tuple[Machine, ...]) -> bool:
    used: Counter[tuple[str, str]] = Counter()
    cards: set[tuple[str, str, int]] = set()
    for machine in machines:
        offer = problem.offers[machine.offer]
        if offer.machine_id is None:
            continue
        key = (offer.provider, offer.machine_id)
        used[key] += machine.gpus
        named = {(*key, card) for card in offer.gpu_ids or ()}
        if cards & named:
            return False
        cards |= named
    for key, gpus in used.items():
        siblings = [o for o in problem.offers if (o.provider, o.machine_id) == key]
        if gpus > len({card for offer in siblings for card in offer.gpu_ids or ()}):
            return False
    return True


def _price(problem: Problem, machines: tuple[Machine, ...]) -> Price | None:
    """What the machines cost; None beyond the budget or a limit."""
    usd_per_hour = watts = 0.0
    by_gpu: Counter[str] = Counter()
    by_provider: Counter[str] = Counter()
    by_host = Counter(
        (offer.provider, offer.host) for offer in (problem.offers[m.offer] for m in machines) if offer.host
    )
    for machine in machines:
        offer = problem.offers[machine.offer]
        usd_per_hour += offer.price_usd_per_hour * machine.gpus / offer.gpus
        watts += (problem.gpus[machine.gpu].tdp_watts or 0.0) * machine.gpus
        by_gpu[machine.gpu] += machine.gpus
        by_provider[offer.provider] += machine.gpus
    limits, budget = problem.limits, problem.budget_usd_per_hour
    within = (
        (budget is None or usd_per_hour <= budget * (1 + 1e-9))
        and (limits.max_power_watts is None or watts <= limits.max_power_watts)
        and all(gpus <= limits.max_gpus.get(gpu, gpus) for gpu, gpus in by_gpu.items())
        and all(gpus <= limits.max_gpus_per_provider.get(name, gpus) for name, gpus in by_provider.items())
        and all(count <= (limits.max_machines_per_host or count) for count in by_host.values())
    )
    return Price(usd_per_hour, watts) if within else None


def _site(offer: Offer) -> Site | None:
    return (offer.provider, offer.site) if offer.site is not None and offer.inter_machine_gb_per_s else None


def _places(problem: Problem) -> list[Place]:
    """What to tell apart: providers where their share is limited, networks and single machines where something is
    handed over."""
    sites = {(offer.provider, _site(offer)) for offer in problem.offers}
    sites |= {
        (offer.provider, joint) for index, offer in enumerate(problem.offers) for joint in _joints(problem, index)
    }
    return sorted({_place(problem, *site) for site in sites}, key=repr)


def _joints(problem: Problem, index: int) -> list[Site]:
    """Stands for every whole machine of an offer inside of which something can be handed over; of the slices of one
    machine that is the first of the largest."""
    offer = problem.offers[index]
    if _site(offer) is not None or offer.gpus < 2 or not problem.gpus[offer.gpu].link_gb_per_s:
        return []
    if offer.machine_id is not None:
        machine = (offer.provider, offer.machine_id)
        alike = [(-o.gpus, i) for i, o in enumerate(problem.offers) if (o.provider, o.machine_id) == machine]
        if min(alike)[1] != index:
            return []
    return [("inside", f"{index}/{number}") for number in range(offer.available)]


def _joint(problem: Problem, machine: Machine) -> Site | None:
    """What a machine's replicas hand over within."""
    joints = _joints(problem, machine.offer)
    is_whole = machine.gpus == problem.offers[machine.offer].gpus
    return joints[machine.number] if joints and is_whole else machine.site


def _place(problem: Problem, provider: str, site: Site | None) -> Place:
    is_limited = problem.limits.max_share_per_provider_fraction < 1
    hands_over = any(row.role != "aggregated" for row in problem.measured)
    return provider if is_limited else "", site if hands_over else None


def _kind(problem: Problem, place: Place, row: int) -> int:
    """Position in a fleet of a row's replicas at a place."""
    return _places(problem).index(place) * len(problem.measured) + row


def _fleets_on(problem: Problem, machines: tuple[Machine, ...]) -> set[Fleet]:
    """The replicas that the machines can run, over every way to fill their GPUs."""
    fillings: set[tuple[tuple[object, int], ...]] = {()}
    for machine in machines:
        options = _fillings(machine.gpus, _groups(problem, machine))
        fillings = {_merged(filling, option) for filling in fillings for option in options}
    return {fleet for filling in fillings for fleet in _assembled(problem, dict(filling))}


def _merged(
    left: tuple[tuple[object, int], ...], right: tuple[tuple[object, int], ...]
) -> tuple[tuple[object, int], ...]:
    total = Counter(dict(left))
    total.update(dict(right))
    return tuple(sorted(total.items(), key=repr))


def _groups(problem: Problem, machine: Machine) -> dict[object, int]:
    """What can run on consecutive GPUs of the machine, with the GPUs it keeps: whole replicas, or stages at a site.

    A whole replica is its kind; a stage is (site, gpu, tensor-parallel degree).
    """
    place = _place(problem, problem.offers[machine.offer].provider, _joint(problem, machine))
    groups: dict[object, int] = {}
    for index, row in enumerate(problem.measured):
        if machine.site is not None:
            for stage in row.stages:
                if stage.gpu == machine.gpu:
                    groups[machine.site, stage.gpu, stage.tensor_parallel] = _kept(stage.tensor_parallel)
        elif (row.role == "aggregated" or _joint(problem, machine)) and all(
            stage.gpu == machine.gpu for stage in row.stages
        ):
            gpus = sum(stage.tensor_parallel for stage in row.stages)
            groups[_kind(problem, place, index)] = gpus if gpus == machine.gpus else _kept(gpus)
    return {group: size for group, size in groups.items() if size <= machine.gpus}


def _kept(gpus: int) -> int:
    return next(size for size in SIZES if size >= gpus)


def _fillings(gpus: int, groups: Mapping[object, int]) -> set[tuple[tuple[object, int], ...]]:
    """Give each GPU in turn to a new group that starts there, until none fits any more."""
    fitting = [group for group, size in groups.items() if size <= gpus]
    if not fitting:
        return {()}
    return {_merged(rest, ((group, 1),)) for group in fitting for rest in _fillings(gpus - groups[group], groups)}


def _assembled(problem: Problem, filling: Mapping[object, int]) -> Iterator[Fleet]:
    """Replicas from whole ones and from the stages placed at each site, in every maximal way."""
    sites = sorted({group[0] for group in filling if isinstance(group, tuple)})
    kinds = {site: [_kind(problem, _place(problem, site[0], site), row) for row in _rows(problem)] for site in sites}
    whole = [filling.get(kind, 0) for kind in range(len(problem.measured) * len(_places(problem)))]
    for chosen in product(*(_built_at(problem.measured, site, filling) for site in sites)):
        fleet = list(whole)
        for site, counts in zip(sites, chosen, strict=True):
            for kind, count in zip(kinds[site], counts, strict=True):
                fleet[kind] += count
        yield tuple(fleet)


def _rows(problem: Problem) -> range:
    return range(len(problem.measured))


def _built_at(rows: tuple[MeasuredRate, ...], site: Site, filling: Mapping[object, int]) -> frozenset[Fleet]:
    """Counts of each row's replicas that the site's stages make up, none of which could grow."""
    needs = tuple(_counts(Counter((site, stage.gpu, stage.tensor_parallel) for stage in row.stages)) for row in rows)
    used = {group for need in needs for group, _ in need}
    return _built(needs, _counts({group: count for group, count in filling.items() if group in used}))


def _counts(found: Mapping[object, int]) -> Counts:
    return tuple(sorted(((group, count) for group, count in found.items() if count), key=repr))


@cache
def _built(needs: tuple[Counts, ...], stages: Counts) -> frozenset[Fleet]:
    """Each row in turn may have the next replica. What is left over recurs in many orders, hence the cache."""
    there, found = dict(stages), set()
    for index, need in enumerate(needs):
        if all(there.get(group, 0) >= count for group, count in need):
            left = Counter(there)
            left.subtract(dict(need))
            found |= {
                tuple(count + (place == index) for place, count in enumerate(rest))
                for rest in _built(needs, _counts(left))
            }
    return frozenset(found or {(0,) * len(needs)})


def load_multiples(problem: Problem, fleets: list[Fleet]) -> list[float]:
    """The largest multiple of the demand that each fleet carries: one linear program of independent blocks.

    Block: r[c,w] >= 0 and multiple m; sum_c r[c,w] = m demand[w] over replicas of whole requests and of decode;
    sum_w r[c,w] / rps[c,w] <= utilisation * count[c]; at every place sum r of prefill = sum r of decode, workload by
    workload; and at every provider that counts  sum r <= share * sum over all providers, of what demand counts.
    """
    if not fleets:
        return []
    demand = {(m.name, w.name): w.demand for m in problem.models for w in m.workloads}
    kinds = [(place, row) for place in _places(problem) for row in problem.measured]
    terms = [
        (number, (row.model, name), rps)
        for number, (_, row) in enumerate(kinds)
        for name, rps in row.rps.items()
        if rps > 0
    ]
    keys, providers = list(demand), sorted({provider for provider, _ in _places(problem)})
    width, utilisation = len(terms) + 1, problem.limits.max_utilisation_fraction or 1.0
    balance = np.zeros((len(keys), width))
    handed = np.zeros((len(keys) * len(_places(problem)), width))
    capacity = np.zeros((len(kinds), width))
    lopsided = np.zeros((len(providers), width))
    for column, (number, key, rps) in enumerate(terms):
        place, row = kinds[number]
        capacity[number, column] = 1 / rps
        if row.role != "aggregated":
            flow = _places(problem).index(place) * len(keys) + keys.index(key)
            handed[flow, column] = 1.0 if row.role == "prefill" else -1.0
        if row.role != "prefill":
            balance[keys.index(key), column] = 1.0
            lopsided[:, column] = -problem.limits.max_share_per_provider_fraction
            lopsided[providers.index(place[0]), column] += 1
    balance[:, -1] = [-requests for requests in demand.values()]
    objective = np.zeros(width)
    objective[-1] = -1.0
    room = np.hstack([np.array(fleets, dtype=float) * utilisation, np.zeros((len(fleets), len(lopsided)))]).ravel()
    solved = linprog(
        np.tile(objective, len(fleets)),
        A_ub=_repeated(np.vstack([capacity, lopsided]), len(fleets)),
        b_ub=room,
        A_eq=_repeated(np.vstack([balance, handed]), len(fleets)),
        b_eq=np.zeros(len(fleets) * (len(balance) + len(handed))),
        method="highs",
    )
    if solved.status != 0:
        raise RuntimeError(f"the routing program ended with: {solved.message}")
    return [float(multiple) for multiple in solved.x.reshape(len(fleets), width)[:, -1]]


def _repeated(block: np.ndarray, times: int) -> coo_array:
    """A sparse matrix with `block` `times` along its diagonal."""
    rows, columns = np.nonzero(block)
    shift = np.arange(times)[:, None]
    return coo_array(
        (
            np.tile(block[rows, columns], times),
            ((rows + shift * block.shape[0]).ravel(), (columns + shift * block.shape[1]).ravel()),
        ),
        shape=(times * block.shape[0], times * block.shape[1]),
    )
