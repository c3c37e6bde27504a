"""Fleets whose prompts and answers run on replicas of their own, and power caps, when the world changes: by hand."""

from dataclasses import replace
from typing import Any

import pytest

from sutler.solver import solve
from sutler.solver.answer.pairing import Side, in_order
from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.plan import KvTransfer, Plan, Replica, sequences_of
from sutler.solver.problem import Disaggregation, Limits, ObjectiveKind, Problem, Role, Search
from sutler.solver.replanning import Considered, Switching, holdings_of, standing_of
from sutler.solver.replanning.standing import StandingDeployment, StandingFleet, standing_candidates, standing_fleet
from sutler.solver.verify import verify
from tests.builders import a_model, a_problem, a_workload, an_offer, measured
from tests.solver.replanning.builders import (
    FREE,
    a_rental,
    a_replica,
    a_route,
    a_stage,
    considered,
    machines_of,
    with_demand,
    with_held,
    without,
)

NETWORK: dict[str, Any] = {"inter_machine_gb_per_s": 12.5}


def apart(name: str, role: Role, rental: int, machine: int = 0) -> Replica:
    return replace(a_replica(name, a_stage(rental, machine)), role=role)


def handed_over(prefill: str, decode: str, fraction: float) -> KvTransfer:
    return KvTransfer("chat", "w1", prefill, decode, fraction, None, None)


def two_networks() -> Problem:
    """A prefill replica takes 4 rps, a decode replica 2; three machines on network s, three on t."""
    rows = [measured("a", {"w1": 4.0}, role="prefill"), measured("a", {"w1": 2.0}, role="decode")]
    return a_problem(
        offers=[
            an_offer("a", offer_id="a-1", available=3, site="s", held=True, **NETWORK),
            an_offer("a", offer_id="a-2", available=3, site="t", held=True, **NETWORK),
        ],
        rows=rows,
        search=Search(disaggregation="only"),
    )


def a_standing(lost: tuple[str, ...] = ()) -> StandingDeployment:
    """On each network one prefill replica feeds two decode replicas: s gets 60 %, 20 + 40, t 40 %, 30 + 10."""
    replicas = [
        apart("chat-0", "prefill", 0, 0),
        apart("chat-1", "decode", 0, 1),
        apart("chat-2", "decode", 0, 2),
        apart("chat-3", "prefill", 1, 0),
        apart("chat-4", "decode", 1, 1),
        apart("chat-5", "decode", 1, 2),
    ]
    rentals = tuple(replace(a_rental(f"a-{n}", count=3, held=True), site=site) for n, site in ((1, "s"), (2, "t")))
    transfers = (
        handed_over("chat-0", "chat-1", 0.2),
        handed_over("chat-0", "chat-2", 0.4),
        handed_over("chat-3", "chat-4", 0.3),
        handed_over("chat-3", "chat-5", 0.1),
    )
    standing = tuple(replica for replica in replicas if replica.id not in lost)
    return StandingDeployment(rentals, standing, (a_route(chat_0=0.6, chat_3=0.4),), transfers)


def fleet_of(standing: StandingDeployment) -> StandingFleet:
    fleet = standing_fleet(two_networks(), standing, standing_candidates(two_networks(), standing))
    assert fleet is not None
    return fleet


def shares(standing: StandingDeployment) -> dict[str, float]:
    fleet = fleet_of(standing)
    routing = fleet.as_routed(standing.routing, standing.kv_transfers)
    return {
        replica.id: round(float(share), 9)
        for replica, share in zip(fleet.replicas, routing.fraction[0], strict=True)
        if share > 0
    }


@pytest.mark.parametrize(
    ("lost", "expected"),
    [
        ((), {"chat-0": 0.6, "chat-1": 0.2, "chat-2": 0.4, "chat-3": 0.4, "chat-4": 0.3, "chat-5": 0.1}),
        (("chat-2",), {"chat-0": 0.6, "chat-1": 0.6, "chat-3": 0.4, "chat-4": 0.3, "chat-5": 0.1}),
        (("chat-1", "chat-2"), {"chat-3": 1.0, "chat-4": 0.75, "chat-5": 0.25}),
        (("chat-0",), {"chat-3": 1.0, "chat-4": 0.75, "chat-5": 0.25}),
        (("chat-0", "chat-4", "chat-5"), {}),
        (("chat-0", "chat-3"), {}),
    ],
    ids=["all", "one of two that decode", "all that decode on s", "what prefills on s", "half of each", "no prompts"],
)
def test_shares_of_what_is_lost_fall_to_the_others_within_the_network_as_long_as_there_are_any(
    lost: tuple[str, ...], expected: dict[str, float]
) -> None:
    assert shares(a_standing(lost)) == pytest.approx(expected)


