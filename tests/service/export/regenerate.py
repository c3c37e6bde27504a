"""Writes the golden files anew: `python -m tests.service.export.regenerate`, then look at the difference.

With --plans it solves the problems again first, which gives the plans new ids and times.
"""

import subprocess
import sys

from sutler.service.export import FORMATS
from tests.service.export.golden_files import golden_path, text_of
from tests.service.export.plans import FOLDER, NAMES


def main() -> None:
    for name in NAMES if "--plans" in sys.argv else ():
        command = [sys.executable, "-m", "sutler", "plan", str(FOLDER / f"{name}.yaml"), "--json"]
        solved = subprocess.run(command, check=True, capture_output=True)
        (FOLDER / f"{name}.json").write_bytes(solved.stdout)
    for name in NAMES:
        for format in FORMATS:
            golden_path(name, format).write_text(text_of(name, format), encoding="utf-8")


if __name__ == "__main__":
    main()
