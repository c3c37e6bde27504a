"""A folder of recorded or made-up answers with a manifest.json, played back by method and path.

The manifest is a list of {file, provider, method, path, status, headers}; other keys are ignored. Of several entries
for one method and path, the first with the request's query answers, else the first; `select` puts a file before them.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from sutler.adapters.fake.errors import ReplayError
from sutler.adapters.fake.wire import Reply, Request

MANIFEST: Final = "manifest.json"


@dataclass(frozen=True, slots=True)
class Entry:
    """One answer of the folder."""

    file: str
    provider: str
    method: str
    path: str
    query: Mapping[str, str]
    reply: Reply = field(repr=False)


class ReplayFolder:
    """The answers of a folder, read once. Raises ReplayError."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        self.entries = tuple(_entries(self.folder))
        self._selected: dict[str, Entry] = {}

    def select(self, file: str) -> Entry:
        """Lets this file answer for its provider from now on where method and path fit. Raises ReplayError."""
        found = next((entry for entry in self.entries if entry.file == file), None)
        if found is None:
            names = ", ".join(entry.file for entry in self.entries)
            raise ReplayError(f"{file}: is not in {self.folder / MANIFEST}, which lists {names}")
        self._selected[found.provider] = found
        return found

    def entry_for(self, request: Request) -> Entry | None:
        """Returns what answers this request, if anything does."""
        fitting = [each for each in self.entries if (each.method, each.path) == (request.method, request.path)]
        for entry in fitting:
            if self._selected.get(entry.provider) is entry:
                return entry
        exact = [entry for entry in fitting if entry.query == request.query]
        return next(iter(exact or fitting), None)


def _entries(folder: Path) -> list[Entry]:
    manifest = folder / MANIFEST
    try:
        listed = json.loads(manifest.read_text(encoding="utf-8"))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ReplayError(f"{manifest}: cannot be read ({reason}): name a folder with a {MANIFEST}") from None
    except ValueError as error:
        raise ReplayError(f"{manifest}: is no JSON: {error}") from None
    if not isinstance(listed, list) or not listed:
        raise ReplayError(f"{manifest}: must be a list of at least one entry")
    return [_entry(folder, manifest, index, entry) for index, entry in enumerate(listed)]


def _entry(folder: Path, manifest: Path, index: int, entry: Any) -> Entry:
    where = f"{manifest}: [{index}]"
    if not isinstance(entry, dict):
        raise ReplayError(f"{where}: must be an object")
    texts = {name: _text(entry, name, where) for name in ("file", "provider", "method", "path")}
    if not texts["path"].startswith("/"):
        raise ReplayError(f"{where}.path: {texts['path']!r} must start with /")
    parts = urlsplit(texts["path"])
    reply = Reply(
        status=_status(entry, where), headers=_headers(entry, where), body=_body(folder, texts["file"], where)
    )
    query = dict(parse_qsl(parts.query, keep_blank_values=True))
    return Entry(texts["file"], texts["provider"], texts["method"].upper(), parts.path, query, reply)


def _text(entry: Mapping[str, Any], name: str, where: str) -> str:
    value = entry.get(name)
    if not isinstance(value, str) or not value:
        raise ReplayError(f"{where}.{name}: {value!r} must be text")
    return value


def _status(entry: Mapping[str, Any], where: str) -> int:
    value = entry.get("status", 200)
    if isinstance(value, bool) or not isinstance(value, int) or not 200 <= value <= 599:
        raise ReplayError(f"{where}.status: {value!r} must be a status from 200 to 599")
    return value


def _headers(entry: Mapping[str, Any], where: str) -> dict[str, str]:
    """Content-Length is counted anew: the file may have been edited."""
    value = entry.get("headers", {})
    is_texts = isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
    if not is_texts or any("\n" in text or "\r" in text for pair in value.items() for text in pair):
        raise ReplayError(f"{where}.headers: must be an object of one-line texts")
    return {name: text for name, text in value.items() if name.lower() != "content-length"}


def _body(folder: Path, file: str, where: str) -> bytes:
    path = folder / file
    if path.resolve().parent != folder.resolve():
        raise ReplayError(f"{where}.file: {file!r} must be a name in that folder")
    try:
        return path.read_bytes()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ReplayError(f"{where}.file: {file!r} cannot be read ({reason})") from None
