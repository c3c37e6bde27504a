"""RunPod's REST API v2 when requests fail, one of several or all: what is known stays, and nothing is made up."""

import pytest

from sutler.adapters import runpod
from tests.adapters.builders import KEY, ToldTime, a_poll
from tests.adapters.runpod_bodies import (
    A40,
    H200,
    L4,
    Catalog,
    covers,
    for_rent,
    list_prices,
    rest_poll,
    rest_poll_of,
    rest_row,
    up_to,
)
from tests.adapters.server import Reply, ScriptedServer, json_reply, text_reply

BUSY = json_reply({"title": "Too Many Requests", "status": 429}, 429, {"Retry-After": "300"})


def breaking_off(catalog: Catalog, *, at: int, reply: Reply = BUSY) -> Catalog:
    """`at`: the count for which there is a refusal instead."""
    return lambda cloud, count: reply if count == at else catalog(cloud, count)


def test_an_empty_catalogue_is_an_answer_in_which_nothing_was_read() -> None:
    found = rest_poll_of()
    assert (found.outcome, found.kept, found.requests) == ("ok", 0, 1)
    assert {coverage.rows_read for coverage in found.covered} == {0}


@pytest.mark.parametrize("body", [{}, {"gpus": None}, {"gpus": {"id": A40}}, [rest_row()], "gpus", 5, None])
def test_another_shape_is_a_failed_poll(body: object) -> None:
    with ScriptedServer([json_reply(body)]) as server:
        found = a_poll(server.base_url, runpod.PROVIDER)
    assert (found.outcome, found.offers, found.covered, found.requests) == ("bad_shape", (), (), 1)


def test_a_refused_key_names_the_setting() -> None:
    for status in (401, 403):
        found, _ = rest_poll(lambda _c, _n, status=status: json_reply({"title": "no", "detail": KEY}, status))  # type: ignore[misc]
        assert found.outcome == "auth_error"
        assert found.requests == 1
        assert "SUTLER_RUNPOD_API_KEY" in found.detail
        assert KEY not in found.detail


@pytest.mark.parametrize("status", [400, 422])
def test_a_refused_request_is_not_repeated(status: int) -> None:
    problem = {"title": "no", "status": status, "detail": "count: not in range", "errors": [{"field": "count"}]}
    found, _ = rest_poll(
        lambda _cloud, _count: json_reply(problem, status, {"Content-Type": "application/problem+json"})
    )
    assert (found.outcome, found.requests) == ("config_error", 1)
    assert "count: not in range" in found.detail


def test_the_longest_of_the_stated_waits_is_handed_back() -> None:
    windows = '"minute";r=0;t=9, "hour";r=0;t=1500, "day";r=7;t=40000'
    reply = json_reply({"title": "no"}, 429, {"Retry-After": "9", "RateLimit": windows})
    found, _ = rest_poll(lambda _cloud, _count: reply)
    assert (found.outcome, found.wait_s, found.wait_is_stated, found.requests) == ("retry", 1500.0, True, 1)