def test_what_is_carried_is_what_the_busiest_side_leaves_room_for() -> None:
    """All: chat-2 takes 40 % with 2 rps, so 5 rps. Without it, chat-1 takes 60 %: 3.33 rps."""
    for lost, rps in (((), 5.0), (("chat-2",), 2 / 0.6), (("chat-0", "chat-3"), 0.0)):
        fleet = fleet_of(a_standing(lost))
        routing = fleet.as_routed(a_standing().routing, a_standing().kv_transfers)
        assert routing.lam * fleet.polytope.scale_rps == pytest.approx(rps)
    assert fleet_of(a_standing()).rerouted().lam * fleet_of(a_standing()).polytope.scale_rps == pytest.approx(8.0)


def test_what_a_standing_fleet_hands_over_is_described_with_it() -> None:
    """The prefill replica of s hands over all that it gets to the one that still decodes there."""
    standing = a_standing(("chat-2",))
    fleet = fleet_of(standing)
    found = fleet.under(fleet.as_routed(standing.routing, standing.kv_transfers))
    assert {(t.prefill, t.decode): round(t.fraction, 9) for t in found.kv_transfers} == {
        ("chat-0", "chat-1"): 0.6,
        ("chat-3", "chat-4"): 0.3,
        ("chat-3", "chat-5"): 0.1,
    }
    assert [(one.network, one.prefill_replicas, one.decode_replicas) for one in found.combos] == [
        ("cloud:s", 1, 1),
        ("cloud:t", 1, 2),
    ]
    assert {share.replica for route in found.routing for share in route.shares} == {"chat-0", "chat-3"}


def test_hand_overs_stay_with_whom_they_are_as_far_as_both_sides_have_them() -> None:
    """In order, a prefill replica named first would take the first to decode, whoever fed that before."""
    prefill, decode = [Side("p0", 0, 0.5), Side("p1", 1, 0.5)], [Side("d0", 2, 0.4), Side("d1", 3, 0.6)]

    def moved(before: dict[tuple[str, str], float]) -> dict[tuple[str, str], float]:
        return {(a.name, b.name): round(fraction, 9) for a, b, fraction in in_order(prefill, decode, before)}

    assert moved({}) == {("p0", "d0"): 0.4, ("p0", "d1"): 0.1, ("p1", "d1"): 0.5}
    assert moved({("p1", "d0"): 0.4, ("p0", "d1"): 0.5}) == {
        ("p0", "d1"): 0.5,
        ("p1", "d0"): 0.4,
        ("p1", "d1"): 0.1,
    }
    assert moved({("p1", "d0"): 0.9, ("p9", "d1"): 0.5}) == {
        ("p0", "d1"): 0.5,
        ("p1", "d0"): 0.4,
        ("p1", "d1"): 0.1,
    }


def a_case(mode: Disaggregation = "only", *, demand_rps: float = 4.0, available: int = 6) -> Problem:
    """At 1 $/h each, a prefills 4 rps, decodes 2 or does 1 of both."""
    rows = [
        measured("a", {"w1": 1.0}),
        measured("a", {"w1": 4.0}, role="prefill"),
        measured("a", {"w1": 2.0}, role="decode"),
    ]
    return a_problem(
        objective="min_cost",
        models=[a_model(a_workload(demand=demand_rps))],
        offers=[an_offer("a", offer_id="a-1", available=available, site="s", **NETWORK)],
        rows=rows,
        search=Search(disaggregation=mode),
    )


def roles_of(plan: Plan | None) -> dict[str, str]:
    return {} if plan is None else {replica.id: replica.role for replica in plan.replicas}


SLOW = Switching(startup_s=60.0, restart_s=30.0, drain_s=30.0)


def test_where_nothing_has_changed_nothing_moves() -> None:
    problem = a_case()
    plan = solve(problem)
    found = considered(problem, plan, switching=SLOW)
    assert [option.kind for option in found.options] == ["keep"]
    assert found.keep.plan is not None
    assert found.keep.plan.kv_transfers == plan.kv_transfers
    assert found.keep.plan.combos == plan.combos
    assert found.keep.is_valid


