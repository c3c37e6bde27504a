"""The documents that have a published schema, by the names that commands and files go by."""

from typing import Literal

DocumentName = Literal[
    "problem",
    "plan",
    "market",
    "calibration",
    "comparison",
    "application",
    "offline-plan",
    "offline-progress",
    "offline-simulation",
    "offline-comparison",
    "offline-schedule",
]
