"""Options of charts and their tables: the same numbers, gaps where nothing is known."""

from datetime import UTC, datetime, timedelta

from sutler.service.deployments.history.schemas import (
    CostResource,
    CostsResource,
    ModelTrafficHistory,
    ModelTrafficPoint,
)
from sutler.service.pages.charts import cost_chart, latency_chart, over_time, traffic_chart

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def a_model(*latencies: dict[str, float]) -> ModelTrafficHistory:
    points = [
        ModelTrafficPoint(at=NOON + i * HOUR, seen_rps=None if i == 1 else 2.0 * i, planned_rps=3.0, latencies=told)
        for i, told in enumerate(latencies)
    ]
    return ModelTrafficHistory(model="chat", items=points)


def test_what_nobody_told_of_is_a_gap_in_the_line_and_empty_in_the_table() -> None:
    option, rows, headings = traffic_chart(a_model({}, {}, {}))
    seen, planned = option["series"]
    assert seen["data"] == [
        ["2026-11-20T12:00:00Z", 0.0],
        ["2026-11-20T13:00:00Z", None],
        ["2026-11-20T14:00:00Z", 4.0],
    ]
    assert seen["connectNulls"] is False
    assert planned["lineStyle"] == {"type": "dashed"}
    assert headings == ["UTC", "seen", "planned"]
    assert rows[1] == ["2026-11-20 13:00", None, 3.0]


def test_latencies_are_drawn_where_engines_told_of_any() -> None:
    assert latency_chart(a_model({}, {"ttft_kept_fraction": 0.9})) is None
    found = latency_chart(a_model({"ttft_p90_s": 1.0, "tpot_p90_s": 0.04}, {}))
    assert found is not None
    assert found[2] == ["UTC", "tpot_p90_s", "ttft_p90_s"]
    assert found[1] == [["2026-11-20 12:00", 0.04, 1.0], ["2026-11-20 13:00", None, None]]


def test_money_changes_in_steps() -> None:
    items = [
        CostResource(
            at=NOON + i * HOUR,
            planned_usd_per_hour=2.0,
            held_usd_per_hour=None if i == 0 else 1.0,
            deployments=1,
            reported_deployments=0 if i == 0 else 1,
        )
        for i in range(2)
    ]
    costs = CostsResource(
        deployment=None, since=NOON, until=NOON + HOUR, planned_usd=2.0, held_usd=1.0, items=items, steps=[]
    )
    option, rows, _ = cost_chart(costs)
    assert {line["step"] for line in option["series"]} == {"end"}
    assert rows == [["2026-11-20 12:00", 2.0, None], ["2026-11-20 13:00", 2.0, 1.0]]


def test_a_few_points_are_shown_as_points_and_nothing_at_all_is_an_empty_chart() -> None:
    few: dict[str, list[tuple[datetime, float | None]]] = {
        "a": [(NOON, 1.0), (NOON + HOUR, None)],
        "b": [(NOON, None), (NOON + HOUR, None)],
    }
    option, _, _ = over_time(few)
    assert [line["showSymbol"] for line in option["series"]] == [True, True]
    assert over_time({}) == ({**option, "series": []}, [], ["UTC"])
