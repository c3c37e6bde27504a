"""`sutler market` and `sutler plan` on the store, with the fake cloud and a real PostgreSQL."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from sutler.adapters.fake.market import Market
from sutler.adapters.fake.server import FakeCloud
from sutler.service.cli.app import app
from sutler.service.db import embedded
from sutler.service.db.store import HEAD
from sutler.service.documents.market import MarketDocument
from sutler.service.documents.validation import validate
from tests.adapters.fake.builders import NIGHT_S
from tests.service.builders import a_problem, a_row

KEY = "canary-key-0123456789"


@pytest.fixture
def cloud(shared_store: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCloud]:
    """Vast.ai, RunPod and Lium on loopback, and a store that nobody has used."""
    with FakeCloud(market=Market(seed=1, machines=60), clock=lambda: NIGHT_S) as played:
        monkeypatch.setenv("SUTLER_VASTAI_BASE_URL", played.base_url)
        monkeypatch.setenv("SUTLER_VASTAI_API_KEY", KEY)
        monkeypatch.setenv("SUTLER_VASTAI_CONTRACTS", "on_demand")
        monkeypatch.setenv("SUTLER_RUNPOD_BASE_URL", played.base_url)
        monkeypatch.setenv("SUTLER_RUNPOD_API_KEY", KEY)
        yield played


def sutler(*arguments: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments], input=stdin)


def polled(*names: str) -> list[dict[str, Any]]:
    result = sutler("market", "poll", *names, "--json")
    assert result.stdout, result.stderr
    found: list[dict[str, Any]] = json.loads(result.stdout)
    return found


def offers(*options: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(sutler("market", "offers", "--json", *options).stdout)["offers"]
    return found


def test_a_poll_reports_each_cloud_as_the_contract_says(cloud: FakeCloud) -> None:
    vastai, runpod = polled()
    assert (vastai["provider"], vastai["outcome"], vastai["retry_at"]) == ("vastai", "ok", None)
    assert (runpod["provider"], runpod["outcome"]) == ("runpod", "ok")
    assert vastai["kept"] == len(offers("--provider", "vastai")) > 0
    assert vastai["rejected"] == vastai["flags"] == {}


def test_the_clouds_that_are_set_up_are_polled_and_no_others(cloud: FakeCloud) -> None:
    assert [report["provider"] for report in polled()] == ["vastai", "runpod"]


def test_a_failed_poll_exits_4_and_leaves_the_market_as_it_was(cloud: FakeCloud) -> None:
    polled("vastai")
    before = offers()
    cloud.fail("vastai", "wrong_shape")
    result = sutler("market", "poll", "vastai", "--json")
    assert result.exit_code == 4
    assert json.loads(result.stdout)[0]["outcome"] == "bad_shape"
    assert offers() == before


def test_one_answer_is_enough_for_a_poll_that_names_nobody(cloud: FakeCloud) -> None:
    cloud.fail("runpod", "http_400")
    assert sutler("market", "poll").exit_code == 0
    assert sutler("market", "poll", "runpod").exit_code == 4


def test_a_cloud_that_asked_for_patience_is_asked_again_only_by_name(cloud: FakeCloud) -> None:
    cloud.fail("vastai", "quota", times=1)
    assert polled("vastai")[0]["outcome"] == "quota"
    sent = len(cloud.requests)
    (patient,) = [report for report in polled() if report["provider"] == "vastai"]
    assert (patient["outcome"], patient["requests"]) == ("retry", 0)
    assert patient["retry_at"] is not None
    assert not any("bundles" in request for request in cloud.requests[sent:])
    assert polled("vastai")[0]["outcome"] == "ok"


def test_an_unknown_cloud_is_bad_input(cloud: FakeCloud) -> None:
    result = sutler("market", "poll", "vastia")
    assert result.exit_code == 2
    assert "vastai, runpod" in result.stderr


def test_offers_are_a_snapshot_that_can_be_planned_on(cloud: FakeCloud, tmp_path: Path) -> None:
    polled()
    snapshot = json.loads(sutler("market", "offers", "--json").stdout)
    document = validate(MarketDocument, snapshot)
    assert {offer.provider for offer in document.offers} == {"vastai", "runpod"}
    assert all(offer.observed_at is not None for offer in document.offers)


def test_offers_are_filtered_and_the_cheapest_come_first(cloud: FakeCloud) -> None:
    polled("vastai")
    found = offers()
    gpu = found[0]["gpu"]
    assert {offer["gpu"] for offer in offers("--gpu", gpu)} == {gpu}
    prices = [offer["price_usd_per_hour"] / offer["gpus"] for offer in found]
    assert prices == sorted(prices)
    middle = prices[len(prices) // 2]
    assert len(offers("--max-price", str(middle))) == sum(price <= middle for price in prices)
    region = found[0]["region"].partition("-")[0]
    assert {offer["region"].partition("-")[0] for offer in offers("--region", region)} == {region}
    assert offers("--contract", "reserved") == []


def test_offers_are_sought_by_words_and_sorted(cloud: FakeCloud) -> None:
    polled("vastai")
    some = offers()[0]
    assert some in offers("--search", f"VAST {some['offer_id']}")
    assert offers("--search", "nowhere") == []
    prices = [offer["price_usd_per_hour"] for offer in offers("--sort", "-usd_per_hour")]
    assert prices == sorted(prices, reverse=True)
    assert len(prices) == len(offers())
    assert "the first 3 shown" in sutler("market", "offers", "--limit", "3", "--sort", "gpus").stdout


def test_the_market_of_a_past_instant_is_what_it_was_then(cloud: FakeCloud) -> None:
    at = polled("vastai")[0]["at"]
    then = offers("--as-of", at)
    cloud.fail("vastai", "empty", times=2)
    polled("vastai"), polled("vastai")
    assert offers() == []
    assert offers("--as-of", at) == then != []


def test_nothing_polled_yet_is_no_market_data(cloud: FakeCloud, private_store: Path) -> None:
    result = sutler("market", "offers")
    assert (result.exit_code, "run `sutler market poll`" in result.stdout) == (4, True)


def test_the_tables_name_what_people_look_for(cloud: FakeCloud) -> None:
    report = sutler("market", "poll").stdout
    assert "vastai" in report
    assert "not for rent" in report
    listed = sutler("market", "offers", "--limit", "3").stdout
    assert "the 3 cheapest" in listed
    assert "$/GPU/h" in listed
    providers = sutler("market", "providers").stdout
    assert "last poll" in providers
    assert "runpod" in providers


def test_history_counts_gpus_and_shows_a_plot(cloud: FakeCloud) -> None:
    polled("vastai")
    gpu = offers()[0]["gpu"]
    cards = {card for offer in offers("--gpu", gpu) for card in offer["gpu_ids"]}
    result = sutler("market", "history", gpu, "--since", "10m", "--points", "20", "--json")
    points = json.loads(result.stdout)
    assert (points[0]["gpus"], points[-1]["gpus"]) == (None, len(cards))
    assert points[-1]["least_usd_per_gpu_hour"] == offers("--gpu", gpu)[0]["price_usd_per_hour"]
    shown = sutler("market", "history", gpu, "--since", "10m").stdout
    assert "GPUs for rent" in shown
    assert "█" in shown


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["offers", "--as-of", "yesterday"], "--as-of: 'yesterday': must be a time with its zone"),
        (["offers", "--as-of", "2026-11-20T12:00:00"], "must be a time with its zone"),
        (["offers", "--contract", "rented"], "must be on_demand, interruptible, reserved"),
        (["offers", "--gpu", "h1000"], "no such GPU"),
        (["offers", "--sort", "price"], "sort: 'price': must be usd_per_gpu_hour, usd_per_hour"),
        (["history", "a40", "--since", "1h", "--until", "2h"], "must be after since"),
    ],
)
def test_what_cannot_be_meant_is_bad_input(cloud: FakeCloud, arguments: list[str], complaint: str) -> None:
    result = sutler("market", *arguments)
    assert result.exit_code == 2
    assert complaint in result.stderr


def problem(**market: Any) -> str:
    row = a_row(stages=[{"gpu": "rtx-3090", "tensor_parallel": 1}])
    return json.dumps(a_problem(market=market, throughput={"only": True, "table": [row]}))


def test_a_problem_is_planned_on_the_store(cloud: FakeCloud) -> None:
    polled()
    result = sutler("plan", "-", "--json", stdin=problem(filter={"gpus": ["rtx-3090"]}))
    plan = json.loads(result.stdout)
    assert plan["status"] == "optimal"
    assert {rental["offer_id"] for rental in plan["rentals"]} <= {offer["offer_id"] for offer in offers()}
    assert {provider["provider"] for provider in plan["market"]["providers"]} == {"vastai", "runpod"}


def test_a_live_problem_polls_first(cloud: FakeCloud) -> None:
    filters = {"gpus": ["rtx-3090"], "providers": ["vastai"]}
    result = sutler("plan", "-", "--json", stdin=problem(live=True, filter=filters))
    assert json.loads(result.stdout)["status"] == "optimal"
    assert any("bundles" in request for request in cloud.requests)


AWS_PRICES = """instance_name,location,price,gpu_count,gpu_name,gpu_memory,spot
p5.48xlarge,us-east-1,55.04,8,H100,80.0,False
"""


def test_stated_stock_a_quota_and_a_marketplace_are_planned_together_live(
    cloud: FakeCloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RunPod says HIGH and AWS only what it costs: the user knows how many there are. Vast.ai counts its own."""
    (tmp_path / "aws.csv").write_text(AWS_PRICES, encoding="utf-8")
    monkeypatch.setenv("SUTLER_GPUHUNT_CATALOG_DIR", str(tmp_path))
    monkeypatch.setenv("SUTLER_GPUHUNT_CLOUDS", "aws")
    rows = [
        a_row(stages=[{"gpu": gpu, "tensor_parallel": 1}], rps={"long-short": rps})
        for gpu, rps in (("h100-sxm", 20.0), ("rtx-4090", 3.0), ("rtx-3090", 1.0))
    ]
    stock = [
        {"provider": "runpod", "gpu": "rtx-4090", "gpus": 8, "machines": 8},
        {"provider": "aws", "gpu": "h100-sxm", "region": "us-east-1", "gpus": 8, "machines": 2},
    ]
    asked = a_problem(
        market={
            "live": True,
            "filter": {"providers": ["runpod", "aws", "vastai"], "gpus": ["h100-sxm", "rtx-4090", "rtx-3090"]},
            "stock": stock,
        },
        throughput={"only": True, "table": rows},
        budget_usd_per_hour=2000,
        limits={"max_gpus_per_provider": {"runpod": 24, "aws": 8, "vastai": 4}},
    )
    result = sutler("plan", "-", "--json", stdin=json.dumps(asked))
    assert result.exit_code == 0, result.stderr
    plan = json.loads(result.stdout)
    gpus: dict[str, int] = {}
    for rental in plan["rentals"]:
        gpus[rental["provider"]] = gpus.get(rental["provider"], 0) + rental["gpus"] * rental["count"]
    assert gpus == {"runpod": 24, "aws": 8, "vastai": 4}
    assert {"stated/us-east-1/8xh100-sxm", "stated/8xrtx-4090"} <= {one["offer_id"] for one in plan["rentals"]}


