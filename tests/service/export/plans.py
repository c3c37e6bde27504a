"""Plans to export: solved ones, stored beside the problems that they answer, and copies with a value changed."""

import copy
import json
from pathlib import Path
from typing import Any, Final

from sutler.service.documents.plan import PlanDocument
from tests.service.builders import Path as Place
from tests.service.builders import changed

FOLDER: Final = Path(__file__).parent / "plans"
NAMES: Final = tuple(sorted(path.stem for path in FOLDER.glob("*.json")))


def stored(name: str) -> dict[str, Any]:
    """The plan as `sutler plan plans/NAME.yaml --json` printed it."""
    document: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return document


def plan_of(document: dict[str, Any]) -> PlanDocument:
    return PlanDocument.model_validate_json(json.dumps(document))


def a_plan(name: str = "single_gpu") -> PlanDocument:
    return plan_of(stored(name))


def with_values(name: str, *changes: tuple[Place, object]) -> dict[str, Any]:
    """A stored plan with these places changed."""
    document = stored(name)
    for place, value in changes:
        document = changed(document, place, value)
    return document


def with_texts(name: str, *, text: str, model_path: str | None = None) -> dict[str, Any]:
    """A stored plan in which everything that a stranger can name is called `text`, or begins with it."""
    document = copy.deepcopy(stored(name))
    ids = {replica["id"]: f"{text}{number}" for number, replica in enumerate(document["replicas"])}
    for rental in document["rentals"]:
        rental.update(offer_id=text, provider=text, site=text, gpu=text)
    for replica in document["replicas"]:
        replica.update(id=ids[replica["id"]], model=text)
        replica["engine_args"] |= {"model": model_path or f"m{text}", "tokenizer": text}
        replica["engine_env"] |= {"NOTE": text}
        for stage in replica["stages"]:
            stage["gpu"] = text
    document["routing"] = [_renamed(route, ids, text, number) for number, route in enumerate(document["routing"])]
    document["warnings"] = [text]
    return document


def in_two_phases(*, cap_watts: float | None = 350.0) -> dict[str, Any]:
    """shared_machine, where small-0 prefills, under a power cap, for small-1 and small-2."""
    document = copy.deepcopy(stored("shared_machine"))
    roles = {"small-0": "prefill", "small-1": "decode", "small-2": "decode"}
    for replica in document["replicas"]:
        replica["role"] = roles.get(replica["id"], "aggregated")
        if replica["id"] == "small-0":
            replica["stages"][0]["power_cap_watts"] = cap_watts
    document["routing"][1]["fractions"] = {"small-0": 1.0}
    transfer = {"model": "small", "workload": "tags", "prefill": "small-0", "kv_gb": 0.05, "exposed_s": 0.001}
    document["kv_transfers"] = [
        {**transfer, "decode": decode, "fraction": share} for decode, share in (("small-1", 0.25), ("small-2", 0.75))
    ]
    return document


def of_unequal_stages() -> dict[str, Any]:
    """mixed_pipeline, where the second stage of chat-0 has one GPU: what no server of ours runs."""
    document = with_values("mixed_pipeline", (("replicas", 0, "engine"), "any-layout"))
    stage = document["replicas"][0]["stages"][1]
    stage |= {"tensor_parallel": 1, "gpu_indices": stage["gpu_indices"][:1]}
    for name in ("tensor_parallel_size", "pipeline_parallel_size"):
        del document["replicas"][0]["engine_args"][name]
    return document


def _renamed(route: dict[str, Any], ids: dict[str, str], text: str, number: int) -> dict[str, Any]:
    fractions = {ids[replica]: fraction for replica, fraction in route["fractions"].items()}
    return {"model": text, "workload": f"{text}{number}", "fractions": fractions}


def an_infeasible_plan() -> dict[str, Any]:
    conflict = {
        "constraint": "budget",
        "needed": 9.05,
        "available": 2.0,
        "unit": "usd_per_hour",
        "remedy": "raise budget_usd_per_hour to at least 9.05",
    }
    nothing: dict[str, Any] = {"rentals": [], "replicas": [], "routing": []}
    return {**stored("single_gpu"), **nothing, "status": "infeasible", "conflicts": [conflict]}
