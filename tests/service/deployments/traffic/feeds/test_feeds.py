"""Feeds over HTTP: engines are read by the running service, and what they count is the deployment's traffic."""

import re
from collections.abc import Callable
from typing import Any

import pytest
import requests

from sutler.service.documents.examples import CHAT as ESTIMATED_CHAT
from tests.service.builders import CHAT
from tests.service.deployments.traffic.feeds.engines import Engine, Site
from tests.service.running import Running, until

Deployed = Callable[..., str]


def put(service: Running, name: str, *feeds: dict[str, Any]) -> dict[str, Any]:
    answer = service.put(f"/v1/deployments/{name}/feeds", {"feeds": list(feeds)})
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def get(service: Running, name: str) -> list[dict[str, Any]]:
    answer = service.get(f"/v1/deployments/{name}/feeds")
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["feeds"]
    return found


def traffic(service: Running, name: str) -> dict[str, Any]:
    [model] = service.get(f"/v1/deployments/{name}/traffic").json()["models"]
    found: dict[str, Any] = model
    return found


def reading(engine: Engine, **others: Any) -> dict[str, Any]:
    return {"model": "chat", "kind": "vllm", "urls": [engine.url], "every_s": 5, **others}


def was_read(service: Running, name: str, times: int, engine: Engine) -> None:
    until(lambda: engine.asked.count("/metrics") >= times and get(service, name)[0]["read_at"])


def remedies(answer: requests.Response) -> dict[str, str]:
    """By field."""
    assert answer.status_code == 422, answer.text
    return {error["field"]: error["remedy"] for error in answer.json()["errors"]}


def test_what_an_engine_counts_between_two_readings_is_the_traffic(
    service: Running, deployed: Deployed, engine: Engine
) -> None:
    name = deployed()
    engine.serve(1_000, input_tokens=400, output_tokens=150)  # before anybody looked
    put(service, name, reading(engine))
    was_read(service, name, 1, engine)
    assert traffic(service, name)["state"] == "never"
    engine.serve(300, input_tokens=480, output_tokens=210)
    found = until(lambda: traffic(service, name)["requests"] and traffic(service, name))
    assert found["requests"] == pytest.approx(300)
    [seen] = [workload for workload in found["workloads"] if workload["requests"]]
    assert (seen["input_tokens"], seen["output_tokens"]) == (pytest.approx(480), pytest.approx(210))
    assert found["latencies"]["ttft_p50_s"] == pytest.approx(0.175)
    assert found["latencies"]["ttft_p90_s_kept_fraction"] == 1.0  # all of them within 2 s
    told = until(lambda: re.findall(r"sutler_slo_attainment\{(.*)\} ([\d.]+)", service.get("/metrics").text))
    assert (f'deployment="{name}",limit="ttft_p90_s",model="chat"', "1.0") in told
    assert found["state"] in ("thin", "live")


@pytest.mark.slow
def test_several_engines_add_up_and_one_that_is_down_is_named(
    service: Running, deployed: Deployed, engine: Engine
) -> None:
    name = deployed()
    with Site() as other, Site() as down:
        down.engine.answer = (503, b"secret words of the engine")
        put(service, name, reading(engine, urls=[engine.url, other.engine.url, down.engine.url]))
        until(lambda: engine.asked and other.engine.asked and get(service, name)[0]["partial"])
        engine.serve(200, input_tokens=480, output_tokens=210)
        other.engine.serve(100, input_tokens=480, output_tokens=210)
        until(lambda: traffic(service, name)["requests"] == pytest.approx(300))
        [feed] = get(service, name)
        assert feed["error"] is None
        assert feed["partial"] == [{"url": f"{down.engine.url}/metrics", "error": "answers 503"}]


def test_a_feed_that_cannot_be_read_says_why_and_waits_longer(
    service: Running, deployed: Deployed, engine: Engine
) -> None:
    name = deployed()
    engine.answer = (200, b"<html>a login page</html>")
    put(service, name, reading(engine))
    feed = until(lambda: get(service, name)[0]["error"] and get(service, name)[0])
    assert "vLLM engine" in feed["error"]
    assert "login" not in feed["error"]
    assert feed["failures"] >= 1
    assert traffic(service, name)["state"] == "never"


@pytest.mark.slow
def test_a_restarted_engine_is_counted_from_zero(service: Running, deployed: Deployed, engine: Engine) -> None:
    name = deployed()
    engine.serve(5_000, input_tokens=480, output_tokens=210)
    put(service, name, reading(engine))
    was_read(service, name, 1, engine)
    engine.restart(began_s=engine.began_s + 500_000_000)
    engine.serve(120, input_tokens=480, output_tokens=210)
    until(lambda: traffic(service, name)["requests"] == pytest.approx(120))


