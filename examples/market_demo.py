"""The whole way from clouds to a plan, on this machine alone: plays the clouds, polls them twice, plans on the store.

Run by `make market-demo`. The clouds are played by `sutler dev fake-cloud`, whose time runs 600 times as fast as the
clock, so that ten seconds move the market by more than an hour. The store is a private PostgreSQL in a temporary
folder.
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

PROBLEM = Path(__file__).parent / "live_market.yaml"
SUTLER = (sys.executable, "-m", "sutler")
STEPS = (
    "market poll",
    "market offers --gpu h100-sxm --gpu a100-sxm4-80gb --limit 12",
    f"plan {os.path.relpath(PROBLEM)}",
    "market poll",
    "market history h100-sxm --since 30s --points 30",
    "market providers",
)
PAUSE_BEFORE_STEP = {3: 10.0}


@contextmanager
def played_clouds(folder: Path, *, speed: int = 600) -> Iterator[Mapping[str, str]]:
    """Plays the clouds; yields the settings that make sutler ask them, with a store in `folder`."""
    command = [*SUTLER, "dev", "fake-cloud", "--port", "0", "--speed", str(speed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            settings = {}
            for line in process.stdout:
                if found := re.fullmatch(r"export (SUTLER_\w+)=(\S+)\n", line):
                    settings[found[1]] = found[2]
                elif settings and not line.strip():
                    break
            yield {**settings, "SUTLER_DATA_DIR": str(folder)}
        finally:
            process.terminate()


def main() -> int:
    """0 when every step went well."""
    with tempfile.TemporaryDirectory(prefix="sutler-") as folder, played_clouds(Path(folder)) as settings:
        for number, step in enumerate(STEPS):
            time.sleep(PAUSE_BEFORE_STEP.get(number, 0.0))
            print(f"\n$ sutler {step}", flush=True)
            result = subprocess.run([*SUTLER, *step.split()], env={**os.environ, **settings}, check=False)
            if result.returncode != 0:
                return result.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
