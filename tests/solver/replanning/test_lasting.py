"""A bound that was found on one market holds on every other: no change nets more than it leaves room for."""

from dataclasses import replace
from random import Random

import pytest

from sutler.solver import solve
from sutler.solver.problem import ObjectiveKind, Offer, Problem
from sutler.solver.replanning import Consideration, Considered, Kept, Switching, consider, kept_again
from sutler.solver.replanning.lasting import ForRent, Machines, Worth
from tests.builders import a_model, a_problem, a_workload, an_offer, measured
from tests.looped import for_each
from tests.solver.replanning.builders import FREE, ROLES_FROM, a_running_fleet, consideration, some_switching
from tests.solver.throughput.builders import a_dense_spec

USD = 1e-6
MARKETS = 4


def kept(question: Consideration) -> Kept | None:
    """What is found of what runs where no sum is promised, with the bound."""
    return consider(replace(question, is_urgent=False, least_net_usd=1e9)).kept


def most_net_usd(question: Consideration, found: Kept) -> float:
    """What the bound of another market says of this one."""
    assert found.lasting is not None
    saved = found.lasting.most_saved_usd_per_hour(
        question.problem,
        question.switching,
        cost_usd_per_hour=sum(rental.price_usd_per_hour * rental.count for rental in question.standing.rentals),
        worth_usd_per_hour=question.switching.usd_per_rps * found.capacity_rps,
    )
    return saved * question.switching.horizon_h


def another_market(draw: Random, problem: Problem) -> list[Offer]:
    """Other prices and counts, some offers gone, some new: of other sizes, links, disks, and on networks."""
    market = []
    for offer in problem.offers:
        if draw.random() < 0.8:
            price = offer.price_usd_per_hour * draw.choice([1.0, draw.uniform(0.3, 1.6)])
            market.append(
                replace(offer, price_usd_per_hour=price, available=1 if offer.machine_id else draw.randint(1, 3))
            )
    for number in range(draw.randint(0, 3)):
        alike = draw.choice(problem.offers)
        gpus = draw.choice([alike.gpus, 1, 2, 3, 4, 8])
        price = alike.price_usd_per_hour / alike.gpus * gpus * draw.uniform(0.3, 1.2)
        new = replace(alike, offer_id=f"new-{number}", machine_id=None, machine_gpus=None, gpu_ids=None)
        disk_gb, link = draw.choice([alike.disk_gb, 20.0, None]), draw.choice([alike.intra_machine_gb_per_s, 600.0])
        market.append(
            replace(
                new,
                gpus=gpus,
                price_usd_per_hour=price,
                available=draw.randint(1, 3),
                disk_gb=disk_gb,
                disk_usd_per_gb_month=draw.choice([0.0, 0.0, 0.2]),
                intra_machine_gb_per_s=link,
                divisible=draw.random() < 0.2,
            )
        )
    return market


@pytest.mark.parametrize("objective", ["min_cost", "max_throughput", "min_makespan"])
@for_each("seed", range(24), quick=1)
def test_no_change_nets_more_than_a_bound_of_another_market_leaves_room_for(
    seed: int, objective: ObjectiveKind
) -> None:
    running = a_running_fleet(seed, objective)
    if running is None:
        return
    problem, plan = running
    draw = Random(seed)
    if objective == "min_cost":
        problem = replace(problem, budget_usd_per_hour=None)
    switching = some_switching(draw, problem, plan)
    found = kept(consideration(problem, plan, None, None, switching))
    if found is None or found.lasting is None:
        return
    for _ in range(MARKETS):
        question = consideration(problem, plan, None, another_market(draw, problem), switching)
        most = most_net_usd(question, found)
        for option in consider(question).options[1:]:
            assert option.net_usd <= most + USD * max(1.0, abs(most)), (option.kind, option.net_usd, most)


def test_a_machine_is_worth_what_its_best_cut_is() -> None:
    kind = Machines("a", 64.0, None, 0.0, 0.0, ())
    worth = Worth(kind, (1, 2, 3), (1.0, 1.2, 1.6), 3)
    assert worth.of(ForRent(0, 3, (1, 2, 3), 1.0, 1)) == pytest.approx(3 * 1.6)  # one piece
    assert worth.of(ForRent(0, 2, (1, 2), 1.0, 1)) == pytest.approx(2 * 1.2)
    assert worth.of(ForRent(0, 1, (1, 2), 1.0, 5, is_machine=False)) == pytest.approx(1.2)
    assert worth.of(ForRent(0, 4, (1, 2, 4), 1.0, 1)) == float("inf")
    smaller = Worth(kind, (1, 2, 3), (1.0, 1.2, 1.0), 3)
    assert smaller.of(ForRent(0, 3, (1, 2, 3), 1.0, 1)) == pytest.approx(2 * 1.2 + 1.0)  # one of two, and one of one


