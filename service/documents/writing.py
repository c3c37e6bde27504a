"""Writes files so that readers never see a part of one."""

import os
from contextlib import suppress
from pathlib import Path

from sutler.service.documents.errors import OutputError


def write_file(path: Path, content: bytes) -> None:
    """Replaces the file in one step, so that readers see the old content or the new and never a part."""
    target = path.resolve()
    if target.exists() and not target.is_file():  # a device or pipe cannot be replaced
        target.write_bytes(content)
        return
    draft = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with draft.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(target)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise OutputError(path, (error.strerror or str(error)).lower(), "choose another path") from error