def test_a_decode_replica_that_is_lost_is_started_again_and_the_others_go_on() -> None:
    problem = a_case()
    plan = solve(problem)
    assert sorted(roles_of(plan).values()) == ["decode", "decode", "prefill"]
    left = without(plan, {"a-1": 1})
    standing = {replica.id for replica in standing_of(plan, left).replicas}
    found = considered(problem, plan, holdings=left, switching=SLOW)
    option = found.options[-1]
    assert (option.kind, option.carries, option.change.started, option.change.restarted) == ("refleet", True, 1, 0)
    assert standing <= set(roles_of(option.plan))
    assert machines_of(option.plan) == {"a-1": 3}
    assert option.plan is not None
    assert sum(transfer.fraction for transfer in option.plan.kv_transfers) == pytest.approx(1.0)


def a_mix(prompts_rps: float, answers_rps: float) -> Problem:
    """A machine prefills 1 rps of long prompts or 4 of others, and decodes 1 rps of long answers or 4 of others."""
    prefill, decode = {"prompts": 1.0, "answers": 4.0}, {"prompts": 4.0, "answers": 1.0}
    rows = [measured("a", prefill, role="prefill"), measured("a", decode, role="decode")]
    workloads = [a_workload("prompts", demand=prompts_rps), a_workload("answers", demand=answers_rps)]
    return a_problem(
        objective="min_cost",
        models=[a_model(*workloads)],
        offers=[an_offer("a", offer_id="a-1", available=9, site="s", **NETWORK)],
        rows=rows,
        search=Search(disaggregation="only"),
    )


def as_started_before(plan: Plan) -> Plan:
    """The plan of a version that starts engines for one phase, and limits the steps of prefill alone."""
    roles = {"prefill": "kv_producer", "decode": "kv_consumer"}
    replicas = []
    for replica in plan.replicas:
        args = dict(replica.engine_args)
        args["kv_transfer_config"] = str(args["kv_transfer_config"]).replace("kv_both", roles[replica.role])
        if replica.role == "decode":
            del args["max_num_batched_tokens"]
        replicas.append(replace(replica, engine_args=tuple(args.items())))
    return replace(plan, replicas=tuple(replicas))


def test_another_mix_is_first_answered_by_roles_where_that_carries_it() -> None:
    """From 2 rps of long prompts to 2 of long answers: of three machines one takes the other phase."""
    plan, changed = solve(a_mix(1.9, 0.05)), a_mix(0.05, 1.9)
    assert sorted(roles_of(plan).values()) == ["decode", "prefill", "prefill"]
    found = considered(changed, plan, switching=SLOW)
    assert not found.keep.carries
    option = found.options[-1]
    assert (option.kind, option.carries) == ("relayout", True)
    change = option.change
    assert (change.started, change.stopped, change.restarted, change.bent) == (0, 0, 0, 1)
    assert (change.usd, change.ready_s) == (0.0, 0.0)
    assert sorted(roles_of(option.plan).values()) == ["decode", "decode", "prefill"]
    assert roles_of(option.plan).keys() == roles_of(plan).keys()
    assert option.plan is not None
    running = {replica.id: replica.engine_args for replica in plan.replicas}
    assert all(running[replica.id] == replica.engine_args for replica in option.plan.replicas)


def an_estimated_mix(prompts_rps: float, answers_rps: float) -> Problem:
    """Llama 3.1 8B, whose prefill replicas take a few prompts at a time and whose decode replicas take 256."""
    model = a_model(
        a_workload("prompts", demand=prompts_rps, input_tokens=6000.0, output_tokens=30.0),
        a_workload("answers", demand=answers_rps, input_tokens=300.0, output_tokens=1000.0),
        name="llama-3.1-8b",
        spec=load_models()["llama-3.1-8b"],
    )
    return a_problem(
        objective="min_cost",
        models=[model],
        offers=[an_offer("h100-sxm", offer_id="h", available=4, price=2.0, site="s", **NETWORK)],
        gpus=[load_gpus()["h100-sxm"]],
        measured_only=False,
        search=Search(tensor_parallel=(1,), max_pipeline_stages=1, disaggregation="only"),
    )


