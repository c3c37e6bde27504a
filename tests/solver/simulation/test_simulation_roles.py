"""Replicas that only prefill and replicas that only decode, and what is handed over between them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sutler.solver.simulation.engine import Scheduling
from sutler.solver.simulation.fleet import KvRoute, SimulatedReplica, simulate
from sutler.solver.simulation.outcome import Outcome
from sutler.solver.simulation.requests import Requests
from sutler.solver.simulation.routing import RoutingPolicy
from sutler.solver.simulation.step_times import Line, StepTimes
from sutler.solver.simulation.summary import group_results, summarise
from tests.solver.simulation.builders import (
    KIND,
    everything_to,
    linear_prompts,
    random_requests,
    requests,
    toy_replica,
    toy_times,
)

POLICIES: tuple[RoutingPolicy, ...] = ("round_robin", "random", "least_loaded")
EXPOSED_S = 0.02


def prefills(times: StepTimes | None = None, *, name: str = "p-0", outside_s: float = 0.0) -> SimulatedReplica:
    replica = toy_replica(times, name=name, outside_s=outside_s)
    return replace(replica, settings=replace(replica.settings, role="prefill"))


def decodes(times: StepTimes | None = None, *, name: str = "d-0") -> SimulatedReplica:
    replica = toy_replica(times, name=name)
    return replace(replica, settings=replace(replica.settings, role="decode"))


def apart(
    asked: Requests,
    *,
    prefill: tuple[SimulatedReplica, ...] = (prefills(),),
    decode: tuple[SimulatedReplica, ...] = (decodes(),),
    exposed_s: float = EXPOSED_S,
    policy: RoutingPolicy = "round_robin",
) -> Outcome:
    """Every prefill replica feeds every decode replica, in equal shares."""
    p, d = len(prefill), len(decode)
    fractions = np.array([[1.0 / p] * p + [0.0] * d])
    routes = [KvRoute(0, i, p + j, 1.0 / p / d, exposed_s) for i in range(p) for j in range(d)]
    return simulate([*prefill, *decode], fractions, asked, kv_routes=routes, routing=policy, seed=3)


def test_one_request_takes_its_prefill_its_transfer_and_its_steps() -> None:
    """100 in and 11 out: 10 ms of prompt, 20 ms of transfer, ten steps of 11 ms and 1 us per token of context, whose
    mean is 105.5."""
    outcome = apart(requests([(0.0, 100, 11)]), prefill=(prefills(outside_s=0.003),))
    assert outcome.ttft_s.tolist() == pytest.approx([0.003 + 0.01 + EXPOSED_S])
    assert outcome.tpot_s.tolist() == pytest.approx([0.011 + 1e-6 * 105.5])
    assert (outcome.replica.tolist(), outcome.decode.tolist()) == ([0], [1])


def test_the_transfer_of_a_longer_prompt_takes_longer() -> None:
    """The plan states it for a prompt of the workload's mean length, 100 tokens."""
    outcome = apart(requests([(0.0, 300, 2)]))
    assert outcome.ttft_s.tolist() == pytest.approx([0.03 + 3 * EXPOSED_S])


def test_a_single_token_is_never_handed_over() -> None:
    outcome = apart(requests([(0.0, 100, 1)]), decode=(decodes(toy_times(kv_tokens=16)),))
    assert outcome.e2e_s.tolist() == pytest.approx([0.01])
    assert outcome.decode.tolist() == [-1]


def test_prefill_goes_on_during_a_transfer() -> None:
    """Two prompts of 2,048 tokens, a step of 204.8 ms each; the transfers of 100 ms are beside the prefill."""
    outcome = apart(requests([(0.0, 2048, 2), (0.0, 2048, 2)]), exposed_s=0.1 * 100 / 2048)
    assert outcome.ttft_s.tolist() == pytest.approx([0.2048 + 0.1, 2 * 0.2048 + 0.1])


def test_what_one_replica_hands_over_goes_one_after_the_other() -> None:
    """Two prompts of 100 tokens share a step of 20 ms; the second transfer waits for the first."""
    outcome = apart(requests([(0.0, 100, 2), (0.0, 100, 2)]))
    assert outcome.ttft_s.tolist() == pytest.approx([0.02 + EXPOSED_S, 0.02 + 2 * EXPOSED_S])


def test_a_prompt_keeps_its_blocks_until_it_is_handed_over() -> None:
    """A cache of one prompt: the next one begins when the first is over."""
    prefill = prefills(toy_times(kv_tokens=112))
    outcome = apart(requests([(0.0, 100, 2), (0.0, 100, 2)]), prefill=(prefill,), exposed_s=0.5)
    assert outcome.ttft_s.tolist() == pytest.approx([0.01 + 0.5, 2 * (0.01 + 0.5)])
    assert outcome.timelines[0].busy_s == pytest.approx(0.02)


