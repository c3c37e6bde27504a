"""Vast.ai: an answer that was cut at its limit is asked for again in parts, and what that says of the market."""

from collections.abc import Callable
from typing import Any

import pytest

from sutler.adapters import vastai, vastai_searches
from sutler.adapters.base import Coverage, Poll, PriceBand
from sutler.adapters.vastai_searches import MOST_OFFERS, SearchAnswer
from tests.adapters.builders import NOON_EPOCH_S, ToldTime, a_poll, vast_poll, vast_row
from tests.adapters.fake.builders import a_cloud
from tests.adapters.fake.builders import polled as polled_fake
from tests.adapters.server import Answer, Received, ScriptedServer, json_reply, text_reply

REST_OF_FIVE = {"notin": [1, 2, 4, 8]}
Rows = list[dict[str, Any]]
OPERATORS: dict[str, Callable[[int, Any], bool]] = {
    "gte": lambda gpus, least: gpus >= least,
    "eq": lambda gpus, wanted: gpus == wanted,
    "notin": lambda gpus, others: gpus not in others,
}


def sized(offer_id: int, gpus: int, usd_per_hour: float, **changes: Any) -> dict[str, Any]:
    cards = [8 * offer_id + card for card in range(gpus)]
    return vast_row(offer_id, machine_id=offer_id, num_gpus=gpus, gpu_ids=cards, dph_total=usd_per_hour, **changes)


def sizes_of(*counts: int, start: int = 0) -> Rows:
    """As many offers with 1, 2, 3... GPUs as said, in the order of their prices."""
    sizes = [gpus for gpus, count in enumerate(counts, 1) for _ in range(count)]
    return [sized(start + i, gpus, 0.5 * gpus + i / 10_000) for i, gpus in enumerate(sizes)]


def cut_at_the_limit(rows: Rows, request: Received) -> Rows:
    """What a cloud answers that knows the filter on the number of GPUs, cheapest first."""
    ((name, wanted),) = request.data["num_gpus"].items()
    found = [row for row in rows if OPERATORS[name](row["num_gpus"], wanted)]
    return sorted(found, key=lambda row: float(row["dph_total"]))[: request.data["limit"]]


def polled(
    answer: Callable[[Received], Answer], *, time: ToldTime | None = None, contracts: str = "on_demand"
) -> tuple[Poll, list[Any]]:
    """The poll, and the numbers of GPUs that were asked for."""
    with ScriptedServer(answer) as server:
        found = a_poll(server.base_url, time=time, contracts=contracts)
    return found, [request.data["num_gpus"] for request in server.requests]


def market(rows: Rows) -> Callable[[Received], Answer]:
    return lambda request: json_reply({"offers": cut_at_the_limit(rows, request)})


@pytest.mark.slow
def test_a_cut_search_is_made_again_by_the_number_of_gpus_and_then_nothing_is_cut() -> None:
    time = ToldTime()
    rows = sizes_of(1500, 1000, 400, 300, 0, 0, 0, 200)
    found, asked = polled(market(rows), time=time)
    assert asked == [{"gte": 1}, {"eq": 1}, {"eq": 2}, {"eq": 4}, {"eq": 8}, REST_OF_FIVE]
    assert time.slept == [3.5] * 5
    assert (found.outcome, found.kept, found.flags, found.requests) == ("ok", 3400, {}, 6)
    assert found.covered == (Coverage("on_demand", None, 3400),)


@pytest.mark.slow
def test_both_searches_share_six_further_ones() -> None:
    rows = sizes_of(1500, 1000, 400, 300)
    bids = [{**row, "is_bid": True} for row in rows]
    found, asked = polled(
        lambda request: market(bids if request.data["type"] == "bid" else rows)(request), contracts=""
    )
    assert asked == [{"gte": 1}, {"gte": 1}, *2 * [{"eq": 1}, {"eq": 2}, {"notin": [1, 2]}]]
    assert (found.outcome, found.kept, found.flags) == ("ok", 6400, {})
    assert found.covered == (Coverage("on_demand", None, 3200), Coverage("interruptible", None, 3200))


