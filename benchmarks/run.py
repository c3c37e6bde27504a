"""How fast the planner is and how far it gets: `python -m benchmarks.run` (`make bench`).

Runs the cases of benchmarks/cases.py one after another, each in a process of its own, and writes a table and the
same as JSON. `--group a,c` runs some groups, `--quick` a few small cases of each; such partial runs have file
names of their own. Exit 1 where a case failed, a second solve gave another plan or two methods contradict each
other.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final, cast, get_args

from benchmarks.cases import Case, Group, Result, cases
from benchmarks.machine import describe_machine
from benchmarks.program import parser_of, write_results
from benchmarks.table import Row, contradictions, text

_ROOT: Final = Path(__file__).parent.parent
_ALL: Final = get_args(Group)
# The solver uses one thread; libraries under NumPy would otherwise start one per core.
_ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
_GRACE_S: Final = 120.0  # beyond twice the case's own limit: then it hangs and is killed


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the chosen cases and write the results; the exit status."""
    options = _parser().parse_args(arguments)
    groups: list[Group] = options.group
    chosen = cases(groups, quick=options.quick)
    rows = [_row(case, f"{number}/{len(chosen)}") for number, case in enumerate(chosen, start=1)]
    machine = describe_machine()
    report = text(machine, rows)
    name = "planner" + ("-quick" if options.quick else "") + ("" if groups == list(_ALL) else "-" + "".join(groups))
    write_results(options.out, name, report, {"machine": machine, "rows": rows})
    failed = any(row["result"] is None or row["same_plan_again"] is False for row in rows)
    return int(failed or bool(contradictions(rows)))


def _parser() -> argparse.ArgumentParser:
    parser = parser_of("run", __doc__)
    parser.add_argument("--group", type=_groups, default=list(_ALL), help="groups to run, such as a,c (default: all)")
    parser.add_argument("--quick", action="store_true", help="a few small cases of each group, short limits")
    return parser


def _groups(value: str) -> list[Group]:
    asked = value.split(",")
    unknown = [name for name in asked if name not in _ALL]
    if unknown:
        raise argparse.ArgumentTypeError(f"unknown group {unknown[0]!r}; the groups are {', '.join(_ALL)}")
    return [group for group in _ALL if group in asked]


def _row(case: Case, position: str) -> Row:
    variant = ", ".join([case.solver, case.disaggregation, *["limits"] * case.latency_limits])
    _tell(f"{position} {case.group}. {case.name}, {variant} ...")
    result, error = _in_own_process(case)
    same = None
    if result is not None and case.repeat:
        again, _ = _in_own_process(case)
        same = again is not None and again["plan_digest"] == result["plan_digest"]
    _tell(f"    {error}\n" if result is None else f"    {result['status']} in {result['total_seconds']:.2f} s\n")
    return Row(
        group=case.group,
        name=case.name,
        solver=case.solver,
        disaggregation=case.disaggregation,
        latency_limits=case.latency_limits,
        time_limit_s=case.time_limit_s,
        result=result,
        error=error,
        same_plan_again=same,
    )


def _in_own_process(case: Case) -> tuple[Result | None, str | None]:
    """The case's result, or what went wrong."""
    command = [sys.executable, "-m", "benchmarks.one_case"]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(asdict(case)),
            capture_output=True,
            text=True,
            cwd=_ROOT,
            env={**os.environ, **_ONE_THREAD},
            timeout=2 * case.time_limit_s + _GRACE_S,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        return None, f"killed after {late.timeout:g} s"
    if done.returncode != 0:
        return None, (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return cast(Result, json.loads(done.stdout)), None


def _tell(message: str) -> None:
    print(message, end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
