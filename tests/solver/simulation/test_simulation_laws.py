"""What every simulation keeps to, and the queues of textbooks as limits of toy replicas."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sutler.solver.arrays import IntArray
from sutler.solver.simulation.engine import EngineSettings, Scheduling
from sutler.solver.simulation.fleet import SimulatedReplica, closed_loop, simulate
from sutler.solver.simulation.outcome import Outcome
from sutler.solver.simulation.requests import Requests
from sutler.solver.simulation.routing import RoutingPolicy
from sutler.solver.simulation.step_times import Line, StepTimes
from tests.looped import for_each
from tests.solver.simulation.builders import (
    KIND,
    everything_to,
    linear_prompts,
    random_requests,
    toy_replica,
    toy_times,
)

POLICIES: tuple[RoutingPolicy, ...] = ("round_robin", "random", "least_loaded")


def one_server() -> SimulatedReplica:
    """Serves one prompt at a time, 1 ms per token of it, and writes a single token."""
    times = StepTimes(((Line(0.0, 0.0),), (Line(0.0, 0.0),)), **linear_prompts(1e-3), kv_tokens=10**12)
    return SimulatedReplica("queue", times, EngineSettings(1, 1, "prefill_first"))


def single_tokens(seed: int, count: int, *, rate_rps: float, inputs: IntArray) -> Requests:
    arrival_s = np.cumsum(np.random.default_rng(seed).exponential(1.0 / rate_rps, count))
    return Requests((KIND,), np.zeros(count, dtype=np.int64), arrival_s, inputs, np.ones(count, dtype=np.int64))


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.3, 0.8])
def test_prompts_of_one_length_wait_as_in_m_d_1(load: float) -> None:
    """Pollaczek-Khinchine: the mean wait is load / (2 (1 - load)) service times."""
    count, service_s = 200_000, 1.0
    asked = single_tokens(1, count, rate_rps=load / service_s, inputs=np.full(count, 1000))
    waits_s = simulate([one_server()], everything_to(1), asked).e2e_s - service_s
    assert waits_s.mean() == pytest.approx(load / (2 * (1 - load)) * service_s, rel=0.05)


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.3, 0.8])
def test_prompts_of_exponential_length_wait_as_in_m_m_1(load: float) -> None:
    """The time in the system is exponential with mean 1 / (service rate - arrival rate)."""
    count, service_s = 200_000, 1.0
    inputs = np.maximum(1, np.round(np.random.default_rng(7).exponential(1000.0, count))).astype(np.int64)
    asked = single_tokens(2, count, rate_rps=load / service_s, inputs=inputs)
    outcome = simulate([one_server()], everything_to(1), asked)
    mean_s = service_s / (1 - load)
    assert outcome.e2e_s.mean() == pytest.approx(mean_s, rel=0.08)
    assert np.percentile(outcome.e2e_s, 90) == pytest.approx(mean_s * np.log(10), rel=0.1)


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10_000),
    rate_rps=st.floats(0.5, 300.0),
    replicas=st.integers(1, 4),
    policy=st.sampled_from(POLICIES),
    scheduling=st.sampled_from(("chunked", "prefill_first")),
    kv_tokens=st.sampled_from((480, 1000, 100_000)),
    max_batched_tokens=st.sampled_from((32, 500, 4096)),
)
def test_every_request_is_served_once_in_its_order_of_events(
    seed: int,
    rate_rps: float,
    replicas: int,
    policy: RoutingPolicy,
    scheduling: Scheduling,
    kv_tokens: int,
    max_batched_tokens: int,
) -> None:
    asked = random_requests(seed, 60, rate_rps=rate_rps)
    replica = toy_replica(
        toy_times(kv_tokens=kv_tokens), scheduling=scheduling, max_batched_tokens=max_batched_tokens
    )
    outcome = simulate([replica] * replicas, everything_to(replicas), asked, routing=policy, seed=seed)
    fits = asked.input_tokens + asked.output_tokens <= kv_tokens // 16 * 16
    assert np.array_equal(outcome.is_served, fits)
    assert np.array_equal(outcome.replica >= 0, fits)
    served = outcome.is_served
    assert (outcome.ttft_s[served] > 0).all()
    assert (outcome.finish_s[served] >= outcome.first_token_s[served]).all()
    several = served & (asked.output_tokens > 1)
    assert (outcome.finish_s[several] > outcome.first_token_s[several]).all()


def test_time_is_accounted_for() -> None:
    """Without preemption, a replica is busy for what its prompts and steps take, and runs what Little's law says."""
    asked = random_requests(3, 500, rate_rps=5.0)
    outcome = simulate([toy_replica()], everything_to(1), asked)
    [timeline] = outcome.timelines
    in_system = float((timeline.running + timeline.waiting).sum() * timeline.span_s)
    assert in_system == pytest.approx(float(outcome.e2e_s.sum()), rel=0.02)
    assert 0 < timeline.busy_s <= float(outcome.finish_s.max())
    assert (timeline.busy_fraction <= 1 + 1e-9).all()
    assert (timeline.cache_fraction <= 1 + 1e-9).all()


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_arguments_give_the_same_outcome(policy: RoutingPolicy) -> None:
    asked = random_requests(4, 300, rate_rps=30.0)
    one, other = (simulate([toy_replica()] * 3, everything_to(3), asked, routing=policy, seed=5) for _ in range(2))
    assert np.array_equal(one.finish_s, other.finish_s)
    assert np.array_equal(one.replica, other.replica)


