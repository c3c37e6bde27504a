"""Machines that hand over inside themselves: each is a pool of its own, as a networked site is a network of its own.

Keys and values go from one GPU of a machine to another by NVLink or PCIe, from machine to machine only over a
network. So what prefills and what decodes must be known to stand on the same machine before anything is packed, and a
pool that is one single machine says just that. Every such pool repeats the candidates of its kind, which is why there
are few of them: the machines that are held, up to `MOST_HELD`, and for rent `MOST_MACHINES` of the cheapest, of every
GPU type in turn.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import chain, islice, zip_longest

from sutler.solver.market.pools import Pool
from sutler.solver.problem import Offer, Problem

# Chosen: 500 offers on five GPU types take 0.65 s with these pools, 0.16 s where nothing may be handed over.
MOST_MACHINES = 8
MOST_HELD = 32  # chosen: what runs has to stay what it is, be it on several times as many machines

Machine = tuple[int, int]
"""Index of its offer, and which of the machines of that offer it is."""


def machines_apart(problem: Problem, pools: Sequence[Pool], pool_of_offer: Sequence[int]) -> tuple[Machine, ...]:
    """The machines on which prefill and decode replicas may stand without a network."""
    able = [index for index in _able(problem, pools, pool_of_offer) if problem.offers[index].available > 0]
    held = [index for index in able if problem.offers[index].held]
    for_rent: dict[str, list[int]] = defaultdict(list)
    for index in sorted(_one_per_machine(problem.offers, able), key=lambda i: _cheapest_first(problem.offers[i])):
        for_rent[problem.offers[index].gpu].append(index)
    first = _by_turns([_copies(problem, [index]) for index in held])
    others = _by_turns([_copies(problem, members) for members in for_rent.values()])
    return tuple(chain(islice(first, MOST_HELD), islice(others, MOST_MACHINES)))


def machines_able(problem: Problem, pools: Sequence[Pool], pool_of_offer: Sequence[int]) -> int:
    """How many machines for rent could hand over inside themselves."""
    able = list(_able(problem, pools, pool_of_offer))
    return sum(problem.offers[index].available for index in _one_per_machine(problem.offers, able))


def _able(problem: Problem, pools: Sequence[Pool], pool_of_offer: Sequence[int]) -> Iterator[int]:
    """Offers of at least two GPUs with a link between them, and without a network: over one, all hand over."""
    if problem.search.disaggregation == "off":
        return
    for index, offer in enumerate(problem.offers):
        pool = pools[pool_of_offer[index]]
        if offer.gpus >= 2 and pool.network is None and pool.intra_gb_per_s > 0:
            yield index


def _one_per_machine(offers: Sequence[Offer], able: Sequence[int]) -> list[int]:
    """What is for rent, of the slices of a machine the largest."""
    largest: dict[object, int] = {}
    for index in able:
        offer = offers[index]
        key: object = index if offer.machine_id is None else (offer.provider, offer.machine_id)
        if not offer.held and (key not in largest or offer.gpus > offers[largest[key]].gpus):
            largest[key] = index
    return list(largest.values())


def _cheapest_first(offer: Offer) -> tuple[float, int]:
    return offer.price_usd_per_hour / offer.gpus, -offer.gpus


def _copies(problem: Problem, members: Sequence[int]) -> list[Machine]:
    copies = ((i, copy) for i in members for copy in range(problem.offers[i].available))
    return list(islice(copies, MOST_HELD))


def _by_turns(lists: Sequence[Sequence[Machine]]) -> Iterator[Machine]:
    for turn in zip_longest(*lists):
        yield from (machine for machine in turn if machine is not None)
