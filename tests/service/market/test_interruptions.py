"""How often rented machines were taken away, as the store tells it, and who is told."""

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from sqlalchemy import Connection, Engine, text

from sutler.service.market.interruptions import interruptions_at
from sutler.service.market.kinds import KindFilter, interruptions_page
from sutler.service.market.snapshot import read_market
from sutler.solver.outlook.interruptions import LearntRate

NOW = datetime(2026, 11, 26, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def held(
    connection: Connection,
    *,
    from_h: float,
    to_h: float | None,
    count: int = 1,
    is_lost: bool = False,
    provider: str = "acme",
    reported_h: float | None = None,
) -> None:
    """Machines that were held so many hours ago; `reported_h`: of a deployment that has said so last then."""
    deployment = None
    if reported_h is not None:
        deployment = uuid4()
        connection.execute(
            text("""INSERT INTO deployment (id, name, problem, policy, version, revision)
                    VALUES (:id, :name, '{}', '{}', 1, 0)"""),
            {"id": deployment, "name": f"held-{deployment.hex[:8]}"},
        )
        connection.execute(
            text("INSERT INTO watch (deployment_id, holdings_at) VALUES (:id, :at)"),
            {"id": deployment, "at": NOW - reported_h * HOUR},
        )
    connection.execute(
        text("""INSERT INTO rental_life
                (deployment_id, provider, offer_id, contract, gpu, gpus, count, began_at, ended_at, is_lost)
                VALUES (:deployment, :provider, 'o', 'interruptible', 'h100-sxm', 1, :count,
                        :began, :ended, :lost)"""),
        {
            "deployment": deployment,
            "provider": provider,
            "count": count,
            "began": NOW - from_h * HOUR,
            "ended": None if to_h is None else NOW - to_h * HOUR,
            "lost": is_lost,
        },
    )


def of(rates: tuple[LearntRate, ...], provider: str | None = "acme", gpu: str | None = "h100-sxm") -> LearntRate:
    (found,) = [r for r in rates if (r.contract, r.provider, r.gpu) == ("interruptible", provider, gpu)]
    return found


def test_machines_count_from_report_to_report_and_those_that_are_held_up_to_the_last_one(engine: Engine) -> None:
    with engine.begin() as connection:
        held(connection, from_h=10, to_h=4, count=2, is_lost=True)
        held(connection, from_h=10, to_h=9)
        held(connection, from_h=8, to_h=None, count=3, reported_h=3)
        held(connection, from_h=100, to_h=None)  # of a deployment that is gone: nobody knows
        found = of(interruptions_at(connection, NOW))
    assert found.losses == 2
    assert found.machine_hours == pytest.approx(12 + 1 + 15)


def test_what_goes_at_once_is_one_incident_and_says_less(engine: Engine) -> None:
    with engine.begin() as connection:
        for number in range(20):
            held(connection, from_h=30, to_h=20, is_lost=True, provider="once")
            held(connection, from_h=30, to_h=20 - number, is_lost=True, provider="apart")
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM rental_life WHERE provider = 'apart'"))
        once = of(interruptions_at(connection, NOW), "once")
    with engine.begin() as connection:
        connection.execute(text("UPDATE rental_life SET ended_at = ended_at + (id % 20) * interval '30 minutes'"))
        apart = of(interruptions_at(connection, NOW), "once")
    assert once.high_per_hour / once.low_per_hour > 3 * apart.high_per_hour / apart.low_per_hour


def test_the_market_comes_with_what_is_known_of_it_then(engine: Engine) -> None:
    with engine.begin() as connection:
        held(connection, from_h=10, to_h=5, is_lost=True)
    market = read_market(engine, now=NOW)
    assert of(market.interruptions).losses == 1
    assert of(read_market(engine, now=NOW, as_of=NOW - 6 * HOUR).interruptions).losses == 0


def test_people_see_contracts_then_providers_then_gpus_and_what_they_ask_for(engine: Engine) -> None:
    with engine.begin() as connection:
        held(connection, from_h=10, to_h=5, provider="runpod")
        held(connection, from_h=10, to_h=5, provider="vastai")
        rates = interruptions_at(connection, NOW)
    page = interruptions_page(rates, KindFilter(contracts=["spot"], providers=["runpod"], gpus=["H100 SXM"]))
    assert [(one.contract, one.provider, one.gpu) for one in page.items] == [
        ("interruptible", None, None),
        ("interruptible", "runpod", None),
        ("interruptible", "runpod", "h100-sxm"),
    ]
    assert {one.contract for one in interruptions_page(rates, KindFilter()).items} == {
        "interruptible",
        "on_demand",
        "reserved",
    }
