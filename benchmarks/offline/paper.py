"""What SamuLLM (Fang et al., §5) reports, in numbers, with the place: what ours are held against."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

from sutler.solver.offline.plan import Strategy

Part = Literal["ensembling", "routing", "chain summary", "mixed"]
PARTS: tuple[Part, ...] = ("ensembling", "routing", "chain summary", "mixed")


@dataclass(frozen=True, slots=True)
class Ratio:
    """How many times as long as the paper's own method, from `least` to `most` over its settings."""

    least: float
    most: float
    place: str

    def __str__(self) -> str:
        return f"{self.least:.1f}–{self.most:.1f}"


END_TO_END: Final[Mapping[tuple[Part, Strategy], Ratio]] = {
    ("ensembling", "max_heuristic"): Ratio(1.1, 2.4, "§5.1, Figure 7"),
    ("ensembling", "min_heuristic"): Ratio(1.0, 1.6, "§5.1, Figure 7"),
    ("routing", "max_heuristic"): Ratio(1.4, 1.8, "§5.2, Figure 8"),
    ("routing", "min_heuristic"): Ratio(1.0, 1.1, "§5.2, Figure 8"),
    ("chain summary", "max_heuristic"): Ratio(1.0, 1.3, "§5.3, Figure 11"),
    ("chain summary", "min_heuristic"): Ratio(1.0, 1.4, "§5.3, Figure 11"),
    ("mixed", "max_heuristic"): Ratio(1.2, 1.4, "§5.4, Figure 12"),
    ("mixed", "min_heuristic"): Ratio(1.2, 1.4, "§5.4, Figure 12"),
}
"""Of inference and search together."""

NO_PREEMPTION: Final[Mapping[Strategy, Ratio]] = {
    "greedy": Ratio(1.0, 1.2, "§5.5, Figure 14"),
    "min_heuristic": Ratio(1.3, 1.4, "§5.5, Figure 14"),
}
"""Times without preemption over those with, of the mixed application."""

LARGE_ENSEMBLING: Final = "ensembling: 10000 requests"
LARGE_ENSEMBLING_PLANNING_S: Final = 10.0
"""Within which the largest ensembling is to be planned; the paper's search takes 22 to 69 s."""

KNOWN_LENGTHS: Final = Ratio(0.9, 1.0, "§5.5, Figure 14")
"""How many times as fast plans are that know the output lengths."""

SEARCH_S: Final[Mapping[Part, str]] = {
    "ensembling": "22–69",
    "routing": "at most 15",
    "chain summary": "at most 27.8",
    "mixed": "at most 68",
}
"""Seconds of the paper's own search; of routing and the chain summary, of the slowest of its three methods."""

ABLATION_DOCUMENTS: Final = 500
"""§5.5: with 5,000 requests and limits of 256 (Figure 15) and 512."""
