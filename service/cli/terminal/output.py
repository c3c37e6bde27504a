"""Where results go: standard output that may be closed early, or a file that is written whole or not at all."""

import json
import os
import sys
from contextlib import suppress
from pathlib import Path

from rich.console import Console, RenderableType

from sutler.service.documents.errors import OutputError
from sutler.service.settings import settings_from

WIDEST = 100


def console_for(stream_name: str) -> Console:
    """A console on "stdout" or "stderr": at most 100 columns, plain unless it is a terminal that wants colour."""
    stream = getattr(sys, stream_name)
    is_terminal = stream is not None and stream.isatty()  # None: the process was started with the stream closed
    plain = settings_from().no_color or not is_terminal
    console = Console(
        file=stream,
        color_system=None if plain else "auto",
        markup=False,
        highlight=False,
        emoji=False,
        soft_wrap=False,
    )
    console.width = min(WIDEST, console.width) if is_terminal else WIDEST
    return console


def show(*parts: RenderableType) -> None:
    """Renders for people, on standard output."""
    console = console_for("stdout")
    with console.capture() as captured:
        for part in parts:
            console.print(part)
    lines = (line.rstrip() for line in captured.get().splitlines())
    text = "".join(f"{line}\n" for line in lines)
    write_stdout(text.encode(getattr(sys.stdout, "encoding", None) or "utf-8", errors="replace"))


def write_json(value: object) -> None:
    """Indented JSON on standard output, ended by a line feed."""
    write_stdout((json.dumps(value, indent=2, ensure_ascii=False) + "\n").encode(errors="replace"))


def write_stdout(content: bytes) -> None:
    """Writes and flushes; a reader that has gone away (`| head`) is no error of ours."""
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(content)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        raise OutputError("standard output", _reason(error), "free some space or write elsewhere") from error


def check_target(path: Path) -> None:
    """Raises OutputError at once for a path that `write_file` could not write to."""
    if path.is_dir():
        raise OutputError(path, "is a folder", "name a file in it")
    if not path.parent.is_dir():
        raise OutputError(path, "its folder does not exist", f"create {path.parent} first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise OutputError(path, "is not writable", "choose another path or change its permissions")


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
        raise OutputError(path, _reason(error), "choose another path") from error


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
