"""Histories that Hypothesis thinks up: what is asked of two APIs, over and over and at the same time, while the
connections to PostgreSQL are cut, delayed and fall silent, rows are held, and processes stop for seconds.

`make histories` runs 2,000 and writes to benchmarks/results/histories.txt how often each thing was done.
"""

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial, wraps
from itertools import count
from multiprocessing import get_context
from typing import Any, ClassVar, Final
from uuid import uuid4

import psycopg
import requests
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from requests import Response

from benchmarks.machine import describe_machine
from tests.postgres import Server, a_server
from tests.service.faults.replans import Receiver, Standing
from tests.service.faults.scenes import Aside, a_scene, of, results
from tests.service.faults.test_cleared_supply import a_market, a_problem
from tests.service.faults.wire import Wire
from tests.service.running import ROOT, Running, answers, until

MACHINES: Final = tuple(("h100-sxm", usd_per_hour) for usd_per_hour in (2.0, 2.2, 2.4, 2.6, 2.8))
RPS: Final = 10.0  # of the 20 that one machine serves
POLICY: Final = {"carry_out_s": 3_600, "settle_s": 0, "cooldown_s": 0}
LONGEST_ANSWER_S: Final = 30.0  # of a service whose database hangs, on a busy machine; without bounds: for ever
WINDOW_S: Final = 10
# Where a connection breaks or waits: anywhere, and where something is decided.
STATEMENTS: Final = (
    b"", b"INSERT INTO plan", b"UPDATE plan", b"INSERT INTO audit", b"^COMMIT", b"UPDATE deployment", b"UPDATE watch",
    b"INSERT INTO decision", b"procrastinate", b"INSERT INTO delivery", b"INSERT INTO observation", b"DELETE FROM",
)  # fmt: skip
SILENT: Final = ("sutler notices", "sutler queue")
RESULTS: Final = ROOT / "benchmarks" / "results" / "histories.txt"
DEAF_EVERY: Final = 4  # deletions
PARTS: Final = 2  # histories wait most of the time
ROLES: Final = ("api-0", "api-1", "worker-0", "worker-1")


@dataclass
class World:
    """Two APIs and two workers, each at the end of a wire to one PostgreSQL, and a receiver of webhooks."""

    standing: Standing
    roles: dict[str, Running]
    wires: dict[str, Wire]
    done: Counter[str] = field(default_factory=Counter)
    failures: list[BaseException] = field(default_factory=list)
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def receiver(self) -> Receiver:
        return self.standing.receivers[0]

    def api(self, number: int) -> Running:
        return self.roles[f"api-{number}"]


@contextmanager
def a_world(server: Server, **others: str) -> Iterator[World]:
    """`others` are settings of all its processes, such as a PYTHONPATH with other code."""
    environment = {"SUTLER_OUTGOING_NETWORKS": "127.0.0.0/8", "SUTLER_CHANGES_PER_MINUTE": "100000", **others}
    receiver = Receiver()
    with ExitStack() as stack:
        stack.enter_context(receiver.server)
        wires = {name: stack.enter_context(Wire(server)) for name in ROLES}
        scene = stack.enter_context(a_scene(server, **environment))
        roles: dict[str, Running] = {}
        for name, wire in wires.items():
            role = name.partition("-")[0]
            roles[name] = scene.starts("--role", role, SUTLER_DATABASE_URL=wire.url(scene.database))
            if role == "api":
                until(partial(answers, roles[name]))  # the first one makes the tables
        standing = Standing(scene, roles["api-0"], (receiver,), ())
        standing.offer(a_market(*MACHINES))
        hook = {"url": f"{receiver.server.base_url}/hook", "events": ["plan.issued"]}
        assert roles["api-0"].post("/v1/webhooks", hook).status_code == 201
        yield World(standing, roles, wires)


