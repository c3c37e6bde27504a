"""The measurements of the service, one after another; what they mean is in README.md."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Final, Literal, TypedDict

from psutil import Process

from benchmarks.machine import Machine, describe_machine
from benchmarks.service_conditions import Held, holding, solving
from benchmarks.service_latencies import Latencies, latencies_of
from benchmarks.service_load import Outcome
from benchmarks.service_rounds import LONG_POLLS, PLAN, Measured, Round, port_of, round_of, started
from benchmarks.service_running import Memory, environment_of, made_key, memory_of
from benchmarks.service_starts import Starts, measured_starts
from benchmarks.service_wakes import Wakes, measured_wakes
from sutler.service.documents.examples import CHAT
from tests.service.running import Running, serving

READS_PER_SECOND: Final = "1000000"
PACKAGES: Final = ("fastapi", "starlette", "uvicorn", "uvloop", "httptools", "sqlalchemy", "psycopg", "procrastinate")
Name = Literal["nothing else", "solves", "solves, long polls"]
NAMES: Final[tuple[Name, ...]] = ("nothing else", "solves", "solves, long polls")


@dataclass(frozen=True, slots=True)
class Lengths:
    """How often and for how long."""

    starts: int
    rounds: int
    open_s: float
    closed_s: float
    pairs: int
    wakes: int
    plans: int


class Condition(TypedDict):
    """A round each of `open` and `closed`; `*_all` are the latencies of all rounds together."""

    name: Name
    open: list[Round]
    open_all: Latencies
    closed: list[Round]
    closed_all: Latencies


class Polls(TypedDict):
    """The closed loop without and with long polls held beside it, in turns, and what became of all long polls.

    `held_till_the_end`: the fewest; `wrong`: answers without news, or none; `let_go_s`: the longest that one was
    held after its client had left.
    """

    without: list[Round]
    held: list[Round]
    held_till_the_end: int
    wrong: int
    let_go_s: float


class Keys(TypedDict):
    """The closed loop without and with keys, in turns."""

    without: list[Round]
    required: list[Round]


class Report(TypedDict):
    """Everything measured. `body_bytes` is the size of the plan that is asked for; `plans` are POST /v1/plans."""

    machine: Machine
    body_bytes: int
    starts: Starts
    conditions: list[Condition]
    polls: Polls
    keys: Keys
    wakes: Wakes
    plans: Latencies
    memory: list[Memory]


def measured(folder: Path, lengths: Lengths, *, tell: Callable[[str], None]) -> Report:
    """All measurements, with data folders of their own under `folder`."""
    tell(f"starting the service {lengths.starts} times ...")
    starts = measured_starts(folder, lengths.starts)
    with started(folder / "load") as service:
        held: list[Held] = []
        conditions = _conditions(service, lengths, held, tell)
        tell(f"with and without {LONG_POLLS} long polls, {lengths.pairs} times ...")
        polls = _polls(service, lengths, held)
        tell(f"with and without keys, {lengths.pairs} times ...")
        keys = _keys(service, lengths)
        tell(f"waking {LONG_POLLS} clients {lengths.wakes} times ...")
        wakes = measured_wakes(service.running, service.wish(), times=lengths.wakes)
        tell(f"planning {lengths.plans} times ...")
        plans = latencies_of([_planned_s(service.running) for _ in range(lengths.plans)])
        memory = memory_of(service.processes())
    return Report(
        machine=_machine(),
        body_bytes=service.body_bytes,
        starts=starts,
        conditions=conditions,
        polls=polls,
        keys=keys,
        wakes=wakes,
        plans=plans,
        memory=memory,
    )


def _conditions(
    service: Measured, lengths: Lengths, held: list[Held], tell: Callable[[str], None]
) -> list[Condition]:
    """Measures in turns, so that what else the machine does hits all of them."""
    taken: dict[Name, list[tuple[Outcome, Round, Outcome, Round]]] = {name: [] for name in NAMES}
    for number in range(lengths.rounds):
        for name in NAMES:
            tell(f"round {number + 1} of {lengths.rounds}: {name} ...")
            with ExitStack() as stack:
                if name != "nothing else":
                    stack.enter_context(solving(service.running))
                if name == "solves, long polls":
                    held.append(stack.enter_context(holding(service.running, service.wish())))
                on_schedule = service.round("open", lengths.open_s)
                at_most = service.round("closed", lengths.closed_s)
            taken[name].append((*on_schedule, *at_most))
    return [_condition(name, taken[name]) for name in NAMES]


def _condition(name: Name, taken: list[tuple[Outcome, Round, Outcome, Round]]) -> Condition:
    return Condition(
        name=name,
        open=[found for _, found, _, _ in taken],
        open_all=latencies_of([seconds for outcome, *_ in taken for seconds in outcome["latencies_s"]]),
        closed=[found for *_, found in taken],
        closed_all=latencies_of([seconds for _, _, outcome, _ in taken for seconds in outcome["latencies_s"]]),
    )


def _polls(service: Measured, lengths: Lengths, held: list[Held]) -> Polls:
    """Every other pair the other way round: whichever comes second has no advantage."""
    found: dict[bool, list[Round]] = {False: [], True: []}
    for number in range(lengths.pairs):
        for is_held in (False, True) if number % 2 == 0 else (True, False):
            with ExitStack() as stack:
                if is_held:
                    held.append(stack.enter_context(holding(service.running, service.wish())))
                found[is_held].append(service.round("closed", lengths.closed_s)[1])
    return Polls(
        without=found[False],
        held=found[True],
        held_till_the_end=min(one.until_then for one in held),
        wrong=sum(len(one.told["news"]) + sum(one.told["errors"].values()) for one in held),
        let_go_s=max(one.let_go_s for one in held),
    )


def _keys(service: Measured, lengths: Lengths) -> Keys:
    """A second API process on the same database asks for keys; the one that is not asked costs nothing."""
    environment = environment_of(service.folder)
    demanding = {**environment, "SUTLER_REQUIRE_KEY": "1", "SUTLER_READS_PER_SECOND": READS_PER_SECOND}
    found = Keys(without=[], required=[])
    key = made_key(environment)
    with serving(service.folder, demanding, "--role", "api") as other:
        assert other.get(PLAN).status_code == 401
        plain = service.order("closed", lengths.closed_s)
        processes = {**service.processes(), "api": [Process(other.process.pid)]}
        for _ in range(lengths.pairs):
            found["without"].append(round_of(plain, service.processes())[1])
            found["required"].append(round_of({**plain, "port": port_of(other), "key": key}, processes)[1])
    return found


def _planned_s(running: Running) -> float:
    began_s = time.perf_counter()
    answer = running.post("/v1/plans", CHAT)
    assert answer.status_code == 201, answer.text
    return time.perf_counter() - began_s


def _machine() -> Machine:
    return Machine(**{**describe_machine(), "packages": {name: version(name) for name in PACKAGES}})
