"""The HTTP metrics and the access log: every request once, under its route, however it ends."""

import asyncio
import re
from collections.abc import Iterator

import pytest
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families
from starlette.requests import ClientDisconnect
from starlette.types import Message, Receive, Scope, Send

from sutler.service.operation.metrics_of_the_store import StoreMetrics, gauge, histogram
from sutler.service.web.access_log import AccessLog
from sutler.service.web.metrics import Metrics
from sutler.solver.version import VERSION
from tests.service.web.applications import AWAY, Served, a_scope, no_body, samples, value

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
UNITS = re.compile(r"_(ms|milliseconds|minutes|hours|days|kb|mb|percent|count|sum|bucket)(_|$)")
GATHERED = StoreMetrics(
    True,
    (
        gauge("sutler_plans", "Plans.", ("status",), {("queued",): 1.0, ('odd"\\\n',): 2.0}),
        histogram("sutler_solve_seconds", "Seconds.", (0.1, 1.0), (1, 2, 4), 12.5),
    ),
)


def families(content: bytes) -> list[Metric]:
    return list(text_string_to_metric_families(content.decode()))


def series(content: bytes) -> Iterator[str]:
    """Name and labels of every sample."""
    for line in content.decode().splitlines():
        if not line.startswith("#"):
            yield line.rsplit(" ", 1)[0]


# --- what is counted


def test_requests_are_counted_under_their_route(served: Served) -> None:
    for name in ("a", "b", "c/d"):
        served.ask("GET", f"/v1/things/{name}")
    served.ask("PUT", "/v1/things/a")
    assert served.requests() == {
        ("GET", "/v1/things/{name}", "200"): 3,
        ("PUT", "/v1/things/{name}", "200"): 1,
    }
    assert served.value("sutler_http_request_seconds_count", {"method": "GET", "route": "/v1/things/{name}"}) == 3


def test_paths_that_nobody_serves_are_one_route(served: Served) -> None:
    for number in range(50):
        served.ask("GET", f"/nowhere/{number}")
    assert served.requests() == {("GET", "unmatched", "404"): 50}


def test_a_wrong_method_is_counted_under_the_route(served: Served) -> None:
    served.ask("POST", "/v1/things/a")
    assert served.requests() == {("POST", "/v1/things/{name}", "405"): 1}


def test_methods_that_callers_make_up_are_one(served: Served) -> None:
    for method in ("BREW", "PROPFIND", "X" * 500, "GET\x1b[31m"):
        asyncio.run(called(served, a_scope(method, "/healthz")))
    assert served.requests() == {("OTHER", "/healthz", "405"): 4}


def test_a_defect_is_counted_as_500_and_logged_with_its_request(served: Served) -> None:
    answer = served.ask("POST", "/v1/things/broken", headers={"X-Request-ID": "r-7"})
    assert answer.status_code == 500
    assert served.requests() == {("POST", "/v1/things/broken", "500"): 1}
    defect, access = served.lines()
    assert "ZeroDivisionError: a defect" in defect["exception"]
    assert "sutler_ab12_***" in defect["exception"]
    assert "\x1b" not in defect["exception"]
    assert (defect["level"], defect["request_id"]) == ("error", "r-7")
    assert (access["level"], access["request_id"], access["status"]) == ("warning", "r-7", 500)


def test_a_streamed_answer_is_counted_once_with_all_its_bytes(served: Served) -> None:
    assert served.ask("DELETE", "/v1/things/streamed").content == b"12345" * 3
    assert served.requests() == {("DELETE", "/v1/things/streamed", "200"): 1}
    (line,) = served.lines("sutler.access")
    assert (line["bytes"], line["status"]) == (15, 200)


def test_an_answer_that_breaks_off_by_our_fault_is_counted_once_as_500(served: Served) -> None:
    served.ask("DELETE", "/v1/things/cut")
    assert served.requests() == {("DELETE", "/v1/things/cut", "500"): 1}
    (line,) = served.lines("sutler.access")
    assert (line["level"], line["is_cut_off"], line["bytes"]) == ("warning", True, 5)


