"""Fleets that run, for tests of replanning: a plan is solved, rented, and looked at again on another market."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from random import Random
from typing import Any

from sutler.solver import solve
from sutler.solver.plan import Plan, Rental, Replica, Route, Share, SolveReport, Stage
from sutler.solver.problem import ObjectiveKind, Offer, Problem, Workload
from sutler.solver.replanning import (
    Consideration,
    Considered,
    Holding,
    Switching,
    consider,
    held_offer,
    holdings_of,
    standing_of,
)
from tests.builders import random_problem, random_roles_problem

ROLES_FROM = 1000  # seeds of markets with rates of prefill and decode, too
FREE = Switching(usd_per_rps=1.0)
OfferKey = tuple[str, str, str]


def key_of(offer: Offer) -> OfferKey:
    return offer.provider, offer.offer_id, offer.contract


def left_for_rent(offers: Sequence[Offer], holdings: Sequence[Holding]) -> list[Offer]:
    """The market without what is held; of a machine that is cut into slices nothing is left."""
    gpus: dict[OfferKey, int] = {}
    for holding in holdings:
        gpus[holding.key[:3]] = gpus.get(holding.key[:3], 0) + holding.count * holding.key[3]
    machines = {(o.provider, o.machine_id) for o in offers if o.machine_id and key_of(o) in gpus}
    left = []
    for offer in offers:
        if offer.machine_id and (offer.provider, offer.machine_id) in machines:
            continue
        free = (offer.available * offer.gpus - gpus.get(key_of(offer), 0)) // offer.gpus
        if free > 0:
            left.append(replace(offer, available=free))
    return left


def with_held(problem: Problem, holdings: Sequence[Holding], market: Sequence[Offer] | None = None) -> Problem:
    """The problem on what is held and what is left of the market (by default its own)."""
    offers = problem.offers if market is None else market
    known = {key_of(offer): offer for offer in (*offers, *problem.offers)}
    held = [held_offer(holding, known.get(holding.key[:3])) for holding in holdings]
    return replace(problem, offers=(*held, *left_for_rent(offers, holdings)))


def considered(
    problem: Problem,
    plan: Plan,
    *,
    holdings: Sequence[Holding] | None = None,
    market: Sequence[Offer] | None = None,
    switching: Switching = FREE,
    least_net_usd: float = 0.0,
    is_urgent: bool = True,
) -> Considered:
    """A plan that runs (by default all of it), under the problem's facts and another market."""
    return consider(consideration(problem, plan, holdings, market, switching, least_net_usd, is_urgent))


def consideration(
    problem: Problem,
    plan: Plan,
    holdings: Sequence[Holding] | None,
    market: Sequence[Offer] | None,
    switching: Switching,
    least_net_usd: float = 0.0,
    is_urgent: bool = True,
) -> Consideration:
    stands = holdings_of(plan.rentals) if holdings is None else tuple(holdings)
    standing = standing_of(plan, stands)
    return Consideration(with_held(problem, stands, market), standing, switching, least_net_usd, is_urgent)


def without(plan: Plan, lost: Mapping[str, int]) -> tuple[Holding, ...]:
    """What is held of a plan after so many machines of these offers are gone."""
    left = []
    for holding in holdings_of(plan.rentals):
        count = holding.count - lost.get(holding.key[1], 0)
        if count > 0:
            left.append(replace(holding, count=count))
    return tuple(left)


def machines_of(plan: Plan | None) -> dict[str, int]:
    """Machines by offer."""
    machines: dict[str, int] = {}
    for rental in plan.rentals if plan else ():
        machines[rental.offer_id] = machines.get(rental.offer_id, 0) + rental.count
    return machines


def places_of(plan: Plan) -> dict[str, list[tuple[str, bool, tuple[int, ...]]]]:
    """Where each replica's stages stand: (offer, whether it is held, GPUs)."""
    return {
        replica.id: [
            (plan.rentals[stage.rental].offer_id, plan.rentals[stage.rental].held, stage.gpu_indices)
            for stage in replica.stages
        ]
        for replica in plan.replicas
    }


def with_demand(problem: Problem, factor: float, *, of: str | None = None) -> Problem:
    """Every workload's demand (or that of the one named) times `factor`."""

    def changed(workload: Workload) -> Workload:
        return replace(workload, demand=workload.demand * (factor if of in (None, workload.name) else 1.0))

    models = [replace(m, workloads=tuple(changed(w) for w in m.workloads)) for m in problem.models]
    return replace(problem, models=tuple(models))


@cache
def a_running_fleet(seed: int, objective: ObjectiveKind) -> tuple[Problem, Plan] | None:
    """A random market with a plan that was made for it; None where there is none."""
    problem = random_roles_problem(seed, objective) if seed >= ROLES_FROM else random_problem(seed, objective)
    if seed >= ROLES_FROM and seed % 2:
        problem = replace(problem, search=replace(problem.search, disaggregation="only"))
    plan = solve(problem)
    return (problem, plan) if plan.rentals else None


