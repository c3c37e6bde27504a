"""Spares of plans on random markets: each can take its rental's place, alone and together with the others."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from random import Random
from typing import Any
from uuid import UUID

import pytest

from sutler.service.documents.market import OfferDocument
from sutler.service.documents.plan import ChanceDocument, PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.translation.from_plan import issue_plan
from sutler.service.translation.spares import availability, with_chances
from sutler.service.translation.to_problem import Translation, to_problem
from sutler.solver import solve
from sutler.solver.plan import Plan, Rental
from sutler.solver.problem import Problem
from sutler.solver.spares import Spare, spares_of
from sutler.solver.verify import verify
from tests.looped import for_each
from tests.service.builders import NOW, a_problem, a_snapshot, an_offer
from tests.service.export.random_plans import random_problem


def translated(problem: Mapping[str, Any]) -> Translation:
    return to_problem(validate(ProblemDocument, problem), folder=None, now=NOW)


def replaced(problem: Problem, plan: Plan, rentals: tuple[Rental, ...]) -> Plan:
    """The plan with other rentals, everything else as it was; nobody has proven it anew."""
    cost = sum(rental.price_usd_per_hour * rental.count for rental in rentals)
    dearer = cost / plan.cost_usd_per_hour if plan.cost_usd_per_hour else 1.0
    return replace(
        plan,
        rentals=rentals,
        cost_usd_per_hour=cost,
        usd_per_million_tokens=None if plan.usd_per_million_tokens is None else plan.usd_per_million_tokens * dearer,
        value=cost if problem.objective.kind == "min_cost" else plan.value,
        bound=None,
        relative_gap=None,
        status="feasible",
        robustness=None,
        precision_alternative=None,
        losses=(),
    )


def accepts(problem: Problem, plan: Plan, chosen: Mapping[int, Spare]) -> None:
    rentals = tuple(chosen[i].rental if i in chosen else rental for i, rental in enumerate(plan.rentals))
    assert verify(problem, replaced(problem, plan, rentals), is_standing=True) == ()


def a_case(seed: int) -> tuple[Problem, Plan, tuple[tuple[Spare, ...], ...]]:
    """A random market with a second machine beside most, at another price, and money left once the plan is made."""
    draw, given = Random(seed), random_problem(seed)
    offers = given["market"]["offers"]["offers"]
    given["market"]["offers"]["offers"] = [each for offer in offers for each in (offer, *twins(draw, offer))]
    problem = translated(given).problem
    plan = solve(problem)
    budget = problem.budget_usd_per_hour
    problem = replace(problem, budget_usd_per_hour=None if budget is None else budget * draw.choice([1.05, 1.5]))
    return problem, plan, spares_of(problem, plan.rentals)


def twins(draw: Random, offer: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for number in range(draw.choice([0, 1, 2])):
        own = {name: f"{offer[name]}-{number}" for name in ("offer_id", "machine_id") if offer.get(name)}
        price = offer["price_usd_per_hour"] * draw.choice([1.0, 1.02, 1.1, 1.4])
        yield {**offer, **own, "price_usd_per_hour": price}


@for_each("seed", range(24), quick=2)
def test_every_spare_can_take_its_rentals_place(seed: int) -> None:
    problem, plan, found = a_case(seed)
    for index, own in enumerate(found):
        prices = [spare.rental.price_usd_per_hour for spare in own]
        assert prices == sorted(prices)
        for spare in own:
            accepts(problem, plan, {index: spare})
    for place in (0, -1) if any(found) else ():
        accepts(problem, plan, {index: own[place] for index, own in enumerate(found) if own})
    offers = [(spare.offer.provider, spare.offer.offer_id) for own in found for spare in own]
    assert len(offers) == len(set(offers))


@pytest.mark.slow
def test_the_random_markets_have_spares() -> None:
    counts = []
    for seed in range(10):
        counts += [len(own) for own in a_case(seed)[2]]
    assert sum(count > 0 for count in counts) > len(counts) / 5, counts


class StoredChances:
    """Chances by offer id, of the others none."""

    def __init__(self, **chances: float) -> None:
        self.chances = chances

    def chance_of(self, offer: OfferDocument, gpus: int, *, now: datetime, within_s: float) -> ChanceDocument | None:
        chance = self.chances.get(offer.offer_id)
        if chance is None:
            return None
        return ChanceDocument(
            chance_of_still_there_fraction=chance,
            low_fraction=chance,
            high_fraction=chance,
            within_s=within_s,
            expected_lifetime_s=3600.0,
            machines=4,
            lives=9,
            deaths=5,
        )


def a_plan(*rows: dict[str, Any], **others: Any) -> tuple[PlanDocument, Translation]:
    problem = a_problem(objective={"kind": "min_cost"}, market={"offers": a_snapshot(*rows)}, **others)
    translation = translated(problem)
    plan = issue_plan(solve(translation.problem), translation, plan_id=UUID(int=1), created_at=NOW)
    return plan, translation


def a_market(*prices: float) -> list[dict[str, Any]]:
    return [
        an_offer(offer_id=f"o{i}", machine_id=f"m{i}", gpus=4, price_usd_per_hour=price, available=1)
        for i, price in enumerate(prices)
    ]


def test_without_a_store_spares_are_listed_by_price_and_nothing_is_said_of_chances() -> None:
    plan, _ = a_plan(*a_market(2.0, 2.5, 2.2))
    (rental,) = plan.rentals
    assert (rental.offer_id, rental.machine_id) == ("o0", "m0")
    assert [spare.offer_id for spare in rental.spares] == ["o2", "o1"]
    assert rental.outlook is None
    assert plan.availability is None


def test_with_a_store_spares_are_listed_by_price_over_chance_and_unknown_ones_last() -> None:
    plan, translation = a_plan(*a_market(2.0, 2.5, 2.2, 2.1))
    outlook = StoredChances(o0=0.9, o1=0.8, o2=0.5)
    stated = with_chances(plan, translation, outlook, NOW)
    (rental,) = stated.rentals
    assert [spare.offer_id for spare in rental.spares] == ["o1", "o2", "o3"]
    assert rental.outlook is not None
    assert rental.spares[2].outlook is None
    assert stated.availability is not None
    assert stated.availability.chance_fraction == 0.9
    assert stated.availability.chance_with_spares_fraction == pytest.approx(1 - 0.1 * 0.2 * 0.5)


def test_of_a_first_choice_without_known_lives_no_chance_is_stated() -> None:
    plan, translation = a_plan(*a_market(2.0, 2.5))
    assert with_chances(plan, translation, StoredChances(o1=0.5), NOW).availability is None
    assert availability(()) is None


def test_a_spare_stays_within_the_budget() -> None:
    plan, _ = a_plan(*a_market(2.0, 2.5, 9.0), budget_usd_per_hour=3.0)
    assert [spare.offer_id for spare in plan.rentals[0].spares] == ["o1"]


def test_another_slice_of_the_rented_machine_is_no_spare() -> None:
    rows = a_market(2.0, 2.5)
    rows.append({**rows[0], "offer_id": "beside", "price_usd_per_hour": 2.1})
    plan, _ = a_plan(*rows)
    assert [spare.offer_id for spare in plan.rentals[0].spares] == ["o1"]