def test_a_client_that_leaves_in_the_middle_of_an_answer_is_counted_once(served: Served) -> None:
    sent: list[Message] = []

    async def leaving(message: Message) -> None:
        sent.append(message)
        if len(sent) == 2:
            raise OSError("the client is gone")

    with pytest.raises(ClientDisconnect):
        asyncio.run(called(served, a_scope("DELETE", "/v1/things/streamed"), send=leaving))
    assert served.requests() == {("DELETE", "/v1/things/streamed", "200"): 1}
    (line,) = served.lines("sutler.access")
    assert (line["is_cut_off"], line["level"]) == (True, "info")


def test_a_client_that_leaves_before_the_answer_is_counted_as_499(served: Served) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        raise ClientDisconnect

    async def ask() -> None:
        await AccessLog(app, served.app)(a_scope("POST", "/v1/things/a"), no_body, swallow)

    with pytest.raises(ClientDisconnect):
        asyncio.run(ask())
    assert served.requests() == {("POST", "unmatched", "499"): 1}


def test_a_request_that_is_cancelled_is_counted_once_as_499(served: Served) -> None:
    async def ask_and_leave() -> float:
        asking = asyncio.ensure_future(served.asked("PATCH", "/v1/things/endless"))
        while not served.value("sutler_http_requests_in_progress"):
            await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait({asking})
        return served.value("sutler_http_requests_in_progress")

    assert asyncio.run(ask_and_leave()) == 0
    assert served.requests() == {("PATCH", "/v1/things/endless", "499"): 1}


def test_requests_under_way_are_a_gauge_that_returns_to_nothing(served: Served) -> None:
    for path in ("/v1/things/broken", "/v1/things/a"):
        served.ask("POST", path)
    assert served.value("sutler_http_requests_in_progress") == 0


def test_only_requests_that_wait_are_long_polls() -> None:
    metrics = Metrics()
    with metrics.long_poll(0.0), metrics.long_poll(30.0), metrics.long_poll(5.0):
        assert value(samples(metrics), "sutler_long_polls_in_progress") == 2
    assert value(samples(metrics), "sutler_long_polls_in_progress") == 0


def test_two_processes_worth_of_metrics_do_not_share_a_registry() -> None:
    one, other = Metrics(), Metrics()
    one.request_began()
    assert value(samples(other), "sutler_http_requests_in_progress") == 0


# --- the access log


def test_a_change_is_logged_with_who_made_it(served: Served) -> None:
    served.ask("PUT", "/v1/things/a b?key=secret", headers={"X-Request-ID": "r-1"})
    (line,) = served.lines()
    assert line.pop("seconds") >= 0
    del line["at"]
    assert line == {
        "level": "info",
        "logger": "sutler.access",
        "message": "PUT /v1/things/{name} 200",
        "request_id": "r-1",
        "method": "PUT",
        "route": "/v1/things/{name}",
        "path": "/v1/things/a b",
        "status": 200,
        "bytes": 5,
        "actor": "key/ab12",
    }


@pytest.mark.parametrize(
    ("method", "path", "level"),
    [
        ("GET", "/v1/things/a", "debug"),
        ("GET", "/healthz", "debug"),
        ("POST", "/healthz", "debug"),
        ("GET", "/nowhere", "debug"),
        ("PUT", "/v1/things/a", "info"),
        ("POST", "/v1/things/a", "info"),
        ("POST", "/v1/things/broken", "warning"),
    ],
)
def test_reads_are_quiet_and_changes_and_failures_are_not(served: Served, method: str, path: str, level: str) -> None:
    served.ask(method, path)
    assert [line["level"] for line in served.lines("sutler.access")] == [level]


@pytest.mark.parametrize("status", [401, 403])
def test_callers_that_were_refused_are_logged_even_when_they_only_read(served: Served, status: int) -> None:
    async def refusing(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    asyncio.run(AccessLog(refusing, served.app)(a_scope("GET", "/v1/plans"), no_body, swallow))
    assert [line["level"] for line in served.lines()] == ["info"]


@pytest.mark.parametrize(
    "path",
    [
        "/a\n2026 ERROR forged",
        "/\x1b[2J",
        "/" + "x" * 100_000,
        "/\udcff\ud800",
        "/\u202e",
        "/sutler_ab12_AAAABBBBCCCC",
    ],
)
def test_paths_cannot_break_the_log(served: Served, path: str) -> None:
    asyncio.run(called(served, a_scope("PUT", path)))
    assert len(served.log.getvalue().splitlines()) == 1
    (line,) = served.lines()
    assert line["path"].isprintable()
    assert len(line["path"]) < 5_000
    assert "AAAA" not in line["path"]


def test_what_is_no_request_is_neither_counted_nor_logged(served: Served) -> None:
    async def inner(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "lifespan.startup.complete"})

    sent: list[Message] = []

    async def keep(message: Message) -> None:
        sent.append(message)

    asyncio.run(AccessLog(inner, served.app)({"type": "lifespan"}, no_body, keep))
    assert [message["type"] for message in sent] == ["lifespan.startup.complete"]
    assert served.requests() == {}
    assert served.lines() == []


