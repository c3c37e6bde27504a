"""Vast.ai: the searches of a poll, what they cover together, and what refusals mean."""

import pytest

from sutler.adapters.base import Coverage, Poll
from tests.adapters.builders import (
    DELETE,
    KEY,
    NOON_EPOCH_S,
    ToldTime,
    a_poll,
    prices,
    vast_poll,
    vast_row,
)
from tests.adapters.server import (
    Answer,
    Received,
    Reply,
    Script,
    ScriptedServer,
    json_reply,
    text_reply,
)


def market(*on_demand: object, bids: tuple[object, ...] = ()) -> Script:
    """A cloud that answers each search with its rows."""

    def answer(request: Received) -> Answer:
        return json_reply({"offers": list(bids if request.data["type"] == "bid" else on_demand)})

    return answer


def polled(
    *script: Script, time: ToldTime | None = None, contracts: str = "", hosts: str = ""
) -> tuple[Poll, ScriptedServer]:
    with ScriptedServer(script) as server:
        return a_poll(server.base_url, time=time, contracts=contracts, hosts=hosts), server


# Two searches in one poll


def test_a_poll_asks_once_per_contract_in_the_providers_words() -> None:
    time = ToldTime()
    found, server = polled(market(), time=time)
    assert (found.outcome, found.requests, time.slept) == ("ok", 2, [3.5])
    on_demand, bid = server.requests
    assert (on_demand.method, on_demand.target) == ("POST", "/api/v0/bundles/")
    assert on_demand.headers["authorization"] == f"Bearer {KEY}"
    assert on_demand.data == {
        "rentable": {"eq": True},
        "rented": {"eq": False},
        "verified": {"eq": True},
        "num_gpus": {"gte": 1},
        "type": "on-demand",
        "order": [["dph_total", "asc"]],
        "limit": 3000,
        "allocated_storage": 8.0,
    }
    assert bid.data == {**on_demand.data, "type": "bid"}


def test_hosts_that_are_not_verified_are_asked_for_where_the_operator_says_so() -> None:
    found, server = polled(market(vast_row(verification="unverified")), hosts="any")
    assert server.requests[0].data["verified"] == {"in": [True, False]}
    assert [offer.is_verified for offer in found.offers] == [False]


@pytest.mark.parametrize(
    ("contracts", "types"),
    [
        ("on_demand", ["on-demand"]),
        ("interruptible", ["bid"]),
        ("Interruptible, on_demand", ["on-demand", "bid"]),
        ("Spot", ["bid"]),
    ],
)
def test_the_contracts_that_are_asked_for_are_the_operators(contracts: str, types: list[str]) -> None:
    found, server = polled(market(vast_row(), bids=(vast_row(is_bid=True),)), contracts=contracts)
    assert [request.data["type"] for request in server.requests] == types
    assert len(found.covered) == len(types)


def test_contracts_share_ids_and_cards_and_are_two_offers() -> None:
    bid = vast_row(is_bid=True, dph_total=0.15)
    found, _ = polled(market(vast_row(), bids=(bid,)))
    assert prices(found) == {("501", "on_demand"): 0.332, ("501", "interruptible"): 0.15}
    assert found.kept == 2
    assert found.flags == {}
    assert [offer.feed for offer in found.offers] == ["on_demand", "interruptible"]
    assert {offer.gpu_ids for offer in found.offers} == {(60_001,)}
    assert found.covered == (Coverage("on_demand", None, 1), Coverage("interruptible", None, 1))


def test_a_row_that_does_not_say_its_contract_has_that_of_its_search() -> None:
    unsaid = {"is_bid": DELETE}
    found, _ = polled(market(vast_row(**unsaid), bids=(vast_row(dph_total=0.15, **unsaid),)))
    assert prices(found) == {("501", "on_demand"): 0.332, ("501", "interruptible"): 0.15}
    assert vast_poll(vast_row(is_bid="who knows"), contract="interruptible").offers[0].contract == "interruptible"


