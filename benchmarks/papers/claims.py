"""What the papers report, in numbers, with the place: what ours are held against."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["gain", "loss"]


@dataclass(frozen=True, slots=True)
class GridClaim:
    """Of arXiv 2502.00722. `gain`: sutler's value over the rival's, less 1; `loss`: 1 less the inverse.

    `rivals`: names as in grid.rival. Against the best of them in every cell where `best`, else against each in turn.
    `mean`, `most`: the paper's fractions; None where it draws them and says nothing.
    """

    title: str
    place: str
    kind: Kind
    rivals: tuple[str, ...]
    models: tuple[str, ...]
    traces: tuple[int, ...] = (1, 2, 3)
    best: bool = False
    mean: float | None = None
    most: float | None = None


_UNLIMITED: Final = ("h100/unlimited", "a6000/unlimited", "4090/unlimited")
_LIMITED: Final = ("h100", "a6000", "4090")
_BIG: Final = ("llama-3-70b",)
_ALL: Final = ("llama-3-8b", "llama-3-70b", "both")

GRID_CLAIMS: Final = (
    GridClaim("one GPU type, unlimited: 70B", "Figure 5, 5.2", "gain", _UNLIMITED, _BIG, mean=0.25, most=0.41),
    GridClaim("… the best of the three", "Figure 5, 5.2", "gain", _UNLIMITED, _BIG, best=True),
    GridClaim("… H100 alone", "Figure 5", "gain", ("h100/unlimited",), _BIG),
    GridClaim("… A6000 alone", "Figure 5", "gain", ("a6000/unlimited",), _BIG),
    GridClaim("… 4090 alone", "Figure 5", "gain", ("4090/unlimited",), _BIG),
    GridClaim("one GPU type, unlimited: 8B", "Figure 15", "gain", _UNLIMITED, ("llama-3-8b",)),
    GridClaim("… the best of the three", "Figure 15", "gain", _UNLIMITED, ("llama-3-8b",), best=True),
    GridClaim("one GPU type, unlimited: both", "Figure 10", "gain", _UNLIMITED, ("both",), mean=0.23, most=0.35),
    GridClaim("… the best of the three", "Figure 10", "gain", _UNLIMITED, ("both",), best=True),
    GridClaim("one GPU type, same supply: all models", "–", "gain", _LIMITED, _ALL),
    GridClaim("… the best of the three", "–", "gain", _LIMITED, _ALL, best=True),
    GridClaim(
        "uniform composition", "Figure 8", "loss", ("uniform-composition",), _BIG, (1, 2), mean=0.20, most=0.27
    ),
    GridClaim("uniform deployment", "Figure 8", "loss", ("uniform-deployment",), _BIG, (1, 2), mean=0.33, most=0.34),
    GridClaim("round robin", "Figure 8", "loss", ("round-robin-assignment",), _BIG, (1, 2), mean=0.29, most=0.32),
    GridClaim("HexGen, even composition", "Figure 7", "loss", ("hexgen/even",), _BIG, mean=0.29, most=0.35),
    GridClaim("HexGen, our composition", "Figure 7", "gain", ("hexgen/ours",), _BIG, mean=0.14, most=0.18),
    GridClaim("uniform composition: all models", "–", "loss", ("uniform-composition",), _ALL),
    GridClaim("uniform deployment: all models", "–", "loss", ("uniform-deployment",), _ALL),
    GridClaim("round robin: all models", "–", "loss", ("round-robin-assignment",), _ALL),
    GridClaim("greedy by value: all models", "–", "loss", ("greedy-cheapest",), _ALL),
)

BUDGET_GAIN: Final[Mapping[int, float]] = {5: 0.30, 60: 0.15}
"""Over the homogeneous fleets at the ends of Figure 16 (appendix K)."""
HELIX_RPS: Final = 5.72
PAPERS_RPS: Final = 7.13
"""Table 3: Llama3-70B, trace 2, 15 $/h."""

Costs = Mapping[int, tuple[float | None, ...]]
MELANGE_GPUS: Final = ("h100-sxm", "a100-sxm4-80gb", "a10g", "l4")
MELANGE_COSTS: Final[Mapping[tuple[str, int], Costs]] = {
    ("arena", 120): {
        1: (1.71, 7.516, 3.67, 2.02, 2.1),
        2: (2.41, 7.516, 3.67, 3.03, 3.5),
        4: (4.37, 7.516, 7.34, 6.06, 6.3),
        8: (7.4, 15.032, 11.01, 11.1, 11.9),
        16: (14.43, 30.064, 22.02, 20.2, 23.1),
        32: (25.81, 60.128, 33.03, 39.39, 45.5),
    },
    ("pubmed", 120): {
        1: (11.186, 15.032, 14.68, None, None),
        2: (21.732, 30.064, 25.69, None, None),
        4: (40.258, 60.128, 51.38, None, None),
        8: (78.302, 105.224, 99.09, None, None),
        16: (156.78, 210.448, 194.51, None, None),
        32: (315.622, 413.38, 389.02, None, None),
    },
    ("mixed", 120): {
        1: (3.67, 7.516, 3.67, None, None),
        2: (4.37, 7.516, 7.34, None, None),
        4: (9.536, 15.032, 11.01, None, None),
        8: (13.906, 22.548, 18.35, None, None),
        16: (28.762, 45.096, 36.7, None, None),
        32: (57.834, 90.192, 73.4, None, None),
    },
    ("arena", 40): {
        1: (2.41, 7.516, 3.67, 3.03, 3.5),
        2: (3.67, 7.516, 3.67, 5.05, 6.3),
        4: (5.38, 7.516, 7.34, 10.1, 11.9),
        8: (9.05, 15.032, 11.01, 16.16, 23.8),
        16: (17.07, 30.064, 22.02, 40.4, 47.6),
        32: (30.1, 52.612, 33.03, 80.8, 94.5),
    },
    ("pubmed", 40): {
        1: (14.68, 15.032, 14.68, None, None),
        2: (26.218, 30.064, 33.03, None, None),
        4: (48.59, 52.612, 62.39, None, None),
        8: (101.202, 105.224, 124.78, None, None),
        16: (198.206, 210.448, 245.89, None, None),
        32: (388.72, 420.896, 488.11, None, None),
    },
    ("mixed", 40): {
        1: (3.67, 7.516, 3.67, None, None),
        2: (5.38, 7.516, 7.34, None, None),
        4: (10.546, 15.032, 11.01, None, None),
        8: (18.586, 30.064, 22.02, None, None),
        16: (38.358, 52.612, 44.04, None, None),
        32: (74.75, 97.708, 88.08, None, None),
    },
}
"""arXiv 2404.14527, Tables 3 to 8: $/h of Melange's fleet, then of one GPU type alone in MELANGE_GPUS' order."""


@dataclass(frozen=True, slots=True)
class CauchyClaim:
    """How many more tokens per dollar `strategy` has than `over`. `paper`: its words for it."""

    title: str
    strategy: str
    over: str
    paper: str


CAUCHY_CLAIMS: Final = (
    CauchyClaim("sutler over Mélange (CAUCHY)", "sutler", "melange", "16.4 to 38.3"),
    CauchyClaim("without roles over Mélange (CAUCHY*)", "aggregated-only", "melange", "7.8 to 17.1"),
    CauchyClaim("sutler over no roles", "sutler", "aggregated-only", "–"),
    CauchyClaim("CO-LP over Mélange", "cauchy/co-lp", "melange", "16.4 to 38.3"),
    CauchyClaim("CO-LP over MCE-LP", "cauchy/co-lp", "cauchy/mce-lp", "46.9 on DailyMail"),
    CauchyClaim("CO-LP over MC-LP", "cauchy/co-lp", "cauchy/mc-lp", "28.9 on DailyMail"),
    CauchyClaim("sutler over CO-LP", "sutler", "cauchy/co-lp", "–"),
    CauchyClaim("sutler over MC-LP", "sutler", "cauchy/mc-lp", "–"),
)
"""Sections 4.2 (Figure 7; CAUCHY allocates by CO-LP) and 4.3 (Figure 8)."""


@dataclass(frozen=True, slots=True)
class SplitwiseClaim:
    """What `design` has of what `over` has: requests/s, watts or $/h, whichever the goal leaves open.

    `ratio` None: not the paper's, who had no such planner.
    """

    goal: str
    mix: str
    design: str
    over: str
    ratio: float | None
    place: str


_A100_ALONE: Final = "homogeneous/a100-sxm4-80gb"
_H100_ALONE: Final = "homogeneous/h100-sxm"
SPLITWISE_CLAIMS: Final = (
    SplitwiseClaim("iso-power", "conversation", "splitwise/aa", _A100_ALONE, 2.15, "Figure 18a"),
    SplitwiseClaim("iso-power", "conversation", "splitwise/ha", _H100_ALONE, 1.18, "Figure 18a"),
    SplitwiseClaim("iso-cost", "conversation", "splitwise/aa", _H100_ALONE, 1.4, "Figure 18b"),
    SplitwiseClaim("least-power", "conversation", "splitwise/hhcap", _H100_ALONE, 0.75, "Figure 19a"),
    SplitwiseClaim("least-cost", "conversation", "splitwise/aa", _H100_ALONE, 0.75, "Figure 19b"),
    *(
        SplitwiseClaim(goal, mix, "sutler", _H100_ALONE, None, "–")
        for mix in ("conversation", "coding")
        for goal in ("iso-power", "iso-cost", "least-power", "least-cost")
    ),
)
"""arXiv 2311.18677, VI.B and VI.C. Over which baseline HA has 1.18 at 10 % less cost is our reading: at equal power a
fleet of A100 alone costs less than any with H100."""
