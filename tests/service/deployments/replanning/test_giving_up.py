"""What a deployment plans whose machines that it does not hold yet go to others."""

from tests.service.deployments.replanning.builders import a_holding, a_problem, an_offer
from tests.service.deployments.replanning.worlds import a_world

WHY = "machines that were planned on and not held yet go to others"


def test_what_is_held_goes_on_to_serve_its_part() -> None:
    problem = a_problem(25.0, 0.1)
    both = an_offer("one", available=1, machine_id="1"), an_offer("two", available=1, machine_id="2")
    world = a_world(*both, problem=problem, rented=False)
    world.reports([a_holding("one", 1)])
    world.poll(both[0])
    verdict = world.look(given_up_for=WHY)
    assert verdict.state.status == "short"
    assert verdict.decision is not None
    assert verdict.plan is not None
    assert [rental.offer_id for rental in verdict.plan.rentals] == ["one"]
    assert WHY in verdict.decision.reason
