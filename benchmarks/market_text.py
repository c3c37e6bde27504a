"""The measurements of the store as a text that people read, and which of them miss their targets."""

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Final

from benchmarks.market_measures import Report
from benchmarks.market_one_poll import OnePoll
from benchmarks.market_reads import Command, Read

MOST_POLL_S: Final = 2.0
MOST_POLL_MB: Final = 200.0
MOST_AS_OF_MS: Final = 20.0
MOST_COMMAND_S: Final = 1.0
_AS_OF_COMMAND: Final = "market offers --as-of T --json"


def missed(report: Report) -> list[str]:
    """What is not as it has to be, a sentence each."""
    poll = report["poll"]
    found = {
        f"a poll takes {poll['total_s']:.2f} s, more than {MOST_POLL_S:g}": poll["total_s"] > MOST_POLL_S,
        f"a poll takes {poll['peak_mb']:.0f} MB, more than {MOST_POLL_MB:g}": poll["peak_mb"] > MOST_POLL_MB,
        "polling an unchanged market writes offer rows": poll["rows_again"] != poll["rows"],
        "polling an unchanged market ends offer rows": poll["opened_again"] + poll["closed_again"] > 0,
    }
    for read in report["reads"]:
        worst = max(read["repeated_ms"])
        found[f"{read['name']}: {worst:.1f} ms, more than {MOST_AS_OF_MS:g}"] = worst > MOST_AS_OF_MS
    for command in report["commands"]:
        if command["name"] == _AS_OF_COMMAND and command["server"] == "running":
            seconds = median(command["seconds"])
            found[f"{command['name']}: {seconds:.2f} s, more than {MOST_COMMAND_S:g}"] = seconds > MOST_COMMAND_S
    return [sentence for sentence, is_so in found.items() if is_so]


def text_of(report: Report) -> str:
    """Machine, a poll, the store, and what reading and writing it take."""
    machine = report["machine"]
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    head = (
        f"sutler {machine['sutler']}, {machine['date']}\n"
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']:g} GB, {machine['system']}\n"
        f"Python {machine['python']}, {packages}"
    )
    parts = [_poll(report["poll"]), _store(report), _reads(report["reads"]), _service(report), _commands(report)]
    misses = missed(report)
    closing = "All targets are met." if not misses else "\n".join(f"MISSED: {sentence}." for sentence in misses)
    return "\n\n".join([head, *("\n".join(part) for part in parts), closing]) + "\n"


def _poll(poll: OnePoll) -> Iterator[str]:
    yield f"A poll of {poll['offers']} offers ({poll['body_mb']:.1f} MB of JSON over loopback) into an empty store"
    yield f"first poll       {poll['total_s']:6.2f} s  (target {MOST_POLL_S:g})"
    yield f"  request, JSON  {poll['fetch_s'] - poll['parse_s']:6.2f} s"
    yield f"  parse          {poll['parse_s']:6.2f} s"
    yield f"  record         {poll['record_s']:6.2f} s  {poll['rows']} offer rows begun"
    yield f"unchanged again  {poll['again_s']:6.2f} s  {poll['rows_again'] - poll['rows']} offer rows begun"
    yield f"  record         {poll['again_record_s']:6.2f} s"
    imports = f"imports alone {poll['import_mb']:.0f}"
    yield f"peak memory      {poll['peak_mb']:6.0f} MB (target {MOST_POLL_MB:g}), {imports}"


def _store(report: Report) -> Iterator[str]:
    store = report["store"]
    polls = f"{store['days']:.2f} days of polls each minute ({store['poll_rows']:,})"
    changes = f"{store['changes_per_minute']:.0f} changes a minute, {store['open_offers']} for rent at the end"
    yield f"A store of {store['offer_rows']:,} offer rows: {polls}, {changes}; filled in {store['fill_s']:.0f} s"
    yield "on disk, MB: " + ", ".join(f"{name} {mb:,.0f}" for name, mb in store["sizes_mb"].items() if mb >= 0.5)


def _reads(reads: Sequence[Read]) -> Iterator[str]:
    yield (
        f"Statements of the repository, ms of execution in the database (target {MOST_AS_OF_MS:g}); "
        "first: after a start, none of the store's files in memory"
    )
    yield "statement       rows  instants   first: median   worst   repeated: median   worst   read in"
    for read in reads:
        first, repeated = read["first_ms"], read["repeated_ms"]
        yield (
            f"{read['name']:14} {read['rows']:5.0f} {read['instants']:9} {median(first):15.1f} {max(first):7.1f} "
            f"{median(repeated):18.1f} {max(repeated):7.1f}   {', '.join(read['nodes'])}"
        )


def _service(report: Report) -> Iterator[str]:
    recorded = report["recorded"]
    yield "In a process that runs, seconds"
    yield f"market as of now, as documents            {_of(report['market_s'])}"
    yield f"history of a GPU, 48 instants of it all   {_of(report['history_s'])}"
    changed = f"{median(recorded['opened']):.0f} rows begun and {median(recorded['closed']):.0f} ended in each"
    yield f"a poll recorded                           {_of(recorded['seconds'])}  {changed}"


def _commands(report: Report) -> Iterator[str]:
    yield (
        f"Commands, seconds from start to end (target {MOST_COMMAND_S:g} for --as-of with the server running); "
        "stopped: the command starts it; cold: and none of the store's files are in memory"
    )
    yield from (_command(command) for command in report["commands"])


def _command(command: Command) -> str:
    name = f"sutler {command['name']}"
    cpu_s = median(command["cpu_seconds"])
    return (
        f"{name:58} {command['server']:8} {_of(command['seconds'])} (CPU {cpu_s:.2f}), {command['output_mb']:.1f} MB"
    )


def _of(seconds: Sequence[float]) -> str:
    """The first, and the median of the others."""
    later = f", then {median(seconds[1:]):.3f}" if len(seconds) > 1 else ""
    return f"{seconds[0]:.3f}{later}"