def test_roles_of_estimated_rates_bend_whatever_their_batches_are() -> None:
    plan, changed = solve(an_estimated_mix(8.0, 1.0)), an_estimated_mix(2.0, 15.0)
    batches = {replica.role: replica.max_batch for replica in plan.replicas}
    assert batches == {"prefill": 6, "decode": 256}
    assert {sequences_of(dict(replica.engine_args)) for replica in plan.replicas} == {256}
    found = considered(changed, plan, market=[], switching=SLOW)
    assert not found.keep.carries
    option = found.options[-1]
    change = option.change
    assert (change.started, change.stopped, change.restarted, change.usd) == (0, 0, 0, 0.0)
    assert change.bent > 0
    assert option.plan is not None
    assert option.carries
    assert verify(with_held(changed, holdings_of(plan.rentals)), option.plan, is_standing=True) == ()
    bent = {r.max_batch for r in option.plan.replicas if r.role == "decode" and roles_of(plan)[r.id] == "prefill"}
    assert bent == {256}


def test_a_plan_whose_engines_have_the_sequences_of_their_phase_holds() -> None:
    """As plans were made that named either phase already; with other sequences it does not."""
    problem = an_estimated_mix(8.0, 1.0)
    plan = solve(problem)

    def with_sequences(add: int) -> Plan:
        replicas = [
            replace(one, engine_args=tuple({**dict(one.engine_args), "max_num_seqs": one.max_batch + add}.items()))
            for one in plan.replicas
            if one.max_batch is not None
        ]
        return replace(plan, replicas=tuple(replicas))

    assert verify(problem, with_sequences(0)) == ()
    assert any("engine_args" in violation for violation in verify(problem, with_sequences(1)))


def test_engines_started_for_one_phase_start_anew_for_the_other() -> None:
    plan = as_started_before(solve(a_mix(1.9, 0.05)))
    assert verify(a_mix(1.9, 0.05), plan) == ()
    assert [option.kind for option in considered(a_mix(1.9, 0.05), plan, switching=SLOW).options] == ["keep"]
    change = considered(a_mix(0.05, 1.9), plan, switching=SLOW).options[-1].change
    assert change.bent == 0
    assert change.restarted + change.started > 0
    assert change.usd > 0


def test_more_load_than_roles_carry_is_met_with_machines_and_the_others_go_on() -> None:
    option = considered(a_mix(0.05, 2.9), solve(a_mix(1.9, 0.05)), switching=SLOW).options[-1]
    assert option.carries
    assert (option.change.started, option.change.restarted) == (1, 0)
    assert option.change.bent > 0


def test_an_engine_with_another_role_is_another_engine() -> None:
    """Nothing more is for rent: of three that decode and one that prefills the last machine is lost."""
    problem = a_case(demand_rps=2.0, available=3)
    plan = solve(problem)
    assert sorted(roles_of(plan).values()) == ["decode", "prefill"]
    grown = with_demand(a_case("auto", available=3), 0.75)
    option = considered(grown, plan, market=[], switching=SLOW).options[-1]
    assert option.change.started == 0
    for name, role in roles_of(option.plan).items():
        assert roles_of(plan).get(name, role) == role


@pytest.mark.parametrize(("before", "after"), [("only", "off"), ("off", "only")])
def test_roles_that_the_problem_rules_out_by_now_are_left(before: Disaggregation, after: Disaggregation) -> None:
    """What runs is no answer any more, although it carries the load."""
    problem = a_case(before)
    plan = solve(problem)
    allowed = {"aggregated"} if after == "off" else {"prefill", "decode"}
    found = considered(a_case(after), plan, switching=SLOW)
    assert (found.keep.carries, found.keep.is_valid) == (True, False)
    option = found.options[-1]
    assert option.is_valid
    assert set(roles_of(option.plan).values()) <= allowed
    assert roles_of(option.plan).keys().isdisjoint(roles_of(plan))


def test_layouts_that_the_problem_rules_out_by_now_are_left() -> None:
    problem = a_capped(tensor_parallel=(2,), gpus=2)
    plan = solve(problem)
    found = considered(a_capped(tensor_parallel=(1,), gpus=2), plan)
    assert not found.keep.is_valid
    option = found.options[-1]
    assert option.plan is not None
    assert {stage.tensor_parallel for replica in option.plan.replicas for stage in replica.stages} == {1}


