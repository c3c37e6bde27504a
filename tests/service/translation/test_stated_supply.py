"""Machines and networks that the user knows of: what is counted, at what price, where, and what is refused."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.market import OfferDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.problem_parts import MarketSourceDocument
from sutler.service.documents.validation import validate
from sutler.service.translation.market_source import FilteredMarket, read_market
from sutler.service.translation.stored_market import StoredMarket
from sutler.service.translation.to_problem import to_problem
from sutler.solver import solve
from sutler.solver.plan import Plan
from sutler.solver.verify import verify
from tests.service.builders import NOW, UNJUDGED, a_problem, a_row, a_snapshot, an_offer

AWS: dict[str, Any] = an_offer(
    provider="gpuhunt",
    offer_id="aws/us-east-1/p5.48xlarge",
    gpus=8,
    available=0,
    price_usd_per_hour=55.04,
    availability_basis="list",
    region="us-east-1",
    site="aws/us-east-1",
    disk_gb=8000.0,
)
DEARER_AWS: dict[str, Any] = AWS | {
    "offer_id": "aws/eu-west-1/p5.48xlarge",
    "price_usd_per_hour": 60.0,
    "region": "eu-west-1",
    "site": "aws/eu-west-1",
}
RUNPOD_LIST: dict[str, Any] = an_offer(
    provider="runpod",
    offer_id="H100/secure/list",
    gpus=1,
    available=0,
    price_usd_per_hour=2.5,
    availability_basis="list",
)
VAST: dict[str, Any] = an_offer(offer_id="v", gpus=8, price_usd_per_hour=16.0, region="US-TX", site="vastai/host-9")
QUOTA: dict[str, Any] = {"provider": "aws", "gpu": "h100-sxm", "region": "us-east-1", "gpus": 8, "machines": 2}
HIGH: dict[str, Any] = {"provider": "runpod", "gpu": "h100-sxm", "gpus": 8, "machines": 8}


def runpod(gpus: int, place: str = "EU-RO-1", **others: Any) -> dict[str, Any]:
    """A pod of so many GPUs fits there, and nobody says how many more."""
    return an_offer(
        provider="runpod",
        offer_id=f"H100/secure/{place}",
        machine_id=f"H100/secure/{place}",
        gpus=gpus,
        price_usd_per_hour=2.5 * gpus,
        availability_basis="lower_bound",
        divisible=True,
        site=f"runpod/{place}",
        region=place,
        **others,
    )


@dataclass(frozen=True)
class Store:
    """What was polled, list prices included."""

    offers: Sequence[dict[str, Any]]

    def stored(self) -> StoredMarket:
        found = tuple(validate(OfferDocument, offer) for offer in self.offers)
        return StoredMarket(NOW, found, {offer.provider: NOW for offer in found})

    def polled(self, _: Sequence[str]) -> StoredMarket:
        return self.stored()


def view_of(*offers: dict[str, Any], **source: Any) -> FilteredMarket:
    return read_market(
        validate(MarketSourceDocument, source), folder=None, now=NOW, fitness=UNJUDGED, store=Store(offers)
    )


def counted(view: FilteredMarket) -> dict[str, int]:
    return {offer.offer_id: offer.available for _, offer in view.offers}


def stated(view: FilteredMarket) -> OfferDocument:
    [found] = [offer for _, offer in view.offers if offer.availability_basis == "stated"]
    return found


def refused(*offers: dict[str, Any], **source: Any) -> list[tuple[str, str]]:
    with pytest.raises(DocumentError) as caught:
        view_of(*offers, **source)
    return [(problem.field, problem.remedy) for problem in caught.value.problems]


def test_a_quota_makes_machines_of_a_price_list_under_the_cloud_s_own_name() -> None:
    offer = stated(view_of(AWS, DEARER_AWS, VAST, stock=[QUOTA]))
    assert (offer.key, offer.available) == (("aws", "stated/us-east-1/8xh100-sxm", "on_demand"), 2)
    assert (offer.price_usd_per_hour, offer.region, offer.site) == (55.04, "us-east-1", "aws/us-east-1")
    assert offer.disk_gb == 8000


@pytest.mark.parametrize(("shown", "left"), [(3, 5), (8, None), (10, None)])
def test_what_the_market_shows_is_part_of_what_is_stated(shown: int, left: int | None) -> None:
    polled = an_offer(provider="lambda", offer_id="gpu_8x_h100", gpus=8, available=shown)
    view = view_of(polled, stock=[{**HIGH, "provider": "lambda"}])
    assert counted(view).get("stated/8xh100-sxm") == left
    assert counted(view)["gpu_8x_h100"] == shown
    assert view.stock[0].available == 8


@pytest.mark.parametrize(
    ("polled", "expected"),
    [
        ([runpod(8)], {"H100/secure/EU-RO-1": 1, "stated/8xh100-sxm": 7}),
        ([runpod(4)], {"stated/8xh100-sxm": 8}),
        ([runpod(8), runpod(2, "US-KS-2")], {"H100/secure/EU-RO-1": 1, "stated/8xh100-sxm": 7}),
    ],
)
def test_no_card_counts_twice_where_polls_say_how_large_a_pod_fits(
    polled: list[dict[str, Any]], expected: dict[str, int]
) -> None:
    view = view_of(*polled, RUNPOD_LIST, stock=[HIGH])
    assert counted(view) == expected
    assert stated(view).divisible
    assert stated(view).price_usd_per_hour == 20.0


def test_a_larger_machine_that_is_divisible_shows_several_smaller_ones() -> None:
    assert counted(view_of(runpod(8), stock=[{**HIGH, "gpus": 2, "machines": 6}]))["stated/2xh100-sxm"] == 2


def test_a_price_of_every_place_moves_no_machines() -> None:
    everywhere = {key: value for key, value in AWS.items() if key not in ("region", "site")}
    offer = stated(view_of(everywhere, stock=[QUOTA]))
    assert (offer.region, offer.price_usd_per_hour) == (QUOTA["region"], AWS["price_usd_per_hour"])
    networks = [{"provider": QUOTA["provider"], "region": QUOTA["region"], "inter_machine_gb_per_s": 50}]
    assert stated(view_of(everywhere, stock=[QUOTA], networks=networks)).inter_machine_gb_per_s == 50


def test_a_region_that_the_market_does_not_have_is_noted() -> None:
    view = view_of(AWS, stock=[{**QUOTA, "region": "usa", "price_usd_per_hour": 50}])
    assert "market.stock[0]: the market shows nothing of the kind in usa; it counts as stated." in view.notes


def test_what_hosts_differ_in_is_not_known_of_machines_that_are_not_shown() -> None:
    """A host that is not verified, with few cores, says nothing of others; what all state alike holds for all."""
    one = VAST | {"is_verified": True, "open_ports": 8, "cpu_cores": 8.0 * VAST["gpus"]}
    other = one | {"offer_id": "other", "is_verified": False, "cpu_cores": 0.5, "price_usd_per_hour": 99.0}
    kind = {"provider": one["provider"], "gpu": one["gpu"], "gpus": one["gpus"], "contract": one["contract"]}
    offer = stated(view_of(one, other, stock=[{**kind, "machines": 5}]))
    assert (offer.is_verified, offer.cpu_cores, offer.open_ports) == (None, None, 8)
    alone = stated(view_of(one, stock=[{**kind, "machines": 5}]))
    assert (alone.is_verified, alone.cpu_cores) == (True, one["cpu_cores"])


def test_what_is_stated_of_a_place_is_part_of_what_is_stated_of_all() -> None:
    view = view_of(AWS, DEARER_AWS, stock=[{**QUOTA, "region": None, "machines": 5}, QUOTA])
    assert counted(view) == {"stated/us-east-1/8xh100-sxm": 2, "stated/8xh100-sxm": 3}


def test_without_a_region_it_is_where_the_filter_allows_at_the_dearest_price() -> None:
    anywhere = {key: value for key, value in QUOTA.items() if key != "region"}
    assert stated(view_of(AWS, DEARER_AWS, stock=[anywhere])).price_usd_per_hour == 60.0
    assert stated(view_of(AWS, DEARER_AWS, stock=[anywhere])).region is None
    here = stated(view_of(AWS, DEARER_AWS, stock=[anywhere], filter={"regions": ["us"]}))
    assert (here.region, here.price_usd_per_hour) == ("us-east-1", 55.04)


def test_a_stated_price_wins_and_needs_no_offer() -> None:
    assert stated(view_of(AWS, stock=[{**QUOTA, "price_usd_per_hour": 31.5}])).price_usd_per_hour == 31.5
    view = view_of(VAST, stock=[{**QUOTA, "provider": "cellar", "price_usd_per_hour": 0}])
    assert (stated(view).provider, stated(view).price_usd_per_hour) == ("cellar", 0)
    assert "market.stock[0]: the market shows nothing of the kind; it counts as stated." in view.notes


def test_stale_offers_show_nothing_and_stated_machines_are_never_stale() -> None:
    old = runpod(8, observed_at="2026-11-20T11:00:00Z")
    view = view_of(VAST, old, stock=[HIGH])
    assert counted(view) == {"v": 1, "stated/8xh100-sxm": 8}
    assert view.age_s(NOW) == 0


def test_a_snapshot_file_is_filled_up_in_the_same_way() -> None:
    source = validate(MarketSourceDocument, {"offers": a_snapshot(AWS, VAST), "stock": [QUOTA]})
    assert counted(read_market(source, folder=None, now=NOW, fitness=UNJUDGED)) == {
        "v": 1,
        "stated/us-east-1/8xh100-sxm": 2,
    }


@pytest.mark.parametrize(
    "wanted",
    [
        {"providers": ["vastai"]},
        {"regions": ["us-tx"]},
        {"contracts": ["reserved", "interruptible"]},
        {"exclude": {"providers": ["AWS"]}},
        {"exclude": {"regions": ["us-east"]}},
        {"exclude": {"gpus": ["h100-sxm"]}},
        {"exclude": {"offers": ["aws/stated/us-east-1/8xh100-sxm"]}},
    ],
)
def test_every_filter_holds_for_stated_machines(wanted: dict[str, Any]) -> None:
    other = an_offer(offer_id="o", gpu="a100-sxm4-80gb", region="US-TX")
    others = [other, other | {"offer_id": "r", "contract": "reserved"}]
    view = view_of(AWS, *others, stock=[QUOTA], filter=wanted)
    assert view.offers
    assert not [offer for _, offer in view.offers if offer.provider == "aws"]


def test_an_entry_that_the_filter_leaves_out_needs_no_price() -> None:
    view = view_of(VAST, stock=[QUOTA], filter={"providers": ["vastai"]})
    assert any("market.stock[0] counts for nothing: market.filter.providers" in note for note in view.notes)


def test_stock_under_a_contract_that_is_not_allowed_is_noted() -> None:
    view = view_of(VAST, stock=[{**QUOTA, "contract": "interruptible"}])
    said = "market.stock[0] counts for nothing: market.filter.contracts (without interruptible) leaves it out."
    assert said in view.notes


@pytest.mark.parametrize(
    ("entry", "field", "remedy"),
    [
        ({**QUOTA, "machines": 0}, "stock[0].machines", "at least 1"),
        ({**QUOTA, "gpus": 3}, "market.stock[0].gpus", "is no size of aws's machines with h100-sxm: use one of 1, 2"),
        (
            {**QUOTA, "region": "mars"},
            "market.stock[0].price_usd_per_hour",
            "(it has them in us-east-1): state it or name one",
        ),
        ({**QUOTA, "provider": "nobody"}, "market.stock[0].price_usd_per_hour", "has offers of gpuhunt, vastai"),
        ({**QUOTA, "contract": "reserved"}, "market.stock[0].price_usd_per_hour", "costs reserved"),
        ({**QUOTA, "price_usd_per_hour": -1}, "stock[0].price_usd_per_hour", "at least 0"),
    ],
)
def test_ugly_entries_are_named(entry: dict[str, Any], field: str, remedy: str) -> None:
    [(at, said)] = refused(AWS, VAST, stock=[entry])
    assert at == field
    assert remedy in said


def test_entries_of_the_same_machines_are_refused_together() -> None:
    network = {"provider": "aws", "region": "us-east-1", "inter_machine_gb_per_s": 50}
    found = refused(
        AWS,
        stock=[QUOTA, {**QUOTA, "provider": "AWS", "machines": 4}],
        networks=[network, {**network, "region": "US-East-1"}],
    )
    assert [field for field, _ in found] == ["stock[1]", "networks[1]"]


def test_an_unknown_gpu_is_named_with_what_may_be_meant() -> None:
    document = validate(
        ProblemDocument, a_problem(market={"offers": a_snapshot(AWS), "stock": [QUOTA | {"gpu": "H100"}]})
    )
    with pytest.raises(DocumentError, match=r"market.stock\[0\].gpu"):
        to_problem(document, folder=None, now=NOW)


def test_a_network_joins_the_machines_of_a_site() -> None:
    network = {"provider": "aws", "region": "us", "inter_machine_gb_per_s": 400}
    offer = stated(view_of(AWS, VAST, stock=[QUOTA], networks=[network]))
    assert (offer.site, offer.inter_machine_gb_per_s) == ("aws/us-east-1", 400)
    nearer = {**network, "region": "us-east-1", "inter_machine_gb_per_s": 50}
    assert stated(view_of(AWS, stock=[QUOTA], networks=[nearer, network])).inter_machine_gb_per_s == 50


def test_machines_of_which_only_the_region_is_known_share_the_region_s_network() -> None:
    plain = an_offer(provider="lambda", offer_id="l", region="us-west-1")
    [(_, offer)] = view_of(plain, networks=[{"provider": "Lambda", "inter_machine_gb_per_s": 12.5}]).offers
    assert (offer.site, offer.inter_machine_gb_per_s) == ("lambda/us-west-1", 12.5)


def test_hosts_of_a_region_stay_sites_of_their_own_and_what_an_offer_states_wins() -> None:
    networks = [{"provider": "vastai", "region": "US", "inter_machine_gb_per_s": 3.0}]
    own = VAST | {"offer_id": "w", "site": "vastai/host-7", "inter_machine_gb_per_s": 12.5}
    none = VAST | {"offer_id": "n", "site": "vastai/host-8", "inter_machine_gb_per_s": 0.0}
    view = view_of(VAST, own, none, networks=networks)
    found = [(offer.site, offer.inter_machine_gb_per_s) for _, offer in view.offers]
    assert found == [("vastai/host-9", 3.0), ("vastai/host-7", 12.5), ("vastai/host-8", 0.0)]


def test_a_network_of_nobody_is_noted() -> None:
    notes = view_of(VAST, networks=[{"provider": "vast", "region": "US", "inter_machine_gb_per_s": 3.0}]).notes
    assert "market.networks[0] joins nothing: there are no offers of vast in US." in notes


def test_a_network_of_machines_whose_place_nobody_knows_is_noted() -> None:
    notes = view_of(an_offer(), networks=[{"provider": "vastai", "inter_machine_gb_per_s": 3.0}]).notes
    assert "market.networks[0] joins nothing: the offers of vastai state neither site nor region." in notes


def solved(problem: Mapping[str, Any], *offers: dict[str, Any]) -> Plan:
    document = validate(ProblemDocument, problem)
    translation = to_problem(document, folder=None, now=NOW, store=Store(offers))
    plan = solve(translation.problem)
    assert verify(translation.problem, plan) == ()
    return plan


def gpus_by_provider(plan: Plan) -> dict[str, int]:
    found: dict[str, int] = {}
    for rental in plan.rentals:
        found[rental.provider] = found.get(rental.provider, 0) + rental.count * rental.gpus
    return found


ROW = a_row(stages=[{"gpu": "h100-sxm", "tensor_parallel": 4}])


def test_limits_per_provider_hold_for_stated_and_polled_machines_together() -> None:
    """RunPod is cheapest, then Vast, then AWS: money for all of them, a limit for each."""
    market = {"stock": [HIGH, QUOTA]}
    limits = {"max_gpus_per_provider": {"runpod": 24, "aws": 8}}
    problem = a_problem(
        market=market, limits=limits, budget_usd_per_hour=1000, throughput={"only": True, "table": [ROW]}
    )
    plan = solved(problem, runpod(8), RUNPOD_LIST, VAST | {"price_usd_per_hour": 22.0}, AWS)
    assert gpus_by_provider(plan) == {"runpod": 24, "vastai": 8, "aws": 8}


def test_a_share_limit_holds_for_stated_machines() -> None:
    problem = a_problem(
        market={"stock": [HIGH]},
        limits={"max_share_per_provider_fraction": 0.5},
        budget_usd_per_hour=1000,
        throughput={"only": True, "table": [ROW]},
    )
    plan = solved(problem, runpod(8), RUNPOD_LIST, VAST)
    assert gpus_by_provider(plan) == {"runpod": 8, "vastai": 8}


def two_nodes(disaggregation: str) -> dict[str, Any]:
    """A model that only two machines hold together, on machines whose network the user states."""
    models = [
        {
            "name": "large",
            "model": "llama-3.1-405b",
            "precision": "bf16",
            "workloads": [{"name": "chat", "input_tokens": 1500, "output_tokens": 300, "rate_rps": 1.0}],
        }
    ]
    return a_problem(
        models=models,
        engine="any-layout",  # vLLM hands nothing over between pipelines
        throughput={},
        budget_usd_per_hour=1000,
        search={"disaggregation": disaggregation, "max_pipeline_stages": 2},
        solver={"alternatives": False, "time_limit_s": 20, "relative_gap": 0.05},
        market={
            "stock": [{**QUOTA, "machines": 4 if disaggregation == "only" else 2}],
            "networks": [{"provider": "aws", "region": "us-east-1", "inter_machine_gb_per_s": 400}],
        },
    )


@pytest.mark.parametrize("disaggregation", ["off", "auto", "only"])
def test_a_stated_network_carries_pipelines_and_hand_overs(disaggregation: str) -> None:
    plan = solved(two_nodes(disaggregation), AWS)
    assert plan.value is not None
    assert plan.value > 0
    assert {len(replica.stages) for replica in plan.replicas} == {2}
    roles = {replica.role for replica in plan.replicas}
    assert roles == ({"prefill", "decode"} if disaggregation == "only" else {"aggregated"})
    assert bool(plan.kv_transfers) == (disaggregation == "only")


def test_without_the_network_nothing_holds_the_model() -> None:
    problem = two_nodes("off")
    del problem["market"]["networks"]
    assert solved(problem, AWS).value is None


def test_the_stated_document_survives_json() -> None:
    source = {"stock": [QUOTA], "networks": [{"provider": "aws", "inter_machine_gb_per_s": 50}]}
    document = validate(MarketSourceDocument, source)
    plain = document.model_dump(mode="json", by_alias=True, exclude_unset=True)
    assert validate(MarketSourceDocument, json.loads(json.dumps(plain))) == document


def test_limits_of_providers_hold_however_they_are_spelt_and_one_of_nobody_is_noted() -> None:
    document = a_problem(limits={"max_gpus_per_provider": {"VASTAI": 2, "vastai": 3, "vest": 1}})
    market = {"offers": a_snapshot(an_offer(provider="vastai"))}
    found = to_problem(validate(ProblemDocument, {**document, "market": market}), folder=None, now=NOW)
    assert found.problem.limits.max_gpus_per_provider == {"vastai": 2, "vest": 1}
    assert "limits.max_gpus_per_provider.vest limits nothing: there are no offers of vest." in found.notes
