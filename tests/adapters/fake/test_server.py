"""The server around the fake clouds: its own paths, its clock, its discretion, its end."""

import socket
import threading
import time
from typing import Any

import pytest
import requests

from sutler.adapters.fake.errors import FakeSetupError
from sutler.adapters.fake.market import Market
from sutler.adapters.fake.server import FakeCloud
from tests.adapters.fake.builders import CANARY, NIGHT_S, PLAYED, a_cloud, polled

NODES = "/api/public/v1/nodes"


def control(cloud: FakeCloud, method: str, path: str, body: Any = None) -> requests.Response:
    return requests.request(method, f"{cloud.base_url}/_fake/{path}", json=body, timeout=10)


def test_the_state_tells_what_is_truly_there() -> None:
    market = Market(seed=1, machines=300)
    with a_cloud() as cloud:
        state = control(cloud, "GET", "state").json()
    assert (state["at"], state["seed"], state["machines"]) == ("2026-11-24T03:00:00+00:00", 1, 300)
    counts = market.counts(NIGHT_S)["vastai"]["h100-sxm"]
    assert state["providers"]["vastai"]["h100-sxm"]["free_gpus"] == counts.free_gpus


def test_failures_are_set_listed_and_cleared_at_run_time() -> None:
    with a_cloud() as cloud:
        planned = control(cloud, "POST", "failures", {"provider": "lium", "kind": "http_503", "times": 3}).json()
        control(cloud, "POST", "failures", {"provider": "vastai", "kind": "hang"})
        assert planned == {"failures": [{"provider": "lium", "kind": "http_503", "times": 3}]}
        assert requests.get(cloud.base_url + NODES, timeout=10).status_code == 503
        assert control(cloud, "GET", "failures").json()["failures"][0]["times"] == 2
        control(cloud, "DELETE", "failures?provider=vastai")
        assert len(control(cloud, "GET", "failures").json()["failures"]) == 1
        assert control(cloud, "DELETE", "failures").json() == {"failures": []}
        assert requests.get(cloud.base_url + NODES, timeout=10).status_code == 200


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "body: must be a JSON object"),
        ({"kind": "hang"}, "provider: None must be text"),
        ({"provider": "lium"}, "kind: None must be text"),
        ({"provider": "lium", "kind": "hang", "times": "3"}, "times: '3' must be a whole number"),
        ({"provider": "nobody", "kind": "hang"}, "provider: 'nobody' must be one of"),
    ],
)
def test_a_failure_that_cannot_be_is_refused_at_run_time(body: Any, message: str) -> None:
    with a_cloud() as cloud:
        answer = control(cloud, "POST", "failures", body)
        assert answer.status_code == 422
        assert message in answer.json()["error"]
        assert control(cloud, "GET", "failures").json() == {"failures": []}


@pytest.mark.parametrize(("method", "path"), [("GET", "/nothing"), ("POST", "/_fake/state"), ("GET", "/_fake/other")])
def test_an_unknown_path_is_not_found(method: str, path: str) -> None:
    with a_cloud() as cloud:
        answer = requests.request(method, cloud.base_url + path, timeout=10)
    assert answer.status_code == 404
    assert path in answer.json()["error"]


def test_market_time_runs_as_fast_as_asked() -> None:
    wall = [NIGHT_S]
    cloud = FakeCloud(Market(machines=50), clock=lambda: wall[0], speed=60.0)
    assert cloud.now_s() == NIGHT_S
    wall[0] += 10.0
    assert cloud.now_s() == NIGHT_S + 600.0


@pytest.mark.parametrize("speed", [0.0, -1.0, float("nan"), 1e9])
def test_a_speed_that_cannot_be_is_refused(speed: float) -> None:
    with pytest.raises(FakeSetupError, match="speed: "):
        FakeCloud(Market(machines=50), speed=speed)


def test_a_market_ahead_of_its_caller_still_polls() -> None:
    with a_cloud(at_s=NIGHT_S + 5 * 365 * 86_400.0) as cloud:
        assert polled(cloud, "vastai").kept > 0


@pytest.mark.parametrize("name", PLAYED)
def test_neither_log_nor_record_holds_a_key(name: str) -> None:
    lines: list[str] = []
    with a_cloud(log=lines.append) as cloud:
        cloud.fail(name, "echo_key", times=1)
        polled(cloud, name)
        polled(cloud, name)
        requests.get(cloud.base_url + NODES, params={"api_key": CANARY}, timeout=10)
        seen = cloud.requests
    assert len(lines) == len(seen) > 2
    assert CANARY not in "".join([*lines, *seen])
    assert seen[-1] == f"GET {NODES}"


def test_a_client_can_ask_several_times_over_one_connection() -> None:
    with a_cloud() as cloud, requests.Session() as session:
        statuses = [session.get(cloud.base_url + NODES, timeout=10).status_code for _ in range(3)]
        with session.get(cloud.base_url + NODES, timeout=10, stream=True) as answer:
            assert answer.raw.version == 11
            answer.content  # noqa: B018
    assert statuses == [200, 200, 200]


def test_many_clients_at_once_all_get_answers() -> None:
    statuses: list[int] = []
    with a_cloud() as cloud:
        url = cloud.base_url + NODES
        clients = [
            threading.Thread(target=lambda: statuses.append(requests.get(url, timeout=10).status_code))
            for _ in range(16)
        ]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
    assert statuses == [200] * 16


@pytest.mark.parametrize("length", ["-1", "x", "99999999999", "1" * 5000])
def test_a_body_without_a_sensible_length_is_refused(length: str) -> None:
    with a_cloud() as cloud:
        host, port = cloud.base_url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(f"POST /graphql HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n".encode())
            assert connection.recv(1000).startswith(b"HTTP/1.1 411 ")


def test_a_target_that_is_no_path_is_refused() -> None:
    with a_cloud() as cloud:
        host, port = cloud.base_url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(1000).startswith(b"HTTP/1.1 400 ")


def test_closing_leaves_no_thread_even_while_requests_hang() -> None:
    before = set(threading.enumerate())
    cloud = a_cloud(drip_pause_s=30.0)
    cloud.start()
    url = cloud.base_url
    cloud.fail("lium", "hang")
    cloud.fail("lambda", "slow")
    clients = [
        threading.Thread(target=give_up_on, args=(url + path,)) for path in (NODES, "/api/v1/instance-types", "/idle")
    ]
    for client in clients:
        client.start()
    time.sleep(0.3)
    started_s = time.monotonic()
    cloud.close()
    took_s = time.monotonic() - started_s
    for client in clients:
        client.join()
    assert took_s < 5
    assert set(threading.enumerate()) == before


def give_up_on(url: str) -> None:
    with requests.Session() as session:
        try:
            session.get(url, timeout=20)
        except requests.exceptions.RequestException:
            return


def test_a_port_that_is_taken_is_an_os_error() -> None:
    with a_cloud() as cloud:
        port = int(cloud.base_url.rpartition(":")[2])
        second = a_cloud(port=port)
        with pytest.raises(OSError, match="in use"):
            second.start()
        second.close()


def test_a_cloud_that_does_not_run_has_no_address() -> None:
    with pytest.raises(FakeSetupError, match="does not run"):
        _ = a_cloud().base_url