def test_a_bid_is_never_on_demand_wherever_it_comes() -> None:
    found, _ = polled(market(vast_row(1), vast_row(2, is_bid=True), bids=()))
    assert {offer.offer_id: offer.contract for offer in found.offers} == {"1": "on_demand", "2": "interruptible"}


def test_bids_in_a_search_for_on_demand_are_covered_where_no_search_asks_for_bids() -> None:
    rows = (vast_row(1, is_bid=True), vast_row(2, is_bid=True), vast_row(3), vast_row(4, is_bid=True, rented=True))
    found, _ = polled(market(*rows), contracts="on_demand")
    assert found.kept == 3
    assert found.covered == (Coverage("on_demand", None, 1), Coverage("interruptible", None, 3))
    all_searches, _ = polled(market(*rows))
    assert all_searches.covered == (Coverage("on_demand", None, 1), Coverage("interruptible", None, 3))


def test_a_configured_search_that_fails_is_not_made_up_for_by_the_other() -> None:
    found, _ = polled(market(vast_row(1), vast_row(2, is_bid=True)), text_reply("no", 400))
    assert (found.outcome, found.kept) == ("partial", 2)
    assert found.covered == (Coverage("on_demand", None, 1),)


def test_bids_alone_say_nothing_of_the_offers_on_demand() -> None:
    found, _ = polled(market(vast_row(1, is_bid=True), vast_row(2, is_bid=True)))
    assert found.covered == (Coverage("on_demand", None, 0), Coverage("interruptible", None, 2))


def test_a_cloud_that_answers_both_searches_alike_counts_each_row_once() -> None:
    rows = (vast_row(1), vast_row(2, rented=True), vast_row(3, dph_total="N/A"), vast_row(4, is_bid=True))
    found, _ = polled(market(*rows, bids=rows))
    assert found.kept == 2
    assert found.not_available == {"rented": 1}
    assert found.rejected_by_reason == {"bad_number": 1}
    assert [coverage.rows_read for coverage in found.covered] == [2, 1], "those of the contract"


def test_unreadable_rows_are_unread_in_both_searches() -> None:
    rows = (vast_row(1, dph_total="N/A"), vast_row(2, dph_total="N/A"))
    found, _ = polled(market(*rows, bids=rows))
    assert [coverage.rows_read for coverage in found.covered] == [0, 0]
    assert len(found.rejected) == 2


# Rules 1 and 2: answers that are none


def test_an_empty_market_is_an_answer() -> None:
    found, _ = polled(market())
    assert (found.outcome, found.kept, found.http_status) == ("ok", 0, 200)
    assert found.covered == (Coverage("on_demand", None, 0), Coverage("interruptible", None, 0))


@pytest.mark.parametrize(
    "data",
    [
        {"offers": {"id": 1}},
        {"offers": None},
        {"offers": "none"},
        {},
        {"success": True},
        [],
        [vast_row()],
        None,
        7,
        "x",
    ],
)
def test_an_answer_without_a_list_of_offers_is_a_bad_shape(data: object) -> None:
    found, server = polled(json_reply(data))
    assert (found.outcome, found.http_status, found.covered) == ("bad_shape", 200, ())
    assert "no list of offers" in found.detail
    assert len(server.requests) == 1, "another try would not help"


@pytest.mark.parametrize(
    ("reply", "outcome", "requests"),
    [
        (text_reply("<h1>Bad Gateway</h1>", 502), "retry", 3),
        (text_reply("API requests too frequent", 429), "retry", 3),
        (text_reply("<html>", 200), "bad_body", 3),
        (Reply(200, b'{"offers": [{"id": 5, ', {"Content-Type": "application/json"}), "bad_body", 3),
        (Reply(200, b"", {"Content-Type": "application/json"}), "bad_body", 3),
        (json_reply({"error": "invalid_request", "msg": "x is no search op"}, 400), "config_error", 1),
        (json_reply({"msg": "no such page"}, 404), "config_error", 1),
    ],
)
def test_a_failed_search_is_never_an_empty_market(reply: Reply, outcome: str, requests: int) -> None:
    found, server = polled(reply)
    assert (found.outcome, found.kept, found.covered, found.offers) == (outcome, 0, (), ())
    assert len(server.requests) == found.requests == requests


