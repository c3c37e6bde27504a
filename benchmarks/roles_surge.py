"""A mix that turns within a second from long prompts to long answers: what each way to meet it leaves unserved.

Ten equal machines are planned for Azure's code trace, and get the conversation trace at the same share of what they
could carry of it. What is known of that, and how long starting takes, are the defaults of a deployment's policy.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from sutler.service.deployments.schemas import PolicyDocument
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.traces import RequestTrace
from sutler.service.translation.to_plan import gpus_of, roofline_of, served_models, solver_plan
from sutler.solver.simulation.bending import RolePolicy
from sutler.solver.simulation.fleet import KvRoute, Rerouting, SimulatedReplica, simulate
from sutler.solver.simulation.outcome import Outcome
from sutler.solver.simulation.replicas import lengths_of, simulated_replicas
from sutler.solver.simulation.requests import RequestKind, Requests, joined, sampled

LOADS: Final = (0.6, 0.8, 0.95)
LIMITS: Final = {"ttft_p90_s": 2.0, "tpot_p90_s": 0.1}
BEFORE_S, AFTER_S = 300.0, 1800.0
SEEN_AFTER_S: Final = 60.0  # chosen: a feed is read every 15 s, and a drift holds for some readings
PART_S: Final = 30.0  # of time: what is within limits is counted in parts
CARRIED: Final = 0.9  # as many of a part are to be within the limits
WEIGHTS_GB: Final = 141.0  # Llama 3 70B in BF16
PARTS: Final = {"code": (0.0, BEFORE_S), "conversation": (BEFORE_S, AFTER_S)}  # from when, for how long


@dataclass(frozen=True, slots=True)
class Way:
    """An answer to the turn: from so many seconds after it on, the replicas that prefill and those that decode."""

    name: str
    roles: RolePolicy = "fixed"
    steps: Sequence[tuple[float, Sequence[int], Sequence[int]]] = ()


def surge_lines(plans: Mapping[str, PlanDocument], traces: Mapping[str, RequestTrace]) -> Iterator[str]:
    """The table. `plans` of the same machines by trace; both say how many of the replicas prefill."""
    policy = PolicyDocument()
    started_s = policy.startup_s + WEIGHTS_GB / policy.download_gb_per_s
    restarted_s = policy.drain_s + policy.restart_s
    before, after = (roles_of(plans[name]) for name in ("code", "conversation"))
    count = before[0] + before[1]
    turned = before[0] - after[0]
    yield "## A mix that turns"
    yield ""
    yield (
        f"The {count} machines of HH are planned for code, {before[0]} to prefill and {before[1]} to decode; then "
        f"conversations come, for which {after[0]} and {after[1]} are best. That is seen after {SEEN_AFTER_S:.0f} s; "
        f"engines that restart are drained and back after {restarted_s:.0f} s, new machines serve after "
        f"{started_s:.0f} s. Cells: requests that were not within both limits (of those of the {AFTER_S / 60:.0f} "
        f"minutes after the turn), and the seconds until {CARRIED:.0%} of those that come are."
    )
    yield ""
    ways = _ways(before, after, restarted_s, started_s)
    yield f"| load | {' | '.join(way.name for way in ways)} |"
    yield f"|{'---|' * (len(ways) + 1)}"
    for load in LOADS:
        asked = _requests(traces, plans, load)
        replicas = _replicas(plans["code"], asked, count + turned)
        cells = []
        for way in ways:
            outcome = _run(way, replicas, asked, before, plans)
            missed, until_s = _judged(outcome)
            cells.append(f"{missed:,} · {'never' if until_s is None else f'{until_s:.0f} s'}")
        yield f"| {load:.0%} | {' | '.join(cells)} |"


def _ways(before: tuple[int, int], after: tuple[int, int], restarted_s: float, started_s: float) -> list[Way]:
    """Replicas 0 to before[0] - 1 prefill, the next decode; those that turn are the last that prefill."""
    old = range(before[0], before[0] + before[1])
    stay, turn = range(after[0]), range(after[0], before[0])
    new = range(before[0] + before[1], before[0] + before[1] + len(turn))
    seen_s = SEEN_AFTER_S
    by_routing = (seen_s, stay, [*turn, *old])
    return [
        Way("nothing"),
        Way("mixed pool", "mixed_pool"),
        Way("roles by routing", steps=[by_routing]),
        Way("both", "mixed_pool", [by_routing]),
        Way("roles by restart", steps=[(seen_s, stay, [*old]), (seen_s + restarted_s, stay, [*turn, *old])]),
        Way("re-renting", steps=[(seen_s + started_s, stay, [*new, *old])]),
    ]


def roles_of(plan: PlanDocument) -> tuple[int, int]:
    """Its replicas that prefill, and those that decode."""
    roles = [replica.role for replica in plan.replicas]
    return roles.count("prefill"), roles.count("decode")


def rps_of(plan: PlanDocument) -> float:
    """What it is planned to carry."""
    return sum(sum(one.throughput_rps.values()) for one in plan.replicas if one.role == "prefill")


def _requests(traces: Mapping[str, RequestTrace], plans: Mapping[str, PlanDocument], load: float) -> Requests:
    """Code, and from BEFORE_S on conversations, at random times with lengths of the traces."""
    kinds, parts = tuple(_kind(name, traces[name]) for name in PARTS), []
    for number, (name, (start_s, length_s)) in enumerate(PARTS.items()):
        lengths = np.asarray(traces[name].input_tokens), np.asarray(traces[name].output_tokens)
        rps = load * rps_of(plans[name])
        part = sampled(kinds[number : number + 1], "chat", *lengths, rate_rps=rps, duration_s=length_s, seed=7)
        of_kind = np.full(len(part), number, dtype=np.int64)
        parts.append(Requests(kinds, of_kind, part.arrival_s + start_s, part.input_tokens, part.output_tokens))
    return joined(parts)


def _kind(name: str, trace: RequestTrace) -> RequestKind:
    return RequestKind("chat", name, float(np.mean(trace.input_tokens)), float(np.mean(trace.output_tokens)), 0.0)


def _replicas(plan: PlanDocument, asked: Requests, count: int) -> list[SimulatedReplica]:
    """So many of the machines of the plan, all as its first."""
    described, models = solver_plan(plan), served_models(plan)
    [first] = simulated_replicas(
        described.replicas[:1],
        models=models,
        gpus=gpus_of(plan),
        evidence=described.evidence,
        lengths={"chat": lengths_of(models["chat"], asked.input_tokens, asked.output_tokens)},
        roofline=roofline_of(plan),
        either_phase={described.replicas[0].id},
    )
    return [replace(first, name=f"chat-{number}") for number in range(count)]


def _run(
    way: Way,
    replicas: Sequence[SimulatedReplica],
    asked: Requests,
    before: tuple[int, int],
    plans: Mapping[str, PlanDocument],
) -> Outcome:
    exposed_s = [float(np.mean([one.exposed_s or 0.0 for one in plans[name].kv_transfers])) for name in PARTS]

    def split(prefill: Sequence[int], decode: Sequence[int]) -> tuple[np.ndarray, list[KvRoute]]:
        row = [1.0 / len(prefill) if p in prefill else 0.0 for p in range(len(replicas))]
        each = 1.0 / len(prefill) / len(decode)
        routes = [
            KvRoute(kind, p, d, each, exposed_s[kind]) for kind in range(len(PARTS)) for p in prefill for d in decode
        ]
        return np.array([row] * len(PARTS)), routes

    fractions, routes = split(range(before[0]), range(before[0], sum(before)))
    later = [Rerouting(BEFORE_S + at_s, *split(prefill, decode)) for at_s, prefill, decode in way.steps]
    return simulate(replicas, fractions, asked, kv_routes=routes, roles=way.roles, reroutings=later)


def _judged(outcome: Outcome) -> tuple[int, float | None]:
    """Requests after the turn outside the limits, and after how many seconds enough of them are within."""
    since_s = outcome.requests.arrival_s - BEFORE_S
    counted = since_s >= 0
    within = (outcome.ttft_s <= LIMITS["ttft_p90_s"]) & ~(outcome.tpot_s > LIMITS["tpot_p90_s"]) & outcome.is_served
    part = (since_s[counted] // PART_S).astype(np.int64)
    arrived, kept = np.bincount(part), np.bincount(part, weights=within[counted])
    short = np.flatnonzero(kept < CARRIED * arrived)
    missed = int((~within[counted]).sum())
    if not len(short):
        return missed, 0.0
    return missed, None if short[-1] == len(arrived) - 1 else float((short[-1] + 1) * PART_S)
