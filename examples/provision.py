"""Carries out the plans of a sutler deployment: rents, starts, re-routes, stops and gives back what changed.

The script keeps what it has carried out in a state file, compares it with the current plan, and calls a command of
yours (`--hook`) for each difference. Without one it prints the differences and touches nothing.

    python provision.py chat --problem problem.yaml                          follow the plans, dry run
    python provision.py chat --once --state chat.json --hook ./hook.sh       once, for cron and systemd timers

The hook is called as `HOOK ACTION KEY` with a JSON object on its standard input: action, kind, key, deployment,
plan_id, revision, usd_per_hour (of rent), before and after (what to act on; null where there is nothing). Actions are
rent, resize (other storage), start, restart (other settings), route, unroute, stop and release. It may be called
again for what it has done already, when a run was cut short before that was noted down. A `rent` that ends with exit
status 3 says that the machine is gone: the plan's next spare takes its place, and the hook is called for that.

SUTLER_URL and SUTLER_KEY, or --url and --key-file, say where the service is and who asks. Needs `requests`, PyYAML
for problems in YAML, and sutler_fleet.py beside it. Exit status: 0 carried out or nothing to do, 1 a hook failed,
2 the service refused the request or the input is wrong, 3 the current plan runs nothing, 4 no answer or no plan in
time, 130 interrupted.
"""

import argparse
import fcntl
import json
import os
import random
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from itertools import count
from pathlib import Path
from typing import Any
from urllib.parse import quote

import requests
from sutler_fleet import (
    Change,
    Fleet,
    Json,
    changes,
    fleet_of,
    prices_of,
    with_next_spare,
    with_rented_spares,
)

LONG_POLL_S = 30
CONNECT_S, ANSWER_S = 10.0, 30.0
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 30.0
RETRIED = (408, 429, 500, 502, 503, 504)
GONE = 3  # how a hook says that the machine to rent is gone
HOOK_FAILED, REFUSED, NOTHING_TO_RUN, UNAVAILABLE, INTERRUPTED = 1, 2, 3, 4, 130


class GoneError(Exception):
    """The machine that was to be rented is no longer there."""


class ProvisionError(Exception):
    """Ends the script with this exit status."""

    def __init__(self, exit_status: int, message: str) -> None:
        self.exit_status = exit_status
        super().__init__(message)


# --- the service ---------------------------------------------------------------------------------------------------


class Bearer(requests.auth.AuthBase):
    """Unlike a plain header, this wins over a .netrc, and requests drops it when redirected to another host."""

    def __init__(self, key: str) -> None:
        self._key = key

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._key}"
        return request


class Service:
    """The REST calls this script needs. All of them may be repeated: PUT says what is to be, GET only asks."""

    def __init__(self, session: requests.Session, *, url: str, patience_s: float) -> None:
        self._session, self._url, self._patience_s = session, url.rstrip("/"), patience_s

    def deployment(self, name: str) -> Json:
        return self._json(self._request("GET", f"/v1/deployments/{quote(name, safe='')}"))

    def put_deployment(self, name: str, problem: Json) -> Json:
        path = f"/v1/deployments/{quote(name, safe='')}"
        return self._json(self._request("PUT", path, json={"problem": problem}))

    def plan(
        self, name: str, *, etag: str | None = None, after: int | None = None, wait_s: int = 0
    ) -> tuple[Json, str | None] | None:
        """The current plan and its ETag; None while, for `wait_s`, it has this ETag or no higher revision."""
        params = {"wait_s": wait_s} if after is None else {"wait_s": wait_s, "after": after}
        headers = {} if etag is None else {"If-None-Match": etag}
        path = f"/v1/deployments/{quote(name, safe='')}/plan"
        response = self._request("GET", path, params=params, headers=headers, wait_s=wait_s)
        return None if response.status_code == 304 else (self._json(response), response.headers.get("ETag"))

    def _request(self, method: str, path: str, *, wait_s: float = 0, **content: Any) -> requests.Response:
        """Tries again, ever more rarely, until the patience is used up; obeys Retry-After."""
        give_up_at = time.monotonic() + wait_s + self._patience_s
        for attempt in count():
            asked_s, trouble = 0.0, ""
            try:
                timeout = (CONNECT_S, wait_s + ANSWER_S)
                response = self._session.request(method, self._url + path, timeout=timeout, **content)
                if response.status_code not in RETRIED:
                    return _accepted(response)
                asked_s, trouble = retry_after_s(response), problem_text(response)
            except (requests.ConnectionError, requests.Timeout, requests.exceptions.ChunkedEncodingError) as error:
                trouble = f"{self._url} cannot be reached: {error}"
            backoff_s = min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** min(attempt, 10)) * random.uniform(0.5, 1)
            pause_s = max(asked_s, backoff_s)
            if time.monotonic() + pause_s > give_up_at:
                break
            say(f"{trouble} (again in {pause_s:.1f} s)")
            time.sleep(pause_s)
        raise ProvisionError(UNAVAILABLE, trouble)

    def _json(self, response: requests.Response) -> Json:
        try:
            answer = response.json()
        except requests.JSONDecodeError:
            answer = None
        if not isinstance(answer, dict):
            raise ProvisionError(REFUSED, f"{self._url} answered without JSON: is it a sutler service?")
        return answer


