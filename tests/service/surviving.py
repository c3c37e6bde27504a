"""A plan that survives the loss of either of two providers."""

from typing import Any, Final

from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.library.planning import plan as planned
from tests.service.builders import a_snapshot, an_offer

SURVIVING: Final[dict[str, Any]] = {"resilience": {"survive": "provider", "load_fraction": 0.8, "detection_s": 20.0}}


def on_two_providers(**others: Any) -> PlanDocument:
    """Llama 3.1 8B on single H100 of two providers, at 30 requests/s."""
    offers = [
        an_offer(
            provider=name,
            offer_id=name,
            gpus=1,
            available=6,
            price_usd_per_hour=price,
            region="r",
            contract=contract,
        )
        for name, price, contract in (("p", 2.0, "on_demand"), ("q", 2.1, "interruptible"))
    ]
    workload = {"name": "w", "input_tokens": 800, "output_tokens": 150, "rate_rps": 30.0}
    document = {
        "objective": {"kind": "min_cost"},
        "models": [{"name": "chat", "model": "llama-3.1-8b", "workloads": [workload]}],
        "market": {"offers": a_snapshot(*offers), "filter": {"contracts": ["on_demand", "interruptible"]}},
        "solver": {"alternatives": False},
        **others,
    }
    return planned(validate(ProblemDocument, document))