def test_a_live_problem_whose_clouds_do_not_answer_is_no_market(cloud: FakeCloud) -> None:
    cloud.fail("vastai", "http_400")
    cloud.fail("runpod", "http_400")
    result = sutler("plan", "-", "--json", stdin=problem(live=True))
    assert (result.exit_code, result.stdout) == (4, "")


@pytest.mark.slow
def test_no_key_is_stored_or_shown(cloud: FakeCloud, private_store: Path) -> None:
    cloud.fail("vastai", "echo_key")
    cloud.fail("runpod", "echo_key")
    results = [sutler("market", "poll"), sutler("market", "poll", "--json"), sutler("market", "providers", "--json")]
    embedded.stop(private_store)
    shown = "".join(result.stdout + result.stderr for result in results)
    stored = b"".join(path.read_bytes() for path in private_store.rglob("*") if path.is_file())
    assert KEY not in shown
    assert KEY.encode() not in stored
    assert b"refuses the key" in stored


def test_upgrading_twice_says_that_there_is_nothing_to_do(private_store: Path) -> None:
    assert "(before: none)" in sutler("db", "upgrade").stdout
    assert sutler("db", "upgrade").stdout.endswith(f"{HEAD}.\n")


def test_pruning_says_what_it_did(cloud: FakeCloud) -> None:
    polled("vastai")
    result = sutler("db", "prune", "--history-days", "30")
    assert result.stdout.startswith("Kept in full since")
    assert "0 rows deleted" in result.stdout


