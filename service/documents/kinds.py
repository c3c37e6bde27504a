"""The documents that have a published schema, by the names that commands and files go by."""

from collections.abc import Mapping
from typing import Final, Literal

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

# By what a document says of itself under `schema`: what it is called, and where it comes from or goes to.
CALLED: Final[Mapping[str, tuple[str, str]]] = {
    "sutler/plan/v1": (
        "a plan",
        "`sutler plan PROBLEM --json` makes plans, `sutler simulate` and `sutler export` take them",
    ),
    "sutler/market/v1": ("a market", "a problem names its file in market.offers"),
    "sutler/calibration/v1": ("a calibration", "a problem names its file in throughput.calibration"),
    "sutler/comparison/v1": ("a comparison", "`sutler compare PROBLEM --json` makes comparisons"),
    "sutler/offline-plan/v1": (
        "an offline plan",
        "`sutler offline plan APPLICATION --json` makes them, `sutler offline simulate` and `adjust` take them",
    ),
    "sutler/offline-schedule/v1": ("an offline schedule", "exported scripts carry it out"),
    "sutler/offline-simulation/v1": ("an offline simulation", "`sutler offline simulate` makes them"),
    "sutler/offline-comparison/v1": ("an offline comparison", "`sutler offline compare` makes them"),
}
