"""A deployment whose engines are real: traffic read from them, requests sent as the router file says, and a plan that
changes when more is asked and when an engine dies."""

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.engine.beside import LENGTHS, MIX, problem, sutler
from tests.engine.serving import Server, started, wait_until_up
from tests.service.running import Running, serving, settings, until

NAME: Final = "tiny"
WINDOW_S: Final = 20
REQUESTS: Final = 110  # chosen: traffic is judged by 100
SENT_RPS: Final = 2.0
CARRIED_RPS: Final = 1.4  # by one core
PLANNED_RPS: Final = 0.8


def _problem(model: Path, calibration: Mapping[str, Any], full_rps: float) -> dict[str, Any]:
    """One core for what is planned, two for twice as much: little of what a core could do, `full_rps`, is counted on,
    since this machine is also busy with everything else."""
    asked = problem(model)
    (served,) = asked["models"]
    whole = sum(MIX.values())
    for workload in served["workloads"]:
        workload["rate_rps"] = PLANNED_RPS * MIX[workload["name"]] / whole
    offers = asked["market"]["offers"]["offers"]
    asked["market"]["offers"]["offers"] = [{**offers[0], "offer_id": f"core-{i}"} for i in range(4)]
    return {
        **{name: value for name, value in asked.items() if name != "budget_usd_per_hour"},
        "objective": {"kind": "min_cost"},
        "limits": {"max_utilisation_fraction": min(1.0, CARRIED_RPS / full_rps)},
        "throughput": {"calibration": calibration},
    }


class Site:
    """A service with the deployment, and what is asked of it."""

    def __init__(self, api: Running, folder: Path) -> None:
        self._api, self._folder = api, folder

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        answer = self._api.ask(method, f"/v1/deployments{path}", **({} if body is None else {"json": body}))
        assert answer.ok, f"{method} {path}: {answer.text}"
        return answer.json() if answer.content else None

    def plan(self, revision: int) -> Path:
        """The file of the plan that holds, once it is of this revision at least."""

        def newest() -> Any:
            answer = self._api.ask("GET", f"/v1/deployments/{NAME}/plan")
            return answer.json() if answer.ok and answer.json()["revision"] >= revision else None

        path = self._folder / f"revision-{revision}.json"
        path.write_text(json.dumps(until(newest)))
        return path

    def carry_out(self, plan: Path, servers: dict[str, Server], stack: ExitStack) -> None:
        """Starts what does not run yet of the plan, by its exported scripts, and says so."""
        for name, host in _replicas(_router(plan, self._folder)).items():
            if name not in servers:
                servers[name] = stack.enter_context(started(plan, self._folder, machine=host))
        for server in servers.values():
            wait_until_up(server)
        revision = json.loads(plan.read_text())["revision"]
        self.ask("POST", f"/{NAME}/holdings/ack", {"revision": revision})

    def holds(self, rentals: list[dict[str, Any]]) -> None:
        """Says that these are rented, and nothing else."""
        named = ("provider", "offer_id", "gpu", "gpus", "contract", "price_usd_per_hour")
        self.ask("PUT", f"/{NAME}/holdings", [{key: rental[key] for key in named} for rental in rentals])

    def read(self, servers: Mapping[str, Server]) -> None:
        """Has these engines' metrics read; returns once they were read for the first time."""
        urls = [server.url for server in servers.values()]
        self.ask("PUT", f"/{NAME}/feeds", {"feeds": [{"model": "tiny", "kind": "vllm", "urls": urls, "every_s": 5}]})

        def are_read() -> bool:
            feeds = self.ask("GET", f"/{NAME}/feeds")["feeds"]
            return all(one["read_at"] and not one["error"] and not one["partial"] for one in feeds)

        until(are_read)

    def saw(self, sent: Counter[tuple[str, str]]) -> Iterator[tuple[bool, str]]:
        """Whether the traffic that was read is what was sent."""

        def whole() -> Any:
            (model,) = self.ask("GET", f"/{NAME}/traffic")["models"]
            return model if model["requests"] >= sent.total() - 0.5 else None

        model = until(whole)
        yield (
            abs(model["requests"] - sent.total()) < 0.5,
            f"{model['requests']:.1f} requests read of {sent.total()} sent",
        )
        for one in model["workloads"]:
            true = sum(count for (name, _), count in sent.items() if name == one["workload"])
            near = all(
                abs(one[f"{which}_tokens"] / tokens - 1) < 0.02
                for which, tokens in zip(("input", "output"), LENGTHS[one["workload"]], strict=True)
            )
            tokens = f"{one['input_tokens']:.1f} + {one['output_tokens']:.1f} tokens"
            yield near, f"{one['workload']}: {one['requests']:.1f} of {true} requests, {tokens}"

    def decided(self, kind: str) -> str:
        """The newest revision that was made for such a drift, once there is one: its number and why it was made."""

        def made() -> Any:
            decisions = self.ask("GET", f"/{NAME}/decisions")["items"]
            return [
                one for one in decisions if one["revision"] and kind in {drift["kind"] for drift in one["drifts"]}
            ]

        decision = until(made)[0]
        drifts = "; ".join(f"{one['kind']}: {one['detail']}" for one in decision["drifts"])
        return f"revision {decision['revision']}: {drifts}: {decision['reason']}"


