"""Writes files so that readers never see a part of one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from sutler.service.documents.errors import OutputError


def write_file(path: Path, content: bytes) -> None:
    """Replaces the file in one step, so that readers see the old content or the new and never a part."""
    target = path.resolve()
    if target.exists() and not target.is_file():  # a device or pipe cannot be replaced
        target.write_bytes(content)
        return
    with replacing(path) as stream:
        stream.write(content)


@contextmanager
def replacing(path: Path, *, mode: int = 0o666) -> Iterator[BinaryIO]:
    """A new file beside this one, which takes its place once it is written, or is gone. Raises OutputError."""
    target = path.resolve()
    if target.exists() and not (target.is_file() or target.is_dir()):
        raise OutputError(path, "is a device or pipe, which no file can replace", "name a file")
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with open(draft, "x+b", opener=lambda name, flags: os.open(name, flags, mode)) as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(target)
    except BaseException as error:
        with suppress(OSError):
            draft.unlink()
        if isinstance(error, OSError):
            raise OutputError(path, (error.strerror or str(error)).lower(), "choose another path") from error
        raise
