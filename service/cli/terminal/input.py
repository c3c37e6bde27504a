"""Where commands read from: files and standard input, all checked. Readers are imported when something is read."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sutler.service.documents.errors import DocumentError

if TYPE_CHECKING:
    from sutler.service.documents.plan import PlanDocument

STANDARD_INPUT: Final = Path("-")


def read_data(path: Path, field: str) -> object:
    """The plain data of a YAML or JSON file, or of standard input. Raises DocumentError."""
    from sutler.service.documents.reading import read_document, read_stream

    return read_stream(sys.stdin.buffer, field=field) if path == STANDARD_INPUT else read_document(path, field=field)


def read_mapping(path: Path, field: str, remedy: str) -> dict[str, Any]:
    """The same of a file that holds a mapping; `remedy` is what the error says of any other."""
    data = read_data(path, field)
    if not isinstance(data, dict):
        raise DocumentError.of(field, remedy, value=data)
    return data


def read_bytes(path: Path, field: str, *, most: int = -1) -> bytes:
    """A file or standard input as it is, of which `most` bytes count. Raises DocumentError."""
    return sys.stdin.buffer.read(most) if path == STANDARD_INPUT else file_bytes(path, field, most=most)


def file_bytes(path: Path, field: str, *, most: int = -1) -> bytes:
    """A file as it is, whatever its name. Raises DocumentError."""
    try:
        with path.open("rb") as stream:
            return stream.read(most)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise DocumentError.of(field, f"cannot be read: {reason}", value=str(path)) from None


def folder_of(path: Path) -> Path:
    """The folder that the paths in a file are relative to."""
    return Path() if path == STANDARD_INPUT else path.parent


def read_problem(path: Path) -> dict[str, Any]:
    """A problem as it stands in its file or on standard input, not yet validated. Raises DocumentError."""
    return read_mapping(path, "PROBLEM", "must hold a mapping of names to values (`sutler schema problem`)")


def read_plan(path: Path) -> "PlanDocument":
    """A plan file, or standard input. Raises DocumentError."""
    from sutler.service.documents.plan import PlanDocument
    from sutler.service.documents.validation import of_json

    return of_json(PlanDocument, read_mapping(path, "PLAN", "must hold a plan (`sutler plan PROBLEM --json`)"))
