"""Whether two versions of sutler say the same: every command over the examples, every endpoint of the API.

    python -m benchmarks.unchanged record before.json -- /path/to/before/.venv/bin/sutler
    python -m benchmarks.unchanged record before2.json -- /path/to/before/.venv/bin/sutler
    python -m benchmarks.unchanged record after.json -- .venv/bin/sutler
    python -m benchmarks.unchanged compare before.json before2.json after.json
    python -m benchmarks.unchanged handover -- /path/to/before/.venv/bin/sutler -- .venv/bin/sutler

`handover` has the one version serve and the other serve on from its database. Times, ids, ports and folders are
blotted out. What one version says differently twice (searches that end at a time limit) is named and not compared.
Exit status 1: something differs.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from difflib import unified_diff
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import requests

EXAMPLES: Final = Path(__file__).parent.parent / "examples"
PROBLEMS: Final = (
    *("paper_case", "appendix_c", "disaggregated", "min_cost_slo", "power_capped", "two_models", "trace_case"),
)
APPLICATIONS: Final = ("offline_chain", "offline_ensemble", "offline_rented")
FORMATS: Final = ("vllm", "compose", "kubernetes", "skypilot", "router")
UNSTEADY_KEYS: Final = frozenset(
    (
        *(
            "created_at",
            "started_at",
            "finished_at",
            "issued_at",
            "at",
            "seen_at",
            "read_at",
            "planned_at",
            "looked_at",
        ),
        *("last_seen_at", "first_seen_at", "expires_at", "solved_at", "since", "until", "timestamp", "next_look_at"),
        *("seconds", "solve_seconds", "phase_seconds", "age_s", "request_id"),
    )
)
BLOTS: Final = (
    (re.compile(r'\\?"?[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\\?"?'), "ID"),  # YAML quotes some
    (re.compile(r"20\d\d-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|\+00:00| UTC)?"), "TIME"),
    (re.compile(r"\b\d\d-\d\d \d\d:\d\d\b"), "TIME"),
    (re.compile(r"127\.0\.0\.1:\d+"), "HOST"),
    (re.compile(r"\b\d+(\.\d+)? (s|ms|seconds|minutes?)\b( ago)?"), "N s"),
    (re.compile(r"\d+ days? old"), "N days old"),
    (re.compile(r"(python -m sutler|python -m service\.cli\.main|main\.py)\b"), "sutler"),
    (re.compile(r"whsec_[\w+/=]+|sutler_[0-9a-f]+_\w+"), "SECRET"),
)

Said = dict[str, Any]


def main(given: Sequence[str]) -> int:
    arguments = [os.path.abspath(word) if os.sep in word else word for word in given]  # commands run elsewhere
    if arguments[:1] == ["record"] and "--" in arguments:
        Path(arguments[1]).write_text(json.dumps(recorded(arguments[3:]), indent=1), encoding="utf-8")
        return 0
    if arguments[:1] == ["compare"] and len(arguments) == 4:
        return compared(*(json.loads(Path(path).read_text(encoding="utf-8")) for path in arguments[1:]))
    if arguments[:2] == ["handover", "--"] and "--" in arguments[2:]:
        middle = arguments.index("--", 2)
        return handed_over(arguments[2:middle], arguments[middle + 1 :])
    sys.stderr.write(f"{__doc__}\n")
    return 2


def recorded(sutler: Sequence[str]) -> Said:
    """What this command says, by what it was asked."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(EXAMPLES, folder / "examples")
        environment = _environment(folder)
        said: Said = {}
        for words in (*_helps(sutler, environment, folder), *_commands()):
            print(" ".join(words), flush=True)
            said[" ".join(words)] = _ran([*sutler, *words], environment, folder, str(folder))
        with _serving(sutler, environment, folder) as url:
            said.update(_asked(url, str(folder)))
        return said


def _environment(folder: Path) -> dict[str, str]:
    mine = {key: value for key, value in os.environ.items() if not key.startswith(("SUTLER_", "PYTHON"))}
    own = {"SUTLER_DATA_DIR": str(folder / "data"), "SUTLER_PROVIDERS": "file"}
    return {**mine, **own, "SUTLER_FILE_PATH": str(_market(folder)), "COLUMNS": "110", "NO_COLOR": "1"}


