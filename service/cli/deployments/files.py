"""What people hand in to `sutler deployments`: files that the service cannot read, as bodies that it takes."""

import csv
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from sutler.service.cli.terminal.input import folder_of, read_bytes, read_data
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.reading import MOST_JSON_BYTES, parse_document
from sutler.service.documents.traces import COLUMNS
from sutler.service.errors import short_repr
from sutler.service.translation.inlining import without_paths

REQUESTS_AT_ONCE: Final = 5_000  # of a list of single requests, per call: a tenth of what the service takes


@dataclass(frozen=True, slots=True)
class DeploymentFile:
    """A deployment to make or change. `feeds` is None where the file says nothing of them."""

    name: str
    body: Mapping[str, Any]
    feeds: object | None


def wanted_deployment(path: Path, name: str | None) -> DeploymentFile:
    """A whole deployment, or a problem alone; what the problem takes from files is put into it.

    `name` wins over the file's. Raises DocumentError, InvalidProblemError.
    """
    data = read_data(path, "FILE")
    if not isinstance(data, dict):
        raise DocumentError.of("FILE", "must hold a deployment or a problem (`sutler schema problem`)", value=data)
    whole = data if "problem" in data else {"problem": data}
    chosen = name or whole.get("name")
    if not isinstance(chosen, str):
        raise DocumentError.of("name", "is missing: give --name NAME, or `name` in the file beside `problem`")
    rest = {key: value for key, value in whole.items() if key not in ("name", "problem", "feeds")}
    problem = without_paths(whole["problem"], folder_of(path))
    return DeploymentFile(chosen, {**rest, "problem": problem}, whole.get("feeds"))


def observations(path: Path, model: str | None) -> Iterator[object]:
    """Bodies for `/observations`: of a JSON or YAML document or list, of JSON lines, or of an Azure trace as CSV.

    `model` is whose traffic it is where the file does not say. Raises DocumentError.
    """
    text = _text(path)
    first, _, rest = text.lstrip().partition("\n")
    if {*COLUMNS} <= {cell.strip() for cell in first.split(",")}:
        yield from _of_requests(_rows(text.lstrip().splitlines()), model)
    elif _is_json(first) and rest.strip():
        yield from _of_requests(_parsed_lines(text), model)
    else:
        data = parse_document(text, is_json=False, field="FILE", name=path.name)
        yield from _of_requests(data if isinstance(data, list) else [data], model)


def _text(path: Path) -> str:
    content = read_bytes(path, "FILE", most=MOST_JSON_BYTES + 1)
    if len(content) > MOST_JSON_BYTES:
        remedy = f"is larger than {MOST_JSON_BYTES // 1_000_000} MB: divide it"
        raise DocumentError.of("FILE", remedy, value=path.name)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DocumentError.of("FILE", "is not UTF-8 text: save it as UTF-8", value=path.name) from None
    if not text.strip():
        raise DocumentError.of("FILE", "is empty: give observations, see docs/traffic.md", value=path.name)
    return text


def _is_json(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False


def _parsed_lines(text: str) -> Iterator[object]:
    for number, line in enumerate(text.splitlines(), start=1):
        if line.strip():
            yield parse_document(line, is_json=True, field=f"line {number}", name=line[:60])


def _of_requests(records: Iterable[object], model: str | None) -> Iterator[object]:
    """Single requests (what has `at`) in lists per model; all else as it is, with the model where it names none."""
    waiting: dict[object, list[object]] = defaultdict(list)
    for record in records:
        if not isinstance(record, dict):
            raise DocumentError.of("FILE", "must hold observations: mappings of names to values", value=record)
        whose = record.get("model", model)
        if whose is None:
            raise DocumentError.of("model", "is missing: give --model NAME, or `model` in the file")
        if "at" not in record:
            yield {"model": whose, **record}
            continue
        some = waiting[whose]
        some.append({key: value for key, value in record.items() if key != "model"})
        if len(some) == REQUESTS_AT_ONCE:
            yield {"model": whose, "requests": waiting.pop(whose)}
    yield from ({"model": whose, "requests": some} for whose, some in waiting.items())


def _rows(lines: list[str]) -> Iterator[object]:
    reader = csv.DictReader(lines)
    reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
    time, input_tokens, output_tokens = COLUMNS
    for row in reader:
        yield {
            "at": _time(row[time], reader.line_num),
            "input_tokens": _tokens(row[input_tokens], input_tokens, reader.line_num),
            "output_tokens": _tokens(row[output_tokens], output_tokens, reader.line_num),
        }


def _time(text: str | None, line: int) -> str:
    """RFC 3339; without a zone it is UTC, as in the trace."""
    try:
        found = datetime.fromisoformat((text or "").strip())
    except ValueError:
        remedy = f"line {line}: must be a time such as 2023-11-16 18:15:46.6805900"
        raise DocumentError.of(COLUMNS[0], remedy, value=text) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).isoformat()


def _tokens(text: str | None, column: str, line: int) -> float:
    try:
        return float(text or "")
    except ValueError:
        raise DocumentError.of(column, f"line {line}: must be a number", value=short_repr(text)) from None