def _accepted(response: requests.Response) -> requests.Response:
    if response.status_code >= 300 and response.status_code != 304:
        raise ProvisionError(REFUSED, problem_text(response))
    return response


def retry_after_s(response: requests.Response) -> float:
    """Retry-After in seconds, given as seconds or as a date; 0 without one."""
    given = response.headers.get("Retry-After", "0")
    try:
        return max(0.0, float(given))
    except ValueError:
        pass
    try:
        return max(0.0, (parsedate_to_datetime(given).astimezone(UTC) - datetime.now(UTC)).total_seconds())
    except ValueError:
        return 0.0


def problem_text(response: requests.Response) -> str:
    """An RFC 9457 problem as lines for people: what is wrong, then field by field what to do."""
    try:
        problem = response.json()
        lines = [f"{problem['title']} ({response.status_code}): {problem['detail']}"]
        for error in problem.get("errors", ()):
            shown = "" if error.get("value") is None else f" {error['value']}:"
            lines.append(f"  {error['field']}:{shown} {error['remedy']}")
    except (requests.JSONDecodeError, KeyError, TypeError):
        return f"{response.status_code} {response.reason}: {response.text[:200]}"
    return "\n".join(lines)


# --- what has been done --------------------------------------------------------------------------------------------


@dataclass
class State:
    """The fleet as carried out so far; `etag` is of the plan that it is, None while it is none in full."""

    path: Path
    etag: str | None = None
    fleet: Fleet = field(default_factory=Fleet)

    @classmethod
    def read(cls, path: Path) -> "State":
        if not path.exists():
            return cls(path)
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            return cls(path, stored["etag"], Fleet(**stored["fleet"]))
        except (ValueError, KeyError, TypeError) as error:
            remedy = "restore it, or remove it if nothing is rented"
            raise ProvisionError(REFUSED, f"{path} is no state file of this script: {remedy}") from error

    def note(self, change: Change) -> None:
        """Called after each hook, so that a run that is cut short goes on where it was."""
        self.etag = None
        part: dict[str, Json] = getattr(self.fleet, change.kind)
        if change.after is None:
            del part[change.key]
        else:
            part[change.key] = change.after
        self.write()

    def write(self) -> None:
        """All or nothing: a half-written state would have machines forgotten, and paid for."""
        aside = self.path.with_name(f"{self.path.name}.new")
        with aside.open("w", encoding="utf-8") as stream:
            json.dump({"etag": self.etag, "fleet": asdict(self.fleet)}, stream, indent=1)
            stream.flush()
            os.fsync(stream.fileno())
        aside.replace(self.path)