def test_a_part_that_is_cut_again_is_flagged_and_the_poll_speaks_of_what_is_cheaper() -> None:
    found, _ = polled(market(sizes_of(3500, 10)))
    assert (found.outcome, found.kept, found.flags) == ("ok", 3010, {"maybe_cut": 1})
    (coverage,) = found.covered
    assert coverage.up_to_usd_per_hour == pytest.approx(0.5 + (MOST_OFFERS - 2) / 10_000)
    assert coverage.rows_read == 3010


def test_of_several_cut_parts_the_least_certain_counts() -> None:
    found, _ = polled(market(sizes_of(3500, 3500)))
    (coverage,) = found.covered
    assert (found.kept, found.flags) == (6000, {"maybe_cut": 1})
    assert coverage.up_to_usd_per_hour == pytest.approx(0.5 + (MOST_OFFERS - 2) / 10_000)


@pytest.mark.slow
@pytest.mark.parametrize("contracts", ["on_demand", "on_demand,interruptible"])
@pytest.mark.parametrize("new_rows", [0, MOST_OFFERS])
def test_a_cloud_that_always_answers_with_as_many_as_it_may_ends_in_time(contracts: str, new_rows: int) -> None:
    time = ToldTime()
    answers: list[Rows] = []

    def answer(request: Received) -> Answer:
        start = new_rows * len(answers)
        answers.append([sized(start + i, 1, 0.5 + i / 10_000) for i in range(request.data["limit"])])
        return json_reply({"offers": answers[-1]})

    found, asked = polled(answer, time=time, contracts=contracts)
    assert (found.outcome, found.flags["maybe_cut"]) == ("ok", 1)
    assert found.kept == len({row["id"] for rows in answers for row in rows})
    assert len(asked) == (6 if contracts == "on_demand" else 8)
    assert sum(time.slept) < 30.0


def test_further_searches_end_where_the_time_of_the_poll_does() -> None:
    time = ToldTime()
    rows = sizes_of(1500, 1000, 400, 300, 0, 0, 0, 200)

    def slowly(request: Received) -> Answer:
        time.pass_s(7.0)
        return market(rows)(request)

    found, asked = polled(slowly, time=time)
    assert asked == [{"gte": 1}, {"eq": 1}, {"eq": 2}, {"eq": 4}]
    assert (found.outcome, found.wait_s) == ("ok", None)
    assert (found.kept, found.flags) == (3200, {"maybe_cut": 1}), "what was not asked for again came the first time"


def test_a_further_search_that_fails_leaves_what_was_found() -> None:
    rows = sizes_of(3500)

    def answer(request: Received) -> Answer:
        return text_reply("no", 400) if request.data["num_gpus"] == {"eq": 2} else market(rows)(request)

    found, asked = polled(answer)
    assert asked == [{"gte": 1}, {"eq": 1}, {"eq": 2}]
    assert (found.outcome, found.kept, found.flags) == ("partial", MOST_OFFERS, {"maybe_cut": 1})
    assert found.covered[0].up_to_usd_per_hour == pytest.approx(0.5 + (MOST_OFFERS - 2) / 10_000)
    assert found.detail


def test_a_cloud_that_asks_for_patience_is_not_searched_further() -> None:
    rows = sizes_of(3500)
    spent = {"RateLimit": '"minute";r=0;t=55'}
    found, asked = polled(lambda request: json_reply({"offers": cut_at_the_limit(rows, request)}, headers=spent))
    assert asked == [{"gte": 1}]
    assert (found.outcome, found.flags, found.wait_s) == ("ok", {"maybe_cut": 1}, 55.0)


def test_what_changes_between_the_searches_is_told_as_it_was_last() -> None:
    rows = sizes_of(1500, 1500)
    first = [*rows, {**vast_row(9_000), "num_gpus": "?"}]
    then = [{**row, "dph_total": 0.9} if row["id"] == 7 else row for row in rows if row["id"] != 8]

    def answer(request: Received) -> Answer:
        is_first = request.data["num_gpus"] == {"gte": 1}
        return json_reply({"offers": first if is_first else cut_at_the_limit(then, request)})

    found, _ = polled(answer)
    prices = {offer.offer_id: offer.price_usd_per_hour for offer in found.offers}
    assert (found.kept, prices["7"], "8" in prices) == (2999, 0.9, False)
    assert found.flags == {}, "a price that changed is no conflict"
    assert found.rejected_by_reason == {"bad_number": 1}, "a row of no size is in no part"