def _market(folder: Path) -> Path:
    offers = [
        {"provider": "acme", "offer_id": name, "gpu": gpu, "gpus": 1, "available": count, "contract": "on_demand"}
        | {"price_usd_per_hour": price}
        for name, gpu, count, price in (("small", "rtx-4090", 8, 0.4), ("large", "h100-sxm", 4, 2.2))
    ]
    taken_at = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    path = folder / "market.json"
    path.write_text(json.dumps({"schema": "sutler/market/v1", "taken_at": taken_at, "offers": offers}))
    return path


def _helps(sutler: Sequence[str], environment: Mapping[str, str], folder: Path) -> Iterator[list[str]]:
    """`--help` of every command, found by following the lists of commands."""
    waiting: list[list[str]] = [[]]
    while waiting:
        words = waiting.pop(0)
        yield [*words, "--help"]
        text = _ran([*sutler, *words, "--help"], environment, folder, "")["out"]
        listed = text.partition("\nCommands:\n")[2]
        waiting += [[*words, line.split()[0]] for line in listed.splitlines() if re.match(r"  \w", line)]


def _commands() -> Iterator[list[str]]:
    """Every command on real input, then what people do wrong."""
    for kind in (
        *("problem", "plan", "market", "calibration", "comparison", "application", "offline-plan"),
        *("offline-progress", "offline-simulation", "offline-comparison", "offline-schedule"),
    ):
        yield ["schema", kind]
    yield from (["catalog", what, *form] for what in ("gpus", "models") for form in ([], ["--json"]))
    for name in PROBLEMS:
        yield ["plan", f"examples/{name}.yaml"]
        yield ["plan", f"examples/{name}.yaml", "--json", "--out", f"{name}.json"]
        yield ["simulate", f"{name}.json", "--poisson", "--seed", "1"]
        yield ["simulate", f"{name}.json", "--poisson", "--seed", "1", "--json"]
        yield from (["export", f"{name}.json", "--format", form] for form in FORMATS)
    for only in ("aggregated-only", "disaggregated-only"):
        yield ["compare", "examples/disaggregated.yaml", "--only", only]
    yield ["compare", "examples/disaggregated.yaml", "--only", "aggregated-only", "--json"]
    for name in APPLICATIONS:
        yield ["offline", "plan", f"examples/{name}.yaml", "--json", "--out", f"{name}.json"]
        yield ["offline", "plan", f"examples/{name}.yaml"]
        yield ["offline", "simulate", f"{name}.json", "--seed", "3"]
        yield ["offline", "run-plan", f"{name}.json"]
        yield ["offline", "run-plan", f"{name}.json", "--format", "script"]
    layout = ["--gpu", "h200-sxm", "--tensor-parallel", "4", "--precision", "fp8", "--input-tokens", "1024"]
    estimate = ["estimate", "--model", "llama-3.1-70b", *layout, "--output-tokens", "512", "--concurrency", "64"]
    yield from (estimate, [*estimate, "--json"])
    yield from (["market", "poll"], ["market", "offers"], ["market", "offers", "--json"], ["market", "providers"])
    yield from (["market", "history", "h100-sxm"], ["db", "upgrade"], ["profiles", "list"], ["keys", "list"])
    yield from (["plan", "missing.yaml"], ["plan", "market.json"], ["plan", "examples/live_market.yaml"])
    yield from (["plan", "examples/paper_case.yaml", "--time-limit-s", "0"], ["plan"], ["nothing"])
    yield from (["estimate", "--model", "none", *layout], ["offline", "plan", "examples/paper_case.yaml"])
    yield from (["profiles", "show", "none"], ["calibrate", "none"], ["market", "offers", "--gpu", "none"])
    yield from (
        ["simulate", "missing.json"],
        ["deployments", "list", "--url", "http://127.0.0.1:9"],
        ["export", "none"],
    )


def _ran(command: Sequence[str], environment: Mapping[str, str], folder: Path, blot: str) -> Said:
    done = subprocess.run(
        command, env=dict(environment), cwd=folder, capture_output=True, text=True, timeout=900, check=False
    )
    said = {"exit": done.returncode, "out": _plain(done.stdout, blot), "err": _plain(done.stderr, blot)}
    if "--out" in command:
        said["file"] = _plain((folder / command[-1]).read_text(), blot) if (folder / command[-1]).exists() else None
    return said


