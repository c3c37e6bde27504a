"""How far the product is from the engine: rates of closed loops, latencies of random arrivals, by the command line.

Closed loops on the engine's clock -> `profiles import` -> `calibrate` -> `simulate` of the same arrivals that the
engine served, and the closed form: the limit at which `plan` finds that the load may be what the engine was given.
"""

import csv
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.engine.beside import LENGTHS, MIX, VERSION, Clocked, Served, joined, problem, sutler, written

CLIENTS: Final = (1, 2, 4, 16)
LOADS: Final = (0.3, 0.6, 0.85)
EQUAL_RUNS: Final = 3
METRICS: Final = ("ttft_s", "tpot_s", "e2e_s")
PERCENTILE: Final = 90
LONG_S: Final = 3000

Arrivals = list[tuple[float, int, int]]


@dataclass(frozen=True, slots=True)
class Measured:
    """closed: by lengths and clients; full_rps: of a backlog; arrivals and equal runs of each of LOADS."""

    closed: dict[tuple[str, int], Served]
    full_rps: float
    arrivals: dict[float, Arrivals]
    open: dict[float, list[Served]]


def measured(engine: Clocked, *, requests: int) -> Measured:
    """What the engine does on its clock. Whatever is measured is measured in every round: the machine is as fast now
    and slower then, for all of it alike."""
    engine.serve([(0.0, 64, 32)] * 4, clients=2)  # warm
    closed: dict[tuple[str, int], list[Served]] = {}
    backlogs: list[Served] = []
    arrivals: dict[float, Arrivals] = {}
    opened: dict[float, list[Served]] = {load: [] for load in LOADS}
    for _ in range(EQUAL_RUNS):
        for name, lengths in LENGTHS.items():
            for clients in CLIENTS:
                one = engine.serve([(0.0, *lengths)] * max(4, 2 * clients), clients=clients)
                closed.setdefault((name, clients), []).append(one)
        backlogs.append(engine.serve(_mixed(np.zeros(requests))))
        for load in LOADS:
            arrivals.setdefault(load, _arrivals(load * backlogs[0].req_per_s, requests))
            opened[load].append(engine.serve(arrivals[load]))
    return Measured({key: joined(runs) for key, runs in closed.items()}, joined(backlogs).req_per_s, arrivals, opened)


def _mixed(arrival_s: "np.ndarray[Any, Any]") -> Arrivals:
    shares = np.array([MIX[name] for name in LENGTHS]) / sum(MIX.values())
    names = np.random.default_rng(7).choice(list(LENGTHS), len(arrival_s), p=shares)
    return [(float(at), *LENGTHS[name]) for at, name in zip(arrival_s, names, strict=True)]


def _arrivals(rate_rps: float, requests: int) -> Arrivals:
    """Poisson arrivals of the mix; the first at 0, as a replayed trace has it."""
    at = np.cumsum(np.random.default_rng(7).exponential(1.0 / rate_rps, requests))
    return _mixed(at - at[0])


def calibrated(found: Measured, model: Path, folder: Path) -> dict[str, Any]:
    """Imports the closed loops, calibrates by them, and writes folder/mine.json; returns what `calibrate` says."""
    asked = written(folder / "problem.yaml", problem(model))
    runs = folder / "closed.csv"
    same = {"gpu": "core", "model": "tiny", "precision": "bf16", "engine": "vllm", "engine_version": VERSION, "tp": 1}
    rows = [
        {
            **same,
            "input_tokens": LENGTHS[name][0],
            "output_tokens": LENGTHS[name][1],
            "concurrency": clients,
            "req_per_s": served.req_per_s,
            "ttft_s": served.ttft_s.mean(),
            "tpot_s": served.tpot_s.mean(),
            "completed": len(served.ttft_s),
            "duration_s": served.seconds,
            "length_spread_fraction": 0,
        }
        for (name, clients), served in found.closed.items()
    ]
    with runs.open("w", newline="") as out:
        table = csv.DictWriter(out, list(rows[0]))
        table.writeheader()
        table.writerows(rows)
    sutler("profiles", "import", runs, "--problem", asked, folder=folder)
    answer = sutler("calibrate", "mine", "--problem", asked, "--out", folder / "mine.json", "--json", folder=folder)
    said: dict[str, Any] = json.loads(answer)
    return said


