"""Rates of prefill and decode replicas: what each is asked, what links carry, and how limits are split."""

import math
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq

from sutler.solver import throughput
from sutler.solver.arrays import FloatArray
from sutler.solver.problem import LatencyLimit, LatencyMetric, Role, ServedModel
from sutler.solver.throughput.latency import QUEUED_SHARE
from sutler.solver.throughput.roles import LAYERWISE_SYNC_S, exposed, limits_in, prefill_share
from sutler.solver.throughput.roofline import Roofline
from tests.builders import a_model, a_problem, a_workload, an_offer, measured
from tests.solver.throughput.builders import (
    a_dense_spec,
    at_cap,
    detail_of,
    in_role,
    most_alone,
    pipelines_of,
    points_of,
    rates_of,
    served,
)

LAYOUTS = pipelines_of([("h100-sxm", 4)], [("a100-sxm4-80gb", 8)], [("h100-sxm", 2)] * 2)
ROLES: tuple[Role, ...] = ("prefill", "decode")
BASE_S = Roofline().first_token(served("llama-3-70b", (1024, 256))).base_s
LATENCY_S = Roofline().calibration.priors.cross_machine_hop_latency_s


CLOSE = 1 + 5e-3  # caps and loads are sought to some tenths of a per cent


def rps(model: ServedModel, role: Role, *, load: float = 1.0, gb_per_s: float = math.inf) -> FloatArray:
    """Of each workload alone, within all limits."""
    layouts = in_role(LAYOUTS, role, kv_gb_per_s=gb_per_s)
    return most_alone(points_of(model, layouts, most_load=load), len(layouts), len(model.workloads))


def limited(*slo: LatencyLimit) -> ServedModel:
    return served("llama-3-70b", (1024.0, 256.0), (4096.0, 64.0), slo=slo)


def ttft(seconds: float, percentile: int = 90) -> LatencyLimit:
    return LatencyLimit("ttft", percentile, seconds)


def test_prefill_replicas_serve_requests_of_one_token() -> None:
    whole = rates_of(served("llama-3-70b", (1024, 1), (4096, 1)), LAYOUTS)
    prefill = rates_of(served("llama-3-70b", (1024, 256), (4096, 64)), in_role(LAYOUTS, "prefill"))
    assert prefill.rps == pytest.approx(whole.rps, rel=0.02)  # more of them share the output projection
    assert (prefill.layers == whole.layers).all()


def test_a_request_takes_the_time_of_its_prefill_and_of_its_decode() -> None:
    """On one stage 1 / rate of whole requests = 1 / prefill + 1 / decode at the same batch, but for what prompts save
    that ride along: they need no steps of their own, in which the weights would be read again."""
    model = served("llama-3-70b", (1024, 256))
    one = pipelines_of([("h100-sxm", 4)])
    whole, prefill, decode = (rates_of(model, in_role(one, role)) for role in ("aggregated", *ROLES))
    assert whole.batch.item() == decode.batch.item()
    apart_s = 1 / prefill.rps + 1 / decode.rps
    assert (0.9 * apart_s <= 1 / whole.rps).all()
    assert (1 / whole.rps <= apart_s).all()
    assert (decode.rps > whole.rps).all()


def test_longer_prompts_cost_decode_little_and_prefill_all_the_more() -> None:
    """Where memory leaves the same batch, a prompt four times as long costs decode its context alone."""
    prompts = served("llama-3-70b", (400, 256), (1600, 256))
    decode = rps(prompts, "decode")[0]
    prefill = rps(prompts, "prefill")[0]
    assert prefill[0] / prefill[1] > 3
    assert 1.0 < decode[0] / decode[1] < 1.4


