"""Which offers count: the filter of the contract, ages, and what an empty market means."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sutler.service.documents.errors import DocumentError, NoMarketDataError
from sutler.service.documents.problem_parts import MarketSourceDocument
from sutler.service.documents.validation import validate
from sutler.service.translation.market_source import FilteredMarket, read_market
from tests.service.builders import NOW, UNJUDGED, a_snapshot, an_offer


def view_of(*offers: dict[str, Any], **filters: Any) -> FilteredMarket:
    source = validate(MarketSourceDocument, {"offers": a_snapshot(*offers), "filter": filters})
    return read_market(source, folder=None, now=NOW, fitness=UNJUDGED)


def kept(view: FilteredMarket) -> list[str]:
    return [offer.offer_id for _, offer in view.offers]


MIXED = (
    an_offer(
        offer_id="a", provider="vastai", region="US-TX", reliability_fraction=0.99, host_id="9", machine_id="77"
    ),
    an_offer(offer_id="b", provider="runpod", region="USA", gpu="a100-sxm4-80gb"),
    an_offer(offer_id="c", provider="vastai", region="us", reliability_fraction=0.90),
    an_offer(offer_id="d", provider="lambda", contract="interruptible", observed_at="2026-11-20T11:00:00Z"),
    an_offer(offer_id="e", available=0),
)


@pytest.mark.parametrize(
    ("filters", "ids"),
    [
        ({}, "abc"),
        ({"contracts": []}, "abcd"),
        ({"contracts": ["interruptible"]}, "d"),
        ({"contracts": ["spot"]}, "d"),
        ({"contracts": ["on_demand"]}, "abc"),
        ({"providers": ["VastAI"]}, "ac"),
        ({"regions": ["US"]}, "ac"),
        ({"regions": ["us-tx"]}, "a"),
        ({"gpus": ["a100-sxm4-80gb"]}, "b"),
        ({"min_reliability_fraction": 0.95}, "ab"),
        ({"max_age_s": 900, "contracts": []}, "abc"),
        ({"max_age_s": 3620, "contracts": []}, "abcd"),
        ({"exclude": {"providers": ["VASTAI"]}}, "b"),
        ({"exclude": {"regions": ["us"]}}, "b"),
        ({"exclude": {"gpus": ["a100-sxm4-80gb"]}}, "ac"),
        ({"exclude": {"offers": ["vastai/a", "runpod/c"]}}, "bc"),
        ({"exclude": {"hosts": ["9"]}}, "bc"),
        ({"exclude": {"hosts": ["vastai/9", "runpod/9"], "machines": ["runpod/77"]}}, "bc"),
        ({"exclude": {"machines": ["vastai/77"]}}, "bc"),
        ({"exclude": {"machines": ["77"]}}, "abc"),
        ({"providers": ["vastai"], "exclude": {"regions": ["US-TX"]}}, "c"),
    ],
)
def test_the_filter_keeps_what_it_says(filters: dict[str, Any], ids: str) -> None:
    assert kept(view_of(*MIXED, **filters)) == list(ids)


def test_names_that_leave_nothing_out_are_noted() -> None:
    exclude = {
        "providers": ["vastai", "vast"],
        "offers": ["vastai/a", "a"],
        "regions": ["EU"],
        "hosts": ["9", "runpod/9"],
        "machines": ["vastai/77", "77"],
    }
    notes = [note for note in view_of(*MIXED, exclude=exclude).notes if "leaves nothing out" in note]
    assert [note.split(" is ")[0] for note in notes] == [
        "market.filter.exclude.providers: vast",
        "market.filter.exclude.regions: EU",
        "market.filter.exclude.offers: a",
        "market.filter.exclude.hosts: runpod/9",
        "market.filter.exclude.machines: 77",
    ]


def test_names_that_let_nothing_pass_are_noted() -> None:
    view = view_of(*MIXED, providers=["vastai", "vast"], regions=["US", "EU"])
    assert view.notes[1:] == (
        "market.filter.providers: vast has no offers.",
        "market.filter.regions: there are no offers in EU.",
    )


def test_where_a_region_leaves_nothing_those_of_the_market_are_listed() -> None:
    with pytest.raises(NoMarketDataError) as caught:
        view_of(*MIXED, regions=["EU"])
    assert "the market has offers in US-TX, USA, us)" in caught.value.remedy


def test_only_what_may_be_taken_away_has_to_be_asked_for() -> None:
    offers = (an_offer(offer_id=name, contract=name) for name in ("on_demand", "reserved", "interruptible", "spot"))
    assert kept(view_of(*offers)) == ["on_demand", "reserved"]


def test_a_slice_larger_than_what_is_left_of_its_machine_does_not_count() -> None:
    slices = [an_offer(offer_id=str(n), gpus=n, machine_id="77", machine_gpus=2) for n in (1, 2, 4)]
    assert kept(view_of(*slices)) == ["1", "2"]


def test_dropped_offers_are_counted_by_reason() -> None:
    view = view_of(*MIXED, providers=["vastai"])
    assert view.notes == ("2 of 5 offers count; dropped by filter.providers 2, available 1.",)


def test_offers_of_unknown_reliability_pass_and_are_mentioned() -> None:
    view = view_of(*MIXED, min_reliability_fraction=0.95)
    assert "1 offers whose provider states no reliability passed min_reliability_fraction." in view.notes


def test_the_age_counts_from_the_snapshot() -> None:
    assert view_of().age_s(NOW) == 20


def test_a_snapshot_from_a_clock_ahead_of_ours_is_new() -> None:
    source = validate(MarketSourceDocument, {"offers": a_snapshot()})
    view = read_market(source, folder=None, now=NOW - timedelta(hours=1), fitness=UNJUDGED)
    assert view.age_s(NOW - timedelta(hours=1)) == 0
    assert any("dated after this plan" in note for note in view.notes)


def no_market(**source: Any) -> NoMarketDataError:
    with pytest.raises(NoMarketDataError) as caught:
        read_market(validate(MarketSourceDocument, source), folder=Path(), now=NOW, fitness=UNJUDGED)
    return caught.value


def test_a_market_that_names_no_offers_is_no_market() -> None:
    assert "name a snapshot file in market.offers" in no_market().remedy


def test_a_live_market_without_a_store_is_no_market() -> None:
    assert "no offers are named" in no_market(live=True).reason


def test_a_filter_that_leaves_nothing_is_no_market() -> None:
    error = no_market(offers=a_snapshot(), filter={"providers": ["nobody"]})
    assert "none of 1 offers is left (dropped by filter.providers 1" in error.reason
    assert "loosen market.filter" in error.remedy


def test_a_snapshot_that_is_too_old_is_no_market() -> None:
    error = no_market(offers=a_snapshot(), filter={"max_age_s": 10})
    assert "20 s old" in error.reason
    assert "take a fresh snapshot" in error.remedy


def test_a_path_is_relative_to_the_problem_file(tmp_path: Path) -> None:
    (tmp_path / "market.json").write_text(json.dumps(a_snapshot()))
    source = validate(MarketSourceDocument, {"offers": "market.json"})
    assert kept(read_market(source, folder=tmp_path, now=NOW, fitness=UNJUDGED)) == ["123"]


def test_a_wrong_offer_in_a_file_is_named_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "market.json").write_text(json.dumps(a_snapshot(an_offer(gpus=0))))
    source = validate(MarketSourceDocument, {"offers": "market.json"})
    with pytest.raises(DocumentError, match=r"market\.json: offers\[0\]\.gpus: 0: must be at least 1"):
        read_market(source, folder=tmp_path, now=NOW, fitness=UNJUDGED)


def test_a_missing_snapshot_file_is_bad_input(tmp_path: Path) -> None:
    source = validate(MarketSourceDocument, {"offers": "market.json"})
    with pytest.raises(DocumentError, match=r"market\.offers: .*market\.json.*does not exist"):
        read_market(source, folder=tmp_path, now=NOW, fitness=UNJUDGED)


def test_a_path_is_refused_where_there_are_no_files() -> None:
    source = validate(MarketSourceDocument, {"offers": "market.json"})
    with pytest.raises(DocumentError, match="command line only"):
        read_market(source, folder=None, now=NOW, fitness=UNJUDGED)
