"""All logs of a process as one stream on stderr: a line per record, as JSON or for people.

What a caller sends can end up in any record. So whatever is not printable is shown by its escape, long values are
cut, and what looks like a secret is masked, in the message, in every field and in tracebacks.
"""

import json
import logging
import re
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from math import isfinite
from typing import Any, Final, Literal, TextIO

from structlog.contextvars import bind_contextvars, merge_contextvars, reset_contextvars
from structlog.stdlib import ProcessorFormatter
from structlog.typing import EventDict

LogFormat = Literal["text", "json"]
Fields = dict[str, str | int | float | bool | None]

LEVELS: Final = {
    "sutler": logging.INFO,
    "uvicorn": logging.WARNING,
    "procrastinate": logging.WARNING,
    "apscheduler": logging.ERROR,
    "alembic": logging.WARNING,
}
SILENT: Final = ("uvicorn.access",)  # service/web/access_log.py writes it
MOST_CHARACTERS: Final = 4_000  # of a value; chosen: enough to recognise it, and no caller fills the log with one
MOST_TRACEBACK_LINES: Final = 200  # chosen: what failed shows in its end, which is kept
MASK: Final = "***"

_SECRETS: Final[tuple[tuple[re.Pattern[str], str], ...]] = (
    (re.compile(r"(sutler_[A-Za-z0-9]{1,64}_)[A-Za-z0-9_-]{8,}"), rf"\1{MASK}"),
    (re.compile(r"whsec_[A-Za-z0-9+/=_-]+"), f"whsec_{MASK}"),
    (
        re.compile(
            r"(authorization(?:['\"]\s*[:,]|\s*[:=])\s*(?:b(?=['\"]))?['\"]?)(?:(?:basic|bearer)\s+)?[^\s'\",;]+",
            re.I,
        ),
        rf"\1{MASK}",
    ),
    (re.compile(r"\b(basic|bearer)(\s+)[A-Za-z0-9._~+/=-]{16,}", re.I), rf"\1\2{MASK}"),
    (re.compile(r"(://[^\s/@:]{0,256}:)(?:[^\s@]{1,256}@)+"), rf"\1{MASK}@"),
    (re.compile(r"\b(api_?key|access_token|password|passwd|pwd)=[^\s&'\",;]+", re.I), rf"\1={MASK}"),
)
_MAY_HOLD_SECRETS: Final = re.compile(r"sutler_|whsec_|authorization|basic|bearer|://|key=|token=|passw|pwd=", re.I)
_SECRET_FIELDS: Final = frozenset({"authorization", "password", "secret", "api_key"})
_PLAIN_WORD: Final = re.compile(r"[^\s\"=]+")


def configure(log_format: LogFormat | None, *, stream: TextIO | None = None, debug: bool = False) -> None:
    """Sends all logs of this process to `stream` (None: stderr), and nowhere else.

    `log_format` None: text where that is a terminal, else JSON. `debug`: also what sutler says at DEBUG.
    """
    chosen = stream or sys.stderr
    render = {"text": _as_text, "json": _as_json}[log_format or ("text" if chosen.isatty() else "json")]
    handler = logging.StreamHandler(chosen)
    handler.setFormatter(
        ProcessorFormatter(
            processors=[_record_to_line(render)], use_get_message=False, pass_foreign_args=True, keep_exc_info=False
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    for name, level in LEVELS.items():
        logging.getLogger(name).setLevel(logging.DEBUG if debug and name == "sutler" else level)
    for name in SILENT:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    logging.captureWarnings(True)


@contextmanager
def bound(**ids: object) -> Iterator[None]:
    """Marks what is logged within: in this task and those it starts, carries these ids: request_id, plan_id, ..."""
    tokens = bind_contextvars(**ids)
    try:
        yield
    finally:
        reset_contextvars(**tokens)


def safe(value: str) -> str:
    """One line that can be shown anywhere: secrets masked, control characters escaped, cut where it is too long."""
    value = _masked(value)
    cut = f"... ({len(value)} characters)" if len(value) > MOST_CHARACTERS else ""
    return _printable(value[:MOST_CHARACTERS]) + cut


def _masked(value: str) -> str:
    if _MAY_HOLD_SECRETS.search(value):
        for pattern, shown in _SECRETS:
            value = pattern.sub(shown, value)
    return value


def _printable(value: str) -> str:
    if value.isprintable():
        return value
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in value)


def _record_to_line(render: Callable[[Fields, list[str]], str]) -> Callable[[Any, str, EventDict], str]:
    def line(logger: Any, method: str, event: EventDict) -> str:
        record: logging.LogRecord = event["_record"]
        return render(_fields(record, event, merge_contextvars(logger, method, {})), _traceback(event))

    return line


def _fields(record: logging.LogRecord, event: EventDict, ids: EventDict) -> Fields:
    at = datetime.fromtimestamp(record.created, UTC)
    fields: Fields = {
        "at": f"{at:%Y-%m-%dT%H:%M:%S}.{at.microsecond // 1000:03d}Z",
        "level": record.levelname.lower(),
        "logger": safe(record.name),
        "message": safe(_message(event)),
    }
    for name, value in {**ids, **getattr(record, "fields", {})}.items():
        fields.setdefault(safe(str(name)), MASK if str(name).lower() in _SECRET_FIELDS else _value(value))
    return fields


def _message(event: EventDict) -> str:
    """Fills the message in; a record whose arguments do not fit is a defect, but must not be lost for that."""
    template, arguments = str(event["event"]), event.get("positional_args")
    if not arguments:
        return template
    try:
        return f"{template % arguments}"
    except (TypeError, ValueError, KeyError):
        return f"{template} {arguments!r}"


def _value(value: object) -> str | int | float | bool | None:
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and isfinite(value)):
        return value
    return safe(str(value))


def _traceback(event: EventDict) -> list[str]:
    """Returns the lines; [] where there is none. The beginning is left out of a long one, whose end says most."""
    found = event.get("exc_info")
    if not found or found[1] is None:
        return []
    lines = [safe(line) for line in "".join(traceback.format_exception(*found)).rstrip("\n").split("\n")]
    return lines[-MOST_TRACEBACK_LINES:]


def _as_json(fields: Fields, trace: list[str]) -> str:
    """Writes ASCII, so that no encoding of stderr can spoil it."""
    return json.dumps({**fields, **({"exception": "\n".join(trace)} if trace else {})})


def _as_text(fields: Fields, trace: list[str]) -> str:
    """Writes a line for people, a traceback's lines indented: no line of it can pass for a record."""
    first = ("at", "level", "logger", "message")
    head = f"{fields['at']} {str(fields['level']).upper():<8} {fields['logger']}: {fields['message']}"
    others = [f"{name}={_quoted(value)}" for name, value in fields.items() if name not in first]
    return "\n".join([" ".join([head, *others]), *(f"    {line}" for line in trace)])


def _quoted(value: str | int | float | bool | None) -> str:
    shown = str(value)
    escaped = shown.replace('"', '\\"')
    return shown if _PLAIN_WORD.fullmatch(shown) else f'"{escaped}"'
