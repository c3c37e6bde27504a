"""Plans of random problems as people first write them, every setting left at its default, on markets like Vast.ai's.

`python -m tests.service.export.random_plans N FILE` writes what the vllm format starts for N of them: a JSON list of
words per line.
"""

import json
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final
from uuid import UUID

from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.export import exported
from sutler.service.translation.from_plan import issue_plan
from sutler.service.translation.to_problem import to_problem
from sutler.solver import solve
from sutler.solver.catalog import load_models
from tests.service.builders import NOW, a_snapshot
from tests.service.export.commands import in_shell

ROOT: Final = Path(__file__).parents[3]
MARKET: Final = runpy.run_path(str(ROOT / "examples" / "make_vast_like_market.py"))
OBJECTIVES: Final = ("max_throughput", "min_cost", "min_makespan")


def random_plan(seed: int) -> PlanDocument | None:
    """None where no fleet does what the problem asks."""
    problem = random_problem(seed)
    translation = to_problem(validate(ProblemDocument, problem), folder=None, now=NOW)
    plan = solve(translation.problem)
    if not plan.replicas:
        return None
    return issue_plan(plan, translation, plan_id=UUID(int=seed), created_at=NOW)


def random_problem(seed: int) -> dict[str, Any]:
    """One or two models of the catalogue on some forty offers; every third market has hosts with a network."""
    draw = Random(seed)
    kind = draw.choice(OBJECTIVES)
    return {
        "objective": {"kind": kind},
        **({} if kind == "min_cost" else {"budget_usd_per_hour": draw.choice([3, 8, 15, 30])}),
        "models": [_model(draw, number, is_batch=kind == "min_makespan") for number in range(draw.choice([1, 1, 2]))],
        "market": {"offers": a_snapshot(*_offers(draw))},
        "solver": {"time_limit_s": 5, "alternatives": False, "relative_gap": 0.01},
    }


def _model(draw: Random, number: int, *, is_batch: bool) -> dict[str, Any]:
    spec = draw.choice([spec for spec in load_models().values() if spec.total_params < 130e9])
    traffic = {"requests": draw.randint(100, 9000)} if is_batch else {"rate_rps": round(draw.uniform(0.1, 3.0), 2)}
    workloads = [
        {"name": f"w{index}", "input_tokens": tokens, "output_tokens": draw.choice([20, 150, 400]), **traffic}
        for index, tokens in enumerate(draw.sample([200, 800, 1500, 3000], draw.randint(1, 3)))
    ]
    return {
        "name": f"model {number}",
        "model": spec.id,
        "precision": draw.choice(spec.precisions),
        "workloads": workloads,
        **({"slo": {"ttft_p90_s": 5.0, "tpot_p90_s": 0.2}} if draw.random() < 0.3 else {}),
    }


def _offers(draw: Random) -> list[dict[str, Any]]:
    offers: list[dict[str, Any]] = []
    has_network, host = draw.random() < 0.33, 0
    while len(offers) < 40:
        host += 1
        on_site = {"site": "vastai/cluster", "inter_machine_gb_per_s": draw.choice([1.25, 12.5])}
        joins = on_site if has_network and draw.random() < 0.6 else {}
        offers += [{**offer, **joins} for offer in MARKET["host_offers"](draw, host)]
    return offers


def commands_of(plan: PlanDocument) -> Iterator[list[str]]:
    """The words of every `vllm serve` of the exported script."""
    for _, words in in_shell(exported(plan, "vllm").content):
        yield words


def main(count: int, target: Path) -> None:
    plans = [plan for plan in map(random_plan, range(count)) if plan is not None]
    lines = [json.dumps(words) for plan in plans for words in commands_of(plan)]
    target.write_text("\n".join(lines) + "\n", encoding="utf-8")
    replicas = sum(len(plan.replicas) for plan in plans)
    sys.stdout.write(f"{len(plans)} of {count} problems have a plan: {replicas} replicas, {len(lines)} commands\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
