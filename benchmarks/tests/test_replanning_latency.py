"""What is timed of replanning, and what the report says of it, on small input."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from benchmarks.instances import PAPER_AVAILABILITY_1, PAPER_PRICES_USD_PER_HOUR
from benchmarks.machine import describe_machine
from benchmarks.replanning_latency_case import (
    SLUGS,
    Answered,
    Decisions,
    MarketFile,
    dearest,
    machines_of,
    paper_offers,
    paper_problem,
)
from benchmarks.replanning_latency_deployments import deployment, observation
from benchmarks.replanning_latency_fleet import Clock, Fleet, Pace, Round, lags
from benchmarks.replanning_latency_service import environment_on, played_clouds
from benchmarks.replanning_latency_text import ROLES, Report, missed, text_of
from sutler.service.deployments.schemas import NewDeploymentDocument
from sutler.service.deployments.traffic.schemas import ObservationDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.settings import market_settings
from sutler.service.translation.to_problem import to_problem
from tests.postgres import a_folder

NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)


def an_answer(told_s: float) -> Answered:
    return Answered(issued_s=told_s - 0.02, told_s=told_s, solver_s=told_s / 2, changed=3)


def a_round(**others: Any) -> Round:
    given: Any = {
        "moved_s": 60.0,
        "changed": 7,
        "half_s": 4.0,
        "all_s": 9.0,
        "outcomes": {"considered": 19, "replanned": 1},
        "revisions": 1,
        "cpu_s": dict.fromkeys(ROLES, 1.0),
    }
    found: Round = given | others
    return found


def a_report(
    *, gone_s: float = 1.5, lost_s: float = 1.2, lags_s: tuple[float | None, ...] = (3.0,), **others: Any
) -> Report:
    pace = Pace(seconds=60.0, lags_s=list(lags_s), revisions=2, cpu_s=dict.fromkeys(ROLES, 6.0))
    fleet = Fleet(
        deployments=20, holding=16, observed=10, offers=771, setup_s=20.0, rounds=[a_round(**others)], pace=pace
    )
    decisions = Decisions(
        offers=8, gone=[an_answer(0.5), an_answer(gone_s)], lost=[an_answer(lost_s)], others_cores=0.1
    )
    return Report(machine=describe_machine(), decisions=decisions, fleet=fleet)


def test_a_report_within_its_targets_misses_nothing_and_says_so() -> None:
    shown = text_of(a_report())
    assert missed(a_report()) == []
    assert shown.endswith("All targets are met.\n")


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ({"gone_s": 5.2}, "gone: the slowest plan came after 5.2 s, not within 5"),
        ({"lost_s": 6.0}, "lost: the slowest plan came after 6.0 s, not within 5"),
        ({"all_s": 31.0}, "60 s later: all were looked at after 31.0 s, not within 30"),
        ({"outcomes": {"blind": 2}}, "60 s later: 2 could not be looked at"),
        ({"lags_s": (4.0, 40.0, None)}, "at the scheduler's pace 2 of 3 polls were not looked at by all within 30 s"),
    ],
)
def test_each_target_that_is_missed_is_named_with_its_number(others: dict[str, Any], expected: str) -> None:
    report = a_report(**others)
    assert missed(report) == [expected]
    assert f"MISSED: {expected}." in text_of(report)


def test_the_report_shows_the_median_and_the_slowest_decision_and_what_came_of_the_looks() -> None:
    lines = text_of(a_report(gone_s=2.5)).splitlines()
    (gone,) = (line for line in lines if line.startswith("a poll that has lost"))
    assert gone.split()[-6:-3] == ["2", "1.50", "2.50"]
    (looks,) = (line for line in lines if line.strip().startswith("+"))
    assert looks.split() == ["+", "60", "s", "7", "4.0", "9.0", "0", "19", "0", "1", "0", "1", "50", "50", "0.11"]


def test_without_the_scheduler_s_own_pace_the_report_says_that_it_was_not_measured() -> None:
    report = a_report()
    report["fleet"]["pace"] = Pace(seconds=0.0, lags_s=[], revisions=0, cpu_s={})
    assert "The scheduler's own pace was not measured." in text_of(report)
    assert missed(report) == []


def test_a_poll_has_been_looked_at_by_all_once_the_slowest_has_it_or_a_later_one() -> None:
    reached = [(10.5, 3), (12.0, 3), (13.0, 5), (14.0, 5)]
    assert lags([10.0, 11.0, 12.5, 13.5], reached, first=3) == [0.5, 2.0, 0.5, None]


def test_a_clock_stands_still_until_it_is_let_run() -> None:
    clock = Clock(now_s=100.0)
    assert clock() == 100.0
    clock.runs_since_s = (datetime.now(UTC) - timedelta(seconds=50)).timestamp()
    assert clock() >= 150.0
    clock.speed = 10.0
    assert clock() >= 600.0


def test_the_stored_market_has_the_paper_s_machines_at_its_prices() -> None:
    gpus: dict[str, int] = {}
    for offer in paper_offers():
        gpus[offer["gpu"]] = gpus.get(offer["gpu"], 0) + offer["gpus"] * offer["available"]
    assert gpus == {SLUGS[name]: count for name, count in PAPER_AVAILABILITY_1.items()}
    prices = {offer["gpu"]: offer["price_usd_per_hour"] / offer["gpus"] for offer in paper_offers()}
    assert prices == pytest.approx({SLUGS[name]: price for name, price in PAPER_PRICES_USD_PER_HOUR.items()})


def test_the_paper_s_case_is_one_that_the_service_takes_on_that_market() -> None:
    market = {"offers": {"schema": "sutler/market/v1", "taken_at": "2026-11-20T12:00:00Z", "offers": paper_offers()}}
    problem = to_problem(validate(ProblemDocument, {**paper_problem(), "market": market}), folder=None, now=NOW)
    assert (len(problem.problem.offers), len(problem.problem.models[0].workloads)) == (8, 9)


def test_what_is_taken_off_the_market_is_for_rent_again_when_something_else_is_taken() -> None:
    names = [offer["offer_id"] for offer in paper_offers()]
    with a_folder() as folder:
        market = MarketFile(folder / "market.json")
        assert market.write() == len(names)
        assert market.write(without=names[0]) == len(names) - 1
        assert names[0] not in market.path.read_text()
        market.write(without=names[1])
        assert names[0] in market.path.read_text()


def a_rental(offer: str, *, gpus: int, count: int, usd_per_hour: float) -> dict[str, Any]:
    return {"offer_id": offer, "gpus": gpus, "count": count, "price_usd_per_hour": usd_per_hour}


def test_the_dearest_offer_is_that_of_the_dearest_gpus_not_of_the_dearest_machines() -> None:
    rentals = [
        a_rental("cloud/large", gpus=8, count=1, usd_per_hour=8.0),
        a_rental("cloud/fast", gpus=1, count=2, usd_per_hour=3.0),
    ]
    assert dearest({"rentals": rentals}) == "cloud/fast"
    assert machines_of({"rentals": rentals}) == {("cloud/large", 8): 1, ("cloud/fast", 1): 2}


def test_every_deployment_is_a_problem_of_its_own_that_the_service_takes() -> None:
    documents = [validate(NewDeploymentDocument, deployment(number, 200)) for number in range(200)]
    assert len({document.name for document in documents}) == 200
    assert len({document.problem.model_dump_json() for document in documents}) == 200


def test_the_traffic_that_is_reported_is_what_was_planned() -> None:
    planned = deployment(7, 20)["problem"]["models"][0]["workloads"]
    seen = validate(ObservationDocument, observation(7, 20))
    assert seen.buckets is not None
    assert seen.window_s is not None
    rates = [bucket.requests / seen.window_s for bucket in seen.buckets]
    assert rates == pytest.approx([workload["rate_rps"] for workload in planned], rel=1e-3)


def test_every_cloud_is_played_and_nothing_of_the_caller_s_settings_is_passed_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SUTLER_HYPERSTACK_API_KEY", "of the caller")
    monkeypatch.setenv("SUTLER_POLL_INTERVAL_S", "7")
    with a_folder() as folder:
        settings = market_settings(environment_on(folder, **played_clouds("http://127.0.0.1:1")))
    assert settings.poll_interval_s is None
    for name in settings.providers:
        assert settings.configs[name].base_url == "http://127.0.0.1:1"
        assert "of the caller" not in settings.configs[name].secrets.values()
