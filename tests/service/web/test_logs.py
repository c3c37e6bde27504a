"""Logs: one line per record that anything can be in, and no secret in any."""

import json
import logging
import warnings
from io import StringIO
from uuid import UUID

import pytest

from sutler.service.logs import LogFormat, bound, configure, safe
from tests.service.web.applications import secrets
from tests.service.web.conftest import Configured

FORMATS: tuple[LogFormat, ...] = ("json", "text")
HOSTILE = (
    "one\ntwo",
    "one\r\n2026-01-01T00:00:00.000Z ERROR    sutler: forged",
    "\x1b[2J\x1b[31mred",
    "\x00\x07\x08\x7f\x85\x9b",
    "line\u2028paragraph\u2029",
    "right-to-left \u202e override",
    "lone \udc80 surrogate",
    '"quoted" \\ {"a": 1}',
    "x" * 1_000_000,
    "\n" * 100_000,
)
log = logging.getLogger("sutler.test")


@pytest.mark.parametrize("log_format", FORMATS)
@pytest.mark.parametrize("hostile", HOSTILE)
def test_whatever_is_logged_is_one_printable_line(
    configured: Configured, log_format: LogFormat, hostile: str
) -> None:
    stream = configured(log_format)
    with bound(request_id=hostile):
        log.warning("told: %s", hostile, extra={"fields": {"path": hostile}})
    written = stream.getvalue()
    assert written.endswith("\n")
    assert written[:-1].isprintable()
    assert len(written) < 150_000
    written.encode("utf-8")


def test_json_lines_are_ascii_and_have_what_was_logged(configured: Configured) -> None:
    stream = configured("json")
    with bound(request_id="r-1", job_id=7, plan_id=UUID(int=1)):
        log.info("plan %s of %s", "p", "Zoë", extra={"fields": {"seconds": 0.25, "actor": None, "is_new": True}})
    assert stream.getvalue().isascii()
    line = json.loads(stream.getvalue())
    assert line.pop("at").endswith("Z")
    assert line == {
        "level": "info",
        "logger": "sutler.test",
        "message": "plan p of Zoë",
        "request_id": "r-1",
        "job_id": 7,
        "plan_id": "00000000-0000-0000-0000-000000000001",
        "seconds": 0.25,
        "actor": None,
        "is_new": True,
    }


def test_text_lines_are_for_people(configured: Configured) -> None:
    stream = configured("text")
    with bound(request_id="r-1"):
        log.warning("slow", extra={"fields": {"path": '/a "b"', "empty": ""}})
    at, rest = stream.getvalue().split(" ", 1)
    assert at.endswith("Z")
    assert rest == 'WARNING  sutler.test: slow request_id=r-1 path="/a \\"b\\"" empty=""\n'


