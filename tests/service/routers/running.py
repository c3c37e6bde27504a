"""Real routers on loopback before stand-ins for engines, `sutler router follow`, and callers who count answers."""

import json
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import requests

from tests.service.running import until

NGINX: Final = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin:/bin")
ENVOY: Final = shutil.which("envoy")
EXAMPLE: Final = Path(__file__).parents[3] / "examples" / "envoy" / "envoy.yaml"
MAIN: Final = """\
daemon off; worker_processes 2; pid nginx.pid; error_log error.log warn;
events { worker_connections 512; }
http {
    access_log off;
    client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
    include conf.d/*.conf;
}
"""
ENGINE: Final = Path(__file__).with_name("engine.py")
SUTLER: Final = (sys.executable, "-m", "sutler")


@dataclass
class Fleet:
    """Engines by replica id."""

    answer_s: float
    processes: dict[str, "subprocess.Popen[str]"] = field(default_factory=dict)
    ports: dict[str, int] = field(default_factory=dict)

    def start(self, name: str) -> None:
        """On the port that it had, if it had one."""
        port = [str(self.ports[name])] if name in self.ports else []
        command = [sys.executable, str(ENGINE), name, str(self.answer_s), *port]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        with process.stdout as said:
            self.processes[name], self.ports[name] = process, int(said.readline())

    def kill(self, name: str) -> None:
        self.processes[name].kill()
        self.processes[name].wait()

    def address(self, name: str) -> str:
        return f"127.0.0.1:{self.ports[name]}"


@contextmanager
def engines(names: Sequence[str], *, answer_s: float = 0.002) -> Iterator[Fleet]:
    """Each takes so many seconds for an answer."""
    fleet = Fleet(answer_s)
    try:
        for name in names:
            fleet.start(name)
        yield fleet
    finally:
        for name in fleet.processes:
            fleet.kill(name)


@dataclass
class Router:
    """A running one; `config` is the file that a follower writes, `options` are what the follower has to be told."""

    folder: Path
    port: int
    config: Path
    options: tuple[str, ...]
    process: "subprocess.Popen[bytes]"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def name(self) -> str:
        return self.options[1]


def nginx_command(folder: Path) -> str:
    return f"{NGINX} -p {folder} -c nginx.conf -e error.log"


@contextmanager
def nginx(folder: Path) -> Iterator[Router]:
    """Without a configuration of sutler's yet."""
    (folder / "conf.d").mkdir(parents=True)
    (folder / "nginx.conf").write_text(MAIN)
    command, port = nginx_command(folder), free_port()
    options = ("--format", "nginx", "--listen", f"127.0.0.1:{port}")
    commands = ("--check", f"{command} -t -q", "--reload", f"{command} -s reload")
    with ended(shlex.split(command)) as process:
        until((folder / "nginx.pid").exists)
        yield Router(folder, port, folder / "conf.d" / "sutler.conf", (*options, *commands), process)


@contextmanager
def envoy(folder: Path) -> Iterator[Router]:
    """By the configuration of the examples, without clusters yet."""
    folder.mkdir()
    port, config = free_port(), folder / "sutler.json"
    config.write_text('{"resources": []}')
    text = EXAMPLE.read_text().replace("/etc/envoy/sutler.json", str(config))
    text = text.replace("address: 0.0.0.0, port_value: 8080", f"address: 127.0.0.1, port_value: {port}")
    (folder / "envoy.yaml").write_text(text)
    command = [str(ENVOY), "-c", str(folder / "envoy.yaml"), "--concurrency", "2", "--use-dynamic-base-id"]
    with ended([*command, "--log-level", "warning"]) as process:
        yield Router(folder, port, config, ("--format", "envoy"), process)


@contextmanager
def ended(command: Sequence[str]) -> Iterator["subprocess.Popen[bytes]"]:
    """A process until the end of the block."""
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@dataclass
class Follower:
    """`said` is what it has written on stderr."""

    process: "subprocess.Popen[bytes]"
    log: Path

    def said(self) -> str:
        return self.log.read_text()

    def waits_until_it_says(self, text: str, *, times: int = 1) -> None:
        def look() -> bool:
            assert self.process.poll() is None, self.said()
            return self.said().count(text) >= times

        until(look)


@contextmanager
def following(
    router: Router, addresses: Path, *arguments: str, environment: Mapping[str, str] | None = None
) -> Iterator[Follower]:
    log = router.folder / f"follow-{time.monotonic_ns()}.log"
    command = [*SUTLER, "router", "follow", *arguments, "--addresses", str(addresses), "--out", str(router.config)]
    with log.open("wb") as stderr:
        process = subprocess.Popen([*command, *router.options], stderr=stderr, env=environment)
    try:
        yield Follower(process, log)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


@dataclass(frozen=True)
class Answer:
    at: float
    status: int
    engine: str


class Callers:
    """Threads that ask for completions until they are stopped; every second one on a connection of its own each."""

    def __init__(self, url: str, model: str, workload: str | None, threads: int = 8, pause_s: float = 0.0) -> None:
        self.answers: list[Answer] = []
        self._url, self._pause_s = f"{url}/v1/completions", pause_s
        self._body = json.dumps({"prompt": "Hello", "model": model}).encode()
        self._headers = {} if workload is None else {"X-Sutler-Workload": workload}
        self._ended = threading.Event()
        self._threads = [threading.Thread(target=self._call, args=(number % 2 == 0,)) for number in range(threads)]

    def __enter__(self) -> "Callers":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()

    def _call(self, keeps: bool) -> None:
        with requests.Session() as session:
            self._ask(session, self._headers if keeps else {**self._headers, "Connection": "close"})

    def _ask(self, session: requests.Session, headers: Mapping[str, str]) -> None:
        while not self._ended.is_set():
            try:
                found = session.post(self._url, data=self._body, headers=headers, timeout=20)
                engine = found.json()["system_fingerprint"] if found.ok else found.text
                answer = Answer(time.monotonic(), found.status_code, engine)
            except requests.RequestException as error:
                answer = Answer(time.monotonic(), 0, repr(error))
            self.answers.append(answer)
            time.sleep(self._pause_s)

    def failed(self) -> list[Answer]:
        return [answer for answer in self.answers if answer.status != 200]

    def waits_for(self, number: int) -> list[Answer]:
        """The next so many answers."""
        begun = len(self.answers)
        until(lambda: len(self.answers) >= begun + number)
        return self.answers[begun : begun + number]


def shares(answers: Sequence[Answer]) -> dict[str, float]:
    counts = Counter(answer.engine for answer in answers)
    return {engine: count / len(answers) for engine, count in counts.items()}


def completion(url: str, body: Mapping[str, Any], **headers: str) -> requests.Response:
    return requests.post(f"{url}/v1/completions", json=body, headers=headers, timeout=20)