@pytest.mark.parametrize("count", [2, 4, 8])
def test_when_a_larger_count_fails_earlier_offers_are_neither_shrunk_nor_closed(count: int) -> None:
    found, _ = rest_poll(breaking_off(up_to({"EU-1": 8}), at=count))
    assert found.outcome == "partial"
    assert (found.wait_s, found.wait_is_stated) == (300.0, True)
    assert found.kept == 1
    assert for_rent(found) == {f"{A40}/secure/EU-1/at_least": count // 2}
    assert not covers(found, f"secure/{A40}/EU-1")
    assert covers(found, found.offers[0].feed)
    assert list_prices(found) == {f"{A40}/secure/list": 0.44}


def test_a_lower_bound_shares_its_machine_with_the_offer_that_it_may_understate() -> None:
    partial, _ = rest_poll(breaking_off(up_to({"EU-1": 8}), at=4))
    whole, _ = rest_poll(up_to({"EU-1": 8}))
    assert partial.offers[0].machine_id == whole.offers[0].machine_id
    assert covers(whole, partial.offers[0].feed)


def test_what_a_smaller_count_settles_is_known_though_a_larger_one_fails() -> None:
    rows = {1: "LOW", 2: "NONE"}

    def catalog(_cloud: str, count: int) -> list[object]:
        return [
            rest_row(A40, rows.get(count, "NONE"), "EU-1"),
            rest_row(L4, "NONE"),
            rest_row(H200, "LOW", "EU-1", "EU-2", maxCount={"secure": 2}),
            rest_row("NVIDIA L40", "LOW", "EU-1"),
        ]

    found, _ = rest_poll(breaking_off(catalog, at=4))
    assert for_rent(found) == {
        f"{A40}/secure/EU-1": 1,
        f"{H200}/secure/EU-1": 2,
        f"{H200}/secure/EU-2": 2,
        "NVIDIA L40/secure/EU-1/at_least": 2,
    }
    covered = {type_id: covers(found, f"secure/{type_id}/EU-9") for type_id in (A40, L4, H200, "NVIDIA L40")}
    assert covered == {A40: True, L4: True, H200: True, "NVIDIA L40": False}
    assert not covers(found, f"secure/{H200} NVL/EU-9")


def test_a_row_that_is_garbled_in_a_later_answer_leaves_its_size_open() -> None:
    found, _ = rest_poll(
        lambda _cloud, count: [rest_row(A40, "LOW", "EU-1", memory=48 if count == 1 else "?"), rest_row(L4, "LOW")]
    )
    assert for_rent(found) == {f"{A40}/secure/EU-1/at_least": 1, f"{L4}/secure": 8}
    assert not covers(found, f"secure/{A40}/EU-1")
    assert found.rejected_by_reason == {"bad_number": 1}


def test_a_garbled_row_beside_a_good_one_of_its_type_leaves_no_doubt() -> None:
    found = rest_poll_of(rest_row(A40, "LOW", "EU-1"), rest_row(A40, "LOW", "EU-1", price={"secure": 80_000}))
    assert for_rent(found) == {f"{A40}/secure/EU-1": 8}
    assert covers(found, f"secure/{A40}/EU-1")
    assert found.rejected_by_reason == {"price_too_high": 1}
    assert found.flags == {}


@pytest.mark.parametrize(
    "reply", [text_reply("<html>gateway</html>", 502), json_reply({"gpus": 1}), json_reply({"title": "no"}, 400)]
)
def test_a_second_cloud_that_fails_leaves_the_first_whole(reply: Reply) -> None:
    found, _ = rest_poll(
        lambda cloud, _count: [rest_row(A40, "LOW", "EU-1")] if cloud == "SECURE" else reply,
        clouds="SECURE,COMMUNITY",
    )
    assert found.outcome == "partial"
    assert for_rent(found) == {f"{A40}/secure/EU-1": 8}
    assert covers(found, f"secure/{A40}/EU-9")
    assert not covers(found, f"community/{A40}/EU-1")
    assert found.detail


def test_a_first_cloud_that_fails_is_a_failed_poll() -> None:
    found, _ = rest_poll(lambda _cloud, _count: BUSY, clouds="SECURE,COMMUNITY")
    assert (found.outcome, found.covered, found.requests) == ("retry", (), 1)


def test_a_spent_window_ends_the_questions_and_its_wait_is_handed_on() -> None:
    reply = json_reply({"gpus": [rest_row(A40, "LOW", "EU-1")]}, headers={"RateLimit": '"minute";r=0;t=31'})
    found, asked = rest_poll(lambda _cloud, _count: reply)
    assert asked == [("SECURE", 1)]
    assert (found.outcome, found.kept, found.wait_s, found.wait_is_stated) == ("partial", 1, 31.0, True)
    assert for_rent(found) == {f"{A40}/secure/EU-1/at_least": 1}


def test_a_window_that_is_spent_by_the_last_question_spoils_nothing() -> None:
    reply = json_reply({"gpus": [rest_row(A40, "NONE")]}, headers={"RateLimit": '"minute";r=0;t=31'})
    found, _ = rest_poll(lambda _cloud, _count: reply)
    assert (found.outcome, found.wait_s, found.wait_is_stated) == ("ok", 31.0, True)


def test_the_clients_own_backoff_is_not_the_clouds_wish() -> None:
    found, _ = rest_poll(breaking_off(up_to({"EU-1": 8}), at=2, reply=text_reply("<html>gateway</html>", 502)))
    assert (found.outcome, found.wait_s, found.wait_is_stated) == ("partial", 12.0, False)


def test_a_moment_of_trouble_is_survived() -> None:
    answers = [json_reply({}, 503), json_reply({"gpus": [rest_row(A40, "NONE")]})]
    time = ToldTime()
    with ScriptedServer(answers) as server:
        found = a_poll(server.base_url, runpod.PROVIDER, time=time)
    assert (found.outcome, found.requests) == ("ok", 2)
    assert len(time.slept) == 1


def test_an_unknown_cloud_or_api_is_a_setting_to_correct() -> None:
    with ScriptedServer([json_reply({"gpus": []})]) as server:
        for found in (
            a_poll(server.base_url, runpod.PROVIDER, clouds="SECURE,PRIVATE"),
            a_poll(server.base_url, runpod.PROVIDER, api="v1"),
        ):
            assert (found.outcome, found.requests) == ("config_error", 0)