@dataclass
class Deployment:
    """What its only user knows of it: each change and report that may hold, and how many were acknowledged."""

    name: str
    changes: set[int]
    held: set[frozenset[str]]
    late: set[frozenset[str]] = field(default_factory=set)
    reported: set[frozenset[str]] = field(default_factory=set)
    acknowledged: int = 0
    unknown: int = 0
    plans: list[str] = field(default_factory=list)
    observed: dict[float, bool] = field(default_factory=dict)
    """The requests of each window that was reported, and whether that was acknowledged."""


def a_marked_problem(change: int) -> dict[str, Any]:
    """What is planned is the same; which change it is can be told."""
    return {**a_problem(RPS, {"h100-sxm": 2 * RPS}), "solver": {"time_limit_s": 5 + change / 1000}}


def noted(step: Callable[..., None]) -> Callable[..., None]:
    """The first failure is the one that counts: no history can be repeated to the microsecond."""

    @wraps(step)
    def run(self: "Histories", *arguments: Any, **named: Any) -> None:
        try:
            step(self, *arguments, **named)
        except BaseException as error:
            self.world.failures.append(error)
            raise

    return run


STEPS: Final[set[str]] = set()
"""The names of all steps."""


def step(**given: st.SearchStrategy[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """One of what may happen next."""

    def made(done: Callable[..., None]) -> Callable[..., None]:
        STEPS.add(done.__name__)
        return rule(**given)(noted(done))  # type: ignore[no-any-return, call-overload]

    return made


apis = st.lists(st.integers(0, 1), min_size=1, max_size=3)  # one request each, all at the same time
who = st.integers(0, 1)
roles = st.sampled_from(ROLES)
where = st.sampled_from(STATEMENTS)
sometimes = st.sampled_from([False] * 2 + [True])
seldom = st.sampled_from([False] * 7 + [True])
seconds = st.sampled_from([0.05, 0.2, 0.5])


class Histories(RuleBasedStateMachine):
    """One user of two deployments, and everything that can come between a request and its answer."""

    world: ClassVar[World]

    def __init__(self) -> None:
        super().__init__()
        if self.world.failures:
            raise self.world.failures[0]
        self._asides: list[Aside] = []
        self.deployments: tuple[Deployment, ...] = ()

    # -- what the user does ------------------------------------------------------------------------------------

    @initialize(over=apis)
    @noted
    def begin(self, over: list[int]) -> None:
        number = next(self.world.numbers)
        made = [Deployment(f"history-{number}-{letter}", {0}, {frozenset()}) for letter in "ab"]
        results(*[partial(self._create, one, over) for one in made])
        self.deployments = tuple(made)

    def _create(self, one: Deployment, over: list[int]) -> None:
        """As one who insists, with one key."""
        body = {"name": one.name, "problem": a_marked_problem(0), "policy": POLICY}
        headers = {"Idempotency-Key": str(uuid4())}
        give_up_at = time.monotonic() + LONGEST_ANSWER_S
        while True:
            found = self._sent("POST", "/v1/deployments", over, body, headers=headers, statuses={201})
            if any(answer is not None and answer.status_code == 201 for answer in found):
                return
            assert time.monotonic() < give_up_at, found

    @step(which=who, over=apis, hangs_up=seldom)
    def change(self, which: int, over: list[int], hangs_up: bool) -> None:
        """As a careful one: nothing is changed that was not seen."""
        one, marker = self.deployments[which], next(self.world.numbers)
        etag = self._read(one, over[0]).headers["ETag"]
        body = {"problem": a_marked_problem(marker), "policy": POLICY}
        path, headers = f"/v1/deployments/{one.name}", {"If-Match": etag}
        found = self._sent("PUT", path, over, body, headers=headers, statuses={200, 412}, hangs_up=hangs_up)
        if 200 in _statuses(found):
            one.changes, one.acknowledged = {marker}, one.acknowledged + 1
        else:
            assert one.unknown or _statuses(found) != {412}, "nobody else has changed it"
            one.changes.add(marker)
            one.unknown += 1

    @step(which=who, over=apis, hangs_up=seldom)
    def replan(self, which: int, over: list[int], hangs_up: bool) -> None:
        one = self.deployments[which]
        path = f"/v1/deployments/{one.name}/replan"
        for answer in self._sent("POST", path, over, statuses={202}, hangs_up=hangs_up):
            if answer is not None and answer.status_code == 202:
                one.plans.append(answer.headers["Location"].rpartition("/")[2])

    @step(which=who, over=apis, hangs_up=seldom)
    def carry_out(self, which: int, over: list[int], hangs_up: bool) -> None:
        one = self.deployments[which]
        plan = self._answer("GET", f"/v1/deployments/{one.name}/plan", over[0], statuses={200})
        if plan is None or plan.status_code != 200:
            return
        path, rented = f"/v1/deployments/{one.name}/holdings/ack", _offers(plan.json()["rentals"])
        body = {"revision": plan.json()["revision"]}
        self._report(one, rented, self._sent("POST", path, over, body, statuses={200, 409}, hangs_up=hangs_up))

    @step(which=who, over=apis, hangs_up=seldom, machine=st.none() | st.sampled_from(range(len(MACHINES))))
    def report(self, which: int, over: list[int], hangs_up: bool, machine: int | None) -> None:
        self._put_holdings(self.deployments[which], over, machine, hangs_up=hangs_up)

    @step(over=apis, machine=st.sampled_from(range(len(MACHINES))))
    def report_one_machine_for_both(self, over: list[int], machine: int) -> None:
        """At the same time: one of them is told that the other has it."""
        results(*[partial(self._put_holdings, one, over, machine) for one in self.deployments])

    def _put_holdings(self, one: Deployment, over: list[int], machine: int | None, *, hangs_up: bool = False) -> None:
        held = []
        if machine is not None:
            gpu, usd_per_hour = MACHINES[machine]
            offer = {"provider": "file", "offer_id": f"acme/{machine}", "gpu": gpu, "gpus": 1}
            held = [{**offer, "price_usd_per_hour": usd_per_hour}]
        path, body = f"/v1/deployments/{one.name}/holdings", {"holdings": held}
        found = self._sent("PUT", path, over, body, statuses={200, 409}, hangs_up=hangs_up)
        self._report(one, _offers(held), found)

    @staticmethod
    def _report(one: Deployment, held: frozenset[str], found: Sequence[Response | None]) -> None:
        """What nobody waited for may come late: reports name no version."""
        one.reported.add(held)
        if _statuses(found) & {0, 503}:
            one.late.add(held)
        one.held = ({held} if 200 in _statuses(found) else one.held) | one.late

    @step(which=who, over=apis, hangs_up=seldom)
    def observe(self, which: int, over: list[int], hangs_up: bool) -> None:
        one, number = self.deployments[which], next(self.world.numbers)
        served = RPS * WINDOW_S + number / 1024  # tells the windows apart
        document = {
            "model": "chat", "source": f"gateway-{number}", "window_s": WINDOW_S,
            "observed_at": (datetime.now(UTC) - timedelta(seconds=1)).isoformat(),
            "buckets": [{"input_tokens": 500, "output_tokens": 250, "requests": served}],
        }  # fmt: skip
        path = f"/v1/deployments/{one.name}/observations"
        found = self._sent("POST", path, over, document, statuses={202}, hangs_up=hangs_up)
        counted = [answer.json()["accepted_requests"] for answer in found if answer is not None and answer.ok]
        assert sum(counted) <= served, "counted twice"
        one.observed[served] = bool(counted)

    @step(missing=st.sets(st.sampled_from(range(len(MACHINES))), max_size=2))
    def move_the_market(self, missing: set[int]) -> None:
        """Three machines stay for two deployments."""
        self._did("market moved")
        market = a_market(*MACHINES)
        kept = [offer for n, offer in enumerate(market["offers"]) if n not in missing]
        self.world.standing.offer({**market, "offers": kept})

    # -- what comes between ------------------------------------------------------------------------------------

    @step(role=roles, where=where)
    def cut_before(self, role: str, where: bytes) -> None:
        self._did("cut before a statement")
        self.world.wires[role].cut_at(where)

    @step(role=roles, where=where)
    def cut_after(self, role: str, where: bytes) -> None:
        self._did("cut after a commit")
        self.world.wires[role].cut_after(where)

    @step(role=roles, where=where, delay_s=seconds)
    def delay(self, role: str, where: bytes, delay_s: float) -> None:
        self._did("statement delayed")
        self.world.wires[role].pause_at(where, lambda: time.sleep(delay_s))

    @step(role=roles, really=seldom)
    def fall_silent(self, role: str, really: bool) -> None:
        """Notices and the queue's own connection, of which each process has one."""
        if really:
            self._did("notices silent")
            self.world.wires[role].silence(*SILENT)

    @step(
        role=roles,
        really=sometimes,
        lasts_s=seconds | st.just(3.0),
    )
    def stop_for_a_while(self, role: str, really: bool, lasts_s: float) -> None:
        """Three seconds are longer than a worker may be silent: another one takes over what it does."""
        if really:
            self._did("process stopped")
            process = of(self.world.roles[role])
            process.suspend()

            def go_on() -> None:
                time.sleep(lasts_s)
                process.resume()

            self._aside(go_on)

    @step(which=who, lasts_s=seconds)
    def hold_a_row(self, which: int, lasts_s: float) -> None:
        """Who only reads is not kept waiting."""
        self._did("row held")
        scene, held = self.world.standing.scene, threading.Event()
        url = scene.server.url(scene.database).replace("+psycopg", "")

        def hold() -> None:
            with psycopg.connect(url) as connection:
                connection.execute(
                    "SELECT 1 FROM deployment WHERE name = %s FOR UPDATE", [self.deployments[which].name]
                )
                held.set()
                time.sleep(lasts_s)

        self._aside(hold)
        held.wait(LONGEST_ANSWER_S)
        self._read(self.deployments[which], which)

    # -- what holds --------------------------------------------------------------------------------------------

    @invariant()
    @noted
    def no_machine_is_for_two(self) -> None:
        """None is held twice; nor planned twice, but for a while what one of them has reported: who reports a
        machine has it, and the other one's plan is made anew."""
        reported = {offer_id for one in self.deployments for offers in one.reported for offer_id in offers}
        self._assert_for_one(but=reported)

    def _assert_for_one(self, *, but: Collection[str]) -> None:
        names, rows = [one.name for one in self.deployments], self.world.standing.scene.rows
        held_twice = rows(_HELD_TWICE, names)
        assert held_twice == [], f"held twice: {held_twice}"
        planned = Counter(str(offer_id) for (offer_id,) in rows(_RENTED, names))
        planned_twice = [offer_id for offer_id, times in planned.items() if times > 1 and offer_id not in but]
        assert planned_twice == [], f"planned twice: {planned_twice}"

    @noted
    def teardown(self) -> None:
        """Whatever was in the way is gone: all that was begun ends, and nothing is lost or doubled."""
        if self.world.failures:
            return
        for aside in self._asides:
            aside.result()
        for wire in self.world.wires.values():
            wire.mend()
        until(lambda: all(map(self._is_settled, self.deployments)))
        for one in self.deployments:
            self._check(one)
        self._assert_for_one(but={offer_id for one in self.deployments for held in one.held for offer_id in held})
        for name, role in self.world.roles.items():
            assert role.process.poll() is None, f"{name} has ended: {role.said()[-3000:]}"
        for number, one in enumerate(self.deployments):
            self._delete(one, number)
        self._did("histories")

    def _is_settled(self, one: Deployment) -> bool:
        return self.world.standing.scene.rows(_SETTLED, one.name) == [(True,)]

    def _check(self, one: Deployment) -> None:
        rows = self.world.standing.scene.rows
        ((version, revision, marker, planned_marker, held),) = rows(_STATE, one.name)
        assert marker == planned_marker
        assert marker in {5 + change / 1000 for change in one.changes}, (marker, one)
        assert one.acknowledged <= version - 1 <= one.acknowledged + one.unknown, (version, one)
        assert frozenset(held or ()) in one.held, (held, one)
        assert rows(_AUDITED, f"deployment/{one.name}") == [(1, version - 1)], one
        assert [r for (r,) in rows(_PLANNED, one.name)] == list(range(1, revision + 1))
        assert [r for (r,) in rows(_DECIDED, one.name)] == list(range(2, revision + 1))
        for plan_id in one.plans:
            assert rows(
                "SELECT count(*) FROM plan WHERE id = %s AND status NOT IN ('queued', 'running')", plan_id
            ) == [(1,)]
        for served, is_acknowledged in one.observed.items():
            ((times,),) = rows("SELECT count(*) FROM observation WHERE requests = %s", served)
            assert is_acknowledged <= times <= 1, (served, times)
        until(lambda: self.world.receiver.has_heard(one.name, revision))
        told = self.world.receiver.ids_by_revision(one.name)
        assert {len(ids) for ids in told.values()} == {1}

    def _delete(self, one: Deployment, number: int) -> None:
        """Who has deleted it finds it gone, also where that API hears nothing of the database just then; the other
        one may hear of it a moment later."""
        path = f"/v1/deployments/{one.name}"
        for api in (0, 1):
            until(partial(self._finds, 200, f"{path}/plan", api))
        if next(self.world.numbers) % DEAF_EVERY == 0:
            self.world.wires[f"api-{number}"].silence("sutler notices")
        until(lambda: _statuses([self._answer("DELETE", path, number, statuses={204, 404})]) & {204, 404})
        assert self._finds(404, f"{path}/plan", number), "its plan is still there"
        until(partial(self._finds, 404, f"{path}/plan", 1 - number))

    def _finds(self, status: int, path: str, number: int) -> bool:
        return _is(status, self._answer("GET", path, number, statuses={200, 404}))

    # -- how it is asked ---------------------------------------------------------------------------------------

    def _read(self, one: Deployment, number: int) -> Response:
        """The deployment as it is, from one that answers; it holds a change that was made, and the last one."""
        found: Response = until(
            lambda: _if(200, self._answer("GET", f"/v1/deployments/{one.name}", number, statuses={200}))
        )
        marker = found.json()["problem"]["solver"]["time_limit_s"]
        assert marker in {5 + change / 1000 for change in one.changes}, (marker, one)
        return found

    def _sent(
        self, method: str, path: str, over: Sequence[int], body: Any = None, *, statuses: set[int],
        headers: Mapping[str, str] | None = None, hangs_up: bool = False,
    ) -> Sequence[Response | None]:  # fmt: skip
        """Once over each API of the list, all at the same time."""
        self._did(f"{method} {len(over)} times" + (" and hung up" if hangs_up else ""))
        ask = partial(self._answer, method, path, body=body, headers=headers, statuses=statuses, hangs_up=hangs_up)
        return results(*[partial(ask, number) for number in over])

    def _answer(
        self, method: str, path: str, number: int, *, statuses: set[int], body: Any = None,
        headers: Mapping[str, str] | None = None, hangs_up: bool = False,
    ) -> Response | None:  # fmt: skip
        """None where nobody waited for it. What is not expected is one of the 503 that say to ask again."""
        url = f"{self.world.api(number).url}{path}"
        patience_s = 0.004 if hangs_up else LONGEST_ANSWER_S
        try:
            answer = requests.request(method, url, json=body, headers=headers, timeout=(LONGEST_ANSWER_S, patience_s))
        except requests.ReadTimeout:
            assert hangs_up, f"no answer to {method} {path} in {LONGEST_ANSWER_S:g} s"
            return None
        assert answer.status_code in {*statuses, 503}, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer

    def _aside(self, work: Callable[[], object]) -> None:
        self._asides.append(Aside(work))

    def _did(self, what: str) -> None:
        self.world.done[what] += 1


def _statuses(found: Sequence[Response | None]) -> set[int]:
    """0 for those that nobody waited for."""
    return {0 if answer is None else answer.status_code for answer in found}


def _is(status: int, answer: Response | None) -> bool:
    return answer is not None and answer.status_code == status


def _if(status: int, answer: Response | None) -> Response | None:
    return answer if _is(status, answer) else None


def _offers(items: Sequence[Mapping[str, Any]]) -> frozenset[str]:
    return frozenset(str(item["offer_id"]) for item in items)


_RENTED: Final = """
    SELECT r ->> 'offer_id' FROM deployment d JOIN plan p ON p.id = d.plan_id
    CROSS JOIN jsonb_array_elements(p.document::jsonb -> 'rentals') r WHERE d.name = ANY(%s)
"""
_HELD_TWICE: Final = """
    SELECT h ->> 'offer_id' FROM deployment d JOIN watch w ON w.deployment_id = d.id
    CROSS JOIN jsonb_array_elements(w.holdings) h WHERE d.name = ANY(%s) GROUP BY 1 HAVING count(*) > 1
"""
_SETTLED: Final = """
    SELECT d.plan_id IS NOT NULL AND w.touches = w.looked AND NOT EXISTS (
        SELECT 1 FROM plan p WHERE p.deployment_id = d.id AND p.status IN ('queued', 'running'))
    FROM deployment d JOIN watch w ON w.deployment_id = d.id WHERE d.name = %s
"""
_STATE: Final = """
    SELECT d.version, d.revision, (d.problem #>> '{solver,time_limit_s}')::float8,
        (p.problem #>> '{solver,time_limit_s}')::float8,
        (SELECT array_agg(h ->> 'offer_id') FROM jsonb_array_elements(w.holdings) h)
    FROM deployment d JOIN plan p ON p.id = d.plan_id JOIN watch w ON w.deployment_id = d.id WHERE d.name = %s
"""
_PLANNED: Final = """
    SELECT p.revision FROM plan p JOIN deployment d ON d.id = p.deployment_id
    WHERE d.name = %s AND p.revision IS NOT NULL ORDER BY 1
"""
_DECIDED: Final = """
    SELECT c.revision FROM decision c JOIN deployment d ON d.id = c.deployment_id
    WHERE d.name = %s AND c.revision IS NOT NULL ORDER BY 1
"""
_AUDITED: Final = """
    SELECT count(*) FILTER (WHERE action = 'deployment.create'), count(*) FILTER (WHERE action = 'deployment.update')
    FROM audit WHERE target = %s
"""


def run(
    world: World, histories: int, *, steps: int = 12, is_random: bool = False, only: Collection[str] = ()
) -> None:
    """Raises what the first history that ends badly raised. Unless `is_random`, they are the same every time.

    `only`: names of the steps that they are made of; none: all steps."""
    profile = settings(
        max_examples=histories,
        stateful_step_count=steps,
        phases=[Phase.generate],
        deadline=None,
        database=None,
        derandomize=not is_random,
        suppress_health_check=list(HealthCheck),
    )
    left_out = STEPS - set(only) if only else ()
    machine: type[Histories] = type("OfThisWorld", (Histories,), {"world": world, **dict.fromkeys(left_out)})
    try:
        run_state_machine_as_test(machine, settings=profile)
    except BaseException:
        if world.failures:
            raise world.failures[0] from None
        raise


def _part(histories: int) -> Counter[str]:
    """By chance, on an installation of its own."""
    with a_server() as server, a_world(server) as world:
        run(world, histories, is_random=True)
        return world.done


def main() -> None:
    """Runs so many histories, and keeps what was done in them."""
    began, histories = time.monotonic(), int(sys.argv[1])
    with ProcessPoolExecutor(PARTS, mp_context=get_context("spawn")) as pool:
        done = sum(pool.map(_part, [histories // PARTS] * PARTS), start=Counter[str]())
    machine = ", ".join(f"{key} {value}" for key, value in describe_machine().items() if key != "packages")
    counts = [f"{times:7,} {what}" for what, times in sorted(done.items())]
    told = f"all of them ended well; {time.monotonic() - began:.0f} s"
    RESULTS.write_text("\n".join([machine, "", *counts, "", told, ""]), encoding="utf-8")
    print(RESULTS.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
