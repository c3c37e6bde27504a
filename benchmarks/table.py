"""The benchmark's results as a text that people read."""

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Final, TypedDict

from benchmarks.cases import TITLES, Disaggregation, Group, Result, Solver
from benchmarks.machine import Machine


class Row(TypedDict):
    """One case with its result; `result` None: it failed, and `error` says how.

    `same_plan_again`: whether a second solve in another process gave the same plan; None: not tried.
    """

    group: Group
    name: str
    solver: Solver
    disaggregation: Disaggregation
    latency_limits: bool
    time_limit_s: float
    result: Result | None
    error: str | None
    same_plan_again: bool | None


_COLUMNS: Final[tuple[tuple[str, int, Callable[[Result], str]], ...]] = (
    ("cand.", 7, lambda r: f"{r['candidates']}"),
    ("work", 4, lambda r: f"{r['workloads']}"),
    ("mod", 3, lambda r: f"{r['models']}"),
    ("offers", 6, lambda r: f"{r['offers']}"),
    ("value", 10, lambda r: _number(r["value"], "10.4f")),
    ("bound", 10, lambda r: _number(r["bound"], "10.4f")),
    ("gap %", 6, lambda r: _percent(r["relative_gap"])),
    ("cand. s", 7, lambda r: f"{r['candidates_seconds']:.2f}"),
    ("solve s", 7, lambda r: f"{r['solve_seconds']:.2f}"),
    ("finish", 6, lambda r: _number(r["finish_seconds"], ".2f")),
    ("plan s", 6, lambda r: _number(r["plan_seconds"], ".2f")),
    ("total s", 7, lambda r: f"{r['total_seconds']:.2f}"),
    ("CPU s", 7, lambda r: f"{r['cpu_seconds']:.2f}"),
    ("MB", 5, lambda r: f"{r['peak_mb']:.0f}"),
)
_NAME_WIDTH: Final = 42
_BASELINES: Final[tuple[Solver, ...]] = ("binary_search", "plain")
_ROUNDING: Final = 1e-6  # of HiGHS, whose tolerances are of this order
_LEGEND: Final = """\
Every row is one process and the first solve in it, with 1 thread, alternatives off, to a gap of 0.1 %.
cand.    candidates after the memory check and dominance      value, bound   requests/s (of req/s: $/h), proof
cand. s  supply, enumeration, rates, dominance, polytope      solve s        first objective: bound, incumbent, proof
finish   seconds of the cheapest plan at that throughput      plan s         routing, packing, verification
total s  wall clock, CPU s: processor time of the same        MB             peak memory of the process"""


