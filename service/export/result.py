"""What an export gives, and in which formats."""

from dataclasses import dataclass
from typing import Final, Literal, get_args

from sutler.service.errors import Exit, Kind, RemediedError

ExportFormat = Literal["vllm", "compose", "kubernetes", "skypilot", "router", "nginx", "envoy"]
FORMATS: Final[tuple[str, ...]] = get_args(ExportFormat)
ROUTERS: Final = frozenset({"router", "nginx", "envoy"})
"""Formats that start nothing: they say where requests go, whatever serves them."""


@dataclass(frozen=True, slots=True)
class Exported:
    """One text; `warnings` say what to look at before running it."""

    format: ExportFormat
    media_type: str
    content: str
    filename: str
    warnings: tuple[str, ...] = ()


class NothingToRunError(RemediedError):
    """The plan has no replicas."""

    kind = Kind(409, "nothing-to-run", "The plan runs nothing")
    exit_status = Exit.INFEASIBLE
