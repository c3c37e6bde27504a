"""What offers were when they were last for rent, read from the rows that say so and not from the whole history."""

from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, event, text

from sutler.service.documents.market import OfferDocument
from sutler.service.market.settled import OfferId, last_known
from tests.service.market.builders import SOUTH, Store, an_answer, an_offer

DAY_S = 86_400.0


@pytest.fixture
def store(engine: Engine) -> Store:
    return Store(engine)


def key(offer_id: str, provider: str = "north", contract: str = "on_demand") -> OfferId:
    return provider, offer_id, contract


def known(store: Store, *offers: OfferId) -> dict[OfferId, OfferDocument]:
    with store.engine.connect() as connection:
        return last_known(connection, offers)


def prices(store: Store, *offers: OfferId) -> dict[str, float]:
    """By id."""
    return {found[1]: offer.price_usd_per_hour for found, offer in known(store, *offers).items()}


def test_what_is_for_rent_is_as_it_is_now(store: Store) -> None:
    store.poll(an_answer(an_offer("a", 3.0, available=2)))
    store.poll(an_answer(an_offer("a", 2.0, available=5, region="DE")))
    [offer] = known(store, key("a")).values()
    assert (offer.price_usd_per_hour, offer.available, offer.region) == (2.0, 5, "DE")


@pytest.mark.parametrize("pause_s", [60.0, 3.5 * DAY_S])
def test_what_has_gone_is_as_it_was_last_whether_that_changed_within_a_day_or_not(
    store: Store, pause_s: float
) -> None:
    for price in (1.0, 4.0, 2.0, 3.0):
        store.poll(an_answer(an_offer("a", price), an_offer("b", 1.0)), after_s=pause_s)
    store.poll(an_answer(an_offer("b", 1.0)))
    assert prices(store, key("a"), key("b")) == {"a": 3.0, "b": 1.0}


def test_what_came_back_is_as_it_is_now(store: Store) -> None:
    store.poll(an_answer(an_offer("a", 3.0), an_offer("b", 1.0)))
    store.poll(an_answer(an_offer("b", 1.0)))
    store.poll(an_answer(an_offer("a", 5.0), an_offer("b", 1.0)), after_s=DAY_S)
    assert prices(store, key("a")) == {"a": 5.0}


def test_what_never_was_for_rent_is_left_out(store: Store) -> None:
    store.poll(an_answer(an_offer("a", 3.0)))
    assert prices(store, key("a"), key("x"), key("a", "nobody"), key("a", contract="interruptible")) == {"a": 3.0}
    assert known(store) == {}


def test_one_id_of_two_clouds_or_contracts_is_several_offers(store: Store) -> None:
    store.poll(an_answer(an_offer("a", 3.0), an_offer("a", 1.0, contract="interruptible")))
    store.poll(an_answer(an_offer("a", 7.0)), cloud=SOUTH)
    asked = [key("a"), key("a", contract="interruptible"), key("a", "south")]
    assert [known(store, *asked)[offer].price_usd_per_hour for offer in asked] == [3.0, 1.0, 7.0]


def test_the_history_is_not_read(store: Store) -> None:
    """Each part of the question has an index in the words of its condition."""
    store.poll(an_answer(an_offer("a", 3.0)))
    store.poll(an_answer(an_offer("b", 3.0)), after_s=timedelta(days=1).total_seconds())
    plan = plan_of(store, [key("a"), key("b")])
    assert {"uq_offer_open", "ix_offer_past", "pk_offer"} <= set(plan.split())
    assert "Seq Scan on offer" not in plan


def plan_of(store: Store, offers: Iterable[OfferId]) -> str:
    """How the database answers, where it would rather not read a table from end to end."""
    said: list[str] = []

    def explain(_: Any, cursor: Any, statement: str, parameters: Any, *__: Any) -> None:
        if "unnest" in statement and not said:
            said.append("")
            cursor.execute(f"EXPLAIN {statement}", parameters)
            said[0] = "\n".join(row[0] for row in cursor.fetchall())

    with store.engine.connect() as connection:
        connection.execute(text("SET LOCAL enable_seqscan = off"))
        event.listen(connection, "before_cursor_execute", explain)
        last_known(connection, list(offers))
    return said[0]