def test_a_request_that_either_cache_cannot_hold_is_served_by_none() -> None:
    asked = requests([(0.0, 200, 2), (1.0, 90, 40), (2.0, 90, 10)])
    outcome = apart(asked, prefill=(prefills(toy_times(kv_tokens=112)),), decode=(decodes(toy_times(kv_tokens=112)),))
    assert outcome.is_served.tolist() == [False, False, True]


def test_without_a_way_on_a_request_is_served_by_none() -> None:
    outcome = simulate([prefills(), decodes()], np.array([[1.0, 0.0]]), requests([(0.0, 10, 5), (0.0, 10, 1)]))
    assert outcome.is_served.tolist() == [False, True]


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    rate_rps=st.floats(0.5, 300.0),
    prefill=st.integers(1, 3),
    decode=st.integers(1, 3),
    policy=st.sampled_from(POLICIES),
    scheduling=st.sampled_from(("chunked", "prefill_first")),
    kv_tokens=st.sampled_from((480, 1000, 100_000)),
    exposed_s=st.sampled_from((0.0, 0.01, 2.0)),
)
def test_every_request_is_served_once_in_its_order_of_events(
    seed: int,
    rate_rps: float,
    prefill: int,
    decode: int,
    policy: RoutingPolicy,
    scheduling: Scheduling,
    kv_tokens: int,
    exposed_s: float,
) -> None:
    asked = random_requests(seed, 60, rate_rps=rate_rps)
    times = toy_times(kv_tokens=kv_tokens)
    one = replace(prefills(times).settings, scheduling=scheduling)
    outcome = apart(
        asked,
        prefill=tuple(replace(prefills(times), settings=one) for _ in range(prefill)),
        decode=tuple(decodes(times) for _ in range(decode)),
        exposed_s=exposed_s,
        policy=policy,
    )
    fits = np.where(
        asked.output_tokens > 1,
        asked.input_tokens + asked.output_tokens <= kv_tokens // 16 * 16,
        asked.input_tokens <= kv_tokens // 16 * 16,
    )
    assert np.array_equal(outcome.is_served, fits)
    served, handed = outcome.is_served, outcome.decode >= 0
    assert np.array_equal(handed, fits & (asked.output_tokens > 1))
    assert (outcome.ttft_s[served] > 0).all()
    assert (outcome.finish_s[handed] > outcome.first_token_s[handed]).all()
    assert all((timeline.cache_fraction <= 1 + 1e-9).all() for timeline in outcome.timelines)


@pytest.mark.parametrize("policy", POLICIES)
def test_requests_go_on_by_the_fractions_of_where_they_come_from(policy: RoutingPolicy) -> None:
    """p-0 feeds d-0 and d-1 by 3:1, p-1 feeds d-1 alone."""
    asked = random_requests(6, 4000, rate_rps=4.0)
    asked = replace(asked, output_tokens=np.maximum(asked.output_tokens, 2))
    replicas = [prefills(), prefills(name="p-1"), decodes(), decodes(name="d-1")]
    routes = [KvRoute(0, 0, 2, 0.6, 0.0), KvRoute(0, 0, 3, 0.2, 0.0), KvRoute(0, 1, 3, 0.2, 0.0)]
    outcome = simulate(replicas, np.array([[0.8, 0.2, 0.0, 0.0]]), asked, kv_routes=routes, routing=policy)
    pairs = [float(((outcome.replica == p) & (outcome.decode == d)).mean()) for p, d in ((0, 2), (0, 3), (1, 3))]
    spread = {"round_robin": 0.001, "random": 0.03, "least_loaded": 0.3}[policy]
    assert pairs == pytest.approx([0.6, 0.2, 0.2], abs=spread)
    assert not ((outcome.replica == 1) & (outcome.decode == 2)).any()


def test_the_decode_replica_with_the_fewest_requests_gets_the_next() -> None:
    asked = requests([(0.0, 100, 400), (0.0, 100, 2), (1.0, 100, 2)])
    outcome = apart(asked, decode=(decodes(), decodes(name="d-1")), policy="least_loaded")
    assert outcome.decode.tolist() == [1, 2, 2]


def sustained_rps(outcome: Outcome) -> float:
    """Between the first quarter and the last of what was finished."""
    ends_s = np.sort(outcome.finish_s)
    first, last = len(ends_s) // 4, len(ends_s) * 3 // 4
    return float((last - first) / (ends_s[last] - ends_s[first]))


def at_once(count: int, input_tokens: int, output_tokens: int) -> Requests:
    return requests([(0.0, input_tokens, output_tokens)] * count)


@pytest.mark.parametrize("tokens", [100, 1500, 5000])
def test_a_full_prefill_replica_sustains_a_prompt_per_prefill(tokens: int) -> None:
    """With a fast decode replica behind it: 0.1 ms per token."""
    fast = decodes(toy_times(step_s=1e-5, per_sequence_s=0.0, max_sequences=64, kv_tokens=10**7))
    outcome = apart(at_once(400, tokens, 2), decode=(fast,), exposed_s=0.0)
    assert sustained_rps(outcome) == pytest.approx(1 / (1e-4 * tokens), rel=0.03)


