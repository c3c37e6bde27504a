"""The measurements of the service as a text that people read, and which of them miss their targets."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from benchmarks.service_measures import Condition, Keys, Polls, Report
from benchmarks.service_rounds import CONNECTIONS, LONG_POLLS, RATE_RPS, Round, errors_of, median_of
from benchmarks.service_running import Memory
from benchmarks.service_starts import Starts
from benchmarks.service_wakes import Wakes

LEAST_RPS: Final = 500.0
MOST_P99_MS: Final = 50.0
MOST_START_S: Final = 5.0
MOST_LET_GO_S: Final = 5.0
LEAST_KEPT_FRACTION: Final = 0.95
LEAST_ON_SCHEDULE_FRACTION: Final = 0.99
SHOWN_ROLES: Final = ("api", "solver", "PostgreSQL", "load generator", "others")


def missed(report: Report) -> list[str]:
    """What is not as it has to be, a sentence each."""
    slowest_s = max(report["starts"]["healthy_s"])
    wakes, polls, kept = report["wakes"], report["polls"], kept_fraction(report["polls"])
    found = {
        f"a start takes {slowest_s:.1f} s, not under {MOST_START_S:g}": slowest_s >= MOST_START_S,
        f"with {LONG_POLLS} long polls {kept:.2f} of the throughput is left": kept < LEAST_KEPT_FRACTION,
        f"{polls['held_till_the_end']} long polls of {LONG_POLLS} were held": polls["held_till_the_end"] < LONG_POLLS,
        f"{polls['wrong']} long polls ended wrongly": polls["wrong"] > 0,
        f"long polls are held for {polls['let_go_s']:.0f} s after their clients have left": (
            polls["let_go_s"] > MOST_LET_GO_S
        ),
        f"{wakes['untold']} times a client missed a plan": wakes["untold"] > 0,
        f"{wakes['doubled']} times a client was told the same twice": wakes["doubled"] > 0,
        f"polls failed: {wakes['errors']}": bool(wakes["errors"]),
    }
    for condition in report["conditions"]:
        found |= _of_condition(condition)
    for rounds in (polls["without"], polls["held"], report["keys"]["without"], report["keys"]["required"]):
        found[f"wrong answers: {errors_of(rounds)}"] = bool(errors_of(rounds))
    return [sentence for sentence, is_so in found.items() if is_so]


def _of_condition(condition: Condition) -> dict[str, bool]:
    name = condition["name"]
    p99_ms = median_of(condition["open"], lambda found: found["latencies"]["p99_ms"])
    most_rps = median_of(condition["closed"], lambda found: found["rate_rps"])
    answered_rps = median_of(condition["open"], lambda found: found["rate_rps"])
    errors = errors_of([*condition["open"], *condition["closed"]])
    return {
        f"{name}: p99 {p99_ms:.1f} ms (median of the rounds), not under {MOST_P99_MS:g}": p99_ms >= MOST_P99_MS,
        f"{name}: at most {most_rps:.0f} requests/s, not {LEAST_RPS:g}": most_rps < LEAST_RPS,
        f"{name}: {answered_rps:.0f} requests/s were answered of {RATE_RPS:g} due": (
            answered_rps < LEAST_ON_SCHEDULE_FRACTION * RATE_RPS
        ),
        f"{name}: wrong answers: {errors}": bool(errors),
    }


def kept_fraction(polls: Polls) -> float:
    """Throughput with long polls beside it relative to that without in the same pair: the median of the pairs."""
    pairs = zip(polls["held"], polls["without"], strict=True)
    return median(held["rate_rps"] / free["rate_rps"] for held, free in pairs)


def text_of(report: Report) -> str:
    """Machine, then a table for each measurement."""
    machine = report["machine"]
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    head = (
        f"sutler {machine['sutler']}, {machine['date']}\n"
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']:g} GB, {machine['system']}\n"
        f"Python {machine['python']}, {packages}"
    )
    parts = [
        _open(report),
        _closed(report["conditions"]),
        _cores(report["conditions"]),
        _polls(report["polls"]),
        _keys(report["keys"]),
        _wakes(report["wakes"]),
        _rest(report),
        _memory(report["memory"]),
    ]
    misses = missed(report)
    closing = "All targets are met." if not misses else "\n".join(f"MISSED: {sentence}." for sentence in misses)
    return "\n\n".join([head, *("\n".join(part) for part in parts), closing]) + "\n"


def _open(report: Report) -> Iterator[str]:
    rounds = len(report["conditions"][0]["open"])
    yield (
        f"GET /v1/deployments/chat/plan ({report['body_bytes']:,} bytes) {RATE_RPS:g} times a second on schedule, "
        f"{CONNECTIONS} connections, {rounds} rounds;"
    )
    yield f"ms from the moment each was due (targets: {LEAST_RPS:g} requests/s, median p99 under {MOST_P99_MS:g} ms)"
    yield "beside it            answered/s    p50    p90    p99    max   p99 of each round           wrong  sent late"
    for condition in report["conditions"]:
        every, rounds_of = condition["open_all"], condition["open"]
        rate_rps = median_of(rounds_of, lambda found: found["rate_rps"])
        p99s = " ".join(f"{found['latencies']['p99_ms']:.1f}" for found in rounds_of)
        late_ms = max(found["late"]["p99_ms"] for found in rounds_of if found["late"] is not None)
        yield (
            f"{condition['name']:18} {rate_rps:12.1f} {every['p50_ms']:6.1f} {every['p90_ms']:6.1f} "
            f"{every['p99_ms']:6.1f} {every['max_ms']:6.1f}   {p99s:26} {sum(errors_of(rounds_of).values()):6} "
            f"{late_ms:10.1f}"
        )
    yield "sent late: by the load generator itself, p99 of the worst round; it is part of the latencies"


def _closed(conditions: Sequence[Condition]) -> Iterator[str]:
    yield (
        f"The same as fast as it goes, {CONNECTIONS} connections; ms from sending; CPU of the API's process, "
        "microseconds a request"
    )
    yield "beside it            requests/s   of each round                       p50    p99    max  wrong    CPU"
    for condition in conditions:
        every, rounds = condition["closed_all"], condition["closed"]
        yield (
            f"{condition['name']:18} {_rates(rounds)} {every['p50_ms']:6.1f} {every['p99_ms']:6.1f} "
            f"{every['max_ms']:6.1f} {sum(errors_of(rounds).values()):6} {_api_us(rounds):6.0f}"
        )


def _rates(rounds: Sequence[Round]) -> str:
    """The median, and each."""
    every = " ".join(f"{found['rate_rps']:.0f}" for found in rounds)
    return f"{median_of(rounds, lambda found: found['rate_rps']):12.0f}   {every:30}"


def _api_us(rounds: Sequence[Round]) -> float:
    return 1e6 * median_of(rounds, lambda found: found["api_cpu_s"])


def _cores(conditions: Sequence[Condition]) -> Iterator[str]:
    yield "Cores used meanwhile, medians of the rounds; others: whatever else ran on the machine."
    yield "API waited: the share of the time in which it had work but no processor, median and worst round"
    yield f"{'':38}" + " ".join(f"{role:>14}" for role in SHOWN_ROLES) + "   API waited"
    for condition in conditions:
        yield f"{condition['name']:18} on schedule        " + _shares(condition["open"])
        yield f"{'':18} as fast as it goes " + _shares(condition["closed"])


def _shares(rounds: Sequence[Round]) -> str:
    shares = " ".join(f"{median(found['cpu'][role] for found in rounds):14.2f}" for role in SHOWN_ROLES)
    waited = [found["api_waited_fraction"] for found in rounds]
    return f"{shares}  {median(waited):5.2f} {max(waited):5.2f}"


def _polls(polls: Polls) -> Iterator[str]:
    yield f"As fast as it goes, with {LONG_POLLS} long polls held beside it and without, in turns, no solves"
    yield from _compared(("without", polls["without"]), ("with", polls["held"]))
    more_cpu = _api_us(polls["held"]) / _api_us(polls["without"])
    kept = f"{kept_fraction(polls):.3f} of the throughput (median of the pairs)"
    yield f"With them {kept} and {more_cpu:.3f} of the CPU a request."
    yield (
        f"Here and above, held all the time: {polls['held_till_the_end']}; ended wrongly: {polls['wrong']}; let go "
        f"{polls['let_go_s']:.1f} s after their clients had left"
    )


def _keys(keys: Keys) -> Iterator[str]:
    yield "As fast as it goes, with keys required (SUTLER_REQUIRE_KEY=1) and without, in turns"
    yield from _compared(("without keys", keys["without"]), ("keys required", keys["required"]))
    yield f"A key costs {_api_us(keys['required']) - _api_us(keys['without']):.0f} microseconds of CPU a request."


def _compared(*named: tuple[str, Sequence[Round]]) -> Iterator[str]:
    yield "                     requests/s   of each round                       p99    CPU"
    for name, rounds in named:
        p99_ms = median_of(rounds, lambda found: found["latencies"]["p99_ms"])
        yield f"{name:18} {_rates(rounds)} {p99_ms:6.1f} {_api_us(rounds):6.0f}"


def _wakes(wakes: Wakes) -> Iterator[str]:
    yield (
        f"A new plan, with {wakes['clients']} clients waiting for it, {len(wakes['first_s'])} times: "
        "ms from just before its commit until it is there"
    )
    for name, seconds in (
        ("first client", wakes["first_s"]),
        ("median client", wakes["median_s"]),
        ("last client", wakes["last_s"]),
    ):
        yield f"{name:15} median {1e3 * median(seconds):6.1f}   worst {1e3 * max(seconds):6.1f}"
    spread = [last - first for first, last in zip(wakes["first_s"], wakes["last_s"], strict=True)]
    yield f"first to last   median {1e3 * median(spread):6.1f}   worst {1e3 * max(spread):6.1f}"
    failed = sum(wakes["errors"].values())
    yield f"missed {wakes['untold']}, told twice {wakes['doubled']}, failed polls {failed}"


def _rest(report: Report) -> Iterator[str]:
    plans = report["plans"]
    yield from _starts(report["starts"])
    yield (
        f"POST /v1/plans of the example, {plans['count']} times one after another, answered with the plan: ms "
        f"p50 {plans['p50_ms']:.0f}, p90 {plans['p90_ms']:.0f}, p99 {plans['p99_ms']:.0f}, max {plans['max_ms']:.0f}"
    )


def _starts(starts: Starts) -> Iterator[str]:
    yield f"From an empty folder, {len(starts['healthy_s'])} times: seconds from `sutler serve` until 200"
    for path, seconds in (("/healthz", starts["healthy_s"]), ("/readyz", starts["ready_s"])):
        target = f"  (target {MOST_START_S:g})" if path == "/healthz" else ""
        yield f"{path:10} median {median(seconds):5.2f}   worst {max(seconds):5.2f}{target}"


def _memory(memory: Sequence[Memory]) -> Iterator[str]:
    yield "Memory at the end, MB: resident, and with what several processes share counted once"
    for role in memory:
        many = f" ({role['processes']} processes)" if role["processes"] > 1 else ""
        yield f"{role['role']:12} {role['rss_mb']:6.0f} {role['pss_mb']:6.0f}{many}"
