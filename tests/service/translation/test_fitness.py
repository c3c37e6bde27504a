"""Fitness to serve: what offers state is judged, what they do not state passes, the plan says what was left out."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

import pytest

from sutler.service.documents.errors import DocumentError, NoMarketDataError
from sutler.service.documents.fitness import RULES
from sutler.service.documents.plan import FitRule, PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.library.planning import plan
from sutler.service.translation.to_problem import Translation, to_problem
from sutler.solver.catalog import load_gpus
from sutler.solver.catalog.compute_capability import compute_capability
from tests.service.builders import NOW, a_snapshot, an_offer

SOON: Final = (NOW + timedelta(minutes=40)).isoformat()
LATER: Final = (NOW + timedelta(days=30)).isoformat()
# By rule: what an offer of one RTX 4090 states that breaks it, and what just keeps it, for an 8B model of 16 GB.
BODIES: Final[Mapping[str, tuple[dict[str, Any], dict[str, Any]]]] = {
    "min_open_ports": ({"open_ports": 0}, {"open_ports": 1}),
    "min_cuda": ({"cuda_max": 11.4}, {"cuda_max": 12.8}),
    "min_compute_capability": ({"compute_capability": 7.5}, {"compute_capability": 8.0}),
    "min_ram_per_weights": ({"ram_gb": 8.0}, {"ram_gb": 17.7}),
    "min_cpu_cores_per_gpu": ({"cpu_cores": 0.5}, {"cpu_cores": 1.0}),
    "min_download_gb_per_s": ({"inet_down_gb_per_s": 0.02}, {"inet_down_gb_per_s": 0.025}),
    "min_lifetime_s": ({"listed_until": SOON}, {"listed_until": LATER}),
    "verified": ({"is_verified": False}, {"is_verified": True}),
}


def a_problem(*offers: dict[str, Any], fit: Any = None, **others: Any) -> ProblemDocument:
    market: dict[str, Any] = {"offers": a_snapshot(*offers)}
    if fit is not None:
        market["filter"] = {"fit": fit}
    workload = {"name": "q", "input_tokens": 500, "output_tokens": 100, "rate_rps": 1}
    model = {"name": "chat", "model": "llama-3.1-8b", "workloads": [workload]}
    document = {"objective": {"kind": "min_cost"}, "models": [model], "market": market, **others}
    return validate(ProblemDocument, document)


def small(offer_id: str, usd_per_hour: float, **stated: Any) -> dict[str, Any]:
    return an_offer(offer_id=offer_id, gpu="rtx-4090", gpus=1, price_usd_per_hour=usd_per_hour, **stated)


def translated(*offers: dict[str, Any], **others: Any) -> Translation:
    return to_problem(a_problem(*offers, **others), folder=None, now=NOW)


def left_over(*offers: dict[str, Any], **others: Any) -> list[str]:
    return [offer.offer_id for offer in translated(*offers, **others).problem.offers]


def planned(*offers: dict[str, Any], **others: Any) -> PlanDocument:
    return plan(a_problem(*offers, **others))


def rule_of(document: PlanDocument, name: str) -> FitRule:
    return next(rule for rule in document.market.fit if rule.rule == name)


def test_there_is_a_body_for_every_rule() -> None:
    assert set(BODIES) == set(RULES)


@pytest.mark.parametrize("rule", RULES)
def test_what_breaks_a_rule_is_left_out_and_what_just_keeps_it_is_not(rule: str) -> None:
    unfit, fit = BODIES[rule]
    offers = (small("unfit", 0.2, **unfit), small("fit", 0.4, **fit), small("silent", 0.5))
    assert left_over(*offers) == ["fit", "silent"]
    assert left_over(*offers, fit="on") == ["fit", "silent"]
    assert left_over(*offers, fit={}) == ["fit", "silent"]
    assert left_over(*offers, fit="off") == ["unfit", "fit", "silent"]
    assert left_over(*offers, fit=False) == ["unfit", "fit", "silent"]
    assert left_over(*offers, fit={rule: "off"}) == ["unfit", "fit", "silent"]
    assert left_over(*offers, fit={rule: False}) == ["unfit", "fit", "silent"]
    others = {other: "off" for other in RULES if other != rule}
    assert left_over(*offers, fit=others) == ["fit", "silent"]


@pytest.mark.parametrize("rule", RULES)
def test_the_plan_names_the_rule_and_what_the_cheapest_would_have_saved(rule: str) -> None:
    unfit, fit = BODIES[rule]
    listed = {"listed_until": "2099-01-01T00:00:00Z"} if "listed_until" in fit else fit
    found = planned(small("unfit", 0.2, **unfit), small("fit", 0.4, **listed), small("silent", 0.5))
    assert [rental.offer_id for rental in found.rentals] == ["fit"]
    said = rule_of(found, rule)
    # The capability of a GPU that the catalogue knows is known, whatever the offer says.
    assert (said.left_out, said.not_stated) == (1, 0 if rule == "min_compute_capability" else 1)
    assert said.cheapest is not None
    assert said.cheapest.offer_id == "unfit"
    assert said.would_save_usd_per_hour == pytest.approx(0.2)
    assert all(other.left_out == 0 for other in found.market.fit if other.rule != rule)


def test_what_is_cheaper_than_nothing_rented_saves_nothing_that_is_known() -> None:
    found = planned(small("unfit", 9.0, open_ports=0), small("fit", 0.4))
    assert rule_of(found, "min_open_ports").would_save_usd_per_hour == 0
    other = an_offer(offer_id="big", open_ports=0, price_usd_per_hour=1.0)
    assert rule_of(planned(other, small("fit", 0.4)), "min_open_ports").would_save_usd_per_hour is None


def test_thresholds_are_the_callers() -> None:
    offers = (small("few", 0.2, open_ports=3), small("many", 0.4, open_ports=40))
    assert left_over(*offers, fit={"min_open_ports": 10}) == ["many"]
    assert left_over(*offers, fit={"min_open_ports": 3}) == ["few", "many"]


def test_engine_and_precision_set_what_is_needed() -> None:
    offers = (small("old", 0.2, cuda_max=12.8), small("new", 0.4, cuda_max=13.0))
    assert left_over(*offers, engine="sglang") == ["new"]
    assert left_over(*offers, engine="any-layout") == ["old", "new"]
    turing = small("turing", 0.2, compute_capability=7.5)
    with pytest.raises(NoMarketDataError, match=r"filter\.fit\.min_compute_capability 1"):
        translated(turing)
    int4 = {"name": "chat", "model": "llama-3.1-8b", "precision": "int4"}
    workloads = [{"name": "q", "input_tokens": 500, "output_tokens": 100, "rate_rps": 1}]
    assert left_over(turing, models=[{**int4, "workloads": workloads}]) == ["turing"]


def test_an_offer_that_some_models_fit_on_serves_those_alone() -> None:
    """16 GB of weights do not fit through 12 GB of RAM, 5.7 GB do."""
    workload = {"name": "q", "input_tokens": 500, "output_tokens": 100, "rate_rps": 1}
    models = [
        {"name": "large", "model": "llama-3.1-8b", "workloads": [workload]},
        {"name": "small", "model": "llama-3.1-8b", "precision": "int4", "workloads": [workload]},
    ]
    offers = (small("little", 0.1, ram_gb=12.0, available=5), small("much", 0.4, ram_gb=64.0, available=5))
    found = planned(*offers, models=models)
    where = {replica.model: found.rentals[replica.stages[0].rental].offer_id for replica in found.replicas}
    assert where == {"large": "much", "small": "little"}
    assert rule_of(found, "min_ram_per_weights").left_out_for_some == 1
    assert found.status == "optimal"


def test_of_ram_no_more_is_asked_than_the_gpus_hold() -> None:
    """A stage of a pipeline loads its part of 140 GB; a card of 24 GB never loads more than that."""
    workload = {"name": "q", "input_tokens": 500, "output_tokens": 100, "rate_rps": 1}
    large = [{"name": "chat", "model": "llama-3.1-70b", "workloads": [workload]}]
    offers = (small("part", 0.4, ram_gb=27.0), small("less", 0.4, ram_gb=26.0))
    assert left_over(*offers, models=large) == ["part"]


def test_what_a_plan_rents_already_is_not_judged_again() -> None:
    offer = small("ends", 0.4, listed_until=SOON)
    rented = {("vastai", "ends", "on_demand")}
    found = to_problem(a_problem(offer), folder=None, now=NOW, rented_offers=rented)
    assert [one.offer_id for one in found.problem.offers] == ["ends"]


def test_nothing_left_names_the_rules_that_left_it_out() -> None:
    with pytest.raises(NoMarketDataError, match=r"dropped by filter\.fit\.min_cuda 1, filter\.fit\.verified 1"):
        translated(small("a", 0.2, cuda_max=11.0), small("b", 0.2, is_verified=False))


@pytest.mark.parametrize(
    ("fit", "field"),
    [
        ("maybe", "market.filter.fit"),
        (1, "market.filter.fit"),
        ({"min_port": 1}, "market.filter.fit.min_port"),
        ({"min_cuda": "12.8"}, "market.filter.fit.min_cuda"),
        ({"min_open_ports": -1}, "market.filter.fit.min_open_ports"),
        ({"min_lifetime_s": float("nan")}, "market.filter.fit.min_lifetime_s"),
        ({"verified": 2}, "market.filter.fit.verified"),
    ],
)
def test_a_rule_that_is_wrong_is_named(fit: Any, field: str) -> None:
    with pytest.raises(DocumentError) as raised:
        a_problem(small("a", 0.2), fit=fit)
    assert [problem.field for problem in raised.value.problems] == [field]


def test_every_gpu_of_nvidia_has_a_compute_capability() -> None:
    known = {slug: compute_capability(gpu) for slug, gpu in load_gpus("default").items()}
    assert {slug for slug, found in known.items() if found is None} == {s for s in known if s.startswith("mi")}
    expected = {"v100-sxm2-32gb": 7.0, "t4": 7.5, "a100-sxm4-80gb": 8.0, "a40": 8.6, "l4": 8.9, "h200-sxm": 9.0}
    assert {slug: known[slug] for slug in expected} == expected
    assert (known["b200"], known["b300"], known["rtx-5090"]) == (10.0, 10.3, 12.0)


def test_where_rules_leave_nothing_it_is_said_how_to_switch_one_off() -> None:
    with pytest.raises(NoMarketDataError) as caught:
        translated(small("unfit", 0.2, open_ports=0))
    assert "dropped by filter.fit.min_open_ports 1" in caught.value.reason
    assert "market.filter.fit: {min_open_ports: off} switches a rule off" in caught.value.remedy


def test_where_no_plan_is_left_the_rules_that_left_offers_out_are_named() -> None:
    """A budget that pays for the machine that is left out, and not for the other."""
    offers = (small("old", 0.2, cuda_max=12.0, available=3), small("new", 2.0))
    found = planned(*offers, budget_usd_per_hour=1.0)
    assert found.status == "infeasible"
    assert any("market.filter.fit: {min_cuda: off}" in note for note in found.notes)
    assert planned(*offers, budget_usd_per_hour=1.0, fit={"min_cuda": "off"}).status == "optimal"
    assert not any("market.filter.fit" in note for note in planned(*offers).notes)


def test_a_model_that_all_offers_are_unfit_for_blames_the_rule() -> None:
    """12 GB of RAM do for 5.7 GB of weights and not for 16, which is no question of the GPUs' memory."""
    workload = {"name": "q", "input_tokens": 500, "output_tokens": 100, "rate_rps": 1}
    models = [
        {"name": "large", "model": "llama-3.1-8b", "workloads": [workload]},
        {"name": "small", "model": "llama-3.1-8b", "precision": "int4", "workloads": [workload]},
    ]
    found = planned(small("little", 0.1, ram_gb=12.0, available=5), models=models)
    assert found.status == "infeasible"
    [conflict] = found.conflicts
    assert (conflict.constraint, conflict.unit) == ("demand/large/q", "replicas on fit offers")
    assert "1 of 1 offers are unfit for large by a rule of market.filter.fit" in conflict.remedy
