"""Deployments on a market that is too small for all of them: `python -m benchmarks.sharing`.

Each has one model, for the least cost, with the same filter; a GPU serves between half and one and a half times what
is usual for its kind, and some models do not run on every kind. Machines have one GPU each and a price of their own,
about as many for each deployment as the column says, of five kinds. Plans are made one after the other, each on what
those before leave (*first come*), and are then cleared together (*cleared*, solver/clearing.py). Beside them stands
what the same deployments cost in one plan with all their models: of all, or, where no plan serves all, of those that
are served.
"""

import random
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from benchmarks.program import parser_of
from sutler.service.documents.market import OfferDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.translation.to_problem import to_problem
from sutler.solver import solve
from sutler.solver.clearing import Claimant, Clearing, Fleet, Machines, OfferKey, clear
from sutler.solver.problem import Problem
from tests.service.deployments.replanning.builders import START, an_offer, seen_at

RPS: Final = {"h200-sxm": 26.0, "h100-sxm": 20.0, "a100-sxm4-80gb": 11.0, "l40s": 7.0, "rtx-4090": 3.0}
USD: Final = {"h200-sxm": 3.0, "h100-sxm": 2.2, "a100-sxm4-80gb": 1.3, "l40s": 0.9, "rtx-4090": 0.4}
DEPLOYMENTS: Final = (2, 5, 10, 20)
MACHINES_EACH: Final = (2.0, 3.0, 5.0)

Model = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many are served, what they cost, what the same cost in one plan, and the seconds that clearing took."""

    served: int
    usd: float
    joint_usd: float
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Case:
    models: tuple[Model, ...]
    offers: tuple[OfferDocument, ...]

    def problem(self, models: Sequence[Model]) -> Problem:
        document = {
            "objective": {"kind": "min_cost"},
            "models": [model["model"] for model in models],
            "throughput": {"only": True, "table": [row for model in models for row in model["table"]]},
            "solver": {"time_limit_s": 120},
        }
        store = seen_at(self.offers, START)
        problem = to_problem(validate(ProblemDocument, document), folder=None, now=START, store=store).problem
        return replace(problem, options=replace(problem.options, alternatives=False))

    def joint_usd(self, served: Sequence[bool]) -> float | None:
        """What one plan for these costs."""
        return solve(self.problem([m for m, is_served in zip(self.models, served, strict=True) if is_served])).value


def a_case(deployments: int, machines_each: float, seed: int) -> Case:
    draw = random.Random(f"{deployments} {machines_each} {seed}")
    models = []
    for number in range(deployments):
        runs_on = draw.sample(sorted(RPS), draw.choice((2, 3, 4, 5)))
        rates = {gpu: RPS[gpu] * draw.uniform(0.5, 1.5) for gpu in runs_on}
        workload = {"name": "chat", "input_tokens": 500, "output_tokens": 250, "rate_rps": draw.uniform(4, 45)}
        name = f"team-{number}"
        models.append(
            {
                "model": {"name": name, "model": "llama-3.1-8b", "workloads": [workload]},
                "table": [
                    {"model": name, "stages": [{"gpu": gpu, "tensor_parallel": 1}], "rps": {"chat": rate}}
                    for gpu, rate in rates.items()
                ],
            }
        )
    offers = []
    for number in range(round(deployments * machines_each)):
        gpu = draw.choice(sorted(USD))
        usd = round(USD[gpu] * draw.uniform(0.7, 1.6), 3)
        offers.append(an_offer(f"{number}", gpu=gpu, available=1, machine_id=f"{number}", price_usd_per_hour=usd))
    return Case(tuple(models), tuple(offers))


def first_come(case: Case) -> list[Fleet | None]:
    """Each plans on what those before leave."""
    rented: set[OfferKey] = set()
    fleets: list[Fleet | None] = []
    for model in case.models:
        problem = case.problem([model])
        left = tuple(o for o in problem.offers if (o.provider, o.offer_id, o.contract) not in rented)
        plan = solve(replace(problem, offers=left)) if left else None
        if plan is None or plan.cost_usd_per_hour is None:
            fleets.append(None)
            continue
        keys: Counter[OfferKey] = Counter()
        for rental in plan.rentals:
            keys[rental.provider, rental.offer_id, rental.contract] += rental.count
        machines = tuple(Machines(key, 1, count, key[1]) for key, count in sorted(keys.items()))
        fleets.append(Fleet(machines, plan.cost_usd_per_hour))
        rented |= keys.keys()
    return fleets


def outcomes(case: Case) -> tuple[Outcome, Outcome]:
    """First come, and cleared."""
    before = first_come(case)
    claimants = (Claimant(case.problem([m]), fleet) for m, fleet in zip(case.models, before, strict=True))
    began = time.monotonic()
    after = clear(Clearing(tuple(claimants)))
    seconds = time.monotonic() - began
    everybody = case.joint_usd([True] * len(case.models))

    def outcome(fleets: Sequence[Fleet | None], seconds: float) -> Outcome:
        served = [fleet is not None for fleet in fleets]
        usd = sum(fleet.usd_per_hour for fleet in fleets if fleet is not None)
        joint = everybody if all(served) else case.joint_usd(served) if any(served) else 0.0
        assert joint is not None
        assert all(served) or everybody is None or fleets is before, "one is left short whom a joint plan serves"
        return Outcome(sum(served), usd, joint, seconds)

    return outcome(before, 0.0), outcome(after, seconds)


def table(seeds: int) -> Iterator[str]:
    heads = ("served", "costs more", "at most", "cleared: served", "costs more", "at most", "seconds", "at most")
    yield f"| deployments | machines each | {' | '.join(heads)} |"
    yield "|---" * (2 + len(heads)) + "|"
    for deployments in DEPLOYMENTS:
        for machines_each in MACHINES_EACH:
            found = [outcomes(a_case(deployments, machines_each, seed)) for seed in range(seeds)]
            parts = []
            for each in zip(*found, strict=True):
                more = [one.usd / one.joint_usd - 1 for one in each if one.joint_usd]
                mean = sum(one.served for one in each) / len(each)
                parts += [f"{mean:.1f}", _percent(sum(more) / len(more)), _percent(max(more))]
            seconds = [cleared.seconds for _, cleared in found]
            parts += [f"{sum(seconds) / seeds:.1f}", f"{max(seconds):.1f}"]
            yield f"| {deployments} | {machines_each:g} | {' | '.join(parts)} |"


def _percent(fraction: float) -> str:
    """A plan for all may be off by its gap, and no zero is negative."""
    return f"{max(0.0, fraction):.1%}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = parser_of("sharing", __doc__)
    parser.add_argument("--seeds", type=int, default=5, help="markets of each size (default: 5)")
    options = parser.parse_args(arguments)
    lines = ["# Deployments on a market that is too small for all", "", str(__doc__).partition("\n\n")[2]]
    for line in table(options.seeds):
        print(line, flush=True)
        lines.append(line)
    (options.out / "sharing.md").write_text("\n".join([*lines, ""]), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