# --- the exposition


def test_a_scrape_is_prometheus_text_unless_openmetrics_is_asked_for() -> None:
    metrics = Metrics()
    content, media_type = metrics.text(GATHERED)
    assert media_type.startswith("text/plain; version=0.0.4")
    assert len(families(content)) > 5
    content, media_type = metrics.text(GATHERED, accept=f"{OPENMETRICS},text/plain;q=0.5")
    assert media_type.startswith("application/openmetrics-text; version=1.0.0")
    names = {family.name for family in openmetrics_families(content.decode())}  # type: ignore[no-untyped-call]
    assert {"sutler_http_requests", "sutler_plans", "sutler_solve_seconds", "sutler_database_up"} <= names


@pytest.mark.parametrize("accept", ["", "*/*", "application/openmetrics-text; version=x", ";;,=,", "\x00"])
def test_any_accept_header_gets_a_scrape(accept: str) -> None:
    content, media_type = Metrics().text(GATHERED, accept=accept)
    assert b"sutler_build_info" in content
    assert "text" in media_type


def test_every_series_is_there_once(served: Served) -> None:
    for path in ("/v1/things/a", "/nowhere", "/healthz"):
        served.ask("GET", path)
    content, _ = served.metrics.text(GATHERED)
    found = list(series(content))
    assert len(found) == len(set(found))
    names = [family.name for family in families(content)]
    assert len(names) == len(set(names))


def test_metrics_are_named_as_prometheus_advises(served: Served) -> None:
    served.ask("GET", "/healthz")
    content, _ = served.metrics.text(GATHERED)
    ours = [family for family in families(content) if family.name.startswith("sutler_")]
    assert len(ours) >= 6
    assert [family.name for family in ours if misnamed(family)] == []
    assert [family.name for family in ours if not family.documentation.endswith(".")] == []


def misnamed(family: Metric) -> bool:
    """Counters, and only they, end in _total; base units only; nothing that the library itself appends."""
    counts = any(sample.name.endswith("_total") for sample in family.samples)
    return counts != (family.type == "counter") or UNITS.search(family.name) is not None


@pytest.mark.parametrize(
    ("name", "kind"),
    [("sutler_wait_ms", "gauge"), ("sutler_wait_minutes", "gauge"), ("sutler_plan_count", "gauge")],
)
def test_the_naming_rule_sees_what_breaks_it(name: str, kind: str) -> None:
    assert misnamed(Metric(name, "x.", kind))


def test_a_gauge_that_ends_in_total_breaks_the_naming_rule() -> None:
    broken = Metric("sutler_plans_total", "x.", "gauge")
    broken.add_sample("sutler_plans_total", {}, 1.0)
    assert misnamed(broken)


def test_a_scrape_names_the_version_and_the_process() -> None:
    found = samples(Metrics())
    assert value(found, "sutler_build_info", {"version": VERSION}) == 1
    assert value(found, "process_resident_memory_bytes") > 0
    assert any(sample.name == "python_info" for sample in found)


def test_without_the_database_a_scrape_says_so_and_what_this_process_knows(served: Served) -> None:
    served.ask("GET", "/healthz")
    found = samples(served.metrics, AWAY)
    assert value(found, "sutler_database_up") == 0
    assert value(found, "sutler_http_requests_total", {"method": "GET", "route": "/healthz", "status": "200"}) == 1
    assert not any(sample.name.startswith("sutler_plans") for sample in found)


def test_odd_labels_come_back_as_they_went_in() -> None:
    found = samples(Metrics(), GATHERED)
    assert value(found, "sutler_plans", {"status": 'odd"\\\n'}) == 2


async def called(served: Served, scope: Scope, *, send: Send | None = None) -> None:
    """Without a client between: scopes that no client would send."""
    await served.stack(scope, no_body, send or swallow)


async def swallow(message: Message) -> None:
    assert message["type"].startswith("http.response")