def _router(plan: Path, folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(sutler("export", plan, "-f", "router", folder=folder))
    return found


def send(
    router: Mapping[str, Any], servers: Mapping[str, Server], *, count: int, seed: int
) -> Counter[tuple[str, str]]:
    """Sends the mix at random, each request to a replica drawn by the router's weights; every answer is
    awaited and has the tokens that were asked for. Returns how many of each workload went to each replica."""
    draw = Random(seed)
    weights = router["weights"]["tiny"]
    to = []
    with ThreadPoolExecutor(64) as pool:
        waiting = []
        for number in range(count):
            (name,) = draw.choices(list(MIX), list(MIX.values()))
            (replica,) = draw.choices(list(weights[name]), list(weights[name].values()))
            to.append((name, replica))
            waiting.append((name, pool.submit(servers[replica].complete, name, 1000 * seed + number)))
            time.sleep(draw.expovariate(SENT_RPS))
        for name, one in waiting:
            assert one.result() == LENGTHS[name][1]
    return Counter(to)


def show(model: Path, calibration: Mapping[str, Any], full_rps: float, folder: Path) -> Iterator[tuple[bool, str]]:
    """A deployment's life; yields whether each thing that was shown held, and what it was."""
    environment = settings(folder, SUTLER_OUTGOING_NETWORKS="127.0.0.0/8")
    with ExitStack() as stack:
        site = Site(stack.enter_context(serving(folder, environment)), folder)
        policy = {"window_s": WINDOW_S, "lead_quantile": None, "cooldown_s": 0, "startup_s": 10}
        site.ask("PUT", f"/{NAME}", {"problem": _problem(model, calibration, full_rps), "policy": policy})
        first = site.plan(1)
        servers: dict[str, Server] = {}
        site.carry_out(first, servers, stack)
        yield len(servers) == 1, "the first plan rents one core; its exported script starts vLLM, which answers"
        site.read(servers)
        sent = send(_router(first, folder), servers, count=REQUESTS, seed=1)
        yield from site.saw(sent)
        second = site.plan(2)
        yield True, site.decided("rate")
        site.carry_out(second, servers, stack)
        yield len(servers) > 1, f"it rents {len(servers)} cores, whose scripts start vLLM beside the first"
        site.read(servers)
        router = _router(second, folder)
        yield from _as_routed(router, send(router, servers, count=REQUESTS // 4, seed=2))
        plan = site.ask("GET", f"/{NAME}/plan")  # the newest: more traffic may have made a third one meanwhile
        name, server = max(servers.items())
        server.kill()
        lost = next(one for one in plan["replicas"] if one["id"] == name)["stages"][0]["rental"]
        site.holds([rental for number, rental in enumerate(plan["rentals"]) if number != lost])
        yield True, site.decided("lost")


def _as_routed(router: Mapping[str, Any], sent: Counter[tuple[str, str]]) -> Iterator[tuple[bool, str]]:
    for name, weights in router["weights"]["tiny"].items():
        whole = sum(sent[name, replica] for replica in weights)
        shares = ", ".join(f"{sent[name, one]} of {whole} to {one} ({weight:.0%})" for one, weight in weights.items())
        yield whole > 0, f"{name} as routed: {shares}; all answered"


def _replicas(router: Mapping[str, Any]) -> dict[str, str]:
    """The machine of each replica, as exports call it."""
    return {name: one["host"] for name, one in router["replicas"].items()}
