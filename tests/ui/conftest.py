"""A played market, deployments that live on it, and two API processes behind one port, as a browser finds them."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from pathlib import Path
from typing import Any, Final

import pytest

from sutler.adapters.fake.market import Market
from sutler.adapters.fake.server import FakeCloud
from sutler.service.cli.dev import settings_of
from sutler.service.cli.pages_demo import CODE, playing
from sutler.service.client.synchronous import Client
from sutler.service.web.caller import SCOPES
from tests.postgres import Server, a_folder
from tests.service.running import Running, made_key, serving, settings, until
from tests.ui.chromium import CHROMIUM, Watched, a_tab, browsing

pytest.importorskip("playwright", reason="Playwright is missing: `make ui-test` brings it")
MACHINES: Final = 900  # over 2,000 offers in the morning, about 1,600 when most are rented
MORNING_H: Final = 6
MANY: Final = 200
# No plan is looked at for how good it is; and on a busy machine each ends where it is, not when a time is up.
SOLVER: Final = {"relative_gap": 0.3, "time_limit_s": 60.0}
# Copies of a deployment with its plan, which nobody looks after.
COPIES: Final = f"""
    INSERT INTO plan (id, deployment_id, deployment_name, revision, status, problem, objective, document, value,
                      relative_gap, cost_usd_per_hour, created_by, finished_at, solve_seconds)
    SELECT md5('plan' || i)::uuid, NULL, 'copy-' || i, 1, p.status, p.problem, p.objective, p.document, p.value,
           p.relative_gap, p.cost_usd_per_hour, p.created_by, now(), p.solve_seconds
    FROM generate_series(1, {MANY}) i, plan p JOIN deployment d ON d.plan_id = p.id WHERE d.name = 'chat'
"""
DEPLOYMENTS: Final = f"""
    INSERT INTO deployment (id, name, problem, policy, plan_id, revision)
    SELECT md5('deployment' || i)::uuid, 'copy-' || i, d.problem, d.policy, md5('plan' || i)::uuid, 1
    FROM generate_series(1, {MANY}) i, deployment d WHERE d.name = 'chat'
"""
HELD: Final = """
    UPDATE plan SET deployment_id = md5(replace(deployment_name, 'copy-', 'deployment'))::uuid
    WHERE deployment_name LIKE 'copy-%'
"""


@dataclass
class Scene:
    """`open_url`: of a service that asks for no key; `url`: of two API processes that do, in turn."""

    open_url: str
    url: str
    keys: dict[str, str]
    apis: list[Running]
    postgres: Server
    environment: dict[str, str]
    folder: Path


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    if CHROMIUM is None:
        pytest.skip("Chromium is missing: apt install chromium, or name one in CHROMIUM")
    with browsing() as browser:
        yield browser


KeptTab = Callable[[str, int, str], AbstractContextManager[Watched]]


@pytest.fixture(scope="session")
def kept_tab(chromium: Any) -> Iterator[KeptTab]:
    """A tab at a service in a look, for pages that only look: most of what a page costs is scripts, compiled once."""
    with ExitStack() as opened:

        @cache
        def one(origin: str, width: int, scheme: str) -> Watched:
            return opened.enter_context(a_tab(chromium, origin, width=width, scheme=scheme))

        @contextmanager
        def lent(origin: str, width: int, scheme: str) -> Iterator[Watched]:
            tab = one(origin, width, scheme)
            try:
                yield tab
            finally:
                tab.page.goto("about:blank")  # renews nothing meanwhile
                tab.said.clear()
                tab.foreign.clear()

        yield lent


@pytest.fixture(scope="session")
def scene(postgres: Server) -> Iterator[Scene]:
    with a_scene(postgres) as found:
        yield found


@contextmanager
def a_scene(postgres: Server) -> Iterator[Scene]:
    """Three deployments on a played market of over 2,000 offers."""
    postgres.run("CREATE DATABASE ui")
    cloud = FakeCloud(Market(seed=1, machines=MACHINES), clock=of_the_next_morning())
    cloud.start()
    with ExitStack() as opened:
        opened.callback(cloud.close)
        folder = opened.enter_context(a_folder())
        environment = {
            **settings(folder),
            **settings_of(cloud),
            "SUTLER_DATABASE_URL": postgres.url("ui"),
            "SUTLER_POLL_INTERVAL_S": "3600",  # a poll has every deployment looked at anew
        }
        environment.pop("SUTLER_PROVIDERS")
        environment.pop("SUTLER_FILE_PATH")
        open_url = opened.enter_context(playing(folder, environment, port=a_port(), solver=SOLVER))
        with Client(open_url) as client:  # a second revision of one, which says what it changed
            client.apply("code", {**CODE, "budget_usd_per_hour": 25, "solver": SOLVER})
            until(lambda: (plan := client.deployment("code").plan) and plan.revision > 1)
        keys: dict[str, str] = {scope: made_key(environment, scope) for scope in SCOPES}
        apis = [
            opened.enter_context(serving(folder, environment, "--role", "api", "--require-key")) for _ in range(2)
        ]
        url = opened.enter_context(in_turn([api.url for api in apis]))
        yield Scene(open_url, url, keys, apis, postgres, environment, folder)


def of_the_next_morning() -> Callable[[], float]:
    """A clock that is ahead, so that as much is for rent whenever the pages are tried."""
    ahead_s = (MORNING_H * 3600 - time.time()) % 86_400
    return lambda: time.time() + ahead_s


@pytest.fixture(scope="session")
def crowded(scene: Scene) -> Scene:
    """The same with 200 more deployments."""
    return crowd(scene)


def crowd(scene: Scene) -> Scene:
    scene.postgres.run(COPIES, DEPLOYMENTS, HELD, database="ui")
    return scene


@pytest.fixture(scope="session")
def empty(postgres: Server) -> Iterator[str]:
    """The URL of an API with nothing behind it."""
    postgres.run("CREATE DATABASE nothing")
    with a_folder() as folder:
        environment = settings(folder, SUTLER_DATABASE_URL=postgres.url("nothing"))
        with serving(folder, environment, "--role", "api") as running:
            yield running.url


def a_port() -> int:
    """One that is free now."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@contextmanager
def in_turn(urls: list[str]) -> Iterator[str]:
    """One port whose connections go to several servers in turn."""
    ports = cycle([int(url.rpartition(":")[2]) for url in urls])
    listening = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                asking, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=relay, args=(asking, next(ports)), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.close()


def relay(asking: socket.socket, port: int) -> None:
    """Both ways, until both ends have had enough."""
    with asking, suppress(OSError), socket.create_connection(("127.0.0.1", port)) as answering:
        back = threading.Thread(target=pump, args=(answering, asking), daemon=True)
        back.start()
        pump(asking, answering)
        back.join()


def pump(here: socket.socket, there: socket.socket) -> None:
    with suppress(OSError):
        while data := here.recv(65_536):
            there.sendall(data)
    with suppress(OSError):
        there.shutdown(socket.SHUT_WR)
