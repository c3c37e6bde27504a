"""Files that others change while they are in use."""

from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from sutler.service.documents.errors import DocumentError

T = TypeVar("T")


class Watched(Generic[T]):
    """A file, read by `read` when it has changed."""

    def __init__(self, path: Path, read: Callable[[Path], T]) -> None:
        self._path, self._read = path, read
        self._seen: tuple[int, int, int] | None = None

    def news(self) -> T | None:
        """What it says if it has changed since it was asked last. Raises DocumentError."""
        try:
            found = self._path.stat()
        except OSError as error:
            raise DocumentError.of(str(self._path), f"cannot be read: {(error.strerror or '').lower()}") from None
        seen = (found.st_mtime_ns, found.st_ino, found.st_size)
        if seen == self._seen:
            return None
        self._seen = seen
        return self._read(self._path)
