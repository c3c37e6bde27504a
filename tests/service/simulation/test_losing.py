"""What is lost on the way through a simulation: who falls, what is served meanwhile, and how it goes on."""

import pytest

from sutler.service.documents.errors import DocumentError
from sutler.service.library.simulating import simulate
from sutler.service.simulation.losing import losing_of, lost
from tests.service.surviving import SURVIVING, on_two_providers


@pytest.mark.parametrize("name", ["p", "q"])
def test_a_plan_that_survives_carries_its_share_from_the_detection_on(name: str) -> None:
    plan = on_two_providers(**SURVIVING)
    found = simulate(plan, duration_s=200.0, lose=f"provider={name}@60").loss
    assert found is not None
    assert (found.at_s, found.detected_s) == (60.0, 80.0)
    assert set(found.replicas) == {
        replica.id for replica in plan.replicas if plan.rentals[replica.stages[0].rental].provider == name
    }
    assert found.served_after_fraction == 1.0
    assert found.carried_after_fraction is not None
    assert found.carried_after_fraction >= 0.8
    assert found.served_meanwhile_fraction is not None
    assert found.served_meanwhile_fraction < 1.0


def test_a_plan_on_one_provider_serves_nothing_more() -> None:
    plan = on_two_providers()
    assert {rental.provider for rental in plan.rentals} == {"p"}
    found = simulate(plan, duration_s=200.0, lose="provider=p@60", detection_s=5.0)
    assert found.loss is not None
    assert found.loss.detected_s == 65.0
    assert (found.loss.served_meanwhile_fraction, found.loss.served_after_fraction) == (0.0, 0.0)
    assert found.loss.carried_after_fraction == 0.0
    assert found.loss.unserved > 30 * 130


def test_without_a_routing_for_it_shares_fall_to_those_that_are_left() -> None:
    plan = on_two_providers()
    first = plan.losses[0].name if plan.losses[0].kind == "machine" else "p/p/0"
    found = lost(plan, losing_of(f"machine={first}@10"))
    (route,) = found.loss.routing
    assert set(route.fractions) == {replica.id for replica in plan.replicas} - set(found.loss.replicas)
    assert sum(route.fractions.values()) == pytest.approx(1.0)
    served = simulate(plan, duration_s=100.0, lose=f"machine={first}@10", detection_s=0.0).loss
    assert served is not None
    assert served.served_after_fraction == 1.0


def test_what_was_under_way_on_what_is_lost_is_unserved() -> None:
    plan = on_two_providers(**SURVIVING)
    whole = simulate(plan, duration_s=100.0)
    found = simulate(plan, duration_s=100.0, lose="interruptible@50", detection_s=0.0)
    assert found.loss is not None
    assert whole.loss is None
    assert sum(model.unserved for model in whole.models) == 0
    assert 0 < found.loss.unserved < 0.2 * found.requests


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("provider", "KIND=NAME@SECONDS"),
        ("provider=p@soon", "KIND=NAME@SECONDS"),
        ("provider=p@-1", "KIND=NAME@SECONDS"),
        ("provider=@5", "KIND=NAME@SECONDS"),
        ("cloud=p@5", "of the kinds provider, place, machine"),
        ("provider=z@5", "it knows p, q"),
    ],
)
def test_what_cannot_be_lost_is_named(text: str, remedy: str) -> None:
    with pytest.raises(DocumentError) as caught:
        simulate(on_two_providers(**SURVIVING), duration_s=10.0, lose=text)
    assert remedy in str(caught.value)
