"""results/offline.json: what the report is written from, for programs and for those who compare runs."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.machine import Machine, describe_machine
from benchmarks.offline.settings import Loss, Outcome, Recovery, loss_from, outcome_from, recovery_from


@dataclass(frozen=True, slots=True)
class Results:
    machine: Machine
    outcomes: tuple[Outcome, ...]
    losses: tuple[Loss, ...]
    recoveries: tuple[Recovery, ...]


def write_results(
    outcomes: Sequence[Outcome], losses: Sequence[Loss], recoveries: Sequence[Recovery], path: Path
) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    parts = {
        "machine": json.dumps(describe_machine()),
        "outcomes": _lines([asdict(one) for one in outcomes]),
        "losses": _lines([asdict(one) for one in losses]),
        "recoveries": _lines([asdict(one) for one in recoveries]),
    }
    text = ",\n ".join(f'"{name}": {found}' for name, found in parts.items())
    path.write_text(f"{{{text}}}\n", encoding="utf-8")


def read_results(path: Path) -> Results:
    """Raises TypeError or KeyError where the file is of another version."""
    document = json.loads(path.read_text(encoding="utf-8"))
    return Results(
        document["machine"],
        tuple(map(outcome_from, document["outcomes"])),
        tuple(map(loss_from, document["losses"])),
        tuple(map(recovery_from, document["recoveries"])),
    )


def _lines(rows: list[dict[str, Any]]) -> str:
    return "[\n" + ",\n".join(f"  {json.dumps(row)}" for row in rows) + "\n ]"