def test_a_prometheus_is_asked_for_what_it_has_gathered(service: Running, deployed: Deployed, engine: Engine) -> None:
    name = deployed()
    engine.serve(240, input_tokens=480, output_tokens=210)
    feed = {
        "model": "chat",
        "kind": "prometheus",
        "url": engine.url,
        "selector": {"model_name": "chat"},
        "every_s": 5,
    }
    put(service, name, feed)
    found = until(lambda: traffic(service, name)["requests"] and traffic(service, name))
    assert found["rate_rps"] == pytest.approx(240 / 20)  # four times every_s
    [told] = get(service, name)
    assert (told["kind"], told["selector"], told["error"]) == ("prometheus", {"model_name": "chat"}, None)


def test_feeds_that_are_put_again_go_on_and_those_left_out_end(
    service: Running, deployed: Deployed, engine: Engine
) -> None:
    name = deployed()
    with Site() as other:
        put(service, name, reading(engine), reading(other.engine))
        was_read(service, name, 1, engine)
        read_at = get(service, name)[0]["read_at"]
        [kept] = put(service, name, reading(engine, every_s=6))["feeds"]
        assert (kept["read_at"] >= read_at, kept["every_s"]) == (True, 6)
    assert put(service, name)["feeds"] == []
    assert get(service, name) == []


def test_a_change_of_feeds_is_in_the_audit_log(service: Running, deployed: Deployed, engine: Engine) -> None:
    name = deployed()
    put(service, name, reading(engine))
    items = service.get("/v1/audit", params={"limit": 200}).json()["items"]
    [entry] = [item for item in items if item["action"] == "deployment.feeds" and name in item["target"]]
    assert entry["detail"] == {"feeds": 1, "urls": 1}


@pytest.mark.parametrize(
    ("feed", "field", "words"),
    [
        ({"model": "other"}, "feeds[0].model", "none of the deployment's models: chat"),
        ({"urls": ["http://10.0.0.1:8000"]}, "feeds[0].urls[0]", "SUTLER_OUTGOING_NETWORKS"),
        ({"urls": ["ftp://127.0.0.1/metrics"]}, "feeds[0].urls[0]", "http://"),
        ({"urls": ["http://me:word@127.0.0.1:8000"]}, "feeds[0].urls[0]", "password"),
        ({"urls": []}, "feeds[0].urls", "must not be empty"),
        ({"urls": None}, "feeds[0].urls", "is needed with kind vllm"),
        ({"url": "http://127.0.0.1:9090"}, "feeds[0].url", "does not belong to kind vllm"),
        ({"kind": "prometheus", "urls": None}, "feeds[0].url", "is needed with kind prometheus"),
        ({"every_s": 1}, "feeds[0].every_s", "5"),
    ],
)
def test_a_feed_that_cannot_be_meant_is_refused(
    service: Running, deployed: Deployed, feed: dict[str, Any], field: str, words: str
) -> None:
    body = {"feeds": [{"model": "chat", "kind": "vllm", "urls": ["http://127.0.0.1:8000"], **feed}]}
    refused = remedies(service.put(f"/v1/deployments/{deployed()}/feeds", body))
    assert words in refused[field]
    assert "word@" not in str(refused)


def test_the_same_url_twice_would_count_twice_and_is_refused(
    service: Running, deployed: Deployed, engine: Engine
) -> None:
    body = {"feeds": [reading(engine), reading(engine, urls=[f"{engine.url}/metrics"])]}
    refused = remedies(service.put(f"/v1/deployments/{deployed()}/feeds", body))
    assert "list it once" in refused["feeds[1].urls"]


@pytest.mark.slow
def test_a_model_that_is_gone_from_the_problem_is_said_by_its_feed(
    service: Running, deployed: Deployed, engine: Engine
) -> None:

    name = deployed()
    put(service, name, reading(engine))
    was_read(service, name, 1, engine)
    renamed = {**ESTIMATED_CHAT, "models": [{**CHAT["models"][0], "name": "chat-2"}]}
    version = service.get(f"/v1/deployments/{name}").headers["ETag"]
    answer = service.put(f"/v1/deployments/{name}", {"problem": renamed}, headers={"If-Match": version})
    assert answer.status_code == 200, answer.text
    feed = until(lambda: get(service, name)[0]["error"] and get(service, name)[0])
    assert "no model 'chat'" in feed["error"]
