"""GPUs for rent and their price over time, by hand on small markets; what nobody looked at is unknown, not zero."""

from datetime import datetime, timedelta

from sutler.service.market.history import HistoryPoint, price_histories, price_history
from tests.service.market.builders import NOON, SOUTH, Store, a_failure, an_answer, an_offer

MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
HALF_HOUR_S = 1800.0


def history(
    store: Store, *, minutes: int, points: int, gpu: str = "h100-sxm", since: datetime = NOON, **others: object
) -> list[HistoryPoint]:
    until = since + minutes * MINUTE
    asked = {"contract": "on_demand", "providers": (), **others}
    return price_history(store.engine, gpu, since=since, until=until, points=points, **asked)  # type: ignore[arg-type]


def supply(points: list[HistoryPoint]) -> list[float | None]:
    return [point.gpus for point in points]


def test_points_are_evenly_spaced_with_both_ends(store: Store) -> None:
    found = history(store, minutes=90, points=4)
    assert [point.at for point in found] == [NOON + n * 30 * MINUTE for n in range(4)]


def test_one_point_is_the_beginning(store: Store) -> None:
    store.poll(an_answer(an_offer()), after_s=0)
    assert [(point.at, point.gpus) for point in history(store, minutes=60, points=1)] == [(NOON, 1.0)]


def test_number_and_price_by_hand(store: Store) -> None:
    # 12:00: a machine of 4 distinct cards in three overlapping slices, and 3 x 2 GPUs without a machine: 10 GPUs;
    # per GPU-hour 2.00, 3.00, 2.50, 4.00: median 2.75. 12:30: the 3 x 2 GPUs alone, dearer. 13:00: none.
    pool = an_offer("pool", 8.0, gpus=2, available=3)
    store.poll(
        an_answer(
            an_offer("s1", 4.0, gpus=2, gpu_ids=(1, 2), machine_id="m"),
            an_offer("s2", 6.0, gpus=2, gpu_ids=(2, 3), machine_id="m"),
            an_offer("s3", 10.0, gpus=4, gpu_ids=(1, 2, 3, 4), machine_id="m"),
            pool,
            an_offer("bid", 0.5, contract="interruptible"),
            an_offer("other", 0.1, gpu="a40"),
            an_offer("listed", 0.9, available=0, availability_basis="list"),
        ),
        after_s=0,
    )
    store.poll(an_answer(an_offer("pool", 9.0, gpus=2, available=3)), after_s=HALF_HOUR_S)
    store.poll(an_answer(), after_s=HALF_HOUR_S)
    found = history(store, minutes=90, points=4)
    assert found[:3] == [
        HistoryPoint(NOON, 10.0, 4, 2.0, 2.75),
        HistoryPoint(NOON + 30 * MINUTE, 6.0, 1, 4.5, 4.5),
        HistoryPoint(NOON + 60 * MINUTE, 0.0, 0, None, None),
    ]
    assert supply(history(store, minutes=90, points=4, contract="interruptible")) == [1.0, 0.0, 0.0, 0.0]
    assert supply(history(store, minutes=90, points=4, gpu="a40")) == [1.0, 0.0, 0.0, 0.0]


def test_cards_offered_on_demand_and_for_bids_count_once_in_each(store: Store) -> None:
    store.poll(
        an_answer(
            an_offer("a", gpus=2, gpu_ids=(1, 2), machine_id="m"),
            an_offer("a", gpus=2, gpu_ids=(1, 2), machine_id="m", contract="interruptible"),
            an_offer("b", gpus=1, gpu_ids=(1,), machine_id="m"),
        ),
        after_s=0,
    )
    assert supply(history(store, minutes=1, points=1)) == [2.0]


def test_machines_that_do_not_name_their_cards_have_what_their_offers_state(store: Store) -> None:
    store.poll(
        an_answer(
            an_offer("a", gpus=2, machine_id="m", machine_gpus=6),
            an_offer("b", gpus=4, machine_id="m"),
            an_offer("c", gpus=2, gpu_ids=(8, 9), machine_id="m"),
        ),
        after_s=0,
    )
    assert supply(history(store, minutes=1, points=1)) == [6.0]


def test_what_nobody_looked_at_is_unknown_and_what_was_looked_at_and_gone_is_zero(store: Store) -> None:
    store.poll(an_answer(an_offer()), after_s=0)
    store.poll(an_answer(), after_s=HALF_HOUR_S)
    store.poll(an_answer(an_offer()), after_s=4 * HALF_HOUR_S)
    at = [NOON + n * 30 * MINUTE for n in range(-1, 8)]
    found = history(store, since=at[0], minutes=240, points=9)
    assert dict(zip(at, supply(found), strict=True)) == {
        at[0]: None,
        at[1]: 1.0,
        at[2]: 0.0,
        at[3]: 0.0,
        at[4]: None,
        at[5]: None,
        at[6]: 1.0,
        at[7]: 1.0,
        at[8]: None,
    }


def test_a_failed_poll_is_no_look(store: Store) -> None:
    store.poll(an_answer(an_offer()), after_s=0)
    store.poll(a_failure(), after_s=2 * HALF_HOUR_S)
    assert supply(history(store, minutes=60, points=2)) == [1.0, None]


def test_providers_can_be_asked_for_by_name(store: Store) -> None:
    store.poll(an_answer(an_offer("a", 2.0)), after_s=0)
    store.poll(an_answer(an_offer("a", 3.0, gpus=2)), after_s=0, cloud=SOUTH)
    (both,) = history(store, minutes=1, points=1)
    (south,) = history(store, minutes=1, points=1, providers=("south",))
    assert (both.gpus, both.offers, both.least_usd_per_gpu_hour) == (3.0, 2, 1.5)
    assert (south.gpus, south.offers, south.least_usd_per_gpu_hour) == (2.0, 1, 1.5)
    assert supply(history(store, minutes=1, points=1, providers=("east",))) == [None]


def test_several_gpus_at_once_are_each_as_alone(store: Store) -> None:
    store.poll(an_answer(an_offer("a", 2.0), an_offer("b", 1.0, gpu="a40", gpus=4)), after_s=0)
    store.poll(an_answer(an_offer("a", 3.0)), after_s=HALF_HOUR_S)
    store.poll(an_answer(an_offer("a", 3.0, gpu="a40")), after_s=0, cloud=SOUTH)
    gpus = ("l40s", "h100-sxm", "a40")
    for providers in ((), ("north",), ("south",)):
        found = price_histories(
            store.engine,
            gpus,
            contract="on_demand",
            since=NOON - HOUR,
            until=NOON + 3 * HOUR,
            points=9,
            providers=providers,
        )
        assert tuple(found) == gpus
        for gpu in gpus:
            alone = history(store, since=NOON - HOUR, minutes=240, points=9, gpu=gpu, providers=providers)
            assert found[gpu] == alone
    assert supply(history(store, since=NOON - HOUR, minutes=240, points=9, gpu="a40")) == [
        *(None, None, 4.0, 1.0, 1.0, None, None, None, None)
    ]
    assert supply(history(store, since=NOON - HOUR, minutes=240, points=9, gpu="l40s")) == [
        *(None, None, 0.0, 0.0, 0.0, None, None, None, None)
    ]
