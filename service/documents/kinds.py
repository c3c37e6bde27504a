"""The documents that have a published schema, by the names that commands and files go by."""

from collections.abc import Mapping
from typing import Final, Literal

DocumentName = Literal[
    "problem",
    "plan",
    "market",
    "calibration",
    "comparison",
    "what-if",
    "estimate",
    "application",
    "offline-plan",
    "offline-progress",
    "offline-simulation",
    "offline-comparison",
    "offline-schedule",
]

# What is easily handed in where another document is wanted, by its `schema`: its name, and what makes or takes it.
CALLED: Final[Mapping[str, tuple[str, str]]] = {
    "sutler/plan/v1": (
        "a plan",
        "`sutler plan PROBLEM --json` makes plans, `sutler simulate` and `sutler export` take them",
    ),
    "sutler/market/v1": ("a market", "a problem names its file in market.offers"),
    "sutler/calibration/v1": ("a calibration", "a problem names its file in throughput.calibration"),
    "sutler/what-if/v1": ("a table of plans", "`sutler plan` with one value for each option makes a plan"),
    "sutler/comparison/v1": ("a comparison", "`sutler compare PROBLEM` makes them, and people read them"),
    "sutler/estimate/v1": ("an estimate", "`sutler estimate` makes them, and people read them"),
    "sutler/simulation/v1": ("a simulation", "`sutler simulate PLAN` makes them, and people read them"),
    "sutler/offline-plan/v1": (
        "an offline plan",
        "`sutler offline plan APPLICATION --json` makes them, `sutler offline simulate` and `adjust` take them",
    ),
}
