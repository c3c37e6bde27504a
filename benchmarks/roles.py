"""What roles that bend are worth: `python -m benchmarks.roles` (`make roles-bench`).

Fleets of prefill and decode replicas that sutler plans for one of the two Azure traces (Splitwise's own), replayed at
60, 80 and 95 % of what they are planned for, on their trace and on the other one, with fixed roles, with the mixed
pool and with opportunistic scheduling; then Cauchy's combos; then a mix that turns. Exit 2 without the traces, which
are no part of the repository.
"""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from benchmarks.day.traffic import FILES, TRACES
from benchmarks.machine import describe_machine
from benchmarks.program import parser_of
from benchmarks.roles_surge import LIMITS, LOADS, roles_of, rps_of, surge_lines
from benchmarks.scratch import tell
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.traces import RequestTrace, read_trace_file
from sutler.service.library.planning import plan
from sutler.service.simulation.schemas import TrafficResource
from sutler.service.simulation.simulated import Choices, simulated
from sutler.service.simulation.traffic import PoissonTraffic
from sutler.solver.simulation.bending import RolePolicy

POLICIES: Final[tuple[RolePolicy, ...]] = ("fixed", "mixed_pool", "opportunistic")
STEPS: Final = 7  # of the bisection for what is carried: to 1 %
DURATION_S: Final = 300.0
SERVICES: Final = dict(zip(("conversation", "code"), FILES, strict=True))
# Machines of four. Splitwise's designs by their letters, networks as its InfiniBand: 400 Gb/s for H100, 200 for A100.
# Cauchy sends over TCP: as if on 25 Gb/s.
FLEETS: Final[Mapping[str, Mapping[str, int]]] = {
    "HH": {"h100-sxm": 10},
    "AA": {"a100-sxm4-80gb": 14},
    "HA": {"h100-sxm": 6, "a100-sxm4-80gb": 6},
}
NETWORK_GB_PER_S: Final = {"h100-sxm": 50.0, "a100-sxm4-80gb": 25.0, "h800-sxm": 3.1, "h20": 3.1}
HEADINGS: Final = ("fleet", "planned for", "replayed", "load", *POLICIES)


def main() -> int:
    """Prints the tables, and writes them as roles.md."""
    out = parser_of("roles", __doc__).parse_args().out
    if not all((TRACES / name).exists() for name in FILES):
        tell(f"{' and '.join(FILES)} are not in {TRACES.name}: put them beside the checkout, as shared/data/traces")
        return 2
    traces = {name: read_trace_file(TRACES / file) for name, file in SERVICES.items()}
    machine = describe_machine()
    lines = ["# Roles that bend", "", *(__doc__ or "").splitlines()[2:], ""]
    hh = {name: planned_for(FLEETS["HH"], trace) for name, trace in traces.items()}
    for part in (_traces_lines(traces), _combo_lines(), surge_lines(hh, traces)):
        for line in part:
            print(line, flush=True)
            lines.append(line)
        lines.append("")
    lines.append(
        f"sutler {machine['sutler']}, {machine['date']}; seeds are fixed, so that any machine finds the same."
    )
    (out / "roles.md").write_text("\n".join(lines) + "\n")
    return 0


def planned_for(cards: Mapping[str, int], trace: RequestTrace) -> PlanDocument:
    """The plan of Llama 3 70B that carries the most of a trace, on machines of four GPUs at one site."""
    tokens = float(np.mean(trace.input_tokens)), float(np.mean(trace.output_tokens))
    return _plan_of_phases({"model": "llama-3-70b", "slo": LIMITS}, tokens, cards, 4)


def _plan_of_phases(
    model: Mapping[str, Any], tokens: tuple[float, float], cards: Mapping[str, int], gpus: int
) -> PlanDocument:
    """The plan of prefill and decode replicas, each on a machine, that carries the most requests of one size."""
    offers = [
        {
            "provider": "acme",
            "offer_id": card,
            "contract": "on_demand",
            "gpu": card,
            "gpus": gpus,
            "available": count,
            "price_usd_per_hour": 1.0,
            "site": "ams-1",
            "inter_machine_gb_per_s": NETWORK_GB_PER_S[card],
        }
        for card, count in cards.items()
    ]
    workload = {"name": "all", "input_tokens": tokens[0], "output_tokens": tokens[1], "rate_rps": 1}
    return plan(
        {
            "objective": {"kind": "max_throughput"},
            "budget_usd_per_hour": 100,
            "models": [{"name": "chat", "precision": "bf16", **model, "workloads": [workload]}],
            "market": {
                "offers": {"schema": "sutler/market/v1", "taken_at": "2026-11-20T12:00:00Z", "offers": offers}
            },
            "search": {"disaggregation": "only", "tensor_parallel": [gpus], "max_pipeline_stages": 1},
        }
    )


