"""What changes cost, in numbers that fit on paper."""

from dataclasses import replace

import pytest

from sutler.solver.plan import Stage
from sutler.solver.problem import Problem
from sutler.solver.replanning import StandingDeployment, Switching
from sutler.solver.replanning.switching import change_of
from tests.builders import a_model, a_problem, an_offer, measured
from tests.solver.replanning.builders import a_plan, a_rental, a_replica, a_stage
from tests.solver.throughput.builders import a_dense_spec

HELD = a_rental("a-1", count=3, price=9.0, held=True)
NEW = a_rental("b-4", 4, price=16.0)


def a_standing(*replicas: int) -> StandingDeployment:
    """Three machines of one GPU at 9 $/h; a replica on each of those given."""
    return StandingDeployment(
        (HELD,), tuple(a_replica(f"chat-{number}", a_stage(0, number)) for number in replicas), ()
    )


def a_market(*, inet_down_gb_per_s: float | None = None) -> Problem:
    """A model whose checkpoint needs 17.6 GB: 8e9 parameters of 2 bytes and a tenth more."""
    spec = a_dense_spec(total_params=8e9, active_params=8e9)
    return a_problem(
        models=[a_model(spec=spec)],
        offers=[
            an_offer("a", price=9.0, available=3, held=True),
            an_offer("b", 4, price=16.0, available=2, inet_down_gb_per_s=inet_down_gb_per_s),
        ],
        rows=[measured("a", {"w1": 1.0}), measured("b:4", {"w1": 4.0})],
    )


def b_stage(*, rental: int = 1, machine: int = 0) -> Stage:
    """All four GPUs of a new machine."""
    return a_stage(rental, machine, 0, 1, 2, 3, gpu="b")


def test_a_machine_serves_after_it_has_started_and_loaded_the_weights() -> None:
    """90 s and 17.6 GB at 0.25 GB/s: 160.4 s; at the host's own 1.76 GB/s 100 s."""
    switching = Switching(startup_s=90.0, download_gb_per_s=0.25)
    assert switching.start_s(17.6) == pytest.approx(160.4)
    assert switching.start_s(17.6, 1.76) == pytest.approx(100.0)


def test_nothing_takes_time_where_machines_start_at_once() -> None:
    assert Switching(startup_s=0.0, download_gb_per_s=0.01).start_s(100.0) == 0.0


@pytest.mark.parametrize(("min_rental_s", "usd"), [(0.0, 0.1), (3600.0, 0.1), (7200.0, 2.1)])
def test_a_new_machine_costs_its_start_and_what_must_be_rented_beyond_the_horizon(
    min_rental_s: float, usd: float
) -> None:
    """2 $/h for 180 s is 0.10 $; of two hours at least, one lies beyond a horizon of one: 2 $ more."""
    switching = Switching(min_rental_s=min_rental_s, horizon_s=3600.0)
    assert switching.start_usd(2.0, 180.0) == pytest.approx(usd)


def test_an_old_machine_is_paid_for_until_the_new_ones_serve_and_it_has_drained() -> None:
    """3 $/h for 120 s and 60 s."""
    assert Switching(drain_s=60.0).stop_usd(3.0, 120.0) == pytest.approx(0.15)


def test_an_engine_that_starts_anew_leaves_its_gpus_idle() -> None:
    """4 $/h for 90 s."""
    assert Switching(restart_s=90.0).restart_usd(4.0) == pytest.approx(0.1)


def test_the_horizon_is_given_in_seconds_and_counted_in_hours() -> None:
    assert Switching(horizon_s=5400.0).horizon_h == 1.5


def test_the_same_fleet_is_no_change() -> None:
    plan = a_plan([HELD], a_standing(0, 1, 2).replicas)
    switching = Switching(startup_s=60.0, restart_s=60.0, drain_s=60.0)
    change = change_of(a_market(), a_standing(0, 1, 2), plan, switching)
    assert change.is_none
    assert (change.usd, change.ready_s) == (0.0, 0.0)


def test_a_new_machine_takes_over_from_an_old_one() -> None:
    """Start: 60 s + 17.6 GB at 0.1 GB/s = 236 s of 16 $/h; stop: 236 s + 64 s of 9 $/h."""
    plan = a_plan([replace(HELD, count=2), NEW], [*a_standing(0, 1).replicas, a_replica("chat-3", b_stage())])
    switching = Switching(startup_s=60.0, download_gb_per_s=0.1, drain_s=64.0)
    change = change_of(a_market(), a_standing(0, 1, 2), plan, switching)
    assert (change.started, change.stopped, change.restarted) == (1, 1, 0)
    assert change.usd == pytest.approx(16 * 236 / 3600 + 9 * 300 / 3600)
    assert change.ready_s == pytest.approx(236.0)


