"""Deployments whose machines hand over inside themselves: kept by looks, grown with the load, replaced when lost."""

import pytest

from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from tests.service.deployments.replanning.builders import a_problem, an_offer, traffic
from tests.service.deployments.replanning.test_roles import measured
from tests.service.deployments.replanning.worlds import World, a_world, machines

TABLE = [measured("h100-sxm", "prefill", 20.0, 4.0), measured("h100-sxm", "decode", 20.0, 16.0)]
PAIRS = an_offer("pair", gpus=2, price_usd_per_hour=4.0, available=4)
OTHER = an_offer("other", gpus=2, price_usd_per_hour=4.4, available=1)


def inside(questions_rps: float) -> ProblemDocument:
    return a_problem(questions_rps, 2.0, throughput={"only": True, "table": TABLE}, search={"disaggregation": "only"})


def a_world_inside(questions_rps: float = 20.0) -> World:
    """Two H100 to a machine, and no network between machines."""
    return a_world(PAIRS, problem=inside(questions_rps))


def are_inside(plan: PlanDocument) -> bool:
    at = {one.id: (one.stages[0].rental, one.stages[0].machine) for one in plan.replicas}
    return bool(plan.kv_transfers) and all(at[one.prefill] == at[one.decode] for one in plan.kv_transfers)


def test_a_large_fleet_keeps_handing_over_where_it_does() -> None:
    """More machines than prefill and decode are considered on: others serve whole requests until they are held."""
    whole = measured("h100-sxm", "aggregated", 6.0, 1.2)
    problem = a_problem(
        200.0, 2.0, throughput={"only": True, "table": [*TABLE, whole]}, search={"disaggregation": "auto"}
    )
    world = a_world(PAIRS.model_copy(update={"available": 40}), problem=problem)
    assert {replica.role for replica in world.plan.replicas} == {"aggregated", "prefill", "decode"}
    assert are_inside(world.plan)
    world.traffic = traffic(200.0, 2.0, at=world.now, policy=world.policy)
    assert world.look().state.status == "calm"
    world.traffic = traffic(260.0, 2.6, at=world.now, policy=world.policy)
    before = world.plan
    world.look()
    assert are_inside(world.plan)
    roles = {one.id: one.role for one in world.plan.replicas}
    assert all(roles[one.id] == one.role for one in before.replicas if one.role != "aggregated")


@pytest.mark.slow
def test_what_runs_inside_machines_is_calm_grows_and_survives_a_loss() -> None:
    world = a_world_inside()
    assert machines(world) == {"acme/pair": 2}
    assert are_inside(world.plan)
    verdict = world.look()
    assert (verdict.drifts, verdict.state.status) == ((), "calm")

    world.traffic = traffic(35.0, 3.5, at=world.now, policy=world.policy)
    before = world.plan
    world.look()
    assert machines(world) == {"acme/pair": 4}
    assert are_inside(world.plan)
    assert {replica.id for replica in before.replicas} <= {replica.id for replica in world.plan.replicas}

    world.passes(world.policy.cooldown_s + 1)
    world.poll()
    first, *others = world.holdings or ()
    world.reports([first.model_copy(update={"count": first.count - 1}), *others])
    world.poll(PAIRS.model_copy(update={"available": 0}), OTHER)
    world.look()
    assert machines(world) == {"acme/pair": 3, "acme/other": 1}
    assert are_inside(world.plan)