def _traces_lines(traces: Mapping[str, RequestTrace]) -> Iterator[str]:
    yield "## The Azure traces"
    yield ""
    yield (
        "Llama 3 70B on machines of four GPUs; random arrivals with the lengths of a trace. (As they came, requests "
        "of the code trace jump beyond any mean.) Limits, of 90 % of the requests: "
        f"{LIMITS['ttft_p90_s']:g} s to the first token and {LIMITS['tpot_p90_s']:g} s per token after it. The load "
        "is a share of what the same machines are planned to carry of the trace that is replayed. Cells: TTFT p90 / "
        "TPOT p90 / share of the requests within both limits; *carries*: the highest such load at which both hold."
    )
    yield ""
    yield _row(HEADINGS)
    yield f"|{'---|' * len(HEADINGS)}"
    for name, cards in FLEETS.items():
        plans = {service: planned_for(cards, trace) for service, trace in traces.items()}
        for planned in SERVICES:
            for replayed in SERVICES:
                yield from _replays(name, planned, replayed, plans, traces[replayed])


def _replays(
    fleet: str, planned: str, replayed: str, plans: Mapping[str, PlanDocument], trace: RequestTrace
) -> Iterator[str]:
    document = plans[planned]
    full = rps_of(plans[replayed]) / rps_of(document)
    prefill, decode = roles_of(document)
    named = (f"{fleet} ({prefill}P, {decode}T)", planned, replayed)

    def replay(load: float, roles: RolePolicy) -> TrafficResource:
        traffic = PoissonTraffic(DURATION_S, load * full, lengths={"chat": trace})
        return simulated(document, traffic, Choices(roles=roles)).resource.models[0]

    for load in LOADS:
        yield _row((*named, f"{load:.0%}", *(_cell(replay(load, roles)) for roles in POLICIES)))
    yield _row((*named, "*carries*", *(f"{_carried(replay, roles):.0%}" for roles in POLICIES)))


def _carried(replay: Callable[[float, RolePolicy], TrafficResource], roles: RolePolicy) -> float:
    low, high = 0.0, 1.6
    for _ in range(STEPS):
        middle = (low + high) / 2
        holds = all(limit.met for limit in replay(middle, roles).limits)
        low, high = (middle, high) if holds else (low, middle)
    return low


def _cell(found: TrafficResource) -> str:
    ttft_s, tpot_s = (one.percentiles_s["p90"] or 0.0 for one in (found.ttft, found.tpot))
    return f"{ttft_s:.2f} s / {tpot_s * 1e3:.0f} ms / {found.goodput_rps / found.offered_rps:.0%}"


# Cauchy, Table 3: what opportunistic scheduling does to means at 1PxD, relative to round robin.
SHAREGPT: Final = (290.0, 207.0)  # mean tokens (section 4.1)
CAUCHY: Final = {1: (-0.085, -0.076, -0.074), 2: (-0.077, -0.128, -0.065), 3: (-0.006, -0.002, -0.001)}


def _combo_lines() -> Iterator[str]:
    yield "## Cauchy's combos"
    yield ""
    yield (
        "One H800 prefills and x H20 decode Llama 3.1 8B (1P1D: the other way round, which carries more); prompts of "
        "290 and answers of 207 tokens, ShareGPT's means, at random. What opportunistic scheduling changes of the "
        "means, beside Cauchy's Table 3."
    )
    yield ""
    yield _row(("combo", "load", "E2E", "TTFT", "TPOT", "Cauchy's E2E", "TTFT", "TBT"))
    yield f"|{'---|' * 8}"
    for decoding, theirs in CAUCHY.items():
        document = _plan_of_phases({"model": "llama-3.1-8b"}, SHAREGPT, {"h800-sxm": 1, "h20": decoding}, 1)
        for load in (0.05, 0.2, 0.5, *LOADS):
            fixed, bent = (_means(document, load, roles) for roles in ("fixed", "opportunistic"))
            ours = (f"{ours / base - 1:+.1%}" for ours, base in zip(bent, fixed, strict=True))
            yield _row((f"1P{decoding}D", f"{load:.0%}", *ours, *(f"{one:+.1%}" for one in theirs)))


def _means(document: PlanDocument, load: float, roles: RolePolicy) -> tuple[float, float, float]:
    found = simulated(document, PoissonTraffic(300.0, load), Choices(roles=roles)).resource.models[0]
    return found.e2e.mean_s or 0.0, found.ttft.mean_s or 0.0, found.tpot.mean_s or 0.0


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    sys.exit(main())