def test_the_outlook_is_of_what_was_watched(cloud: FakeCloud) -> None:
    assert sutler("market", "outlook").exit_code == 4
    polled("vastai")
    polled("vastai")
    result = sutler("market", "outlook", "rtx-3090", "--within", "1h", "--json")
    page = json.loads(result.stdout)
    assert (result.exit_code, page["within_s"]) == (0, 3600)
    assert {kind["gpu"] for kind in page["items"]} == {"rtx-3090"}
    assert all(0 < kind["lasting"]["fraction"] <= kind["within"]["fraction"] < 1 for kind in page["items"])
    assert sutler("market", "outlook", "--for", "soon").exit_code == 2


def test_without_holdings_interruptions_are_those_that_are_assumed() -> None:
    result = sutler("market", "interruptions", "--contract", "spot", "--json")
    assert result.exit_code == 0, result.stderr
    page = json.loads(result.stdout)
    (kind,) = page["items"]
    assert (kind["contract"], kind["provider"], kind["machine_hours"]) == ("interruptible", None, 0)
    table = sutler("market", "interruptions")
    assert table.exit_code == 0
    assert "24 hours" in table.stdout
    assert sutler("market", "interruptions", "h1000").exit_code == 2


def test_a_plan_on_the_store_says_how_likely_its_offers_are_there(cloud: FakeCloud) -> None:
    polled("vastai")
    polled("vastai")
    wanted = {"gpus": ["rtx-3090"], "providers": ["vastai"]}
    plan = json.loads(sutler("plan", "-", "--json", stdin=problem(filter=wanted)).stdout)
    assert all(0 < rental["outlook"]["chance_of_still_there_fraction"] < 1 for rental in plan["rentals"])
    assert 0 < plan["availability"]["chance_fraction"] <= plan["availability"]["chance_with_spares_fraction"] < 1
