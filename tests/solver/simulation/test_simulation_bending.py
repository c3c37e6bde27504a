"""Replicas of one phase that serve whole requests where the other phase is short."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sutler.solver.plan import Replica, WorkloadRate
from sutler.solver.problem import LatencyLimit, Role, ServedModel, Workload
from sutler.solver.simulation import fleet
from sutler.solver.simulation.bending import EitherPhase, PhaseLoad, RolePolicy, either_phases, whole_at
from sutler.solver.simulation.fleet import KvRoute, Rerouting, SimulatedReplica, simulate
from sutler.solver.simulation.outcome import Outcome
from sutler.solver.simulation.requests import Requests
from sutler.solver.simulation.step_times import StepTimes
from tests.solver.simulation.builders import random_requests, requests, toy_replica, toy_times

TOKENS = 8192
POLICIES: tuple[RolePolicy, ...] = ("fixed", "mixed_pool", "opportunistic")


def load(position: int = 0, **others: Any) -> PhaseLoad:
    usual: dict[str, Any] = {"prompt_tokens": 0, "answers": 1, "is_idle": False, "is_mixed": False}
    return PhaseLoad(position=position, short=EitherPhase("chat", TOKENS, 8), **{**usual, **others})


def either(role: Role, name: str, times: StepTimes | None = None, *, batch: int = 8) -> SimulatedReplica:
    replica = toy_replica(times, name=name)
    of_phase = replace(replica.settings, role=role)
    return replace(replica, settings=of_phase, either_phase=EitherPhase("chat", TOKENS, batch), outside_s=0.001)


def run(
    asked: Requests,
    roles: RolePolicy,
    replicas: Sequence[SimulatedReplica],
    *,
    exposed_s: float = 0.02,
    reroutings: Sequence[Rerouting] = (),
) -> Outcome:
    """Every prefill replica feeds every decode replica, in equal shares."""
    fractions, routes = split(replicas, exposed_s)
    return simulate(replicas, fractions, asked, kv_routes=routes, roles=roles, reroutings=reroutings)


def split(replicas: Sequence[SimulatedReplica], exposed_s: float) -> tuple[Any, list[KvRoute]]:
    prefill = [p for p, one in enumerate(replicas) if one.settings.role == "prefill"]
    decode = [p for p, one in enumerate(replicas) if one.settings.role == "decode"]
    fractions = np.array([[1.0 / len(prefill) if p in prefill else 0.0 for p in range(len(replicas))]])
    each = 1.0 / len(prefill) / len(decode)
    return fractions, [KvRoute(0, p, d, each, exposed_s) for p in prefill for d in decode]


@pytest.mark.parametrize(
    ("prefill", "decode", "others", "expected"),
    [
        ({}, {}, (), None),
        ({"prompt_tokens": TOKENS + 1}, {}, (), 1),
        ({"prompt_tokens": TOKENS}, {}, (), None),
        ({"prompt_tokens": TOKENS + 1}, {"answers": 8}, (), None),
        ({"prompt_tokens": TOKENS + 1}, {"answers": 3}, ({"answers": 2},), 2),
        ({"prompt_tokens": TOKENS + 1}, {"answers": 3, "is_mixed": True}, ({"answers": 2},), 1),
        ({"answers": 0}, {"answers": 8}, (), 0),
        ({"answers": 8}, {"answers": 8}, (), None),
    ],
    ids=[
        "nothing is short",
        "prompts are",
        "prompts just are not",
        "both are",
        "the one with less to do helps",
        "one that helps already goes first",
        "answers are short and stay",
        "answers are short everywhere",
    ],
)
def test_who_helps_in_the_mixed_pool(
    prefill: dict[str, Any], decode: dict[str, Any], others: tuple[dict[str, Any], ...], expected: int | None
) -> None:
    first, second = load(0, **prefill), load(1, **decode)
    every = [first, second, *(load(number, **one) for number, one in enumerate(others, 2))]
    assert whole_at("mixed_pool", first, second, every) == expected


def test_a_replica_is_short_when_half_of_the_wait_that_a_limit_allows_is_there() -> None:
    """At 3 of 4 requests/s of 1,000 tokens: 4,000 tokens/s, and 1.5 s of the 3 s to the first token."""

    def planned(name: str, role: Role, batch: int, model: str = "chat", rps: float = 4.0) -> Replica:
        rates = (WorkloadRate("w", rps),)
        return Replica(name, model, role, (), batch, 0.75, (WorkloadRate("w", 3.0),), sustained_rps=rates)

    limits = (LatencyLimit("ttft", 90, 3.0), LatencyLimit("tpot", 90, 0.1))
    workloads = (Workload("w", 1000.0, 10.0, 1.0),)
    models = {
        "chat": ServedModel("chat", None, "bf16", "bf16", workloads, slo=limits),
        "other": ServedModel("other", None, "bf16", "bf16", workloads),
    }
    every = [
        planned("p", "prefill", 1),
        planned("q", "prefill", 1, rps=0.5),
        planned("d", "decode", 200),
        planned("e", "decode", 90),
        planned("x", "prefill", 1, "other", 50.0),
        planned("y", "aggregated", 8, "other"),
    ]
    assert either_phases(every, models) == {
        "p": EitherPhase("chat", 6000, 90),
        "q": EitherPhase("chat", 2048, 90),
        "d": EitherPhase("chat", 2048, 200),
        "e": EitherPhase("chat", 2048, 90),
        "x": EitherPhase("other", 50_000, 256),
    }


def test_who_is_idle_is_an_opportunity() -> None:
    first, second = load(0), load(1)
    assert whole_at("opportunistic", first, second, [first, second]) is None
    assert whole_at("opportunistic", first, second, [first, second, load(2, is_idle=True)]) == 2


def test_prompts_that_would_wait_are_served_where_answers_are_written() -> None:
    """Twenty prompts of 2,000 tokens at once: 0.2 s each. Five are beyond the threshold of 8,192; the next
    five go to the decode replica, until it has as many itself, and the rest waits as planned."""
    asked = requests([(0.0, 2000, 4)] * 20)
    outcome = run(asked, "mixed_pool", [either("prefill", "p"), either("decode", "d")], exposed_s=0.0)
    fixed = run(asked, "fixed", [either("prefill", "p"), either("decode", "d")], exposed_s=0.0)
    assert outcome.is_served.all()
    assert outcome.replica.tolist()[:5] == [0] * 5
    assert outcome.replica.tolist()[5:] == [1] * 5 + [0] * 10
    assert (outcome.decode[outcome.replica == 1] == -1).all()
    assert np.nanmax(outcome.ttft_s) < np.nanmax(fixed.ttft_s) - 0.5


def test_answers_that_find_no_place_stay_where_their_prompt_was() -> None:
    """The decode replica is planned for two."""
    asked = requests([(0.1 * number, 100, 200) for number in range(6)])
    outcome = run(asked, "mixed_pool", [either("prefill", "p"), either("decode", "d", batch=2)])
    assert outcome.decode.tolist() == [1, 1, -1, -1, -1, -1]
    assert outcome.replica.tolist() == [0] * 6
    assert outcome.is_served.all()


def test_a_replica_that_has_helped_is_what_it_was() -> None:
    """After the six of before have ended, all is as planned."""
    asked = requests([*((0.1 * number, 100, 200) for number in range(6)), (60.0, 100, 200)])
    outcome = run(asked, "mixed_pool", [either("prefill", "p"), either("decode", "d", batch=2)])
    assert (outcome.replica[-1], outcome.decode[-1]) == (0, 1)


def test_an_idle_replica_serves_the_next_request_whole() -> None:
    asked = requests([(0.0, 100, 50), (0.1, 100, 50), (0.2, 100, 50)])
    outcome = run(asked, "opportunistic", [either("prefill", "p"), either("decode", "d")])
    assert (outcome.replica.tolist(), outcome.decode.tolist()) == ([0, 1, 0], [-1, -1, 1])


def test_a_replica_that_takes_one_phase_alone_never_helps() -> None:
    replicas = [either("prefill", "p"), replace(either("decode", "d", batch=1), either_phase=None)]
    asked = requests([(0.1 * number, 100, 200) for number in range(6)])
    for roles in POLICIES:
        assert run(asked, roles, replicas).decode.tolist() == [1] * 6


def test_another_model_s_replicas_do_not_help() -> None:
    other = replace(either("decode", "e"), either_phase=EitherPhase("other", TOKENS, 8))
    replicas = [either("prefill", "p"), either("decode", "d"), other]
    fractions, routes = split(replicas[:2], 0.0)
    asked = requests([(0.0, 2000, 4)] * 20)
    fractions = np.append(fractions, [[0.0]], axis=1)
    for roles in POLICIES:
        outcome = simulate(replicas, fractions, asked, kv_routes=routes, roles=roles)
        assert not (outcome.replica == 2).any()
        assert not (outcome.decode == 2).any()


@settings(max_examples=40)
@given(
    seed=st.integers(0, 10_000),
    rate_rps=st.floats(0.5, 300.0),
    prefill=st.integers(1, 3),
    decode=st.integers(1, 3),
    roles=st.sampled_from(POLICIES),
    kv_tokens=st.sampled_from((480, 1000, 100_000)),
    exposed_s=st.sampled_from((0.0, 0.01, 2.0)),
    batch=st.sampled_from((1, 4, 8)),
)
def test_every_request_is_served_once_in_its_order_of_events(
    seed: int,
    rate_rps: float,
    prefill: int,
    decode: int,
    roles: RolePolicy,
    kv_tokens: int,
    exposed_s: float,
    batch: int,
) -> None:
    """Also where half-way the roles are swapped by routing alone."""
    asked = random_requests(seed, 60, rate_rps=rate_rps, longest_input=4000 if kv_tokens > 10_000 else 400)
    times = toy_times(kv_tokens=kv_tokens)
    replicas = [either("prefill", f"p-{n}", times, batch=batch) for n in range(prefill)]
    replicas += [either("decode", f"d-{n}", times, batch=batch) for n in range(decode)]
    swapped = [
        replace(one, settings=replace(one.settings, role="decode" if one.settings.role == "prefill" else "prefill"))
        for one in replicas
    ]
    later = Rerouting(float(asked.arrival_s[30]), *split(swapped, exposed_s))
    outcome = run(asked, roles, replicas, exposed_s=exposed_s, reroutings=[later])
    fits = asked.input_tokens + np.where(asked.output_tokens > 1, asked.output_tokens, 0) <= kv_tokens // 16 * 16
    assert np.array_equal(outcome.is_served, fits)
    served, handed = outcome.is_served, outcome.decode >= 0
    assert (outcome.ttft_s[served] > 0).all()
    assert (outcome.finish_s[handed] > outcome.first_token_s[handed]).all()
    assert all((timeline.cache_fraction <= 1 + 1e-9).all() for timeline in outcome.timelines)
    if roles == "fixed":
        assert np.array_equal(handed, fits & (asked.output_tokens > 1))


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), rate_rps=st.floats(2.0, 60.0), exposed_s=st.sampled_from((0.0, 0.01, 0.5)))
def test_what_is_handed_to_and_fro_arrives_in_order_however_often_anybody_looks(
    seed: int, rate_rps: float, exposed_s: float
) -> None:
    """Both replicas prefill and decode at once: after the swap each still has what it had before."""
    asked = random_requests(seed, 80, rate_rps=rate_rps)
    replicas = [either("prefill", "p"), either("decode", "d")]
    swapped = [
        replace(replicas[0], settings=replicas[1].settings),
        replace(replicas[1], settings=replicas[0].settings),
    ]
    ways = [split(replicas, exposed_s), split(swapped, exposed_s)]
    changes = [Rerouting(float(asked.arrival_s[at]), *ways[(at // 10) % 2]) for at in range(10, 80, 10)]
    seldom = run(asked, "fixed", replicas, exposed_s=exposed_s, reroutings=changes)
    offer = fleet._Run.offer

    def looking(self: Any, number: int, at_s: float, kind: int, gateway: Any) -> None:
        self._deliver(at_s)
        for position in range(len(replicas)):
            self._advance(position, at_s)
        offer(self, number, at_s, kind, gateway)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fleet._Run, "offer", looking)
        often = run(asked, "fixed", replicas, exposed_s=exposed_s, reroutings=changes)
    assert often.finish_s == pytest.approx(seldom.finish_s, rel=1e-9)
    assert often.first_token_s == pytest.approx(seldom.first_token_s, rel=1e-9)