def test_a_pipeline_that_prefills_sustains_a_prompt_per_slowest_stage() -> None:
    times = toy_times()
    line = Line(0.01, 0.0)
    pipeline = replace(times, decode=((line, line, line),) * 9, **linear_prompts(1e-4, 6e-5))
    fast = decodes(toy_times(step_s=1e-5, per_sequence_s=0.0, max_sequences=64, kv_tokens=10**7))
    outcome = apart(at_once(400, 1000, 2), prefill=(prefills(pipeline),), decode=(fast,), exposed_s=0.0)
    assert sustained_rps(outcome) == pytest.approx(10.0, rel=0.03)
    alone = apart(at_once(1, 1000, 2), prefill=(prefills(pipeline),), decode=(fast,), exposed_s=0.0)
    assert alone.ttft_s.tolist() == pytest.approx([0.16])


def test_a_full_decode_replica_sustains_its_batch_per_answer() -> None:
    """Eight answers of 20 steps, of eight sequences at a mean context of 110.5."""
    fast = prefills(toy_times(prefill_s_per_token=1e-7, kv_tokens=10**7))
    outcome = apart(at_once(800, 100, 21), prefill=(fast,), exposed_s=0.0)
    assert sustained_rps(outcome) == pytest.approx(8 / (20 * (0.018 + 8e-6 * 110.5)), rel=0.03)


def test_the_slower_of_the_two_phases_limits_both() -> None:
    """Prompts of 100 tokens are done at 100 a second, two replicas decode 42 of them."""
    outcome = apart(at_once(1200, 100, 21), decode=(decodes(), decodes(name="d-1")), exposed_s=0.0)
    assert sustained_rps(outcome) == pytest.approx(2 * 8 / (20 * (0.018 + 8e-6 * 110.5)), rel=0.03)


def test_answers_that_no_prompt_interrupts_come_more_evenly() -> None:
    """The same load on two replicas that do both, and on one for each phase."""
    asked = random_requests(5, 2000, rate_rps=4.0, longest_input=3000)
    together = simulate([toy_replica(), toy_replica()], everything_to(2), asked)
    outcome = apart(asked, exposed_s=0.005)
    assert np.nanpercentile(outcome.tpot_s, 99) < np.nanpercentile(together.tpot_s, 99) / 2


def test_without_load_answers_are_as_fast_as_their_steps() -> None:
    asked = random_requests(5, 200, rate_rps=1.0)
    asked = replace(asked, arrival_s=np.linspace(0.0, 1990.0, 200))
    outcome = apart(asked)
    alone_s = 0.011 + 1e-6 * (asked.input_tokens + asked.output_tokens / 2)
    several = asked.output_tokens > 1
    assert outcome.tpot_s[several] == pytest.approx(alone_s[several], rel=0.01)
    transfer_s = np.where(several, EXPOSED_S * asked.input_tokens / KIND.input_tokens, 0.0)
    assert outcome.ttft_s == pytest.approx(1e-4 * asked.input_tokens + transfer_s, abs=1e-6)


def test_what_a_decode_replica_preempts_is_computed_anew_and_ends() -> None:
    """Four of 400 tokens at their end, in a cache of 1,000."""
    outcome = apart(at_once(4, 200, 200), decode=(decodes(toy_times(kv_tokens=1000)),), exposed_s=0.0)
    assert outcome.is_served.all()
    assert outcome.preemptions.tolist()[0] == 0
    assert outcome.preemptions.tolist()[1] > 0


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_arguments_give_the_same_outcome(policy: RoutingPolicy) -> None:
    asked = random_requests(4, 300, rate_rps=30.0)
    one, other = (apart(asked, prefill=(prefills(),) * 2, decode=(decodes(),) * 2, policy=policy) for _ in range(2))
    assert np.array_equal(one.finish_s, other.finish_s)
    assert np.array_equal(one.decode, other.decode)


def test_aggregated_replicas_beside_it_do_what_they_do_alone() -> None:
    asked = random_requests(8, 300, rate_rps=5.0)
    alone = simulate([toy_replica()], everything_to(1), asked)
    beside = simulate(
        [toy_replica(), prefills(), decodes()],
        np.array([[1.0, 0.0, 0.0]]),
        asked,
        kv_routes=[KvRoute(0, 1, 2, 0.0, 0.1)],
    )
    assert np.array_equal(alone.finish_s, beside.finish_s)


def test_a_request_counts_for_both_of_its_replicas() -> None:
    asked = random_requests(4, 100, rate_rps=5.0)
    asked = replace(asked, output_tokens=np.maximum(asked.output_tokens, 2))
    outcome = apart(asked)
    found = summarise(outcome, ["p-0", "d-0"], {}, warm_up_s=0.0)
    assert [replica.requests for replica in found.replicas] == [100, 100]
    assert found.models[0].requests == 100
    assert group_results(outcome, [0, 1], [(), ()], warm_up_s=0.0) == ((), ())
