"""The simulated world: when machines are paid, when they serve, and what becomes of the requests."""

import math
from collections.abc import Iterable

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.day.fleet import Engine, Fleet, Lease
from benchmarks.day.market import ForRent
from benchmarks.day.serving import serve
from benchmarks.day.world import Terms, World, usd
from sutler.adapters.base import Offer

TEN_RPS = np.array([10.0, 0.0])
TERMS = Terms(
    startup_s=100.0,
    download_gb_per_s=1.0,
    restart_s=60.0,
    drain_s=30.0,
    min_rental_s=0.0,
    weights_gb=20.0,
    utilisation_fraction=1.0,
)


def for_rent(name: str, *, gpus: int = 1, price: float = 3.6, inet: float | None = None) -> ForRent:
    offer = Offer(
        offer_id=name,
        feed="on_demand",
        gpu="h100-sxm",
        gpus=gpus,
        available=1,
        price_usd_per_hour=price,
        contract="on_demand",
        machine_id=name,
        inet_down_gb_per_s=inet,
    )
    return ForRent("cloud", offer)


def fleet(*names: str, gpus: int = 1, price: float = 3.6, tensor_parallel: int = 1) -> Fleet:
    """One machine of each name with one engine; all share the traffic evenly."""
    leases = tuple(Lease("cloud", name, "on_demand", "h100-sxm", gpus, price) for name in names)
    share = (1.0 / len(names),) * 2 if names else ()
    return Fleet(leases, tuple(Engine(i, tensor_parallel, share) for i in range(len(names))))


def speeds(gpu: str, tensor_parallel: int, intra_gb_per_s: float | None) -> NDArray[np.float64]:
    """10 requests/s of either bucket on each GPU."""
    return np.array([10.0, 10.0]) * tensor_parallel


def world(
    first: Fleet, *, fails: dict[str, float] | None = None, terms: Terms = TERMS, offers: Iterable[ForRent] = ()
) -> World:
    def lost_at(rented: ForRent, since_s: float) -> float:
        at_s = (fails or {}).get(rented.machine[1], math.inf)
        return at_s if at_s > since_s else math.inf

    made = World(terms, speeds, lost_at)
    made.begin(first, [*offers, *(for_rent(lease.offer_id, gpus=lease.gpus) for lease in first.machines)])
    return made


def requests(made: World) -> float:
    return sum(span.served_rps * span.length_s for span in made.spans)


def test_the_first_fleet_serves_from_the_first_moment() -> None:
    made = world(fleet("a"))
    made.advance(100.0, TEN_RPS)
    assert requests(made) == pytest.approx(1000.0)
    assert usd(made.spans) == pytest.approx(0.1)
    assert made.started == 0


def test_what_exceeds_the_capacity_is_lost() -> None:
    made = world(fleet("a"))
    made.advance(100.0, 1.5 * TEN_RPS)
    assert requests(made) == pytest.approx(1000.0)


def test_a_new_machine_is_paid_at_once_and_serves_after_start_and_download() -> None:
    made = world(fleet("a"))
    made.order(fleet("a", "b"), [for_rent("b")])
    made.advance(200.0, 2 * TEN_RPS)
    assert [(span.begin_s, span.end_s) for span in made.spans] == [(0.0, 120.0), (120.0, 200.0)]
    assert [span.served_rps for span in made.spans] == pytest.approx([10.0, 20.0])
    assert usd(made.spans) == pytest.approx(0.4)
    assert made.started == 1


def test_a_new_machine_takes_what_spills_over_while_another_is_still_starting() -> None:
    made = world(fleet("a"))
    made.order(fleet("b", "c"), [for_rent("b"), for_rent("c", inet=0.1)])
    made.advance(200.0, 3 * TEN_RPS)
    assert [(span.end_s, span.served_rps) for span in made.spans] == [(120.0, 10.0), (200.0, 20.0)]
    made.advance(400.0, 0.5 * TEN_RPS)
    assert [machine.lease.offer_id for machine in made.rented] == ["b", "c"]


def test_the_download_goes_at_the_speed_that_the_offer_states() -> None:
    made = world(fleet("a"))
    made.order(fleet("b"), [for_rent("b", inet=0.5)])
    assert made.change is not None
    assert made.change.ready_s == 140.0