def test_numbers_that_json_does_not_know_become_words(configured: Configured) -> None:
    stream = configured("json")
    log.info("x", extra={"fields": {"gap": float("inf"), "value": float("nan")}})
    line = json.loads(stream.getvalue(), parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert (line["gap"], line["value"]) == ("inf", "nan")


def test_no_field_can_pass_for_the_record_s_own(configured: Configured) -> None:
    stream = configured("json")
    log.info("true", extra={"fields": {"message": "forged", "level": "critical", "at": "never"}})
    line = json.loads(stream.getvalue())
    assert (line["message"], line["level"]) == ("true", "info")
    assert line["at"] != "never"


@pytest.mark.parametrize("log_format", FORMATS)
@pytest.mark.parametrize("secret", list(secrets()))
def test_secrets_are_masked_wherever_they_are(configured: Configured, log_format: LogFormat, secret: str) -> None:
    stream = configured(log_format)
    with bound(request_id=secret):
        try:
            raise ValueError(f"refused {secret}")
        except ValueError:
            log.exception("with %s", secret, extra={"fields": {"path": secret}})
    written = stream.getvalue()
    hidden = ("ghjkl", "MfKQ", "short-key", "OnBhc", "QWERTY", "pa/ss", "word@", "hunter2")
    assert [part for part in hidden if part in written] == []
    assert written.count("***") == 4


def test_a_key_at_the_end_of_a_long_text_is_masked_before_the_cut() -> None:
    shown = safe("x" * 3_990 + " sutler_ab12_" + "S" * 40)
    assert "S" not in shown


def test_what_is_no_secret_stays_readable() -> None:
    told = "http://localhost:8400/v1/plans Basic authentication; authorization is missing; SUTLER_DATA_DIR: set it"
    assert safe(told) == told


def test_fields_that_are_secrets_by_name_are_masked(configured: Configured) -> None:
    stream = configured("json")
    log.info("x", extra={"fields": {"Authorization": "anything", "secret": "else"}})
    line = json.loads(stream.getvalue())
    assert (line["Authorization"], line["secret"]) == ("***", "***")


def raise_deep(depth: int) -> None:
    if depth:
        raise_deep(depth - 1)
    raise RuntimeError("first\n2026-01-01T00:00:00.000Z ERROR    sutler: forged\n\x1b[31m")


def test_a_traceback_is_one_field_of_a_json_line(configured: Configured) -> None:
    stream = configured("json")
    try:
        raise_deep(3)
    except RuntimeError:
        log.exception("a defect")
    (line,) = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert line["message"] == "a defect"
    assert line["exception"].startswith("Traceback")
    assert "raise_deep(depth - 1)" in line["exception"]
    assert "\\x1b[31m" in line["exception"]


def test_no_line_of_a_traceback_passes_for_a_record_in_text(configured: Configured) -> None:
    stream = configured("text")
    try:
        raise_deep(3)
    except RuntimeError:
        log.exception("a defect")
    first, *others = stream.getvalue().rstrip("\n").split("\n")
    assert first.endswith("sutler.test: a defect")
    assert len(others) > 5
    assert all(line.startswith("    ") and line.isprintable() for line in others)


def test_endless_tracebacks_are_cut_to_their_end(configured: Configured) -> None:
    stream = configured("json")
    try:
        raise RuntimeError("\n".join(f"line {n}" for n in range(100_000)))
    except RuntimeError:
        log.exception("a defect")
    line = json.loads(stream.getvalue())
    assert line["exception"].endswith("line 99999")
    assert len(line["exception"]) < 10_000


@pytest.mark.parametrize("arguments", [("x",), (1, 2), ({"a": 1},)])
def test_a_message_whose_arguments_do_not_fit_is_not_lost(
    configured: Configured, arguments: tuple[object, ...]
) -> None:
    stream = configured("json")
    log.info("%d of %d of %d", *arguments)
    assert json.loads(stream.getvalue())["message"].startswith("%d of %d of %d")


def test_ids_end_with_their_block_and_inner_ones_come_on_top(configured: Configured) -> None:
    stream = configured("json")
    with bound(request_id="outer"):
        with bound(request_id="inner", plan_id="p"):
            log.info("a")
        log.info("b")
    log.info("c")
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line.get("request_id"), line.get("plan_id")) for line in lines] == [
        ("inner", "p"),
        ("outer", None),
        (None, None),
    ]


@pytest.mark.parametrize(
    ("logger", "least"),
    [
        ("sutler.jobs", "INFO"),
        ("uvicorn.error", "WARNING"),
        ("procrastinate.worker", "WARNING"),
        ("apscheduler.scheduler", "ERROR"),
        ("alembic.runtime.migration", "WARNING"),
        ("anything.else", "WARNING"),
    ],
)
def test_every_library_is_as_loud_as_it_should_be(configured: Configured, logger: str, least: str) -> None:
    stream = configured("json")
    for level in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"):
        logging.getLogger(logger).log(getattr(logging, level), level)
    said = [json.loads(line)["message"] for line in stream.getvalue().splitlines()]
    assert said[0] == least
    assert said[-1] == "CRITICAL"


def test_uvicorn_s_own_access_log_is_silent(configured: Configured) -> None:
    stream = configured("json")
    logging.getLogger("uvicorn.access").info("GET / 200")
    logging.getLogger("uvicorn.access").critical("GET / 200")
    assert stream.getvalue() == ""


def test_debug_says_more_of_sutler_alone(configured: Configured) -> None:
    stream = StringIO()
    configured("json")
    configure("json", stream=stream, debug=True)
    log.debug("ours")
    logging.getLogger("procrastinate").debug("theirs")
    assert [json.loads(line)["message"] for line in stream.getvalue().splitlines()] == ["ours"]


def test_warnings_are_lines_too(configured: Configured) -> None:
    stream = configured("json")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old-fashioned", stacklevel=1)
    (line,) = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (line["logger"], line["level"]) == ("py.warnings", "warning")


def test_configuring_twice_says_everything_once(configured: Configured) -> None:
    configured("text")
    stream = configured("json")
    log.info("once")
    assert len(stream.getvalue().splitlines()) == 1


class Terminal(StringIO):
    """A stream that says it is one."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_text_and_everything_else_json(configured: Configured) -> None:
    configured("json")
    terminal, pipe = Terminal(), StringIO()
    for stream in (terminal, pipe):
        configure(None, stream=stream)
        log.info("told")
    assert terminal.getvalue().endswith("INFO     sutler.test: told\n")
    assert json.loads(pipe.getvalue())["message"] == "told"


def test_logs_go_to_stderr_and_nothing_to_stdout(configured: Configured, capsys: pytest.CaptureFixture[str]) -> None:
    configured("json")
    configure("json")
    log.info("told")
    said = capsys.readouterr()
    assert json.loads(said.err)["message"] == "told"
    assert said.out == ""
