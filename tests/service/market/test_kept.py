"""The market as it was read last: the same as read anew, whatever was polled in between."""

from threading import Thread

from sutler.service.market.kept import KeptMarket
from sutler.service.translation.stored_market import StoredMarket
from tests.service.market.builders import SOUTH, Store, a_failure, an_answer, an_offer


class Reading:
    """Counts how often the store is read."""

    def __init__(self, store: Store) -> None:
        self.store, self.kept, self.times = store, KeptMarket(), 0

    def __call__(self) -> StoredMarket:
        self.times += 1
        return self.store.market()

    def look(self) -> StoredMarket:
        found = self.kept.get(self.store.engine, self.store.time.now(), self)
        assert found.offers == self.store.market().offers
        assert found.taken_at == self.store.time.now()
        return found


def test_it_is_read_anew_where_a_cloud_was_polled_and_only_there(store: Store) -> None:
    reading = Reading(store)
    assert reading.look().offers == ()
    store.poll(an_answer(an_offer("a")))
    assert len(reading.look().offers) == 1
    store.time.pass_s(30)
    reading.look()
    assert reading.times == 2
    store.poll(an_answer(an_offer("a")))  # nothing changed but when it was seen last
    reading.look()
    store.poll(an_answer(an_offer("b")), cloud=SOUTH)
    assert {offer.offer_id for offer in reading.look().offers} == {"a", "b"}
    store.poll(a_failure())
    store.poll(an_answer())
    store.poll(an_answer())
    reading.look()
    assert reading.times == 5


def test_threads_that_ask_at_once_read_it_once(store: Store) -> None:
    store.poll(an_answer(an_offer("a")))
    reading = Reading(store)
    threads = [Thread(target=reading.look) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert reading.times == 1
