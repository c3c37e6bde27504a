"""The parts of docs/offline-results.md on what is not as planned: lengths that were sampled, speeds that are wrong.

Flow: summaries.py -> known, adjusted (here) -> report.py.
"""

from collections.abc import Sequence

from benchmarks.accuracy.markdown import prose, table
from benchmarks.offline.adjustment import FACTORS
from benchmarks.offline.paper import KNOWN_LENGTHS
from benchmarks.offline.settings import Loss, Recovery
from benchmarks.offline.summaries import known_summaries, recovered_fraction, recovered_in_all


def known(losses: Sequence[Loss]) -> str:
    words = prose(f"""What is lost where the output lengths are not known: one schedule, planned on sampled answers,
    run on those that other seeds draw to the same requests, against the schedule that sutler plans on the latter.
    A loss below zero is luck. The paper: plans that know the lengths are {KNOWN_LENGTHS} times as fast (§5.5).""")
    header = ("setting", "seeds", "planned, s", "known, s", "mean loss, %", "least, %", "worst, %")
    rows = [
        (
            one.setting,
            one.seeds,
            f"{one.expected_s:.0f}",
            f"{one.known_s:.0f}",
            *(f"{100 * fraction:.1f}" for fraction in (one.mean, one.least, one.worst)),
        )
        for one in known_summaries(losses)
    ]
    return "## Known and sampled lengths\n\n" + words + (table(header, rows) if rows else "Not run yet.\n")


def adjusted(recoveries: Sequence[Recovery]) -> str:
    words = prose("""One model takes 1.3 or 0.7 times as long as planned. When it has done three of ten of its
    requests, the plan goes on as it was, is adjusted by the counts of requests that are done, or is searched again by
    an oracle that knows the speed. Seconds until all is done: going on / adjusted / oracle, and how much of the
    oracle's gain adjusting recovers; – where the oracle gains less than 1 % of the
    time. All three know the lengths of the answers.""")
    header = ("setting", "model", *(f"x {factor}" for factor in FACTORS))
    by_case: dict[tuple[str, str], dict[float, Recovery]] = {}
    for one in recoveries:
        by_case.setdefault((one.setting, one.node), {})[one.factor] = one
    rows = [(*case, *(_case(found.get(factor)) for factor in FACTORS)) for case, found in by_case.items()]
    return (
        "## Adjusting\n\n"
        + words
        + (table(header, rows, words=2) + _in_all(recoveries) if rows else "Not run yet.\n")
    )


def _in_all(recoveries: Sequence[Recovery]) -> str:
    """The sum hangs on the case with the most to gain, so it is told without that one, too."""
    shares = [share for one in recoveries if (share := recovered_fraction(one)) is not None]
    largest = max(recoveries, key=lambda one: one.oracle_gain_s)
    total, without = recovered_in_all(recoveries), recovered_in_all([one for one in recoveries if one is not largest])
    found = [f"{len(shares)} of {len(recoveries)} cases have something to gain"]
    found.append(f"adjusting recovers at least half of it in {sum(share >= 0.5 for share in shares)}")
    found += [] if total is None else [f"over all cases it recovers {100 * total:.0f} % of what an oracle gains"]
    found += [] if without is None else [f"{100 * without:.0f} % without the case with the most to gain"]
    return "\n" + prose("; ".join(found) + ".")


def _case(one: Recovery | None) -> str:
    if one is None:
        return "–"
    recovered = recovered_fraction(one)
    share = "–" if recovered is None else f"{100 * recovered:.0f} %"
    return f"{one.going_on_s:.0f} / {one.adjusted_s:.0f} / {one.oracle_s:.0f}: {share}"
