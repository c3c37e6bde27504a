"""Upgrades without a pause: the version before and this one work on one database, and no caller notices."""

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import pytest
import requests

from sutler.service.settings import StoreSettings
from tests.postgres import a_folder
from tests.service.builders import CHAT, changed
from tests.service.deployments.traffic.feeds.engines import Site
from tests.service.faults.replans import Receiver
from tests.service.faults.versions import SUTLER, NoHistoryError, Versions, the_version_before
from tests.service.offline.builders import an_application, an_asker
from tests.service.profiles.builders import a_table
from tests.service.running import Running, finished, serving, settings, until

ON_THE_STORE: Final = changed(CHAT, ("market",), {})
APPLICATION: Final = an_application(models=[an_asker()], edges=[], search={"time_limit_s": 2})
MACHINE: Final = {
    **{"provider": "acme", "offer_id": "large", "gpu": "h100-sxm", "gpus": 1, "count": 1},
    **{"price_usd_per_hour": 2.2, "contract": "on_demand"},
}
ROUNDS: Final = 2
# Opens the store, and imports when it is told to.
IMPORTING: Final = """
import sys
from sutler.service.main import opened_profiles
from sutler.service.profiles.checks import Given
with opened_profiles() as profiles:
    print("opened", flush=True)
    print(profiles.import_file("runs.csv", sys.stdin.read().encode(), Given()).new)
"""
_numbers = count(1)


@pytest.fixture(scope="module")
def before() -> Iterator[Path]:
    """The files of the version before."""
    try:
        with the_version_before() as folder:
            yield folder
    except NoHistoryError as error:
        pytest.skip(f"{error}")


class Both(Versions):
    """Each in turn writes what the other one reads."""

    def round(self, writer: str, reader: str, feed: str, hook: str) -> None:
        """What one version is told, the other one knows; and the other way round."""
        self._plan(writer, reader)
        self._deploy(writer, reader, feed, hook)
        for path in (
            "/v1/plans",
            "/v1/offers",
            "/v1/providers",
            "/v1/audit",
            "/v1/costs",
            "/v1/profiles",
            "/metrics",
        ):
            assert self.ask(reader, "GET", path).ok
        assert self.ask(reader, "GET", "/readyz").ok

    def _plan(self, writer: str, reader: str) -> None:
        plan = self.ask(writer, "POST", "/v1/plans", CHAT).json()
        assert self.ask(reader, "GET", f"/v1/plans/{plan['id']}").json() == plan
        key = {"Prefer": "respond-async", "Idempotency-Key": str(uuid4())}
        asked = [self.ask(each, "POST", "/v1/plans", ON_THE_STORE, headers=key) for each in (writer, reader)]
        assert asked[0].headers["Location"] == asked[1].headers["Location"]
        assert finished(self.of[reader], asked[0].headers["Location"])["status"] == "optimal"
        offline = self.ask(writer, "POST", "/v1/offline-plans", APPLICATION).json()
        assert self.ask(reader, "GET", f"/v1/offline-plans/{offline['id']}").json() == offline
        simulation = {"plan_id": plan["id"], "duration_s": 5}
        assert self.ask(reader, "POST", "/v1/simulations", simulation).ok

    def _deploy(self, writer: str, reader: str, feed: str, hook: str) -> None:
        name = f"chat-{next(_numbers)}"
        url = f"/v1/deployments/{name}"
        webhook = self.ask(writer, "POST", "/v1/webhooks", {"url": hook, "events": ["plan.issued"]}).json()
        self.ask(writer, "PUT", url, {"problem": ON_THE_STORE})
        first = self.until_ok(reader, f"{url}/plan", params={"wait_s": 5})
        assert self.ask(writer, "GET", f"{url}/plan").json() == first
        self.ask(reader, "POST", f"{url}/holdings/ack", {})
        self.ask(writer, "PUT", f"{url}/holdings", {"holdings": [MACHINE]})
        assert self.ask(reader, "GET", f"{url}/holdings").json()["holdings"]
        feeds = {"feeds": [{"model": "chat", "kind": "vllm", "urls": [feed], "every_s": 15}]}
        self.ask(writer, "PUT", f"{url}/feeds", feeds)
        until(lambda: self.ask(reader, "GET", f"{url}/feeds").json()["feeds"][0]["read_at"])
        self.ask(reader, "POST", f"{url}/replan")
        newer = self.until_ok(writer, f"{url}/plan", params={"after": first["revision"], "wait_s": 5})
        assert self.ask(reader, "GET", f"{url}/plan").json() == newer
        for part in ("", "/plans", "/decisions", "/traffic", "/costs", "/terraform/state"):
            assert self.ask(reader, "GET", f"{url}{part}").ok
        deliveries = f"/v1/webhooks/{webhook['id']}/deliveries"
        until(lambda: [*_statuses(self.ask(reader, "GET", deliveries))].count("delivered") >= 2)
        self.ask(reader, "DELETE", url)
        assert self.of[writer].get(url).status_code == 404
        self.ask(reader, "DELETE", f"/v1/webhooks/{webhook['id']}")