def test_an_old_machine_serves_until_the_new_one_does_and_is_paid_until_it_is_drained() -> None:
    made = world(fleet("a"))
    made.order(fleet("b"), [for_rent("b")])
    made.advance(300.0, TEN_RPS)
    assert requests(made) == pytest.approx(3000.0)
    assert usd(made.spans) == pytest.approx((300.0 + 150.0) / 1000.0)
    assert [machine.lease.offer_id for machine in made.rented] == ["b"]
    assert (made.started, made.stopped) == (1, 1)


def test_paid_time_that_does_not_serve_is_idle() -> None:
    made = world(fleet("a"))
    made.order(fleet("b"), [for_rent("b")])
    made.advance(300.0, TEN_RPS)
    assert sum(span.idle_machines * span.length_s for span in made.spans) == pytest.approx(120.0 + 30.0)


def test_stopping_takes_no_waiting() -> None:
    made = world(fleet("a", "b"))
    made.order(fleet("a"), [])
    made.advance(100.0, TEN_RPS)
    assert requests(made) == pytest.approx(1000.0)
    assert usd(made.spans) == pytest.approx((100.0 + 30.0) / 1000.0)


def test_the_shortest_rental_is_paid_in_any_case() -> None:
    terms = Terms(
        startup_s=100.0,
        download_gb_per_s=1.0,
        restart_s=60.0,
        drain_s=30.0,
        min_rental_s=1000.0,
        weights_gb=20.0,
        utilisation_fraction=1.0,
    )
    made = world(fleet("a", "b"), terms=terms)
    made.order(fleet("a"), [])
    made.advance(2000.0, TEN_RPS)
    assert usd(made.spans) == pytest.approx((2000.0 + 1000.0) / 1000.0)


def test_a_price_is_fixed_while_a_machine_is_kept() -> None:
    made = world(fleet("a", price=3.6))
    made.order(fleet("a", "b", price=7.2), [for_rent("b", price=7.2)])
    made.advance(1000.0, TEN_RPS)
    assert [machine.lease.price_usd_per_hour for machine in made.rented] == [3.6, 7.2]


def test_an_engine_of_another_shape_on_a_machine_that_stays_restarts() -> None:
    made = world(fleet("a", gpus=2, tensor_parallel=1))
    made.order(fleet("a", gpus=2, tensor_parallel=2), [])
    made.advance(200.0, TEN_RPS)
    assert requests(made) == pytest.approx(1400.0)
    assert usd(made.spans) == pytest.approx(0.2)
    assert (made.started, made.stopped) == (0, 0)


def test_routing_alone_changes_at_once_and_restarts_nothing() -> None:
    made = world(fleet("a", "b"))
    all_to_a = Fleet(made_leases := fleet("a", "b").machines, (Engine(0, 1, (1.0, 1.0)), Engine(1, 1, (0.0, 0.0))))
    assert len(made_leases) == 2
    made.order(all_to_a, [])
    made.advance(100.0, TEN_RPS)
    assert requests(made) == pytest.approx(1000.0)


def test_a_lost_machine_neither_serves_nor_costs_and_the_rest_takes_its_part() -> None:
    made = world(fleet("a", "b"), fails={"b": 50.0})
    made.advance(100.0, 1.5 * TEN_RPS)
    assert requests(made) == pytest.approx(50 * 15.0 + 50 * 10.0)
    assert usd(made.spans) == pytest.approx(0.15)
    assert made.lost == 1
    assert [machine.lease.offer_id for machine in made.rented] == ["a"]


def test_a_change_goes_through_without_the_machine_that_is_lost_while_it_starts() -> None:
    made = world(fleet("a"), fails={"b": 50.0})
    made.order(fleet("b", "c"), [for_rent("b"), for_rent("c", inet=1.0)])
    made.advance(200.0, TEN_RPS)
    assert made.change is None
    assert [machine.lease.offer_id for machine in made.rented] == ["c"]
    assert requests(made) == pytest.approx(2000.0)


def test_a_change_whose_only_new_machine_is_lost_ends_the_wait_for_it() -> None:
    made = world(fleet("a"), fails={"b": 50.0})
    made.order(fleet("a", "b"), [for_rent("b")])
    made.advance(60.0, TEN_RPS)
    assert made.change is None
    assert requests(made) == pytest.approx(600.0)