def a_capped(
    demand_rps: float = 1.0,
    *,
    caps: tuple[float, ...] = (0.5, 0.7),
    objective: ObjectiveKind = "min_power",
    gpus: int = 1,
    limits: Limits | None = None,
    tensor_parallel: tuple[int, ...] = (1,),
) -> Problem:
    """One kind of machine for a small catalogue model, whose GPUs may be capped."""
    model = a_model(
        a_workload(demand=demand_rps, input_tokens=2000.0, output_tokens=200.0),
        name="llama-3.1-8b",
        spec=load_models()["llama-3.1-8b"],
    )
    return a_problem(
        objective=objective,
        models=[model],
        offers=[an_offer("h100-sxm", gpus, offer_id="h", available=4, price=2.0)],
        gpus=[load_gpus()["h100-sxm"]],
        measured_only=False,
        limits=limits or Limits(),
        search=Search(tensor_parallel=tensor_parallel, max_pipeline_stages=1, power_caps_fraction=caps),
    )


def caps_of(plan: Plan | None) -> dict[str, float | None]:
    return {} if plan is None else {replica.id: replica.stages[0].power_cap_watts for replica in plan.replicas}


def with_more_load(factor: float, switching: Switching = SLOW) -> tuple[Plan, Considered]:
    plan = solve(a_capped())
    return plan, considered(a_capped(factor), plan, switching=switching)


def test_more_load_on_a_capped_engine_sets_another_cap_and_starts_nothing_anew() -> None:
    """The carried load at each cap is the candidates' own; at 350 of 700 W prompts are slowest."""
    plan = solve(a_capped())
    assert caps_of(plan) == {"llama-3.1-8b-0": 350.0}
    most_rps = (considered(a_capped(), plan).keep.load_multiple or 0.0) * 1.0
    found = considered(a_capped(most_rps * 1.05), plan, switching=SLOW)
    assert not found.keep.carries
    option = found.options[-1]
    assert (option.kind, option.carries) == ("relayout", True)
    assert (option.change.started, option.change.restarted, option.change.recapped) == (0, 0, 1)
    assert option.change.usd == 0.0
    assert caps_of(option.plan) == {"llama-3.1-8b-0": 490.0}
    assert option.plan is not None
    assert option.plan.replicas[0].engine_args == plan.replicas[0].engine_args


def test_less_load_lowers_a_cap_as_it_saves_watts() -> None:
    before = solve(a_capped(caps=()))
    assert caps_of(before) == {"llama-3.1-8b-0": None}
    option = considered(a_capped(), before, switching=SLOW).options[-1]
    assert (option.change.recapped, option.change.restarted, option.change.usd) == (1, 0, 0.0)
    assert caps_of(option.plan) == {"llama-3.1-8b-0": 350.0}


@pytest.mark.parametrize("objective", ["min_power", "min_cost"])
def test_a_cap_that_nobody_asks_for_any_more_is_a_fact_and_no_fault(objective: ObjectiveKind) -> None:
    plan = solve(a_capped())
    found = considered(a_capped(caps=(), objective=objective), plan, switching=SLOW)
    assert found.keep.is_valid
    assert caps_of(found.keep.plan) == caps_of(plan)
    for option in found.options[1:]:
        assert (option.change.started, option.change.restarted) == (0, 0)


def test_no_more_engines_are_recapped_than_run() -> None:
    """Two run and twice the load is to be carried: what is added is started, not taken for running."""
    one = solve(a_capped())
    most_rps = considered(a_capped(), one).keep.load_multiple or 0.0
    plan = solve(a_capped(most_rps * 1.9))
    problem = a_capped(most_rps * 8.0)
    found = considered(problem, plan, switching=FREE)
    for option in found.options:
        if option.plan is None:
            continue
        assert len(set(caps_of(option.plan)) & set(caps_of(plan))) <= len(plan.replicas)
        violations = verify(with_held(problem, holdings_of(plan.rentals)), option.plan, is_standing=True)
        assert option.is_valid == (violations == ())


def test_a_power_limit_that_has_fallen_is_kept_by_caps_on_what_runs() -> None:
    """One machine of 700 W at most 400 W: a cap, and no restart."""
    plan = solve(a_capped(objective="min_cost"))
    limited = a_capped(objective="min_cost", limits=Limits(max_power_watts=400.0))
    found = considered(limited, plan, switching=SLOW)
    assert not found.keep.is_valid
    option = found.options[-1]
    assert (option.is_valid, option.change.recapped, option.change.restarted) == (True, 1, 0)
    assert caps_of(option.plan) == {"llama-3.1-8b-0": 350.0}