def a_changed_world(draw: Random, problem: Problem, plan: Plan) -> tuple[Problem, tuple[Holding, ...], list[Offer]]:
    """Other demands, other prices, fewer and more offers, and perhaps a machine lost."""
    changed = problem
    for workload in sorted({w.name for m in problem.models for w in m.workloads}):
        changed = with_demand(changed, draw.uniform(0.4, 1.2), of=workload)
    market = [
        replace(offer, price_usd_per_hour=round(offer.price_usd_per_hour * draw.uniform(0.5, 1.3), 3))
        for offer in problem.offers
        if draw.random() < 0.9
    ]
    extra = replace(draw.choice(problem.offers), offer_id="extra", machine_id=None, gpu_ids=None)
    market.append(replace(extra, price_usd_per_hour=extra.price_usd_per_hour * draw.uniform(0.4, 1.0)))
    holdings = holdings_of(plan.rentals)
    if draw.random() < 0.4:
        holdings = without(plan, {draw.choice(holdings).key[1]: 1})
    return replace(changed, budget_usd_per_hour=None), holdings, market


def some_switching(draw: Random, problem: Problem, plan: Plan) -> Switching:
    """With everything that a change can cost, or some of it."""
    cost, rate = plan.cost_usd_per_hour or 1.0, plan.throughput_rps or 1.0
    return Switching(
        startup_s=draw.choice([0.0, 90.0, 600.0]),
        download_gb_per_s=draw.choice([0.1, 0.25]),
        restart_s=draw.choice([0.0, 60.0]),
        drain_s=draw.choice([0.0, 30.0, 300.0]),
        min_rental_s=draw.choice([0.0, 7200.0]),
        horizon_s=draw.choice([1200.0, 3600.0, 14400.0]),
        usd_per_rps=cost / rate if problem.objective.maximises_rate else 1.0,
        weight=draw.choice([1.0, 1.0, 3.0]),
    )


@dataclass(frozen=True, slots=True)
class Look:
    """A fleet that runs (`plan`), the world after it changed, and what was considered then."""

    problem: Problem
    plan: Plan
    holdings: tuple[Holding, ...]
    market: tuple[Offer, ...]
    switching: Switching
    found: Considered

    @property
    def on_market(self) -> Problem:
        return with_held(self.problem, self.holdings, self.market)


@cache
def a_look(seed: int, objective: ObjectiveKind, *, is_free: bool = False) -> Look | None:
    """A random fleet after everything has changed; None where there is none."""
    running = a_running_fleet(seed, objective)
    if running is None:
        return None
    draw = Random(seed)
    before, plan = running
    problem, holdings, market = a_changed_world(draw, before, plan)
    switching = FREE if is_free else some_switching(draw, problem, plan)
    found = considered(problem, plan, holdings=holdings, market=market, switching=switching)
    return Look(problem, plan, holdings, tuple(market), switching, found)


def a_rental(name: str = "a-1", gpus: int = 1, *, count: int = 1, price: float = 1.0, **others: Any) -> Rental:
    """`count` machines of an offer "a-4": its GPU is a; `price` of each per hour."""
    others.setdefault("contract", "on_demand")
    return Rental(name, "cloud", None, name.partition("-")[0], gpus, count, price, **others)


def a_stage(rental: int, machine: int = 0, *gpus: int, gpu: str = "a", piece: int = 0) -> Stage:
    """On these GPUs of a machine, by default its first."""
    indices = gpus or (0,)
    return Stage(gpu, len(indices), None, rental, machine, indices, piece)


def a_replica(name: str, *stages: Stage, model: str = "chat", **others: Any) -> Replica:
    return Replica(name, model, "aggregated", stages, None, 1.0, (), **others)


def a_route(workload: str = "w1", /, **fractions: float) -> Route:
    """`chat_0=0.5`: half of the workload's requests go to replica chat-0."""
    shares = tuple(Share(name.replace("_", "-"), fraction) for name, fraction in fractions.items())
    return Route("chat", workload, shares)


def a_plan(
    rentals: Sequence[Rental] = (),
    replicas: Sequence[Replica] = (),
    routing: Sequence[Route] = (),
    **others: Any,
) -> Plan:
    """What the parts under test read of a plan; its totals are nobody's."""
    facts: dict[str, Any] = {
        "status": "optimal",
        "objective": "min_cost",
        "value": None,
        "bound": None,
        "relative_gap": None,
        "throughput_rps": None,
        "makespan_s": None,
        "load_multiple": None,
        "cost_usd_per_hour": None,
        "power_watts": None,
        "usd_per_million_tokens": None,
        "binding": (),
        "alternatives": (),
        "conflicts": (),
        "evidence": (),
        "warnings": (),
        "solver": SolveReport("exact", 0.0, 0, (), "0"),
    }
    return Plan(rentals=tuple(rentals), replicas=tuple(replicas), routing=tuple(routing), **(facts | others))