def _statuses(answer: requests.Response) -> Iterator[str]:
    yield from (each["status"] for each in answer.json()["items"])


def _run(environment: Mapping[str, str], folder: Path, *words: str) -> str:
    options: Any = {"cwd": folder, "env": dict(environment), "capture_output": True, "text": True}
    done = subprocess.run([*SUTLER, *words], **options, check=False)
    assert done.returncode == 0, done.stderr
    return str(done.stdout).strip()


def _complaints(running: Running) -> list[str]:
    lines = (json.loads(line) for line in running.said().splitlines() if line.startswith("{"))
    return [f"{line}" for line in lines if line["level"] in {"error", "critical"}]


def test_both_versions_work_side_by_side_and_no_caller_sees_an_error(
    before: Path, new_database: StoreSettings
) -> None:
    with a_folder() as folder, Site() as engine, ExitStack() as stack:
        receiver = Receiver()
        stack.enter_context(receiver.server)
        others = {
            "SUTLER_DATABASE_URL": new_database.database_url or "",
            "SUTLER_OUTGOING_NETWORKS": "127.0.0.0/8",
            "SUTLER_LOG_FORMAT": "json",
        }
        new = settings(folder, **others)
        old = {**new, "PYTHONPATH": str(before)}
        _run(old, folder, "db", "upgrade")
        key = _run(old, folder, "keys", "create", "load", "--scope", "admin")
        versions = Both()
        running = stack.enter_context(serving(folder, old, "--require-key", sutler=SUTLER)).with_key(key)
        versions.of["old"] = running
        pipes: Any = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        command = [sys.executable, "-c", IMPORTING]
        importing = stack.enter_context(subprocess.Popen(command, cwd=folder, env=old, text=True, **pipes))
        assert importing.stdout is not None
        assert importing.stdout.readline() == "opened\n"
        until(lambda: running.get("/readyz").ok)
        ends = (engine.engine.url, f"{receiver.server.base_url}/hook")
        versions.round("old", "old", *ends)
        with versions.asked_all_the_time("old"):
            _run(new, folder, "db", "upgrade")
        said, complaint = importing.communicate(a_table())
        assert said == "8\n", complaint
        running = stack.enter_context(serving(folder, new, "--require-key", sutler=SUTLER)).with_key(key)
        versions.of["new"] = running
        with versions.asked_all_the_time("old"), versions.asked_all_the_time("new"):
            for _ in range(ROUNDS):
                versions.round("old", "new", *ends)
                versions.round("new", "old", *ends)
            _keys(versions)
        assert versions.of["old"].stop() == 0
        versions.round("new", "new", *ends)
        assert versions.errors == []
        assert [line for each in versions.of.values() for line in _complaints(each)] == []


def _keys(versions: Both) -> None:
    """One that this version makes is good for both, until it is revoked."""
    made = versions.ask("new", "POST", "/v1/keys", {"name": "later", "scope": "read"}).json()
    headers = {"Authorization": f"Bearer {made['key']}"}
    for version in ("old", "new"):
        assert versions.ask(version, "GET", "/v1/plans", headers=headers).ok
    assert versions.ask("new", "DELETE", f"/v1/keys/{made['id']}").ok
    for service in versions.of.values():
        until(partial(_is_refused, service, headers))


def _is_refused(service: Running, headers: Mapping[str, str]) -> bool:
    return service.get("/v1/plans", headers=headers).status_code == 401
