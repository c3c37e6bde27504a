"""What if one thing were different: a problem with other values at some of its paths.

A path is what errors call a field: `budget_usd_per_hour`, `models[0].precision`. In a list, a name stands for the
entry of that name and `*` for all: `models.chat.workloads.question.rate_rps`, `models.*.precision`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any, Final

import yaml

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.yaml_loader import load_yaml
from sutler.service.errors import short_repr

Changes = Mapping[str, object]
"""New values by path; None: as if nothing stood there."""

ALL: Final = "*"
MOST_VARIANTS: Final = 100  # chosen: a table that somebody still reads

_PART: Final = re.compile(r"\.?([^.\[\]]+)|\[(\d+|\*)\]")


def changed(data: Mapping[str, Any], changes: Changes) -> dict[str, Any]:
    """The same document with other values, not yet validated: an unknown key is found when it is.

    Mappings on the way are made where there are none. Raises DocumentError for a path that leads nowhere.
    """
    if not isinstance(changes, Mapping) or not all(isinstance(path, str) for path in changes):
        remedy = "must be a mapping of paths to values: {'budget_usd_per_hour': 20}"
        raise DocumentError.of("changes", remedy, value=changes)
    found: Any = dict(data)
    for path, value in changes.items():
        found = _put(found, _parts(path), value, [])
    return dict(found)


def parsed(text: str) -> list[Changes]:
    """One change, or several that exclude each other, of `PATH=VALUE` or `PATH=VALUE,VALUE`, read as YAML.

    Commas inside of brackets or quotes separate nothing: `models[0].precision=[bf16, fp8]` is one value.
    Raises DocumentError.
    """
    path, mark, values = text.partition("=")
    path = path.strip()
    if not mark or not path:
        raise DocumentError.of("--set", "give KEY=VALUE, as budget_usd_per_hour=20", value=text)
    parts = separated(values)
    if not all(part.strip() for part in parts):
        raise DocumentError.of(path, "is given no value: null takes away what stands there", value=text)
    return [{path: _value(part, path)} for part in parts]


def variants(choices: Iterable[Sequence[Changes]]) -> list[Changes]:
    """Every combination of one of each choice; later ones win. Raises DocumentError for too many."""
    found: list[Changes] = [
        {path: value for one in chosen for path, value in one.items()} for chosen in product(*choices)
    ]
    if len(found) > MOST_VARIANTS:
        remedy = f"is too many: at most {MOST_VARIANTS} variants are planned at once"
        raise DocumentError.of("--set", remedy, value=len(found))
    return found


def _parts(path: str) -> list[str]:
    parts, at = [], 0
    while at < len(path):
        match = _PART.match(path, at)
        if match is None:
            raise DocumentError.of(short_repr(path), "is no path: write it as errors do, models[0].precision")
        parts.append(match[1] or match[2])
        at = match.end()
    if not parts:
        raise DocumentError.of("(path)", "is empty: name a field, as budget_usd_per_hour", value=path)
    return parts


def _put(here: Any, parts: Sequence[str], value: object, before: Sequence[str]) -> Any:
    """What stands `here`, after the parts `before`, with the value at the end of the others."""
    if not parts:
        return value
    first, rest = parts[0], parts[1:]
    so_far = [*before, first]
    if isinstance(here, Mapping) or here is None:
        whole = dict(here or {})
        if not rest and value is None:
            whole.pop(first, None)
        else:
            whole[first] = _put(whole.get(first), rest, value, so_far)
        return whole
    if isinstance(here, list | tuple):
        numbers = _entries(here, first, so_far)
        return [_put(one, rest, value, so_far) if index in numbers else one for index, one in enumerate(here)]
    raise DocumentError.of(_joined(before), "must be a mapping of names to values", value=here)


def _entries(entries: Sequence[Any], part: str, so_far: Sequence[str]) -> set[int]:
    """Numbers of the entries that a part of a path stands for."""
    if part == ALL:
        return set(range(len(entries)))
    names = [str(entry["name"]) for entry in entries if isinstance(entry, Mapping) and "name" in entry]
    if part in names:
        return {
            index for index, entry in enumerate(entries) if isinstance(entry, Mapping) and entry.get("name") == part
        }
    if part.isdecimal() and int(part) < len(entries):
        return {int(part)}
    known = ", ".join(names) or f"numbers from 0 to {len(entries) - 1}"
    raise DocumentError.of(_joined(so_far), f"leads nowhere: known there are {known}", value=part)


def _joined(parts: Sequence[str]) -> str:
    """As errors write a path: `models[0].precision`."""
    text = "".join(f"[{part}]" if part.isdecimal() or part == ALL else f".{part}" for part in parts)
    return text.removeprefix(".") or "PROBLEM"


def separated(text: str) -> list[str]:
    """Parts between the commas that stand in no bracket and no quotes."""
    parts, depth, quote = [""], 0, ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "[{":
            depth += 1
        elif char in "]}":
            depth -= 1
        if char == "," and not quote and depth <= 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts


def _value(text: str, path: str) -> object:
    try:
        return load_yaml(text)
    except (yaml.YAMLError, ValueError, RecursionError):
        raise DocumentError.of(path, "is no value: write it as in YAML", value=text) from None
