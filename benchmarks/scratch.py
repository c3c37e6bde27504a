"""A folder to measure in, and a line for who waits."""

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def scratch_folder(parent: Path | None = None) -> Iterator[Path]:
    """A new folder that the database's own user can reach, removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="sutler-bench-", dir=parent))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def tell(message: str) -> None:
    """Prints on stderr, at once."""
    print(message, file=sys.stderr, flush=True)
