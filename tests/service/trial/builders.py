"""A plan of one kind of replica, made by the planner, for trials of it."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.validation import of_json
from sutler.service.library.planning import plan


def a_problem(**model: Any) -> dict[str, Any]:
    """An 8B model on single H100s, two workloads with short answers."""
    offer = {"provider": "acme", "offer_id": "h", "gpu": "h100-sxm", "gpus": 1, "available": 9}
    return {
        "objective": {"kind": "min_cost"},
        "models": [
            {
                "name": "chat",
                "model": "llama-3.1-8b",
                "precision": "bf16",
                "slo": {"ttft_p90_s": 2.0, "tpot_p90_s": 0.05},
                "workloads": [
                    {"name": "question", "input_tokens": 400, "output_tokens": 21, "rate_rps": 12},
                    {"name": "summary", "input_tokens": 900, "output_tokens": 11, "rate_rps": 2},
                ],
                **model,
            }
        ],
        "market": {
            "offers": {
                "schema": "sutler/market/v1",
                "taken_at": "2026-11-20T12:00:00Z",
                "offers": [{**offer, "price_usd_per_hour": 2.4, "contract": "on_demand"}],
            }
        },
        "solver": {"alternatives": False},
    }


@cache
def _planned(problem: str) -> PlanDocument:
    return plan(json.loads(problem))


def a_real_plan(**model: Any) -> PlanDocument:
    """Its plan: one replica, `chat-0`."""
    return _planned(json.dumps(a_problem(**model)))


def changed(document: PlanDocument, **replica: Any) -> PlanDocument:
    """The plan with other values in its first replica."""
    plain = document.model_dump(mode="json", by_alias=True)
    plain["replicas"][0].update(replica)
    return of_json(PlanDocument, plain)


def written(folder: Path, document: PlanDocument | None = None) -> tuple[Path, Path]:
    """A plan and its problem as files."""
    plan_file, problem_file = folder / "plan.json", folder / "problem.json"
    plan_file.write_text((document or a_real_plan()).model_dump_json(by_alias=True))
    problem_file.write_text(json.dumps(a_problem()))
    return plan_file, problem_file