@contextmanager
def alone(path: Path | None) -> Iterator[bool]:
    """False while another run has this state file: two at once would rent everything twice."""
    if path is None:
        yield True
        return
    with path.with_name(f"{path.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


@dataclass(frozen=True)
class Hook:
    """The command that carries changes out."""

    words: tuple[str, ...]
    timeout_s: float

    def call(self, change: Change, deployment: str, plan: Json, usd_per_hour: float | None) -> None:
        about = {"deployment": deployment, "plan_id": plan["id"], "revision": plan["revision"]}
        given = {**about, **asdict(change), "usd_per_hour": usd_per_hour}
        command = [*self.words, change.action, change.key]
        try:
            subprocess.run(command, input=json.dumps(given).encode(), timeout=self.timeout_s, check=True)
        except (subprocess.SubprocessError, OSError) as error:
            if change.action == "rent" and getattr(error, "returncode", None) == GONE:
                raise GoneError(change.key) from error
            remedy = "what was done before it is noted down, the next run goes on from there"
            raise ProvisionError(HOOK_FAILED, f"{change.action} {change.key}: {error}; {remedy}") from error


# --- the script ----------------------------------------------------------------------------------------------------


def main(arguments: list[str] | None = None) -> int:
    options = _options(arguments)
    state_path = options.state or Path(f"{options.deployment}.state.json")
    try:
        with alone(state_path if options.hook else None) as is_alone, requests.Session() as session:
            if not is_alone:
                say(f"another run is at work on {state_path}")
                return 0
            session.auth = _auth(options)
            service = Service(session, url=options.url, patience_s=options.patience_s)
            return _run(service, options, State.read(state_path))
    except ProvisionError as error:
        say(str(error))
        return error.exit_status
    except OSError as error:  # requests' own errors are among them
        say(str(error))
        return REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED


def _auth(options: argparse.Namespace) -> Bearer | None:
    key = options.key_file.read_text(encoding="utf-8").strip() if options.key_file else options.key
    if key and not re.fullmatch(r"[!-~]+", key):
        raise ProvisionError(REFUSED, "the API key has characters that no key has: is it the right file?")
    return Bearer(key) if key else None


def _options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Carry out the plans of a sutler deployment.")
    parser.add_argument("deployment", help="its name")
    parser.add_argument("--problem", type=Path, help="problem file (YAML or JSON): makes or changes the deployment")
    parser.add_argument("--hook", help="command that carries out a change; without it, changes are only shown")
    parser.add_argument("--hook-timeout-s", type=float, default=1800, help="seconds a hook may take (1800)")
    parser.add_argument("--once", action="store_true", help="carry out the current plan and end")
    parser.add_argument("--state", type=Path, help="file with what was carried out (DEPLOYMENT.state.json)")
    parser.add_argument("--patience-s", type=float, default=300, help="seconds to go on trying for an answer (300)")
    parser.add_argument("--url", default=os.environ.get("SUTLER_URL", "http://127.0.0.1:8400"), help="or SUTLER_URL")
    parser.add_argument("--key-file", type=Path, help="file with the API key; or SUTLER_KEY holds the key itself")
    # not an option: command lines can be read by every user of the machine
    parser.set_defaults(key=os.environ.get("SUTLER_KEY"))
    return parser.parse_args(arguments)


def _run(service: Service, options: argparse.Namespace, state: State) -> int:
    name, hook = options.deployment, None
    if options.hook:
        hook = Hook(tuple(shlex.split(options.hook)), options.hook_timeout_s)
    deployment = _deployment(service, options)
    found = _awaited(service, deployment, options.patience_s) or service.plan(name, etag=state.etag)
    while True:
        if found is not None:
            plan, etag = found
            _carry_out(plan, etag, name, state, hook)
        if options.once:
            if found is None:
                say(f"{name}: carried out already")
            return 0
        found = service.plan(name, etag=state.etag, wait_s=LONG_POLL_S)


def _deployment(service: Service, options: argparse.Namespace) -> Json:
    if options.problem is None:
        return service.deployment(options.deployment)
    return service.put_deployment(options.deployment, read_problem(options.problem))


def read_problem(path: Path) -> Json:
    """A problem file as the service takes it: the market snapshot that it names is put in its place."""
    problem = _read(path)
    market = problem.get("market")
    if isinstance(market, dict) and isinstance(market.get("offers"), str):
        problem["market"] = {**market, "offers": _read(path.parent / market["offers"])}
    return problem


def _read(path: Path) -> Json:
    text = path.read_text(encoding="utf-8")
    try:
        content = json.loads(text) if path.suffix == ".json" else _yaml(text)
    except ValueError as error:
        raise ProvisionError(REFUSED, f"{path}: {error}") from error
    if not isinstance(content, dict):
        raise ProvisionError(REFUSED, f"{path} must hold one object")
    return content


def _loader() -> Any:
    """YAML's plain values, but times stay text, as JSON has them."""
    import yaml

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers = {  # noqa: RUF012
            first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith(":timestamp")]
            for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
        }

    return Loader


def _yaml(text: str) -> Any:
    import yaml

    try:
        return yaml.load(text, Loader=_loader())
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def _awaited(service: Service, deployment: Json, patience_s: float) -> tuple[Json, str | None] | None:
    """The plan that is being made, for a problem that was just changed; None where it does not come in time."""
    if deployment.get("pending") is None or deployment.get("plan") is None:
        return None
    give_up_at = time.monotonic() + patience_s
    while (left_s := give_up_at - time.monotonic()) > 0:
        wait_s = min(LONG_POLL_S, 1 + int(left_s))
        found = service.plan(deployment["name"], after=deployment["plan"]["revision"], wait_s=wait_s)
        if found is not None:
            return found
    return None


def _carry_out(plan: Json, etag: str | None, name: str, state: State, hook: Hook | None) -> None:
    if plan["status"] not in ("optimal", "feasible"):
        conflicts = "".join(f"\n  {c['constraint']}: {c['remedy']}" for c in plan["conflicts"])
        raise ProvisionError(NOTHING_TO_RUN, f"{name}: the plan is {plan['status']}; nothing is changed{conflicts}")
    plan = with_rented_spares(plan, state.fleet.rentals)
    print(f"{name}: revision {plan['revision']}, {plan['cost_usd_per_hour']:.2f} $/h", flush=True)
    while True:
        try:
            return _carried_out(plan, etag, name, state, hook)
        except GoneError as gone:
            following = with_next_spare(plan, str(gone))
            if following is None:
                raise ProvisionError(HOOK_FAILED, f"rent {gone}: it is gone, and so are its spares") from gone
            print(f"  gone     {gone}: its next spare", flush=True)
            plan = following


def _carried_out(plan: Json, etag: str | None, name: str, state: State, hook: Hook | None) -> None:
    target, prices = fleet_of(plan), prices_of(plan)
    todo = changes(state.fleet, target)
    print(f"  {len(todo)} to do", flush=True)
    for change in todo:
        price = prices.get(change.key) if change.action == "rent" else None
        print(f"  {change.action:8} {change.key}{'' if price is None else f'  {price:.3f} $/h'}", flush=True)
        if hook is not None:
            hook.call(change, name, plan, price)
            state.note(change)
    state.fleet, state.etag = target, etag
    if hook is not None:
        state.write()


def say(message: str) -> None:
    print(f"provision: {message}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