def test_a_host_with_a_fast_line_is_ready_sooner() -> None:
    """60 s + 17.6 GB at 0.44 GB/s = 100 s."""
    plan = a_plan([HELD, NEW], [*a_standing(0, 1, 2).replicas, a_replica("chat-3", b_stage(rental=1))])
    switching = Switching(startup_s=60.0, download_gb_per_s=0.1)
    change = change_of(a_market(inet_down_gb_per_s=0.44), a_standing(0, 1, 2), plan, switching)
    assert change.ready_s == pytest.approx(100.0)
    assert change.usd == pytest.approx(16 * 100 / 3600)


def test_every_machine_of_a_new_rental_is_paid_for() -> None:
    """Two for 100 s, and an hour of each beyond the horizon of one."""
    replicas = [a_replica(f"chat-{number}", b_stage(rental=0, machine=number)) for number in (0, 1)]
    plan = a_plan([replace(NEW, count=2)], replicas)
    switching = Switching(startup_s=60.0, download_gb_per_s=0.44, min_rental_s=7200.0)
    change = change_of(a_market(), StandingDeployment((), (), ()), plan, switching)
    assert (change.started, change.stopped, change.restarted) == (2, 0, 0)
    assert change.usd == pytest.approx(2 * 16 * (100 + 3600) / 3600)


def test_machines_that_only_stop_have_nothing_to_wait_for() -> None:
    """Two of three at 9 $/h drain for 40 s each."""
    plan = a_plan([replace(HELD, count=1)], a_standing(0).replicas)
    switching = Switching(startup_s=600.0, drain_s=40.0)
    change = change_of(a_market(), a_standing(0, 1, 2), plan, switching)
    assert (change.started, change.stopped, change.restarted, change.ready_s) == (0, 2, 0, 0.0)
    assert change.usd == pytest.approx(2 * 9 * 40 / 3600)


def test_a_replica_of_another_name_on_a_held_machine_is_an_engine_that_starts_anew() -> None:
    """Its one GPU of a machine at 9 $/h idles for 80 s; the two others run on."""
    plan = a_plan([HELD], [*a_standing(0, 1).replicas, a_replica("chat-7", a_stage(0, 2))])
    change = change_of(a_market(), a_standing(0, 1, 2), plan, Switching(startup_s=60.0, restart_s=80.0))
    assert (change.started, change.stopped, change.restarted, change.ready_s) == (0, 0, 1, 80.0)
    assert change.usd == pytest.approx(9 * 80 / 3600)


def test_only_the_gpus_of_the_engine_idle_while_it_starts() -> None:
    """A pair of a held machine of four at 16 $/h: 8 $/h for 90 s."""
    held = replace(NEW, held=True)
    standing = StandingDeployment((held,), (a_replica("chat-0", a_stage(0, 0, 0, 1, gpu="b")),), ())
    plan = a_plan([held], [*standing.replicas, a_replica("chat-1", a_stage(0, 0, 2, 3, gpu="b"))])
    change = change_of(a_market(), standing, plan, Switching(restart_s=90.0))
    assert change.usd == pytest.approx(8 * 90 / 3600)


def test_an_engine_on_a_new_machine_is_not_charged_twice() -> None:
    """What it waits for is the machine."""
    plan = a_plan([NEW], [a_replica("chat-0", b_stage(rental=0))])
    switching = Switching(startup_s=60.0, download_gb_per_s=0.44, restart_s=500.0)
    change = change_of(a_market(), StandingDeployment((), (), ()), plan, switching)
    assert change.restarted == 0
    assert change.ready_s == pytest.approx(100.0)
    assert change.usd == pytest.approx(16 * 100 / 3600)


def test_the_change_takes_as_long_as_the_slowest_part_of_it() -> None:
    replicas = [*a_standing(0, 1).replicas, a_replica("chat-5", a_stage(0, 2)), a_replica("chat-6", b_stage())]
    plan = a_plan([HELD, NEW], replicas)
    for restart_s, ready_s in ((30.0, 100.0), (300.0, 300.0)):
        switching = Switching(startup_s=60.0, download_gb_per_s=0.44, restart_s=restart_s)
        assert change_of(a_market(), a_standing(0, 1, 2), plan, switching).ready_s == pytest.approx(ready_s)