def test_a_prefill_replica_of_one_gpu_sends_its_tokens_by_hand() -> None:
    """4 layers x (keys + values) x 2 heads x 128 x 2 bytes = 4,096 bytes a token; 1,000 tokens are 4.096 MB, which a
    link of 0.01 GB/s carries 0.01 / 0.004096 = 2.44 times a second."""
    problem = a_problem(
        models=[a_model(a_workload(), spec=a_dense_spec())],
        offers=[an_offer("h100-sxm")],
        gpus=pipelines_of([("h100-sxm", 1)]).gpus,
        measured_only=False,
    )
    one = pipelines_of([("h100-sxm", 1)])
    for role in ROLES:
        thin, _ = throughput.rates(problem, problem.models[0], in_role(one, role, kv_gb_per_s=0.01))
        free, _ = throughput.rates(problem, problem.models[0], in_role(one, role))
        assert thin.rps.item() == pytest.approx(0.01 / 0.004096)
        assert thin.low_rps.item() <= thin.rps.item() <= thin.high_rps.item()
        assert free.rps.item() > 10 * thin.rps.item()
        handed = throughput.handover(problem, problem.models[0], in_role(one, role, kv_gb_per_s=0.01))
        assert handed is not None
        assert handed.kv_gb.item() == pytest.approx(0.004096)
        assert handed.kv_s.item() == pytest.approx(0.4096)


def test_each_stage_sends_the_layers_that_it_holds() -> None:
    """3 of 4 layers on the first stage: 3 x 1,024 bytes x 1,000 tokens over 0.01 GB/s are 0.3072 s."""
    layouts = in_role(pipelines_of([("h100-sxm", 1)] * 2, layers=[[3, 1]]), "prefill", kv_gb_per_s=0.01)
    handed = Roofline().handover(served(a_dense_spec(), (1000, 100)), layouts)
    assert handed.kv_s.item() == pytest.approx(0.3072)
    assert handed.link_s.item() == pytest.approx(0.3072)


def test_measured_rates_are_bounded_by_the_link_where_the_architecture_is_known() -> None:
    """2.44 prompts a second, as above, whatever was measured on a faster link; with no architecture as measured."""
    rows = [measured("a", {"w1": 50.0}, role=role) for role in ROLES]
    for spec, expected in ((a_dense_spec(), 0.01 / 0.004096), (None, 50.0)):
        problem = a_problem(
            models=[a_model(a_workload(), spec=spec)], offers=[an_offer("h100-sxm")], rows=rows, measured_only=True
        )
        rows = [replace(row, stages=(replace(row.stages[0], gpu="h100-sxm"),)) for row in rows]
        problem = replace(problem, measured=tuple(rows))
        for role in ROLES:
            layouts = in_role(pipelines_of([("h100-sxm", 1)]), role, kv_gb_per_s=0.01)
            found, is_measured = throughput.rates(problem, problem.models[0], layouts)
            assert is_measured.all()
            assert found.rps.item() == pytest.approx(expected)


def test_measured_rates_need_no_facts_of_the_gpu() -> None:
    """A card of which nothing but its memory is known, measured by the caller, with an architecture that says how
    much is handed over."""
    problem = a_problem(
        models=[a_model(a_workload(), spec=a_dense_spec())],
        offers=[an_offer("a")],
        rows=[measured("a", {"w1": 1.5}, role=role) for role in ROLES],
    )
    one = pipelines_of([("a", 1)], extra_gpus=list(problem.gpus.values()), intra_gb_per_s=16.0)
    for role in ROLES:
        found, _ = throughput.rates(problem, problem.models[0], in_role(one, role, kv_gb_per_s=0.01))
        assert found.rps.item() == pytest.approx(1.5)


@pytest.mark.parametrize(
    ("transfer_s", "prefill_s", "expected_s"),
    [
        # Serial: 4 ms are less than what synchronising layers costs.
        (0.004, 1.0, 0.004),
        # Hidden but for the last of 4 layers: 0.4 / 4, and 8 ms.
        (0.4, 1.0, 0.1 + 0.008),
        # Longer than the prefill: 0.4 - 0.2 x 3/4, and 8 ms.
        (0.4, 0.2, 0.25 + 0.008),
        # A prefill of no time hides nothing: serial, without the 8 ms.
        (0.4, 0.0, 0.4),
    ],
)
def test_what_of_a_transfer_is_exposed_by_hand(transfer_s: float, prefill_s: float, expected_s: float) -> None:
    assert LAYERWISE_SYNC_S == 0.008
    found = exposed(np.array([transfer_s]), np.array([prefill_s]), 4, 0.0)
    assert found.item() == pytest.approx(expected_s)
    assert exposed(np.array([transfer_s]), np.array([prefill_s]), 4, 0.001).item() == pytest.approx(
        expected_s + 0.001
    )


