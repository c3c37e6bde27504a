"""Reads YAML and JSON files from strangers: plain data comes out, or a DocumentError that says what to correct.

YAML is read by the rules of its version 1.2 core schema: `on` and `no` are text, `1:30` is text, dates are text,
`1e3` is a number. No tags beyond the plain ones, no duplicate keys, no aliases that blow up, one document a file.
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import IO, Any, Final, NoReturn, TypeVar

import yaml

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.yaml_loader import UnboundedError, check_keys, load_yaml
from sutler.service.errors import short_repr

MOST_JSON_BYTES: Final = 64_000_000  # chosen: room for large markets, little beside a machine's memory
MOST_YAML_BYTES: Final = 4_000_000  # some seconds of parsing

Read = TypeVar("Read")


def read_document(path: Path, *, field: str = "file") -> object:
    """The plain data of a YAML or JSON file; `field` is what errors call the file.

    Raises DocumentError for whatever cannot be read: missing files, folders, binary or huge content, bad syntax.
    """
    is_json = path.suffix.lower() == ".json"
    content = _read_text(path, field, limit=MOST_JSON_BYTES if is_json else MOST_YAML_BYTES)
    return parse_document(content, is_json=is_json, field=field, name=path.name)


def read_stream(stream: IO[bytes], *, field: str = "file") -> object:
    """The plain data of an open binary stream in YAML (which JSON is a part of)."""
    content = stream.read(MOST_YAML_BYTES + 1)
    text = _decoded(content, limit=MOST_YAML_BYTES, field=field, name="standard input")
    return parse_document(text, is_json=False, field=field, name="standard input")


def parse_document(text: str, *, is_json: bool, field: str, name: str) -> object:
    """The plain data of a text, as above; never runs code and never grows beyond a multiple of the text."""
    return _explained(lambda: _parse_json(text) if is_json else load_yaml(text), field, name)


def parse_json_sequence(content: bytes, *, field: str, name: str) -> list[object]:
    """The values of a file of other people's programs: one JSON value after another, with white space between.

    NaN and the infinities, which Python's json module writes, come out as such. Raises DocumentError as above.
    """
    text = _decoded(content, limit=MOST_JSON_BYTES, field=field, name=name)
    return _explained(lambda: list(_json_values(text)), field, name)


def _explained(read: Callable[[], Read], field: str, name: str) -> Read:
    """What `read` returns; raises DocumentError with the reason where it cannot."""
    try:
        return read()
    except RecursionError:
        reason = "is nested too deeply for any document that sutler reads"
    except UnboundedError as error:
        reason = str(error)
    except yaml.MarkedYAMLError as error:
        reason = _yaml_reason(error)
    except yaml.YAMLError as error:
        reason = f"is not readable YAML: {_one_line(str(error))}"
    except json.JSONDecodeError as error:
        reason = f"is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}"
    except ValueError as error:
        reason = f"is not readable: {_value_reason(error)}"
    raise DocumentError.of(field, reason, value=name) from None


def _read_text(path: Path, field: str, *, limit: int) -> str:
    try:
        with path.open("rb") as stream:
            content = stream.read(limit + 1)
    except FileNotFoundError:
        _refuse(field, path, "does not exist: check the path")
    except IsADirectoryError:
        _refuse(field, path, "is a folder: name a file in it")
    except (OSError, ValueError) as error:
        _refuse(field, path, f"cannot be read: {_reason(error)}")
    return _decoded(content, limit=limit, field=field, name=path.name)


def _decoded(content: bytes, *, limit: int, field: str, name: str) -> str:
    if len(content) > limit:
        _refuse(field, name, f"is larger than {limit // 1_000_000} MB: large markets belong into .json files")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        _refuse(field, name, "is not UTF-8 text: save it as UTF-8")
    if not text.strip():
        _refuse(field, name, "is empty: see `sutler schema`")
    return text


def _refuse(field: str, name: object, remedy: str) -> NoReturn:
    raise DocumentError.of(field, remedy, value=str(name)) from None


def _reason(error: Exception) -> str:
    return (getattr(error, "strerror", None) or str(error)).lower()


def _parse_json(text: str) -> object:
    return json.loads(text, object_pairs_hook=_unique_pairs, parse_constant=_no_constant, parse_float=_finite)


def _json_values(text: str) -> Iterator[object]:
    decoder = json.JSONDecoder(object_pairs_hook=_unique_pairs)
    at = _after_white_space(text, 0)
    while at < len(text):
        value, at = decoder.raw_decode(text, at)
        yield value
        at = _after_white_space(text, at)


def _after_white_space(text: str, at: int) -> int:
    while at < len(text) and text[at].isspace():
        at += 1
    return at


def _unique_pairs(pairs: list[tuple[str, Any]]) -> dict[Hashable, Any]:
    check_keys(len(pairs))
    found: dict[Hashable, Any] = dict(pairs)
    if len(found) < len(pairs):
        (repeated, _), *_ = Counter(key for key, _ in pairs).most_common(1)
        raise ValueError(f"the key {short_repr(repeated)} stands twice in one object")
    return found


def _no_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is no JSON number: give a finite number or leave the field out")


def _finite(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ValueError(f"the number {short_repr(digits)} is too large")
    return value


def _yaml_reason(error: yaml.MarkedYAMLError) -> str:
    mark = error.problem_mark or error.context_mark
    where = "" if mark is None else f" at line {mark.line + 1}, column {mark.column + 1}"
    return f"is not valid YAML: {_one_line(error.problem or error.context or 'unknown problem')}{where}"


def _value_reason(error: ValueError) -> str:
    text = str(error)
    return "it holds a number of thousands of digits" if "int_max_str_digits" in text else _one_line(text)


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]
