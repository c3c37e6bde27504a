"""The schedule of retries."""

from sutler.service.webhooks.service import HOUR_S, MOST_ATTEMPTS, WAITS_S, wait_s


def test_the_waits_grow_and_last_three_days() -> None:
    assert list(WAITS_S) == sorted(WAITS_S)
    assert WAITS_S[:3] == (5, 300, 1800)
    assert 72 * HOUR_S < sum(WAITS_S) < 80 * HOUR_S


def test_the_tenth_attempt_is_the_last() -> None:
    waits = [wait_s(attempts, stated_s=None, chance=0.0) for attempts in range(1, MOST_ATTEMPTS + 1)]
    assert waits == [*WAITS_S, None]
    assert MOST_ATTEMPTS == 10


def test_chance_lengthens_a_wait_by_a_tenth_at_most() -> None:
    assert wait_s(2, stated_s=None, chance=1.0) == 330.0
    assert wait_s(2, stated_s=None, chance=0.5) == 315.0


def test_what_the_receiver_asks_for_lengthens_a_wait_but_not_for_ever() -> None:
    assert wait_s(1, stated_s=60.0, chance=0.0) == 60.0
    assert wait_s(3, stated_s=60.0, chance=0.0) == 1800.0
    assert wait_s(1, stated_s=1e12, chance=0.0) == 24 * HOUR_S
    assert wait_s(MOST_ATTEMPTS, stated_s=60.0, chance=0.0) is None
