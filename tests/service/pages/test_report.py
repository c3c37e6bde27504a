"""What a report says was saved: against the right fleet, and proven by the weakest bound."""

from datetime import UTC, datetime
from typing import Any

from sutler.service.documents.comparison import ComparisonDocument
from sutler.service.pages.report import by_worth, saved_by

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)


def a_strategy(name: str, value: float | None, bound: float | None, **others: Any) -> dict[str, Any]:
    """Of min_cost; without a value it has no plan."""
    objective = {"kind": "min_cost", "value": value, "bound": bound, "relative_gap": None}
    figures = ("throughput_rps", "makespan_s", "load_multiple", "cost_usd_per_hour", "power_watts")
    return {
        **dict.fromkeys((*figures, "usd_per_million_tokens", "reason")),
        **{"name": name, "title": name, "family": "homogeneous", "source": "", "own_market": False, "seconds": 1.0},
        **{"status": "unknown" if value is None else "feasible", "objective": objective, "gpus": {}, "replicas": 0},
        "ratio_to_sutler": None if value is None else value / 2.0,
        **{"conflicts": (), "violations": (), **others},
    }


def compared(*rivals: dict[str, Any], objective: str = "min_cost") -> ComparisonDocument:
    market = {"taken_at": NOON, "age_s": 1.0, "offers": 3}
    return ComparisonDocument.model_validate(
        {
            **{"schema": "sutler/comparison/v1", "created_at": NOON, "objective": objective, "unit": "usd_per_hour"},
            **{"budget_usd_per_hour": None, "best_rival": None, "market": market, "version": "0", "notes": ()},
            "strategies": (a_strategy("sutler", 2.0, 1.9), *rivals),
        }
    )


def test_the_weakest_bound_of_all_fleets_is_what_is_proven() -> None:
    """The dearer of two fleets has the looser bound: in truth it might be the cheaper one."""
    found = saved_by(compared(a_strategy("b", 4.0, 2.5), a_strategy("a", 3.0, 2.9)))
    assert found is not None
    assert (found["best"].name, found["usd_per_hour"], found["proven_usd_per_hour"]) == ("a", 1.0, 0.5)


def test_a_fleet_without_a_bound_leaves_nothing_proven_and_one_without_a_plan_is_last() -> None:
    comparison = compared(a_strategy("x", None, None), a_strategy("y", None, None), a_strategy("a", 3.0, 2.9))
    assert [one.name for one in by_worth(comparison)] == ["sutler", "a", "x", "y"]
    found = saved_by(comparison)
    assert found is not None
    assert found["proven_usd_per_hour"] is None


def test_fleets_that_nobody_could_rent_save_nothing() -> None:
    assert saved_by(compared(a_strategy("a", 3.0, 2.9, own_market=True), a_strategy("x", None, None))) is None


def test_other_objectives_are_compared_by_a_ratio() -> None:
    found = saved_by(compared(a_strategy("a", 3.0, 2.9), objective="min_power"))
    assert found is not None
    assert (found["usd_per_hour"], found["ratio"]) == (None, 1.5)
