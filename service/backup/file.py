"""The file of a backup: a ZIP of one member a table, as PostgreSQL's COPY writes it, and `manifest.json`.

It ends with the SHA-256 of all that stands before, as the ZIP's comment: whatever is missing or has changed, in the
rows or around them, is noticed before any of it is used. docs/decisions/backups-by-copy.md says why.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from os import SEEK_END
from pathlib import Path
from typing import IO, BinaryIO, Final, Literal
from zipfile import ZIP_DEFLATED, BadZipFile, ZipFile

from pydantic import BaseModel, ConfigDict, ValidationError

from sutler.service.backup.errors import BackupError
from sutler.service.documents.writing import replacing

FORMAT: Final = "sutler/backup/v1"
FOLDER: Final = "sutler-backup/"  # of all members: a file that is cut short is known by its beginning
MANIFEST: Final = f"{FOLDER}manifest.json"
BLOCK_BYTES: Final = 1 << 20
_BEGINS: Final = b"PK\x03\x04"
_FIRST_NAME_AT: Final = 30  # https://pkware.cachefly.net/webdocs/casestudies/APPNOTE.TXT, 4.3.7
_MARK: Final = b"sha256:"
_DIGEST_BYTES: Final = 64
_QUICKLY: Final = 1  # measured: in three fifths of the time of the usual 6, for a tenth more bytes
_WHOLE: Final = "restore another backup"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class Table(_Part):
    """A table's rows: a member of the file, in the text format of COPY with these columns."""

    schema_name: str
    name: str
    columns: tuple[str, ...]
    rows: int
    bytes: int

    @property
    def path(self) -> str:
        return f"{self.schema_name}.{self.name}"

    @property
    def member(self) -> str:
        return f"{FOLDER}{self.path}.copy"


class Manifest(_Part):
    """What the file holds: `tables` in an order in which each comes after those that it refers to; `sequences` with
    the last value that each has given."""

    format: Literal["sutler/backup/v1"] = FORMAT
    sutler_version: str
    tables_version: str
    taken_at: datetime
    tables: tuple[Table, ...]
    sequences: dict[str, int]

    @property
    def rows(self) -> int:
        return sum(table.rows for table in self.tables)

    @property
    def bytes(self) -> int:
        return sum(table.bytes for table in self.tables)


@contextmanager
def new_file(path: Path) -> Iterator[ZipFile]:
    """A file to fill, which is there under its name once it is whole. Raises OutputError."""
    with replacing(path, mode=0o600) as stream:
        with ZipFile(stream, "w", ZIP_DEFLATED, compresslevel=_QUICKLY) as archive:
            archive.comment = _MARK + b"0" * _DIGEST_BYTES
            yield archive
        stream.write(_digest(stream))


def member_of(archive: ZipFile, name: str) -> IO[bytes]:
    """A member to be written, of any size."""
    return archive.open(name, "w", force_zip64=True)


@contextmanager
def whole_file(path: Path) -> Iterator[tuple[Manifest, ZipFile]]:
    """What a backup holds, every byte of it checked. Raises BackupError."""
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise BackupError(f"{path}: is a device or pipe", "name a file that `sutler backup` has written")
    try:
        with path.open("rb") as stream:
            _check(path, stream)
            with ZipFile(stream) as archive:
                yield _manifest(path, archive), archive
    except (OSError, BadZipFile) as error:
        said = (getattr(error, "strerror", None) or str(error)).lower()
        raise BackupError(f"{path}: cannot be read: {said}", "name a backup that this user may read") from error


def _check(path: Path, stream: BinaryIO) -> None:
    if not _begins_as_ours(stream):
        raise BackupError(f"{path}: is no backup of sutler", "name a file that `sutler backup` has written")
    length = stream.seek(0, SEEK_END)
    stream.seek(max(0, length - _DIGEST_BYTES - len(_MARK)))
    if stream.read(len(_MARK)) != _MARK:
        raise BackupError(f"{path}: was cut short, or has changed at its end", _WHOLE)
    given = stream.read()
    if given != _digest(stream):
        raise BackupError(f"{path}: has changed since it was written (its SHA-256 is another)", _WHOLE)


def _begins_as_ours(stream: BinaryIO) -> bool:
    stream.seek(0)
    head = stream.read(_FIRST_NAME_AT + len(FOLDER))
    return head.startswith(_BEGINS) and head[_FIRST_NAME_AT:] == FOLDER.encode()


def _digest(stream: BinaryIO) -> bytes:
    """Of all but the digest; the stream stands where that does afterwards."""
    left = stream.seek(0, SEEK_END) - _DIGEST_BYTES
    stream.seek(0)
    found = hashlib.sha256()
    while left:
        block = stream.read(min(left, BLOCK_BYTES))
        if not block:
            break
        found.update(block)
        left -= len(block)
    return found.hexdigest().encode()


def _manifest(path: Path, archive: ZipFile) -> Manifest:
    try:
        return Manifest.model_validate_json(archive.read(MANIFEST))
    except (KeyError, ValidationError):
        remedy = "restore it with the sutler that wrote it, or a newer one"
        raise BackupError(f"{path}: is a backup of another format than {FORMAT}", remedy) from None