def text(machine: Machine, rows: Sequence[Row]) -> str:
    """Machine, legend and one table per group."""
    groups = list(dict.fromkeys(row["group"] for row in rows))
    parts = [_machine(machine), _LEGEND, *(_group(group, rows) for group in groups), _closing(rows)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _machine(machine: Machine) -> str:
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    return (
        f"sutler {machine['sutler']}, {machine['date']}\n"
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']:g} GB, {machine['system']}\n"
        f"Python {machine['python']}, {packages}"
    )


def _group(group: Group, rows: Sequence[Row]) -> str:
    own = [row for row in rows if row["group"] == group]
    header = "instance".ljust(_NAME_WIDTH) + " ".join(title.rjust(width) for title, width, _ in _COLUMNS) + "  status"
    if group == "f":
        return "\n".join([f"{group}. {TITLES[group]}", *_beside_slices(own)])
    lines = [f"{group}. {TITLES[group]}", header, *map(_line, own)]
    if group == "b":
        lines += _ratios(own)
    solved = [row["result"] for row in own if row["result"]]
    if group == "c" and solved:
        lines.append(_median(solved))
    if group in ("e", "h"):
        lines += _ratios_of_pairs(own)
    return "\n".join(lines)


def _line(row: Row) -> str:
    result = row["result"]
    by_group = {
        "b": row["solver"].replace("_", " "),
        "e": row["disaggregation"],
        "g": row["solver"],
        "h": "with limits" * row["latency_limits"],
    }
    variant = by_group.get(row["group"])
    name = f"{row['name']}, {variant}" if variant else row["name"]
    if result is None:
        return name.ljust(_NAME_WIDTH) + f"failed: {row['error']}"
    cells = " ".join(show(result).rjust(width) for _, width, show in _COLUMNS)
    limit = f" ({result['limit']})" if result["limit"] else ""
    return name.ljust(_NAME_WIDTH) + cells + f"  {result['status']}{limit}"


def contradictions(rows: Sequence[Row]) -> list[str]:
    """Names of instances where one method found more than another calls possible."""
    return [name for name in dict.fromkeys(row["name"] for row in rows) if not _agree(_answers(rows, name))]


def _answers(rows: Sequence[Row], name: str) -> dict[Solver, Result]:
    compared = [row for row in rows if row["group"] == "b" and row["name"] == name]
    return {row["solver"]: row["result"] for row in compared if row["result"] is not None}


def _agree(answers: Mapping[Solver, Result]) -> bool:
    values = [result["value"] for result in answers.values() if result["value"] is not None]
    bounds = [result["bound"] for result in answers.values() if result["bound"] is not None]
    return not values or not bounds or max(values) <= min(bounds) * (1 + _ROUNDING)


def _ratios(rows: Sequence[Row]) -> list[str]:
    """How much longer the other methods take; 'at least' where they were stopped."""
    lines = []
    for name in dict.fromkeys(row["name"] for row in rows):
        answers = _answers(rows, name)
        if "exact" in answers:
            shown = [_ratio(method, answers) for method in _BASELINES if method in answers]
            shown.append("answers agree" if _agree(answers) else "ANSWERS CONTRADICT EACH OTHER")
            lines.append(f"{name}: " + "; ".join(shown))
    return ["seconds of the first objective relative to exact:", *lines] if lines else []


def _ratio(method: Solver, answers: Mapping[Solver, Result]) -> str:
    other = answers[method]
    prefix = "more than " if other["limit"] else ""
    gap = f" (stopped at a gap of {_percent(other['relative_gap'])} %)" if other["limit"] else ""
    times = other["solve_seconds"] / answers["exact"]["solve_seconds"]
    return f"{method.replace('_', ' ')} {prefix}{times:.1f} x{gap}"


def _ratios_of_pairs(rows: Sequence[Row]) -> list[str]:
    """How much longer the instances take with roles or with latency limits, and what that does to the value; CPU,
    since a busy machine slows whatever happens to run."""
    pairs: dict[str, list[Result]] = {}
    for row in rows:
        if row["result"] is not None:
            pairs.setdefault(row["name"], []).append(row["result"])
    both = {name: pair for name, pair in pairs.items() if len(pair) == 2}
    if not both:
        return []
    lines = [
        f"{name}: {later['cpu_seconds'] / first['cpu_seconds']:.1f} x the CPU time, {_change(first, later)}"
        for name, (first, later) in both.items()
    ]
    whole = [sum(pair[index]["cpu_seconds"] for pair in both.values()) for index in (0, 1)]
    middle = median(later["cpu_seconds"] / first["cpu_seconds"] for first, later in both.values())
    return [*lines, f"all together {whole[1] / whole[0]:.1f} x, median {middle:.1f} x"]


def _change(first: Result, later: Result) -> str:
    if not first["value"] or not later["value"]:
        return "no plan in time"
    return f"{100 * (later['value'] / first['value'] - 1):+.1f} % of the value"


def _beside_slices(rows: Sequence[Row]) -> list[str]:
    """What both methods took and found, over all inputs: the table would have 200 lines."""
    by_name: dict[str, dict[Solver, Result]] = {}
    for row in rows:
        if row["result"] is not None:
            by_name.setdefault(row["name"], {})[row["solver"]] = row["result"]
    pairs = [(both["exact"], both["slices"]) for both in by_name.values() if len(both) == 2]
    if not pairs:
        return []
    costs = [(own["cost_usd_per_hour"], other["cost_usd_per_hour"]) for own, other in pairs]
    dearer = sum(other is not None and (own is None or own > other * (1 + _ROUNDING)) for own, other in costs)
    cheaper = sum(own is not None and (other is None or own < other * (1 - _ROUNDING)) for own, other in costs)
    proven = sum(own["status"] == "optimal" for own, _ in pairs)
    lines = [f"{len(pairs)} inputs: sutler dearer in {dearer}, cheaper in {cheaper}; proven to 0.1 % in {proven}"]
    for index, name in enumerate(("sutler", "slices")):
        cpu = sorted(pair[index]["cpu_seconds"] for pair in pairs)
        stopped = sum(pair[index]["limit"] is not None for pair in pairs)
        lines.append(
            f"{name}: CPU s median {median(cpu):.3f}, the 90th {cpu[len(cpu) * 9 // 10]:.2f}, slowest {cpu[-1]:.2f}; "
            f"stopped by its time limit {stopped} times"
        )
    return lines


def _median(results: Sequence[Result]) -> str:
    total, cpu = (median(result[key] for result in results) for key in ("total_seconds", "cpu_seconds"))
    slowest = max(result["total_seconds"] for result in results)
    return f"median of {len(results)}: {total:.2f} s ({cpu:.2f} s CPU), slowest {slowest:.2f} s"


def _closing(rows: Sequence[Row]) -> str:
    solved = [row["result"] for row in rows if row["result"]]
    again = [row for row in rows if row["same_plan_again"] is not None]
    lines = []
    if solved:
        imports = median(result["import_mb"] for result in solved)
        lines.append(
            f"Memory with everything imported and nothing solved: {imports:.0f} MB (part of every MB above)."
        )
    lines += [
        f"{row['name']}, solved again in another process: {'same' if row['same_plan_again'] else 'ANOTHER'} plan."
        for row in again
    ]
    return "\n".join(lines)


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _percent(fraction: float | None) -> str:
    return "-" if fraction is None else f"{100 * fraction:.3f}"