def planned(model: Path, folder: Path, *, calibration: bool) -> dict[str, Any]:
    """The plan at full load, which simulations replay; written to a file beside its problem."""
    name = "calibrated" if calibration else "shipped"
    more = {"throughput": {"calibration": {"file": str(folder / "mine.json")}}} if calibration else {}
    asked = written(folder / f"{name}.yaml", problem(model, **more))
    plan: dict[str, Any] = json.loads(
        sutler("plan", asked, "--json", "--out", folder / f"{name}.json", folder=folder)
    )
    return plan


def replayed(plan: Path, arrivals: Arrivals, folder: Path) -> dict[str, Any]:
    """What `simulate` says of the same arrivals, all of them counted."""
    trace = folder / "trace.csv"
    start = datetime(2026, 11, 28, tzinfo=UTC)
    with trace.open("w", newline="") as out:
        table = csv.writer(out)
        table.writerow(["TIMESTAMP", "ContextTokens", "GeneratedTokens"])
        for at, prompt, length in arrivals:
            table.writerow([f"{start + timedelta(seconds=at):%Y-%m-%d %H:%M:%S.%f}", prompt, length])
    words = ("simulate", plan, "--trace", trace, "--warm-up-s", 0, "--json")
    answer: dict[str, Any] = json.loads(sutler(*words, folder=folder))
    return answer


def at_random(plan: Path, rate_rps: float, folder: Path) -> dict[str, Any]:
    """What `simulate` says of LONG_S of arrivals at random, at so many requests/s of the mix."""
    (model,) = json.loads(plan.read_text())["replicas"]
    multiple = rate_rps / sum(model["throughput_rps"].values())
    words = ("simulate", plan, "--poisson", "--duration-s", LONG_S, "--load-multiple", multiple, "--json")
    answer: dict[str, Any] = json.loads(sutler(*words, folder=folder))
    return answer


def means_of(simulated: dict[str, Any]) -> dict[str, float]:
    """Of METRICS, over all requests of a simulation."""
    (model,) = simulated["models"]
    return {metric: float(model[metric.removesuffix("_s")]["mean_s"]) for metric in METRICS}


def percentiles_of(simulated: dict[str, Any], workload: str) -> dict[str, float]:
    """METRICS at PERCENTILE, of the requests of one of LENGTHS."""
    (mine,) = (one for one in simulated["workloads"] if one["workload"] == workload)
    name = f"p{PERCENTILE}"
    return {metric: float(mine[metric.removesuffix("_s")]["percentiles_s"][name]) for metric in METRICS}


def means(served: Served) -> dict[str, float]:
    """Of what was measured."""
    return {metric: float(np.nanmean(getattr(served, metric))) for metric in METRICS}


def at_percentile(served: Served, arrivals: Arrivals, workload: str) -> dict[str, float]:
    """METRICS at PERCENTILE, of the requests of one of LENGTHS."""
    mine = [tuple(one[1:]) == LENGTHS[workload] for one in arrivals]
    return {metric: float(np.nanpercentile(getattr(served, metric)[mine], PERCENTILE)) for metric in METRICS}


def closed_form(folder: Path, rate_rps: float, workload: str, near: dict[str, float]) -> dict[str, float]:
    """The limit of each metric, of one workload alone, at which plans give a core just so many requests/s of the mix:
    what they take the percentile for at that load. Sought around `near`; NaN where it is beyond a factor of 2."""
    found = {}
    at = np.geomspace(0.5, 2.0, 9)
    for metric, seconds in near.items():
        limits = ",".join(f"{seconds * one:.6g}" for one in at)
        path = f"models.tiny.workloads.{workload}.slo.{metric.removesuffix('_s')}_p{PERCENTILE}_s"
        words = ["plan", folder / "calibrated.yaml", "--set", f"{path}={limits}", "--no-alternatives", "--json"]
        variants = json.loads(sutler(*words, folder=folder))["variants"]
        rates = np.maximum.accumulate([one["throughput_rps"] or 0.0 for one in variants])
        first = int(np.searchsorted(rates, rate_rps))
        if first in (0, len(at)):
            found[metric] = float("nan")
            continue
        share = (rate_rps - rates[first - 1]) / (rates[first] - rates[first - 1])
        found[metric] = float(seconds * at[first - 1] * (at[first] / at[first - 1]) ** share)
    return found