def test_on_a_network_nothing_is_told_of_other_machines() -> None:
    """A pipeline over two kinds of them is worth what both are together, however that is split between them."""
    one, better = Machines("a", 64.0, None, 0.0, 0.0, (), "net"), Machines("a", 600.0, None, 0.0, 0.0, (), "net")
    assert one.can_do_all_of(one)
    assert not better.can_do_all_of(one)
    alone = replace(one, network="")
    assert replace(better, network="").can_do_all_of(alone)
    assert not alone.can_do_all_of(one)


def test_on_the_same_market_it_is_as_close_as_the_relaxation() -> None:
    problem, question = one_machine()
    found = kept(question)
    assert found is not None
    exact = consider(replace(question, is_urgent=False, least_net_usd=1e9)).most_net_usd
    assert most_net_usd(question, found) == pytest.approx(exact, abs=USD)
    assert len(problem.offers) == 1


def one_machine(*market: Offer, storage_usd: float = 0.0) -> tuple[Problem, Consideration]:
    """One machine of 1 $/h that is busy all the time, on this market."""
    offer = an_offer("a", disk_gb=1000.0, disk_usd_per_gb_month=storage_usd)
    problem = a_problem(
        objective="min_cost",
        models=[a_model(a_workload(demand=2.0), spec=a_dense_spec(total_params=8e9, active_params=8e9))],
        offers=[offer],
        rows=[measured("a", {"w1": 2.0}), measured("b", {"w1": 20.0})],
    )
    plan = solve(problem)
    return problem, consideration(problem, plan, None, list(market), FREE, least_net_usd=0.05, is_urgent=False)


def again(*market: Offer) -> Considered | None:
    """What is clear on this market from what was found where machines as these cost what they do."""
    _, first = one_machine(an_offer("a", offer_id="other", price=1.0))
    found = kept(first)
    assert found is not None
    plan = consider(first).keep.plan
    assert plan is not None
    return kept_again(one_machine(*market)[1], found, plan)


def test_what_is_no_cheaper_changes_nothing() -> None:
    clear = again(an_offer("a", offer_id="dear", price=1.2), an_offer("a", offer_id="other", price=0.99))
    assert clear is not None
    assert (clear.searched, clear.keep.carries, len(clear.options)) == (False, True, 1)
    assert clear.most_net_usd == pytest.approx(0.01, abs=1e-3)


def test_what_is_cheaper_has_to_be_looked_at() -> None:
    assert again(an_offer("a", offer_id="cheap", price=0.8)) is None


def test_unknown_machines_matter_only_where_one_costs_less_than_all_that_runs() -> None:
    assert again(an_offer("b", offer_id="large", price=3.0)) is not None
    assert again(an_offer("b", offer_id="small", price=0.9)) is None


def test_what_is_asked_for_or_urgent_is_never_clear() -> None:
    _, question = one_machine()
    found, plan = kept(question), consider(question).keep.plan
    assert found is not None
    assert plan is not None
    assert kept_again(question, found, plan) is not None
    assert kept_again(replace(question, is_urgent=True), found, plan) is None
    assert kept_again(replace(question, is_issued_anyway=True), found, plan) is None


def test_where_no_sum_is_enough_nothing_has_to_be_known_of_the_market() -> None:
    _, question = one_machine(an_offer("a", offer_id="cheap", price=0.1))
    cooling = replace(question, least_net_usd=float("inf"))
    found = consider(cooling)
    assert (len(found.options), found.searched, found.most_net_usd) == (1, False, float("inf"))
    assert found.kept is not None
    assert found.kept.lasting is None
    assert found.keep.plan is not None
    assert kept_again(cooling, found.kept, found.keep.plan) is not None
    assert kept_again(question, found.kept, found.keep.plan) is None


def test_where_machines_have_become_dearer_what_is_paid_beside_them_counts_once() -> None:
    """Storage is paid at its own price, however dear machines are: the bound may not scale it with them."""
    _, cheap = one_machine(an_offer("a", offer_id="other", price=0.5, disk_usd_per_gb_month=5.0), storage_usd=5.0)
    found = kept(cheap)
    assert found is not None
    _, dear = one_machine(an_offer("a", offer_id="other", price=0.9, disk_usd_per_gb_month=5.0), storage_usd=5.0)
    exact = consider(replace(dear, least_net_usd=1e9)).most_net_usd
    assert most_net_usd(dear, found) >= exact - USD


def test_where_replicas_hand_over_or_watts_are_the_goal_there_is_no_such_bound() -> None:
    for seed, objective in ((ROLES_FROM + 5, "min_cost"), (2, "min_power")):
        running = a_running_fleet(seed, objective)
        assert running is not None
        found = kept(consideration(*running, None, None, Switching()))
        assert found is not None
        assert found.lasting is None
