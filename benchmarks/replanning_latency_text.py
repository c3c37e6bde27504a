"""What was measured, as text, and what of it missed its target."""

from collections.abc import Iterable, Iterator, Sequence
from statistics import median
from typing import Final, TypedDict

from benchmarks.machine import Machine
from benchmarks.replanning_latency_case import Answered, Decisions
from benchmarks.replanning_latency_fleet import OUTCOMES, PACE_SPEED, Fleet, Pace, Round

MOST_DECISION_S: Final = 5.0
MOST_ROUND_S: Final = 30.0
ROLES: Final = ("api", "scheduler", "worker", "solver", "PostgreSQL", "others")
CAUSES: Final = {
    "gone": "a poll that has lost what the plan rents dearest",
    "lost": "a report of holdings without it",
}


class Report(TypedDict):
    machine: Machine
    decisions: Decisions
    fleet: Fleet


def missed(report: Report) -> list[str]:
    """A sentence for each target that was missed."""
    decisions, fleet = report["decisions"], report["fleet"]
    found = {}
    for cause, answers in (("gone", decisions["gone"]), ("lost", decisions["lost"])):
        slowest_s = max(answer["told_s"] for answer in answers)
        found[f"{cause}: the slowest plan came after {slowest_s:.1f} s, not within {MOST_DECISION_S:g}"] = (
            slowest_s >= MOST_DECISION_S
        )
    for each in fleet["rounds"]:
        moved = f"{each['moved_s']:g} s later"
        found[f"{moved}: all were looked at after {each['all_s']:.1f} s, not within {MOST_ROUND_S:g}"] = (
            each["all_s"] >= MOST_ROUND_S
        )
        blind = each["outcomes"].get("blind", 0)
        found[f"{moved}: {blind} could not be looked at"] = blind > 0
    late = [lag_s for lag_s in fleet["pace"]["lags_s"] if lag_s is None or lag_s >= MOST_ROUND_S]
    found[
        f"at the scheduler's pace {len(late)} of {len(fleet['pace']['lags_s'])} polls were not looked at "
        f"by all within {MOST_ROUND_S:g} s"
    ] = bool(late)
    return [sentence for sentence, is_so in found.items() if is_so]


def text_of(report: Report) -> str:
    """Machine, then a part for each measurement, then what was missed."""
    machine, misses = report["machine"], missed(report)
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    head = [
        f"sutler {machine['sutler']}, {machine['date']}",
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']:g} GB, {machine['system']}",
        f"Python {machine['python']}, {packages}",
    ]
    parts: list[Iterable[str]] = [
        head,
        _decisions(report["decisions"]),
        _rounds(report["fleet"]),
        _pace(report["fleet"]["pace"]),
        [f"MISSED: {sentence}." for sentence in misses] or ["All targets are met."],
    ]
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def _decisions(decisions: Decisions) -> Iterator[str]:
    yield (
        f"The paper's case (Llama-3-70B, trace 2, 30 $/h, {decisions['offers']} offers): seconds from the cause "
        f"until a client that waits has the new plan (target: {MOST_DECISION_S:g})"
    )
    yield (
        f"{'cause':50} {'times':>5} {'p50':>6} {'max':>6}   {'of it until the commit':>22}   {'of it solver':>12}"
        "   machines changed"
    )
    for cause, words in CAUSES.items():
        answers = decisions["gone"] if cause == "gone" else decisions["lost"]
        yield f"{words:50} {len(answers):5} {_answers(answers)}"
    yield f"cores used meanwhile by others than the service: {decisions['others_cores']:.2f}"


def _answers(answers: Sequence[Answered]) -> str:
    told_s = [answer["told_s"] for answer in answers]
    issued_s = median(answer["issued_s"] for answer in answers)
    solver_s = median(answer["solver_s"] for answer in answers)
    changed = median(answer["changed"] for answer in answers)
    return f"{median(told_s):6.2f} {max(told_s):6.2f}   {issued_s:22.2f}   {solver_s:12.2f}   {changed:16g}"


def _rounds(fleet: Fleet) -> Iterator[str]:
    yield (
        f"{fleet['deployments']} deployments on one market of {fleet['offers']:,} offers, {fleet['holding']} of "
        f"which report what they hold, {fleet['observed']} their traffic; setting up took {fleet['setup_s']:.0f} s."
    )
    yield (
        "Seconds from a poll until half and all were looked at again with it "
        f"(target for all: {MOST_ROUND_S:g}), and what came of it; market: moved by, offers: changed"
    )
    named = " ".join(f"{name:>9}" for name in OUTCOMES)
    yield (
        f"{'market':>15} {'offers':>7} {'half':>7} {'all':>7}   {named} {'revisions':>10}   "
        "CPU ms a deployment: worker solver   cores: others"
    )
    for each in fleet["rounds"]:
        yield _round(each, fleet["deployments"])
    yield (
        "calm: nothing to consider; considered: what runs valued, and proof that no change is worth it; searched: "
        "a better fleet sought, none worth it"
    )


def _round(each: Round, deployments: int) -> str:
    counts = " ".join(f"{each['outcomes'].get(name, 0):9}" for name in OUTCOMES)
    worker_ms, solver_ms = (1e3 * each["cpu_s"][role] / deployments for role in ("worker", "solver"))
    others = each["cpu_s"]["others"] / each["all_s"]
    return (
        f"{'+':>4}{each['moved_s']:9g} s {each['changed']:7} {each['half_s']:7.1f} {each['all_s']:7.1f}   {counts} "
        f"{each['revisions']:10} {worker_ms:29.0f} {solver_ms:6.0f} {others:15.2f}"
    )


def _pace(pace: Pace) -> Iterator[str]:
    if not pace["seconds"]:
        yield "The scheduler's own pace was not measured."
        return
    lags_s = [lag_s for lag_s in pace["lags_s"] if lag_s is not None]
    yield (
        f"All clouds polled by the scheduler at their default pace for {pace['seconds']:.0f} s, the market "
        f"{PACE_SPEED:g} times as fast as the clock: {len(pace['lags_s'])} polls changed offers, "
        f"{pace['revisions']} revisions"
    )
    if lags_s:
        never = len(pace["lags_s"]) - len(lags_s)
        yield f"until all were looked at: p50 {median(lags_s):.1f} s, max {max(lags_s):.1f} s; never: {never}"
    yield "cores used: " + ", ".join(f"{role} {pace['cpu_s'][role] / pace['seconds']:.2f}" for role in ROLES)