def test_limits_are_of_the_role_that_can_break_them() -> None:
    limits = tuple(LatencyLimit(metric, 90, 1.0) for metric in ("ttft", "tpot", "e2e"))
    model = served("llama-3-70b", slo=limits)
    assert [limit.metric for limit in limits_in(model, "prefill")] == ["ttft", "e2e"]
    assert [limit.metric for limit in limits_in(model, "decode")] == ["tpot", "e2e"]
    assert [limit.metric for limit in limits_in(model, "aggregated")] == ["ttft", "tpot", "e2e"]


def test_a_limit_of_the_other_role_changes_nothing() -> None:
    free, tight_ttft, tight_tpot = limited(), limited(ttft(0.5)), limited(LatencyLimit("tpot", 90, 0.02))
    assert (rps(tight_tpot, "prefill") == rps(free, "prefill")).all()
    assert (rps(tight_ttft, "decode") == rps(free, "decode")).all()
    assert (rps(tight_ttft, "prefill") < rps(free, "prefill")).any()
    assert (rps(tight_tpot, "decode") < rps(free, "decode")).any()


def test_ttft_bounds_the_load_of_prefill_by_the_wait_for_other_prompts() -> None:
    """M/D/1 with service s at load u: the wait decays as e^(-theta t) where u (e^(theta s) - 1) = theta s, and is
    above ln(sqrt(u) / 0.1) / theta for one in ten requests; found here by root finding."""
    one = in_role(pipelines_of([("h100-sxm", 4)]), "prefill")
    service_s = 1 / Roofline().rates(served("llama-3-70b", (1024, 256)), one, caps=np.array([1])).rps.item()
    own_s = BASE_S + service_s + LATENCY_S

    def wait_s(load: float) -> float:
        decay = brentq(lambda theta: load * math.expm1(theta) - theta, 1e-6, 50)
        return float(math.log(math.sqrt(load) / 0.1) / decay * service_s)

    for longest_s in (0.05, 0.1, 0.2):
        load = brentq(lambda u, w=longest_s: wait_s(u) - w, 0.101, 0.99)
        tight = served("llama-3-70b", (1024, 256), slo=[ttft(own_s + longest_s)])
        found = points_of(tight, one).rps.item()
        assert found * service_s == pytest.approx(load * QUEUED_SHARE, rel=0.02)


def test_below_its_own_time_a_prefill_replica_serves_none() -> None:
    one = in_role(pipelines_of([("h100-sxm", 4)]), "prefill")
    service_s = 1 / Roofline().rates(served("llama-3-70b", (1024, 256)), one, caps=np.array([1])).rps.item()
    own_s = BASE_S + service_s + LATENCY_S

    def points(seconds: float) -> int:
        return len(points_of(served("llama-3-70b", (1024, 256), slo=[ttft(seconds)]), one))

    assert points(own_s * 1.05) == 1
    assert points(own_s * 0.99) == 0


def test_a_slower_link_counts_against_ttft() -> None:
    model = limited(ttft(0.6))
    fast, slow, slower = (rps(model, "prefill", gb_per_s=gb)[0, 0] for gb in (50.0, 1.25, 0.5))
    assert fast > slow > slower
    assert slower == 0.0
    assert rps(limited(), "prefill", gb_per_s=0.5)[0, 0] == rps(limited(), "prefill")[0, 0]  # no limit, no charge


def test_an_end_to_end_limit_is_split_by_lengths_or_as_the_caller_says() -> None:
    """A decode step takes as long as 250 tokens of a prompt: 5,000 in and 21 out are 20 of either; 1,000 in and 101
    out are 4 : 100, and no side gets less than a tenth."""
    model = served("llama-3-70b", (5000, 21), (1000, 101), (100_000, 2))
    assert prefill_share(model) == pytest.approx([0.5, 0.1, 0.9])
    assert prefill_share(replace(model, prefill_share_fraction=0.3)) == pytest.approx([0.3] * 3)


def test_a_larger_share_of_the_limit_helps_prefill_and_hurts_decode() -> None:
    model = limited(LatencyLimit("e2e", 90, 8.0))
    shares = [replace(model, prefill_share_fraction=share) for share in (0.05, 0.2, 0.5, 0.8, 0.95)]
    prefill = [rps(each, "prefill")[0, 0] for each in shares]
    decode = [rps(each, "decode")[0, 0] for each in shares]
    assert prefill == sorted(prefill)
    assert decode == sorted(decode, reverse=True)
    assert prefill[0] < prefill[-1]
    assert decode[0] > decode[-1]