def slowed(asked: Requests, factor: float) -> Requests:
    return replace(asked, arrival_s=asked.arrival_s * factor)


@pytest.mark.parametrize("metric", ["ttft_s", "tpot_s", "e2e_s"])
@for_each("seed", range(2))
def test_percentiles_fall_as_the_load_falls(seed: int, metric: str) -> None:
    """The same requests at 1, 1/2, 1/4 and 1/8 of the rate."""
    asked = random_requests(seed, 2000, rate_rps=9.0)
    outcomes = [simulate([toy_replica()], everything_to(1), slowed(asked, factor)) for factor in (1, 2, 4, 8)]
    for percentile in (50, 90, 99):
        values = [float(np.nanpercentile(getattr(outcome, metric), percentile)) for outcome in outcomes]
        assert values == sorted(values, reverse=True)


def shares(outcome: Outcome, replicas: int) -> list[float]:
    counts = np.bincount(outcome.replica, minlength=replicas)
    return [float(count) / len(outcome.replica) for count in counts]


@pytest.mark.parametrize("policy", POLICIES)
def test_requests_go_by_the_fractions(policy: RoutingPolicy) -> None:
    asked = random_requests(6, 4000, rate_rps=4.0)
    outcome = simulate([toy_replica()] * 3, np.array([[0.5, 0.3, 0.2]]), asked, routing=policy)
    spread = {"round_robin": 0.001, "random": 0.03, "least_loaded": 0.25}[policy]
    assert shares(outcome, 3) == pytest.approx([0.5, 0.3, 0.2], abs=spread)


def test_the_least_loaded_replica_gets_the_next_request() -> None:
    """Two arrive together and go apart; the third goes to the one that is done."""
    asked = Requests(
        (KIND,), np.zeros(3, np.int64), np.array([0.0, 0.0, 1.0]), np.array([100, 100, 100]), np.array([400, 2, 2])
    )
    outcome = simulate([toy_replica()] * 2, everything_to(2), asked, routing="least_loaded")
    assert outcome.replica.tolist() == [0, 1, 1]


def test_a_workload_without_a_share_is_served_by_none() -> None:
    asked = random_requests(1, 5, rate_rps=1.0)
    outcome = simulate([toy_replica()], np.zeros((1, 1)), asked)
    assert not outcome.is_served.any()


def test_clients_of_a_closed_loop_never_have_two_requests_under_way() -> None:
    asked = random_requests(2, 200, rate_rps=1.0)
    outcome = closed_loop(toy_replica(outside_s=0.01), asked, concurrency=4)
    times = sorted([(at, 1) for at in outcome.requests.arrival_s] + [(at, -1) for at in outcome.finish_s])
    under_way = np.cumsum([change for _, change in times])
    assert outcome.is_served.all()
    assert under_way.max() == 4


def test_a_saturated_closed_loop_does_what_its_steps_allow() -> None:
    """Eight clients, 100 in and 11 out: per request 10 ms of prompt, and an eighth of ten steps of eight sequences at
    a mean context of 105.5."""
    asked = Requests((KIND,), np.zeros(4000, np.int64), np.zeros(4000), np.full(4000, 100), np.full(4000, 11))
    outcome = closed_loop(toy_replica(), asked, concurrency=8)
    per_request_s = 0.01 + 10 / 8 * (0.01 + 8 * (0.001 + 1e-6 * 105.5))
    assert 4000 / float(outcome.finish_s.max()) == pytest.approx(1 / per_request_s, rel=0.03)
