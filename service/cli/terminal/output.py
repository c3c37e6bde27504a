"""Where results go: standard output that may be closed early, or a file that is written whole or not at all."""

import json
import os
import sys
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console, RenderableType

from sutler.service.documents.errors import DocumentError, OutputError
from sutler.service.documents.writing import write_file
from sutler.service.settings import settings_from

if TYPE_CHECKING:
    from sutler.service.documents.fields import Document

WIDEST = 140  # columns of a terminal; chosen: longer lines are hard to follow
UNBROKEN = 10_000  # columns of what is piped: programs and files have no edge


def console_for(stream_name: str) -> Console:
    """A console on "stdout" or "stderr": plain unless it is a terminal that wants colour.

    As wide as the terminal, up to 140 columns; where there is none, as COLUMNS says, or as wide as it takes.
    """
    stream = getattr(sys, stream_name)
    is_terminal = stream is not None and stream.isatty()  # None: the process was started with the stream closed
    settings = settings_from()
    plain = settings.no_color or not is_terminal
    console = Console(file=stream, color_system=None if plain else "auto", markup=False, highlight=False, emoji=False)
    console.width = min(WIDEST, console.width) if is_terminal else settings.columns or UNBROKEN
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


def deliver(document: "Document", view: Iterable[RenderableType], *, as_json: bool, out: Path | None = None) -> None:
    """Writes a document to `out`, if that is given; shows it, or the `view` of it, on standard output."""
    from sutler.service.documents.fields import document_json

    content = document_json(document).encode()
    if out is not None:
        write_file(out, content)
    if as_json:
        write_stdout(content)
    else:
        show(*view)


def show_or_json(view: Iterable[RenderableType], value: object, *, as_json: bool) -> None:
    """Shows the `view` for people, or prints the value as JSON."""
    if as_json:
        write_json(value)
    else:
        show(*view)


def write_or_print(content: bytes, out: Path | None) -> None:
    """Writes to the file, or to standard output without one."""
    if out is None:
        write_stdout(content)
    else:
        write_file(out, content)


def write_json(value: object) -> None:
    """Indented JSON on standard output."""
    write_stdout(json_bytes(value))


def json_bytes(value: object) -> bytes:
    """Indented JSON, ended by a line feed; times as RFC 3339 has them."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False, default=rfc3339)
    return f"{text}\n".encode(errors="replace")


def rfc3339(at: datetime) -> str:
    """`2026-11-20T12:00:00Z`, with what there is of a second."""
    return at.astimezone(UTC).isoformat().replace("+00:00", "Z")


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


def check_target(path: Path | None) -> None:
    """Raises OutputError at once for a path that `write_file` could not write to; None: nothing will be written."""
    if path is None:
        return
    if path.is_dir():
        raise OutputError(path, "is a folder", "name a file in it")
    if not path.parent.is_dir():
        raise OutputError(path, "its folder does not exist", f"create {path.parent} first")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise OutputError(path, "is not writable", "choose another path or change its permissions")


def check_plot(path: Path | None, endings: Collection[str], *, plain: str | None = None) -> None:
    """Raises OutputError or DocumentError at once for a figure that cannot be drawn there; None: nothing is drawn.

    `endings` say what can be drawn, all but the `plain` one by matplotlib.
    """
    check_target(path)
    if path is None:
        return
    ending = path.suffix.lower()
    if ending not in endings:
        raise DocumentError.of("--plot", f"name a file that ends in {' or '.join(endings)}", value=str(path))
    if ending != plain:
        _check_matplotlib("--plot", path, "" if plain is None else f", or name a file that ends in {plain}")


def check_plots(folder: Path | None) -> None:
    """Raises DocumentError without matplotlib, OutputError for a folder that cannot be; None: nothing is drawn."""
    if folder is None:
        return
    _check_matplotlib("--plots", folder)
    if folder.exists() and not folder.is_dir():
        raise OutputError(folder, "is no folder", "name a folder")
    if not folder.exists() and not folder.parent.is_dir():
        raise OutputError(folder, "its folder does not exist", f"create {folder.parent} first")


def _check_matplotlib(option: str, path: Path, otherwise: str = "") -> None:
    if find_spec("matplotlib") is None:
        raise DocumentError.of(option, f"needs matplotlib: pip install 'sutler[plots]'{otherwise}", value=str(path))


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