@pytest.mark.parametrize("role", ROLES)
def test_bands_hold_the_rate_between_them(role: Role) -> None:
    found = rates_of(limited(ttft(1.0)), in_role(LAYOUTS, role))
    assert (found.low_rps <= found.rps).all()
    assert (found.rps <= found.high_rps).all()
    assert (found.low_rps[found.rps > 0] < found.rps[found.rps > 0]).all()


def test_evidence_says_what_is_handed_over() -> None:
    model = served("llama-3-70b", (1024, 256))
    thin = in_role(pipelines_of([("h100-sxm", 4)]), "prefill", kv_gb_per_s=0.5)
    detail = detail_of(model, thin)
    assert "prefill only, sends 0.336 GB of keys and values a prompt in 0.671 s" in detail  # 80 x 2 x 8 x 128 x 2 B
    assert "receives" in detail_of(model, replace(thin, role="decode"))
    assert "keys and values" not in detail_of(model, in_role(thin, "aggregated"))


limits = st.lists(
    st.builds(
        LatencyLimit,
        st.sampled_from(["ttft", "tpot", "e2e"]),
        st.sampled_from([50, 90, 95, 99]),
        st.floats(0.01, 60.0),
    ),
    min_size=1,
    max_size=3,
)
roles = st.sampled_from(ROLES)
bandwidths = st.sampled_from([0.25, 1.25, 12.5, math.inf])
law = settings(max_examples=15, derandomize=True)


@given(limits, roles, bandwidths, st.floats(1.0, 5.0), st.floats(0.3, 1.0))
@law
def test_a_tighter_limit_never_raises_a_rate(
    slo: list[LatencyLimit], role: Role, gb_per_s: float, factor: float, load: float
) -> None:
    looser = [replace(limit, seconds=limit.seconds * factor) for limit in slo]
    tight = rps(limited(*slo), role, load=load, gb_per_s=gb_per_s)
    assert (tight <= rps(limited(*looser), role, load=load, gb_per_s=gb_per_s) * CLOSE).all()


@given(limits, roles, bandwidths)
@law
def test_a_further_limit_never_raises_a_rate(slo: list[LatencyLimit], role: Role, gb_per_s: float) -> None:
    fewer = rps(limited(*slo[1:]), role, gb_per_s=gb_per_s)
    assert (rps(limited(*slo), role, gb_per_s=gb_per_s) <= fewer * CLOSE).all()


@given(limits, roles, st.floats(0.1, 100.0), st.floats(1.0, 10.0))
@law
def test_more_bandwidth_never_lowers_a_rate(
    slo: list[LatencyLimit], role: Role, gb_per_s: float, factor: float
) -> None:
    thin = rps(limited(*slo), role, gb_per_s=gb_per_s)
    assert (thin <= rps(limited(*slo), role, gb_per_s=gb_per_s * factor) * CLOSE).all()


@given(st.sampled_from(["ttft", "tpot", "e2e"]), roles, st.floats(0.02, 30.0))
@law
def test_a_higher_percentile_never_raises_a_rate(metric: LatencyMetric, role: Role, seconds: float) -> None:
    found = [rps(limited(LatencyLimit(metric, percentile, seconds)), role) for percentile in (50, 90, 95, 99)]
    for lower, higher in pairwise(found):
        assert (higher <= lower * CLOSE).all()


@given(limits, roles, st.floats(0.3, 0.99), st.floats(0.3, 0.99))
@law
def test_a_lower_cap_on_loads_never_raises_a_rate(
    slo: list[LatencyLimit], role: Role, one: float, other: float
) -> None:
    low, high = sorted([one, other])
    assert (rps(limited(*slo), role, load=low) <= rps(limited(*slo), role, load=high) * CLOSE).all()


@given(limits, roles, st.floats(0.1, 1.0), st.floats(0.1, 1.0))
@law
def test_a_lower_cap_never_raises_a_rate(slo: list[LatencyLimit], role: Role, one: float, other: float) -> None:
    low, high = sorted([one, other])
    model = limited(*slo)
    found = [
        most_alone(points_of(model, at_cap(in_role(LAYOUTS, role), cap)), len(LAYOUTS), len(model.workloads))
        for cap in (low, high)
    ]
    assert (found[0] <= found[1] * CLOSE).all()
