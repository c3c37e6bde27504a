"""Whether aiconfigurator-core is there to be asked, and what becomes of its failures.

Flow: operator_database.py asks through here; aiconfigurator.py says what is missing. It imports nothing of it.
"""

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from typing import Final, TypeVar

DISTRIBUTION: Final = "aiconfigurator-core"
VERSION: Final = "0.12.0"  # another one may answer differently and was not compared
REMEDY: Final = "pip install 'sutler[aiconfigurator]'"

Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class NoAnswer:
    """Instead of an answer."""

    reason: str


def missing() -> str | None:
    """What is missing to ask the database, with the remedy; None where it can be asked."""
    if find_spec("aiconfigurator_core") is None:
        return f"{DISTRIBUTION} is not installed: {REMEDY}"
    try:
        found = metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        found = "of unknown version"
    return None if found == VERSION else f"{DISTRIBUTION} is {found}, not {VERSION}: {REMEDY}"


def shielded(question: Callable[[], Answer]) -> Answer | NoAnswer:
    """The answer, or what kept the package from giving it: it raises errors of many kinds."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return question()
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # a panic of its compiled part is no Exception
        return NoAnswer(f"{DISTRIBUTION} {VERSION} has no answer: {_reason(error)}")


def _reason(error: BaseException) -> str:
    """The first line of what it says, without the places of its files."""
    first = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {re.sub(r' at /[^ ;,]+', '', first)[:300]}"
