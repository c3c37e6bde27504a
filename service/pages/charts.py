"""Options of ECharts, and the same numbers for tables: what is drawn is made here, and tested here. Pure.

https://echarts.apache.org/en/option.html
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sutler.service.deployments.history.schemas import CostsResource, ModelTrafficHistory

COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#b3a600", "#7f7f7f")
Chart = tuple[dict[str, Any], list[list[Any]], list[str]]
"""The option, the rows of a table of the same, and its headings."""


def over_time(
    lines: Mapping[str, Sequence[tuple[datetime, float | None]]],
    *,
    colours: Sequence[str] = COLOURS,
    dashes: Sequence[str] = (),
    step: bool = False,
) -> Chart:
    """A line for each name; what is not known is a gap."""
    option = {
        "aria": {"enabled": False},
        "color": list(colours),
        "tooltip": {"trigger": "axis", "renderMode": "richText"},
        "legend": {"type": "scroll", "top": 0},
        "grid": {"left": 50, "right": 15, "top": 36, "bottom": 28},
        "xAxis": {"type": "time"},
        "yAxis": {"type": "value", "scale": True},
        "series": [
            {
                "name": name,
                "type": "line",
                "connectNulls": False,
                "showSymbol": sum(value is not None for _, value in points) < LEAST_LINE,
                "lineStyle": {"type": dashes[place] if place < len(dashes) else "solid"},
                **({"step": "end"} if step else {}),
                "data": [[f"{at:%Y-%m-%dT%H:%M:%SZ}", value] for at, value in points],
            }
            for place, (name, points) in enumerate(lines.items())
        ],
    }
    instants = [at for at, _ in next(iter(lines.values()), ())]
    rows = [
        [f"{at:%Y-%m-%d %H:%M}", *(points[place][1] for points in lines.values())]
        for place, at in enumerate(instants)
    ]
    return option, rows, ["UTC", *lines]


LEAST_LINE: Final = 4  # points below which points are shown


def traffic_chart(model: ModelTrafficHistory) -> Chart:
    """What was seen, and what was planned for."""
    return over_time(
        {
            "seen": [(point.at, point.seen_rps) for point in model.items],
            "planned": [(point.at, point.planned_rps) for point in model.items],
        },
        dashes=("solid", "dashed"),
    )


def latency_chart(model: ModelTrafficHistory) -> Chart | None:
    """The 90th percentiles that engines told of, in seconds; None where none did."""
    names = sorted({name for point in model.items for name in point.latencies if name.endswith("_p90_s")})
    if not names:
        return None
    return over_time({name: [(point.at, point.latencies.get(name)) for point in model.items] for name in names})


def cost_chart(costs: CostsResource) -> Chart:
    """What plans cost, and what was held; plans change it in steps."""
    return over_time(
        {
            "planned": [(point.at, point.planned_usd_per_hour) for point in costs.items],
            "held": [(point.at, point.held_usd_per_hour) for point in costs.items],
        },
        dashes=("dashed", "solid"),
        step=True,
    )