def test_a_price_that_changed_before_a_part_that_is_cut_again_is_no_conflict() -> None:
    first = sizes_of(3500)
    then = [{**row, "dph_total": 0.4} if row["id"] == 7 else row for row in first]

    def answer(request: Received) -> Answer:
        is_first = request.data["num_gpus"] == {"gte": 1}
        return json_reply({"offers": cut_at_the_limit(first if is_first else then, request)})

    found, _ = polled(answer)
    assert {offer.offer_id: offer.price_usd_per_hour for offer in found.offers}["7"] == 0.4
    assert found.flags == {"maybe_cut": 1}


def test_a_part_that_is_empty_where_there_was_something_is_not_believed() -> None:
    rows = sizes_of(1500, 1500, 500)

    def answer(request: Received) -> Answer:
        return json_reply(
            {"offers": [] if request.data["num_gpus"] == {"eq": 1} else cut_at_the_limit(rows, request)}
        )

    found, _ = polled(answer)
    assert (found.kept, found.flags) == (3500, {"maybe_cut": 1})
    assert found.covered[0].up_to_usd_per_hour is not None


def rows_at(*prices: float) -> Rows:
    return [vast_row(i, machine_id=i, gpu_ids=[i], dph_total=price) for i, price in enumerate(prices)]


def test_an_answer_below_its_limit_is_whole() -> None:
    found, asked = polled(market(rows_at(*[0.4] * (MOST_OFFERS - 1))))
    assert asked == [{"gte": 1}]
    assert found.flags == {}
    assert found.covered == (Coverage("on_demand", None, MOST_OFFERS - 1),)


@pytest.mark.parametrize(
    ("prices", "up_to"),
    [
        ((0.2, 0.3, 0.4), 0.3),
        ((0.2, 0.4, 0.4), 0.2),
        ((0.4, 0.4, 0.4), 0.0),
        ((0.2, 0.4, 0.3), 0.2),
        ((0.2, 0.3, 0.3, 0.5, 0.4, 0.6, 0.7), 0.3),
        ((0.5, 0.4, 0.3, 0.2), 0.0),
        ((0.1, 0.2, 0.9, 0.4, 0.5, 0.3), 0.2),
        ((0.2, 0.3, 900.0), 0.3),
        ((), 0.0),
    ],
)
def test_a_cut_answer_is_certain_below_its_dearest_price_as_far_as_it_is_in_order(
    prices: tuple[float, ...], up_to: float
) -> None:
    found = vast_poll(*rows_at(*prices), is_cut=True)
    assert found.covered[0].up_to_usd_per_hour == up_to


def test_unreadable_totals_do_not_widen_what_a_cut_answer_is_certain_of() -> None:
    rows = rows_at(0.2, 0.3, 0.4)
    odd = [vast_row(90, dph_total=None), vast_row(91, dph_total="N/A"), "no row"]
    assert vast_poll(*rows[:2], *odd, rows[2], *odd, is_cut=True).covered[0].up_to_usd_per_hour == 0.3


def test_only_the_search_that_was_cut_is_limited() -> None:
    searches = [SearchAnswer("on_demand", tuple(rows_at(0.2, 0.4)), True), SearchAnswer("interruptible", (), False)]
    found = vastai.parse(searches, price_band=PriceBand(), now_s=NOON_EPOCH_S)
    assert found.covered == (Coverage("on_demand", 0.2, 2), Coverage("interruptible", None, 0))


def test_the_fake_cloud_understands_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    with a_cloud(machines=400) as cloud:
        everything = polled_fake(cloud, "vastai", contracts="on_demand")
        monkeypatch.setattr(vastai_searches, "MOST_OFFERS", everything.kept - 1)
        in_parts = polled_fake(cloud, "vastai", contracts="on_demand")
    assert (in_parts.requests, in_parts.flags) == (6, {})
    assert {offer.key for offer in in_parts.offers} == {offer.key for offer in everything.offers}
    assert in_parts.covered == everything.covered
