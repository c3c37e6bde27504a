"""The report's figures for programs and for those who compare runs: results/papers.txt and papers.json."""

import json
from collections.abc import Sequence
from pathlib import Path

from benchmarks.machine import Machine, describe_machine
from benchmarks.papers.cells import OPTIONS, PARTS, Cell
from benchmarks.papers.claims import GRID_CLAIMS
from benchmarks.papers.grid import CATALOGS
from benchmarks.papers.summaries import Outcomes, beaten, broken, claimed, spread, unproven


def write_results(cells: Sequence[Cell], outcomes: Outcomes, folder: Path) -> None:
    machine = describe_machine()
    (folder / "papers.txt").write_text(text(machine, cells, outcomes), encoding="utf-8")
    values = {
        cell.name: {
            name: outcomes[cell.name, name].value for name in cell.strategies if (cell.name, name) in outcomes
        }
        for cell in cells
    }
    known = {name: found for name, found in values.items() if found}
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(found)}" for name, found in known.items())
    (folder / "papers.json").write_text(
        f'{{"machine": {json.dumps(machine)},\n "values": {{\n{lines}\n }}}}\n', encoding="utf-8"
    )


def text(machine: Machine, cells: Sequence[Cell], outcomes: Outcomes) -> str:
    """A page."""
    gap = OPTIONS.relative_gap
    lines = [
        f"The papers' evaluations: sutler {machine['sutler']}, {machine['date']}",
        f"{machine['cpu']}, {machine['cores']} cores, {machine['memory_gb']:g} GB, Python {machine['python']}",
        f"gap {100 * gap:g} %, {OPTIONS.time_limit_s:g} s per strategy and cell",
        "",
        *(_part(part, cells, outcomes) for part in PARTS),
        f"better than sutler on the same supply: {len(beaten(cells, outcomes, gap=gap))}, of them contradictions: "
        f"{sum(one.contradicts for one in beaten(cells, outcomes, gap=gap))}; unproven: "
        f"{len(unproven(cells, outcomes, gap=gap))}; failed verification: {len(broken(outcomes))}",
        "",
        f"{'percent, mean [least, most] (pairs, sutler behind)':42s}{'paper':>10s}"
        + "".join(f"{c:>34s}" for c in CATALOGS),
    ]
    for claim in GRID_CLAIMS:
        paper = "-" if claim.mean is None else f"{100 * claim.mean:.0f} ({100 * (claim.most or 0):.0f})"
        found = [spread(claimed(claim, cells, outcomes, catalog=catalog)) for catalog in CATALOGS]
        shown = [
            "-"
            if one is None
            else f"{100 * one.mean:.1f} [{100 * one.least:.1f}, {100 * one.most:.1f}] ({one.pairs}, {one.behind})"
            for one in found
        ]
        lines.append(f"{claim.title:42s}{paper:>10s}" + "".join(f"{each:>34s}" for each in shown))
    return "\n".join(lines) + "\n"


def _part(part: str, cells: Sequence[Cell], outcomes: Outcomes) -> str:
    own = [
        outcomes[cell.name, name]
        for cell in cells
        if cell.part == part
        for name in cell.strategies
        if (cell.name, name) in outcomes
    ]
    planned = sum(one.value is not None for one in own)
    slowest = max((one.seconds for one in own), default=0.0)
    total = sum(one.seconds for one in own)
    return f"{part:10s} {planned:5d} plans of {len(own)} asked for, {total:.0f} s, slowest {slowest:.1f} s"