def _plain(text: str, folder: str) -> str:
    """Without what no two runs have in common."""
    with suppress(ValueError):
        text = json.dumps(_steady(json.loads(text)), indent=1)
    for blot, instead in (*BLOTS, *([(re.compile(re.escape(folder)), "FOLDER")] if folder else [])):
        text = blot.sub(instead, text)
    return text


def _steady(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: "-" if key in UNSTEADY_KEYS else _steady(item) for key, item in value.items()}
    return [_steady(item) for item in value] if isinstance(value, list) else value


@contextmanager
def _serving(sutler: Sequence[str], environment: Mapping[str, str], folder: Path) -> Iterator[str]:
    with (folder / "serve.log").open("wb") as log:
        command = [*sutler, "serve", "--port", "0"]
        process = subprocess.Popen(command, env=dict(environment), cwd=folder, stderr=log, stdin=subprocess.DEVNULL)
    try:
        yield _url(folder / "serve.log", process)
    finally:
        process.terminate()
        process.wait(60)


def _url(log: Path, process: "subprocess.Popen[bytes]") -> str:
    while process.poll() is None:
        found = re.search(r"sutler answers on (http://[\w.:]+)", log.read_text())
        if found:
            return found[1]
        time.sleep(0.2)
    raise RuntimeError(log.read_text())


def _asked(url: str, folder: str) -> Said:
    """A story over all resources, then every operation on nothing and with a wrong body."""
    said: Said = {}
    times = Counter[str]()

    def ask(method: str, path: str, body: Any = None, **options: Any) -> Any:
        answer = requests.request(method, f"{url}{path}", json=body, timeout=120, **options)
        label = _plain(f"{method} {path}", folder)
        headers = sorted(set(answer.headers) - {"date", "content-length", "etag"})
        times[label] += 1  # an endpoint that is new leaves the names of the others as they are
        said[f"{label} #{times[label]}"] = [answer.status_code, headers, _plain(answer.text, folder)]
        print(label, answer.status_code, flush=True)
        return answer.json() if "json" in answer.headers.get("content-type", "") and answer.text else None

    document = requests.get(f"{url}/openapi.json", timeout=60).json()
    said["openapi"] = json.dumps(document, indent=1, sort_keys=True)
    _story(ask)
    for path, operations in sorted(document["paths"].items()):
        filled = re.sub(r"\{(plan_id|webhook_id|delivery_id)\}", "00000000-0000-0000-0000-000000000000", path)
        filled = re.sub(r"\{revision\}", "1", re.sub(r"\{format\}", "vllm", re.sub(r"\{name\}", "nothing", filled)))
        for method in sorted(operations):
            if path != "/metrics":
                ask(method.upper(), filled)
                if method in ("post", "put"):
                    ask(method.upper(), filled, {"wrong": [1, None, "x"], "models": 3})
    metrics = requests.get(f"{url}/metrics", timeout=60).text
    said["metrics"] = sorted({line.split("{")[0].split(" ")[0] for line in metrics.splitlines() if line[:1] != "#"})
    return said


def _asking(rate_rps: float) -> dict[str, Any]:
    """A problem of one model."""
    workload = {"name": "chat", "input_tokens": 1000, "output_tokens": 200, "rate_rps": rate_rps}
    return {
        "objective": {"kind": "min_cost"},
        "models": [{"name": "chat", "model": "llama-3-8b", "workloads": [workload]}],
    }


