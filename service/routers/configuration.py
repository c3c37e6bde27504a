"""The router's file: written whole, tried and loaded by the router's own commands, put back if it is no good."""

import asyncio
from asyncio.subprocess import DEVNULL, PIPE, STDOUT
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from sutler.service.documents.writing import write_file
from sutler.service.errors import SutlerError

LONGEST_COMMAND_S: Final = 30.0  # chosen: nginx takes a fraction of a second


class CommandError(SutlerError):
    """A command of the router that failed; the message ends with the last line that it wrote."""


class Configuration:
    """One file of a router.

    `check` fails if the router would refuse the file, `reload` has the router load it; empty: there is no command.
    """

    def __init__(self, path: Path, check: Sequence[str], reload: Sequence[str]) -> None:
        self._path, self._check, self._reload = path, check, reload
        self._loaded: bytes | None = None

    async def put(self, content: bytes) -> bool:
        """Has the router work by this content; whether that is news to it.

        Raises OutputError, and CommandError; where the check fails, or is not completed, the file is as it was.
        """
        if content == self._loaded:
            return False
        before = self._path.read_bytes() if self._path.exists() else None
        write_file(self._path, content)
        try:
            await _run(self._check)
        except BaseException:
            if before is None:
                self._path.unlink()
            else:
                write_file(self._path, before)
            raise
        await _run(self._reload)
        self._loaded = content
        return True


async def _run(command: Sequence[str]) -> None:
    if not command:
        return
    shown = " ".join(command)
    try:
        process = await asyncio.create_subprocess_exec(*command, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT)
    except OSError as error:
        raise CommandError(f"`{shown}` cannot be run: {(error.strerror or str(error)).lower()}") from None
    try:
        async with asyncio.timeout(LONGEST_COMMAND_S):
            said, _ = await process.communicate()
    except TimeoutError:
        raise CommandError(f"`{shown}` has not ended after {LONGEST_COMMAND_S:g} s") from None
    finally:
        with suppress(ProcessLookupError):
            process.kill()
    if process.returncode:
        lines = said.decode(errors="replace").strip().splitlines() or ["it says nothing"]
        reason = next((line for line in lines if "[emerg]" in line), lines[-1])
        raise CommandError(f"`{shown}` ended with {process.returncode}: {reason}")