@pytest.mark.parametrize("status", [502, 429, 200])
def test_when_the_second_search_fails_the_first_still_counts(status: int) -> None:
    found, _ = polled(market(vast_row()), text_reply("busy", status))
    assert (found.outcome, found.kept, found.is_usable) == ("partial", 1, True)
    assert found.covered == (Coverage("on_demand", None, 1),)
    assert found.wait_s == pytest.approx(12.0)
    assert not found.wait_is_stated
    assert found.detail
    assert found.requests == 4


def test_when_the_first_search_fails_the_second_is_not_made() -> None:
    found, server = polled(text_reply("no", 400), market(vast_row()))
    assert (found.outcome, found.covered) == ("config_error", ())
    assert len(server.requests) == 1


# Rule 11: throttles, quotas, keys


def test_a_daily_quota_is_not_tried_again_before_its_reset() -> None:
    refusal = {"error": "search_quota_exceeded", "msg": "Daily search quota exceeded"}
    time = ToldTime(epoch_s=NOON_EPOCH_S + 100)
    found, server = polled(json_reply(refusal, 429), time=time)
    assert (found.outcome, found.http_status) == ("quota", 429)
    assert found.wait_s == 12 * 3600 - 100, "until midnight UTC"
    assert found.wait_is_stated
    assert len(server.requests) == 1
    stated = json_reply(refusal, 429, {"X-RateLimit-Reset": str(int(NOON_EPOCH_S) + 7200), "Retry-After": "5"})
    assert polled(stated)[0].wait_s == 7200.0
    passed = json_reply(refusal, 429, {"X-RateLimit-Reset": str(int(NOON_EPOCH_S) - 5)})
    assert polled(passed)[0].wait_s == 12 * 3600


def test_a_quota_that_ends_between_the_searches_leaves_a_part() -> None:
    refusal = json_reply({"error": "search_quota_exceeded"}, 429)
    found, server = polled(market(vast_row()), refusal)
    assert (found.outcome, found.kept) == ("partial", 1)
    assert found.wait_s is not None
    assert found.wait_s > 40_000
    assert found.wait_is_stated
    assert len(server.requests) == 2


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (401, {"error": "auth_error", "msg": "Invalid user key"}),
        (403, {"success": False, "msg": "Forbidden"}),
        (404, {"error": "auth_error", "msg": "Invalid user key"}),
        (404, {"success": False, "msg": "Invalid user key"}),
        (404, {"message": "Session expired. Please log in again."}),
        (400, {"error": "auth_error"}),
        (401, None),
    ],
)
def test_a_refused_key_is_told_from_no_offers(status: int, body: object) -> None:
    found, server = polled(json_reply(body, status))
    assert (found.outcome, found.http_status, found.covered, found.wait_s) == ("auth_error", status, (), None)
    assert "SUTLER_VASTAI_API_KEY" in found.detail
    assert len(server.requests) == 1


def test_a_good_answer_may_ask_for_a_longer_pause() -> None:
    reply = json_reply({"offers": [vast_row()]}, headers={"RateLimit": '"minute";r=0;t=55'})
    found, _ = polled(reply)
    assert (found.wait_s, found.wait_is_stated) == (55.0, True)


def test_what_an_answer_states_counts_before_the_clients_own_backoff() -> None:
    stated = json_reply({"offers": [vast_row()]}, headers={"RateLimit": '"minute";r=0;t=5'})
    found, _ = polled(stated, text_reply("busy", 502))
    assert (found.outcome, found.wait_s, found.wait_is_stated) == ("partial", 5.0, True)