def _story(ask: Any) -> None:
    problem = _asking(2.0)
    plan = ask("POST", "/v1/plans?wait_s=30", problem)
    ask("POST", "/v1/plans?wait_s=30", _asking(1e6))
    for rest in ("", "/problem", *(f"/export/{form}" for form in FORMATS)):
        ask("GET", f"/v1/plans/{plan['id']}{rest}")
    ask("POST", f"/v1/plans/{plan['id']}/cancel")
    ask("GET", "/v1/plans")
    node = {"name": "a", "model": "llama-3-8b", "output_tokens": 50, "requests": {"count": 20, "input_tokens": 100}}
    offline = {"name": "pile", "models": [node], "hardware": {"gpu": "a100-80gb-sxm", "gpus": 2}}
    made = ask("POST", "/v1/offline-plans?wait_s=30", offline)
    for rest in ("", "/application", "/revisions"):
        ask("GET", f"/v1/offline-plans/{(made or {}).get('id', plan['id'])}{rest}")
    ask("GET", "/v1/offline-plans")
    hook = ask("POST", "/v1/webhooks", {"url": "http://127.0.0.1:9/hook", "events": ["plan.created"]})
    at = "/v1/deployments/chat"
    ask("PUT", at, {"problem": problem})
    ask("GET", f"{at}/plan?wait_s=30")
    for rest in ("", "/plans", "/plans/1", "/plans/1/diff", "/terraform/state", "/holdings", "/decisions"):
        ask("GET", f"{at}{rest}")
    ask("GET", f"{at}/traffic")
    ask("POST", f"{at}/holdings/ack")
    ask("GET", f"{at}/holdings")
    now = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    seen = {"model": "chat", "workload": "chat", "start": now, "duration_s": 60, "requests": 100}
    ask("POST", f"{at}/observations", {"observations": [seen]})
    ask("PUT", f"{at}/feeds", {"feeds": []})
    ask("GET", f"{at}/feeds")
    ask("PUT", at, {"problem": _asking(9.0)})
    ask("GET", f"{at}/plan?after=1&wait_s=30")
    ask("GET", f"{at}/plans/2/diff")
    ask("POST", f"{at}/replan")
    ask("GET", "/v1/deployments")
    for path in ("/v1/webhooks", "/v1/offers", "/v1/providers", "/v1/calibrations", "/v1/profiles", "/v1/audit"):
        ask("GET", path)
    if hook and "id" in hook:
        ask("DELETE", f"/v1/webhooks/{hook['id']}")
    ask("DELETE", at)


def handed_over(before: Sequence[str], after: Sequence[str]) -> int:
    """What the one version stored, read by both; then the other plans anew for the deployment of the first."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        environment = _environment(folder)
        at = "/v1/deployments/chat"
        with _serving(before, environment, folder) as url:
            requests.post(f"{url}/v1/plans?wait_s=30", json=_asking(2.0), timeout=120).raise_for_status()
            requests.put(f"{url}{at}", json={"problem": _asking(2.0)}, timeout=120).raise_for_status()
            requests.get(f"{url}{at}/plan?wait_s=30", timeout=120).raise_for_status()
            requests.post(f"{url}{at}/holdings/ack", timeout=120).raise_for_status()
            old = _read(url, str(folder))
        with _serving(after, environment, folder) as url:
            new = _read(url, str(folder))
            requests.put(f"{url}{at}", json={"problem": _asking(9.0)}, timeout=120).raise_for_status()
            plans = (requests.get(f"{url}{at}/plan?after=1&wait_s=30", timeout=120) for _ in range(4))
            found: dict[str, Any] = next((plan.json() for plan in plans if plan.status_code == 200), {})
            print(f"planned anew: revision {found.get('revision')}, {found.get('status')}")
        status = compared(old, old, new)
        return status if found.get("revision") == 2 else 1


def _read(url: str, folder: str) -> Said:
    at = "/v1/deployments/chat"
    own = (at, *(f"{at}/{what}" for what in ("plan", "plans", "plans/1", "holdings", "decisions", "terraform/state")))
    paths = (*own, "/v1/plans", "/v1/deployments", "/v1/offers", "/v1/webhooks")
    return {path: _plain(requests.get(f"{url}{path}", timeout=120).text, folder) for path in paths}


def compared(before: Said, again: Said, after: Said) -> int:
    unsteady = {key for key in before if before[key] != again.get(key)}
    differ = [key for key in {**before, **after} if key not in unsteady and before.get(key) != after.get(key)]
    for key in sorted(unsteady):
        print(f"unsteady before: {key}")
    for key in differ:
        print(f"\n== {key}")
        old, new = (json.dumps(said.get(key), indent=1).replace("\\n", "\n").splitlines() for said in (before, after))
        print("\n".join(list(unified_diff(old, new, lineterm="", n=1))[:40]))
    print(f"\n{len(before)} answers before, {len(after)} after: {len(differ)} differ, {len(unsteady)} unsteady")
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