def test_a_second_change_waits_for_the_first() -> None:
    made = world(fleet("a"))
    made.order(fleet("a", "b"), [for_rent("b")])
    with pytest.raises(ValueError, match="under way"):
        made.order(fleet("a"), [])


def test_what_never_was_for_rent_cannot_be_ordered() -> None:
    made = world(fleet("a"))
    with pytest.raises(ValueError, match="cloud/b: was never for rent"):
        made.order(fleet("b"), [for_rent("c")])


def test_what_is_for_rent_no_more_is_never_there_and_costs_nothing() -> None:
    made = world(fleet("a"))
    made.order(fleet("a"), [for_rent("b")])
    made.advance(1000.0, TEN_RPS)
    before = usd(made.spans)
    made.order(fleet("a", "b"), [])
    made.advance(2000.0, TEN_RPS)
    assert [machine.lease.offer_id for machine in made.rented] == ["a"]
    assert (made.started, made.lost) == (0, 0)
    assert usd(made.spans) == pytest.approx(2 * before)


def test_two_machines_of_one_offer_are_two_machines() -> None:
    made = world(fleet("a", "a"))
    made.order(fleet("a"), [])
    made.advance(100.0, TEN_RPS)
    assert len(made.rented) == 1
    assert made.stopped == 1


@pytest.mark.parametrize("step_s", [1.0, 7.0, 60.0, 300.0])
def test_the_length_of_the_steps_changes_nothing(step_s: float) -> None:
    made = world(fleet("a", "b"), fails={"b": 133.0})
    made.order(fleet("a", "b", "c"), [for_rent("c")])
    for at_s in np.arange(0.0, 300.0, step_s):
        made.advance(min(300.0, float(at_s) + step_s), 3 * TEN_RPS)
    assert requests(made) == pytest.approx(120 * 20.0 + 13 * 30.0 + 167 * 20.0)
    assert usd(made.spans) == pytest.approx((300.0 + 133.0 + 300.0) / 1000.0)


def test_a_full_engine_hands_over_to_one_that_has_room() -> None:
    arriving, shares = np.array([15.0]), np.array([[1.0], [0.0]])
    found = serve(arriving, shares, np.array([[10.0], [4.0]]), utilisation_fraction=1.0)
    assert found.rps == pytest.approx(14.0)
    assert found.busy_fraction == pytest.approx(1.0)


def test_an_engine_takes_nothing_that_it_cannot_serve() -> None:
    arriving, shares = np.array([15.0]), np.array([[0.5], [0.5]])
    found = serve(arriving, shares, np.array([[10.0], [0.0]]), utilisation_fraction=1.0)
    assert found.rps == pytest.approx(10.0)


def test_without_engines_nothing_is_served() -> None:
    nothing = np.zeros((0, 2))
    found = serve(TEN_RPS, nothing, nothing, utilisation_fraction=1.0)
    assert (found.rps, found.capacity_rps) == (0.0, 0.0)


def test_engines_are_filled_up_to_where_they_keep_their_limits() -> None:
    found = serve(np.array([20.0]), np.array([[1.0]]), np.array([[10.0]]), utilisation_fraction=0.85)
    assert found.rps == pytest.approx(8.5)


def test_never_more_is_served_than_arrives_or_fits() -> None:
    draw = np.random.default_rng(1)
    for _ in range(200):
        arriving = draw.exponential(10.0, size=4)
        shares, rates = draw.dirichlet(np.ones(5), size=4).T, draw.exponential(5.0, size=(5, 4))
        found = serve(arriving, shares, rates, utilisation_fraction=0.85)
        assert found.rps <= min(arriving.sum(), 0.85 * rates.max(axis=1).sum()) + 1e-9
        assert -1e-9 <= found.busy_fraction <= 1 + 1e-9


def test_the_capacity_is_what_all_of_the_room_would_serve() -> None:
    found = serve(np.array([6.0, 2.0]), np.array([[1.0, 1.0]]), np.array([[20.0, 20.0]]), utilisation_fraction=0.8)
    assert found.busy_fraction == pytest.approx(0.5)
    assert found.capacity_rps == pytest.approx(16.0)
