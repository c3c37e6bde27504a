"""sutler beside all schedules of tiny applications, each of them executed."""

from random import Random

import pytest

from sutler.solver.offline.application import Edge, LengthDistribution, Node
from sutler.solver.offline.bounds import lower_bound
from sutler.solver.offline.costs import Costs
from sutler.solver.offline.forecast import Forecaster
from sutler.solver.offline.planner import RULES
from sutler.solver.offline.search import by_rule, searched
from tests.looped import for_each
from tests.solver.offline.brute_force import best_makespan_s
from tests.solver.offline.builders import SPECS, a_chain, a_node, app_of, costs_of, hardware_of

LENGTHS = (LengthDistribution((50, 150, 400), (0.4, 0.8, 1.0)), 200, LengthDistribution((20, 700), (0.8, 1.0)))


def tiny(seed: int) -> Costs:
    """Three models on two GPUs; two on three; one that reads another, and a third; a chain and another."""
    draw = Random(seed)

    def node(name: str, items: int, chain: int | None = None) -> Node:
        return a_node(
            name,
            items,
            spec=draw.choice(SPECS),
            inputs=draw.choice((100, 400)),
            outputs=draw.choice(LENGTHS),
            slowdown=draw.choice((1.0, 3.0)),
            chain=chain,
        )

    if seed % 4 == 0:
        application, gpus = app_of(*(node(f"m{number}", draw.randint(20, 150)) for number in range(3))), 2
    elif seed % 4 == 1:
        application, gpus = app_of(*(node(f"m{number}", draw.randint(20, 200)) for number in range(2))), 3
    elif seed % 4 == 2:
        three = (node("a", draw.randint(20, 80)), node("b", 0), node("c", draw.randint(20, 80)))
        application, gpus = app_of(*three, edges=[Edge("a", "b")]), 2
    else:
        two = (node("a", draw.randint(5, 20), chain=3), node("b", draw.randint(20, 90)))
        application, gpus = app_of(*two, edges=[a_chain("a")]), 3
    max_sequences, keeps = draw.choice((16, 64)), draw.random() < 0.7
    return costs_of(application, hardware_of(gpus), seed=seed, max_sequences=max_sequences, keeps_replicas=keeps)


@pytest.mark.slow
@for_each("seed", range(4))
def test_no_schedule_of_whole_stages_is_one_percent_faster(seed: int) -> None:
    costs = tiny(seed)
    best_s, count = best_makespan_s(costs)
    assert count >= 50
    assert lower_bound(costs).seconds <= best_s
    for rule in RULES.values():
        assert by_rule(Forecaster(costs), rule).makespan_s >= best_s - 1e-9
    found = searched(Forecaster(costs), deadline_s=1.0, clock=lambda: 0.0).execution
    assert found.makespan_s <= 1.01 * best_s
    if all(stage.until_node is None for stage in found.schedule):
        assert found.makespan_s >= best_s - 1e-9
