"""Prefill and decode apart: small cases by hand, what plans say of them, and how fleets follow the traffic."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from sutler.solver import solve
from sutler.solver.catalog import load_gpus, load_models
from sutler.solver.plan import Plan
from sutler.solver.problem import Search, SolveOptions
from tests.builders import a_model, a_problem, a_workload, an_offer, measured
from tests.solver.planning_builders import about
from tests.solver.role_builders import SITE, TOY, cauchy, gpus_in, measured_apart, roles, toy_pair, with_mode


def test_one_replica_that_prefills_ten_feeds_two_that_decode_five() -> None:
    """Three GPUs: 1 prefill and 2 decode carry min(10, 2 x 5) = 10 requests a second, three whole ones 9."""
    plan = solve(measured_apart(an_offer("a", available=3, **SITE)))
    assert plan.value == about(10.0)
    assert roles(plan) == {"prefill a": 1, "decode a": 2}
    assert solve(measured_apart(an_offer("a", available=3))).value == about(9.0)
    assert solve(with_mode(measured_apart(an_offer("a", available=3, **SITE)), "off")).value == about(9.0)


def test_the_ratio_follows_the_lengths_of_requests() -> None:
    """Prefill at 2.5 a second and decode at 10 want four that prefill for one that decodes: 10 of 5 GPUs."""
    plan = solve(measured_apart(an_offer("a", available=5, **SITE), prefill_rps=2.5, decode_rps=10.0))
    assert (plan.value, roles(plan)) == (about(15.0), {"aggregated a": 5})  # 5 x 3 whole ones are more
    plan = solve(
        with_mode(measured_apart(an_offer("a", available=5, **SITE), prefill_rps=2.5, decode_rps=10.0), "only")
    )
    assert (plan.value, roles(plan)) == (about(10.0), {"prefill a": 4, "decode a": 1})


def test_what_a_pair_leaves_over_serves_whole_requests() -> None:
    """Four GPUs: 1 + 2 carry 10 and the fourth 3 more; 1 + 3 would carry 10 too, and 2 + 2 no more."""
    plan = solve(measured_apart(an_offer("a", available=4, **SITE)))
    assert plan.value == about(13.0)
    assert roles(plan) == {"aggregated a": 1, "prefill a": 1, "decode a": 2}
    (route,) = plan.routing
    by_role = {replica.id: replica.role for replica in plan.replicas}
    fractions = {by_role[share.replica]: share.fraction for share in route.shares}
    assert fractions == {"aggregated": about(3 / 13), "prefill": about(10 / 13)}


def test_prompts_of_one_replica_are_handed_to_two_by_what_they_take() -> None:
    """Prefill 10, decode 6 and 6: both decode replicas take half of what one prefills."""
    problem = measured_apart(an_offer("a", available=3, **SITE), decode_rps=5.0)
    plan = solve(problem)
    assert {(transfer.prefill, transfer.decode) for transfer in plan.kv_transfers} == {
        ("chat-0", "chat-1"),
        ("chat-0", "chat-2"),
    }
    assert [transfer.fraction for transfer in plan.kv_transfers] == [about(0.5), about(0.5)]
    assert {transfer.kv_gb for transfer in plan.kv_transfers} == {None}  # no architecture says how large
    assert [replica.utilisation_fraction for replica in plan.replicas] == [about(1.0)] * 3


def test_nothing_is_handed_over_between_sites() -> None:
    """Prefill on a runs at s1 alone and decode on b at s2 alone; together at one site they carry 4."""
    rows = [measured("a", {"w1": 4.0}, role="prefill"), measured("b", {"w1": 5.0}, role="decode")]
    near = [an_offer("a", **SITE), an_offer("b", **SITE)]
    far = [an_offer("a", **SITE), an_offer("b", **{**SITE, "site": "s2"})]
    search = Search(disaggregation="auto")
    assert solve(a_problem(offers=near, rows=rows, search=search)).value == about(4.0)
    assert solve(a_problem(offers=far, rows=rows, search=search)).status == "infeasible"


def test_every_network_balances_by_itself() -> None:
    """Two prefill at s1 feed one decode there, one prefill at s2 one decode: 3 + 2, not min(6, 6)."""
    rows = [measured("a", {"w1": 2.0}, role="prefill"), measured("b", {"w1": 3.0}, role="decode")]
    other: dict[str, Any] = {**SITE, "site": "s2"}
    offers = [
        an_offer("a", available=2, offer_id="a1", **SITE),
        an_offer("b", offer_id="b1", **SITE),
        an_offer("a", offer_id="a2", **other),
        an_offer("b", offer_id="b2", **other),
    ]
    plan = solve(a_problem(offers=offers, rows=rows, search=Search(disaggregation="auto")))
    assert plan.value == about(5.0)
    assert sorted(combo.network for combo in plan.combos) == ["cloud:s1", "cloud:s2"]
    assert sorted((combo.prefill_replicas, combo.decode_replicas) for combo in plan.combos) == [(1, 1), (2, 1)]


def test_workloads_are_conserved_one_by_one() -> None:
    """Prefill takes w1 alone at 4 or w2 alone at 2, decode the other way round: of lam / 2 each, prefill spends
    lam/8 + lam/4 = 1 of its time, and so does decode: lam = 8/3."""
    models = [a_model(a_workload("w1"), a_workload("w2"))]
    rows = [
        measured("a", {"w1": 4.0, "w2": 2.0}, role="prefill"),
        measured("b", {"w1": 2.0, "w2": 4.0}, role="decode"),
    ]
    offers = [an_offer("a", **SITE), an_offer("b", **SITE)]
    plan = solve(a_problem(offers=offers, rows=rows, models=models, search=Search(disaggregation="only")))
    assert plan.value == about(8 / 3)
    assert [(transfer.workload, transfer.fraction) for transfer in plan.kv_transfers] == [
        ("w1", about(1.0)),
        ("w2", about(1.0)),
    ]


def test_the_cheapest_pair_that_carries_the_demand() -> None:
    """5 requests a second: an a at 1 $/h prefills 8, a b at 2 $/h decodes 5; whole ones take two c at 2 $/h."""
    rows = [
        measured("a", {"w1": 8.0}, role="prefill"),
        measured("b", {"w1": 5.0}, role="decode"),
        measured("c", {"w1": 2.5}),
    ]
    prices = (("a", 1.0), ("b", 2.0), ("c", 2.0))
    offers = [an_offer(gpu, price=price, available=4, **SITE) for gpu, price in prices]
    problem = a_problem(
        objective="min_cost",
        models=[a_model(a_workload(demand=5.0))],
        offers=offers,
        rows=rows,
        search=Search(disaggregation="auto"),
    )
    plan = solve(problem)
    assert plan.value == about(3.0)
    assert roles(plan) == {"prefill a": 1, "decode b": 1}
    assert plan.load_multiple == about(1.0)
    assert solve(with_mode(problem, "off")).value == about(4.0)


def test_a_provider_counts_what_it_decodes_once() -> None:
    """q may take half of the requests. It hands over within itself: 2 of 4 requests a second, not 1 of 2."""
    rows = [
        measured("a", {"w1": 2.0}, role="prefill"),
        measured("b", {"w1": 2.0}, role="decode"),
        measured("c", {"w1": 2.0}),
    ]
    offers = [
        an_offer("a", provider="q", **SITE),
        an_offer("b", provider="q", **SITE),
        an_offer("c", provider="p"),
    ]
    problem = a_problem(offers=offers, rows=rows, search=Search(disaggregation="auto"))
    problem = replace(problem, limits=replace(problem.limits, max_share_per_provider_fraction=0.5))
    assert solve(problem).value == about(4.0)


def test_replicas_apart_are_kept_below_the_allowed_utilisation() -> None:
    problem = measured_apart(an_offer("a", available=3, **SITE))
    problem = replace(problem, limits=replace(problem.limits, max_utilisation_fraction=0.8))
    plan = solve(problem)
    assert plan.value == about(8.0)
    assert [replica.utilisation_fraction for replica in plan.replicas] == [about(0.8)] * 3


def test_a_combo_by_hand() -> None:
    """Both sides at 5 requests/s. As planned (eq. 14): 5 x 300 / 2 + 5 x 100 / 4 tokens/s per $/h.

    C1 = 4 L h = 64; C2 = 8 L h^2 + 6 L h m = 1,024 + 1,152 = 2,176; A1 = 1 / (64 x 300 + 2,176).
    """
    plan = solve(toy_pair())
    (combo,) = plan.combos
    assert plan.value == about(5.0)
    assert (combo.network, combo.prefill_replicas, combo.decode_replicas) == ("cloud:s1", 1, 1)
    assert (combo.prefill_gpus, combo.decode_gpus) == ((("p", 1),), (("d", 1),))
    assert combo.tokens_per_usd == about((5 * 300 / 2 + 5 * 100 / 4) * 3600)
    # Measured alone: no batch, no A1 and A2.
    assert (combo.a1_tokens_per_flop, combo.a2_tokens_per_byte, combo.peak_tokens_per_usd) == (None, None, None)


def test_the_coefficients_of_a_combo_by_hand() -> None:
    """Estimated, so that the batch b is known.

    A1 = 1 / (C1 r_in + C2) = 1 / (64 x 300 + 2,176) tokens/FLOP
    C3 = 2 bytes x (2 V h + (4 h^2 + 3 h m + 2 h) L) = 2 x (160 + (256 + 288 + 16) x 2) = 2,560
    C4 = 2 x 2 bytes x L x 4 = 32 bytes a token
    A2 = 1 / (32 x 100 / 2 + 32 x 300 + 2,560 / b) tokens/byte
    peak (eq. 15) = A1 x 500e12 / 2 + A2 x 2000e9 / 4 per $/h
    """
    plan = solve(replace(toy_pair(), measured=(), measured_only=False))
    (combo,) = plan.combos
    decode = next(replica for replica in plan.replicas if replica.role == "decode")
    assert decode.max_batch
    usd = {"p": 2.0, "d": 4.0}
    sides = [next(r.stages[0].gpu for r in plan.replicas if r.role == role) for role in ("prefill", "decode")]
    flops = {"p": 500e12, "d": 100e12}[sides[0]]
    moved = {"p": 1000e9, "d": 2000e9}[sides[1]]
    a1 = 1 / (64 * 300 + 2176)
    a2 = 1 / (32 * 100 / 2 + 32 * 300 + 2560 / decode.max_batch)
    assert combo.a1_tokens_per_flop == about(a1)
    assert combo.a2_tokens_per_byte == about(a2)
    assert combo.peak_tokens_per_usd == about((a1 * flops / usd[sides[0]] + a2 * moved / usd[sides[1]]) * 3600)


def test_the_network_bounds_a_pair_by_hand() -> None:
    """A prompt of 300 tokens leaves 300 x 2 layers x 2 x 4 x 2 bytes = 9.6 kB: 0.125 GB/s carry 13,020 a second. On a
    model whose keys are a hundred thousand times as large 0.13 a second are left, though GPUs could do 5."""
    plan = solve(toy_pair(0.125))
    assert plan.value == about(5.0)
    assert [transfer.kv_gb for transfer in plan.kv_transfers] == [about(9.6e-6)]
    problem = toy_pair(0.125)
    wide = replace(TOY, head_dim=400_000)
    problem = replace(problem, models=(replace(problem.models[0], spec=wide),))
    plan = solve(problem)
    assert plan.value == about(0.125 / 0.96)
    (binding,) = [binding for binding in plan.binding if binding.constraint.startswith("network/")]
    assert binding.constraint == "network/cloud:s1"
    assert binding.shadow_price == about(5.0 - 0.125 / 0.96)


def test_compute_prefills_and_bandwidth_decodes() -> None:
    """Whatever is bought beside H800 for prompts and H20 for answers is what whole GPUs leave over."""
    plan = solve(cauchy((4000.0, 300.0), search=Search(disaggregation="only", max_pipeline_stages=1)))
    prefill = gpus_in(plan, "prefill")
    assert prefill["h800"] > 0.8 * sum(prefill.values())
    assert set(gpus_in(plan, "decode")) == {"h20"}


def test_running_apart_is_better_by_itself_where_cards_differ() -> None:
    problem = cauchy((4000.0, 300.0))
    plan, together = solve(problem), solve(with_mode(problem, "off"))
    assert set(gpus_in(plan, "prefill")) == {"h800"}
    assert set(gpus_in(plan, "decode")) == {"h20"}
    assert plan.value is not None
    assert together.bound is not None
    assert plan.value > together.bound


def test_l40s_prefill_and_a100_decode() -> None:
    """An L40S has 362 TFLOP/s and 864 GB/s for 0.8 $/h, an A100 312 and 2,039 for 1.2."""
    problem = a_problem(
        models=[a_model(a_workload(input_tokens=2000.0, output_tokens=300.0), spec=load_models()["llama-3.1-8b"])],
        offers=[
            an_offer("l40s", price=0.8, available=40, **SITE),
            an_offer("a100-sxm4-80gb", price=1.2, available=40, **SITE),
        ],
        gpus=[load_gpus()[name] for name in ("l40s", "a100-sxm4-80gb")],
        budget_usd_per_hour=20.0,
        search=Search(disaggregation="auto", max_pipeline_stages=1),
        measured_only=False,
    )
    plan = solve(problem)
    assert set(gpus_in(plan, "prefill")) == {"l40s"}
    assert set(gpus_in(plan, "decode")) == {"a100-sxm4-80gb"}
    assert (plan.value or 0.0) > 1.1 * (solve(with_mode(problem, "off")).bound or 0.0)


@pytest.mark.slow
def test_longer_prompts_take_more_of_the_gpus() -> None:
    shares = []
    for inputs, outputs in ((500.0, 1000.0), (2000.0, 500.0), (6000.0, 100.0)):
        plan = solve(cauchy((inputs, outputs), search=Search(disaggregation="only", max_pipeline_stages=1)))
        prefill, decode = (sum(gpus_in(plan, role).values()) for role in ("prefill", "decode"))
        shares.append(prefill / (prefill + decode))
    assert shares == sorted(shares)
    assert shares[0] < shares[-1]


def test_a_starved_network_turns_running_apart_off_by_itself_and_is_named() -> None:
    """A prompt of 2,000 tokens is 0.66 GB: a whole machine sends one in five seconds at 0.125 GB/s."""
    thin = cauchy((2000.0, 500.0), gb_per_s=0.125)
    plan = solve(thin)
    assert plan.status == "optimal"
    assert not plan.kv_transfers
    together = solve(with_mode(thin, "off"))
    assert plan.value == pytest.approx(together.value, rel=2e-3)
    named = [binding for binding in plan.binding if binding.constraint.startswith("network/")]
    assert [binding.constraint for binding in named] == ["network/cloud:s1"]
    assert named[0].shadow_price > 0


def test_a_wide_network_does_not_bind() -> None:
    plan = solve(cauchy((2000.0, 500.0), gb_per_s=400.0))
    assert not [binding for binding in plan.binding if binding.constraint.startswith("network/")]


def test_long_inputs_stay_together_on_a_thin_network_and_short_ones_need_not() -> None:
    """At 8 GB/s a machine sends 3.5 prompts of 7,000 tokens a second and 243 of 100."""

    def plan_of(inputs: float, outputs: float, gb_per_s: float) -> Plan:
        plan = solve(cauchy((inputs, outputs), gb_per_s=gb_per_s, options=SolveOptions(alternatives=False)))
        assert plan.status == "optimal"
        return plan

    assert not plan_of(7000.0, 512.0, 8.0).kv_transfers
    assert plan_of(7000.0, 512.0, 50.0).kv_transfers
    assert plan_of(100.0, 200.0, 8.0).kv_transfers


def test_more_bandwidth_is_never_worse_on_the_way_from_nothing_to_plenty() -> None:
    values = []
    for gb_per_s in (0.125, 0.625, 1.25, 3.125, 12.5, 50.0):
        problem = cauchy((2000.0, 500.0), gb_per_s=gb_per_s, options=SolveOptions(alternatives=False))
        values.append(solve(problem).value or 0.0)
    for less, more in pairwise(values):
        assert more >= less * (1 - 2e-3)
    assert values[-1] > values[0] * 1.02
