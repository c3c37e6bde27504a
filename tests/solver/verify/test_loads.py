"""verify derives caps, ceilings and admission again: each of them changed alone is found."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from sutler.solver import solve
from sutler.solver.plan import Plan, Replica, Share
from sutler.solver.problem import LatencyLimit, Limits, Problem, Search, Workload
from sutler.solver.replanning import Switching
from sutler.solver.verify import verify
from tests.builders import a_problem, an_offer
from tests.solver.replanning.builders import considered
from tests.solver.throughput.builders import pipelines_of, served


@cache
def a_case() -> tuple[Problem, Plan]:
    """Two replicas at the load that the limit on the first token leaves them."""
    model = served("llama-3-8b", (1500, 200), slo=[LatencyLimit("ttft", 90, 0.8), LatencyLimit("tpot", 90, 0.05)])
    problem = a_problem(
        objective="max_throughput",
        models=[model],
        offers=[an_offer("l40s", 1, price=1.0, available=2)],
        gpus=pipelines_of([("l40s", 1)]).gpus,
        measured_only=False,
        budget_usd_per_hour=2.0,
        search=Search(max_pipeline_stages=1),
    )
    return problem, solve(problem)


def changed(plan: Plan, change: Callable[[Replica], Replica]) -> Plan:
    return replace(plan, replicas=(change(plan.replicas[0]), *plan.replicas[1:]))


def test_a_plan_states_its_caps_and_ceilings() -> None:
    problem, plan = a_case()
    assert verify(problem, plan) == ()
    for replica in plan.replicas:
        assert replica.max_batch is not None
        assert replica.max_load_fraction is not None
        assert 0.9 * replica.max_load_fraction < replica.utilisation_fraction <= replica.max_load_fraction < 0.95
        assert ("max-num-seqs", replica.max_batch) in [
            (name.lstrip("-").replace("_", "-"), value) for name, value in replica.engine_args
        ]


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda r: replace(r, max_load_fraction=0.99), "max_load_fraction"),
        (lambda r: replace(r, max_load_fraction=r.max_load_fraction * 0.99), "max_load_fraction"),
        (lambda r: replace(r, max_load_fraction=None), "max_load_fraction"),
        (lambda r: replace(r, max_batch=None), "max_batch"),
        (lambda r: replace(r, max_batch=0), "max_batch"),
        (lambda r: replace(r, max_batch=257), "max_batch"),
        (lambda r: replace(r, max_batch=r.max_batch // 2), "utilisation_fraction"),
        (lambda r: replace(r, utilisation_fraction=r.utilisation_fraction * 1.01), "utilisation_fraction"),
    ],
)
def test_each_figure_of_a_load_is_derived_again(change: Callable[[Replica], Replica], named: str) -> None:
    problem, plan = a_case()
    assert any(named in wrong for wrong in verify(problem, changed(plan, change)))


def test_more_than_a_ceiling_is_found_where_everything_else_agrees() -> None:
    """The same figures under a tighter limit."""
    problem, plan = a_case()
    tight = replace(problem.models[0], slo=(LatencyLimit("ttft", 99, 0.5),))
    wrong = verify(replace(problem, models=(tight,)), plan)
    assert any("utilisation_fraction" in one and "at most" in one for one in wrong)
    capped = replace(problem, limits=Limits(max_utilisation_fraction=0.3))
    assert any("at most 0.3" in one for one in verify(capped, plan))


def test_routing_beyond_a_ceiling_is_found() -> None:
    problem, plan = a_case()
    (route,) = plan.routing
    one_sided = tuple(Share(share.replica, 0.9 if at == 0 else 0.1) for at, share in enumerate(route.shares))
    assert verify(problem, replace(plan, routing=(replace(route, shares=one_sided),)))


@pytest.mark.parametrize(("above", "is_kept"), [(1.005, True), (1.015, True), (1.03, False)])
def test_headroom_is_kept_as_far_as_points_and_ceilings_differ(above: float, is_kept: bool) -> None:
    """They are found in two ways, so that a load that a point promises may lie a little above the ceiling."""
    problem, _ = a_case()
    light = replace(problem.models[0], workloads=(Workload("w0", 1500, 200, 2.0),))
    cost = replace(problem, models=(light,), objective=replace(problem.objective, kind="min_cost"))
    plan = solve(replace(cost, budget_usd_per_hour=None))
    (replica,), multiple = plan.replicas, (plan.load_multiple or 0.0) * above
    asked = replace(cost, budget_usd_per_hour=None, objective=replace(cost.objective, headroom_fraction=multiple - 1))
    loaded = replace(replica, max_load_fraction=replica.utilisation_fraction * multiple)
    assert (verify(asked, replace(plan, replicas=(loaded,), load_multiple=multiple)) == ()) is is_kept


def test_what_runs_keeps_its_cap_and_is_not_short_for_want_of_a_ceiling() -> None:
    """Stored by a version that knew no ceilings, and started with another cap than would be planned now."""
    problem, _ = a_case()
    cost = replace(problem, objective=replace(problem.objective, kind="min_cost"), budget_usd_per_hour=None)
    light = replace(cost.models[0], workloads=tuple(replace(w, demand=2.0) for w in cost.models[0].workloads))
    cost = replace(cost, models=(light,))
    plan = solve(cost)
    older = replace(plan, replicas=tuple(replace(one, max_load_fraction=None, max_batch=40) for one in plan.replicas))
    found = considered(cost, older, switching=Switching(startup_s=60.0))
    assert found.keep.carries
    assert found.keep.is_valid
    assert found.keep.plan is not None
    assert [one.max_batch for one in found.keep.plan.replicas] == [40] * len(plan.replicas)
    assert all(one.max_load_fraction is not None for one in found.keep.plan.replicas)
