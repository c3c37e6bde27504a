"""What the commands for the market, deployments and offline plans show, without a service or a store."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final
from uuid import UUID

from rich.console import RenderableType

from sutler.adapters.base import Poll
from sutler.service.cli.views.deployments import decisions_view, holdings_view, list_view
from sutler.service.cli.views.market import history_view, outlook_view, poll_view, providers_view
from sutler.service.cli.views.traffic import rates_view, traffic_view
from sutler.service.deployments.holdings.schemas import HoldingDocument, HoldingsResource
from sutler.service.deployments.rates.schemas import (
    LearntLayoutResource,
    LearntPointResource,
    RatesResource,
    UnlearntResource,
)
from sutler.service.deployments.schemas import CurrentPlanResource, DeploymentSummary
from sutler.service.deployments.traffic.schemas import (
    ModelTrafficResource,
    TrafficResource,
    WorkloadTrafficResource,
)
from sutler.service.deployments.watch_schema import DecisionResource, DriftResource, WatchSummary
from sutler.service.market.history import HistoryPoint
from sutler.service.market.repository import PollReport, ProviderReport
from sutler.service.market.resources import ChanceResource, LastPollResource, OutlookPage, OutlookResource

Parts = Iterable[RenderableType]

NOW: Final = datetime(2026, 11, 20, 12, tzinfo=UTC)
ID: Final = UUID(int=1)


def polls() -> Parts:
    usual = Poll(outcome="ok", kept=1_432, not_available={"rented": 87}, requests=8)
    patient = Poll(outcome="retry", detail="HTTP 429: asks for patience", http_status=429)
    return poll_view(
        [
            PollReport("vastai", NOW, 4.25, usual, {"price_mismatch": 3}, None, 210, 195),
            PollReport("runpod", NOW, 0.5, patient, {}, NOW + timedelta(minutes=2), 0, 0),
        ]
    )


def providers() -> Parts:
    last: dict[str, Any] = {"kept": 1_432, "rejected": {"unknown_gpu": 12}, "not_available": {}, "flags": {}}
    ok = LastPollResource(ended_at=NOW, outcome="ok", retry_at=None, detail="", **last)
    later = NOW + timedelta(seconds=60)
    return providers_view(
        [
            ProviderReport("vastai", ok, NOW - timedelta(seconds=20), later, 0, 1_432),
            ProviderReport("runpod", None, None, None, 0, 0),
        ],
        now=NOW,
    )


def outlook() -> Parts:
    chance: dict[str, Any] = {"fraction": 0.97, "low_fraction": 0.94, "high_fraction": 0.98}
    late: dict[str, Any] = {"fraction": 0.31, "low_fraction": 0.22, "high_fraction": 0.4}
    seen: dict[str, Any] = {"machines": 31, "lives": 212, "deaths": 187, "machine_hours": 4_205.5}
    rate: dict[str, Any] = {"rate_per_hour": 0.0445, "rate_low_per_hour": 0.039, "rate_high_per_hour": 0.05}
    rows = [
        OutlookResource(
            gpu=gpu,
            provider="vastai",
            contract="interruptible",
            gpus=gpus,
            for_rent=12,
            within=ChanceResource(**chance),
            lasting=ChanceResource(**late),
            expected_lifetime_s=81_000,
            cell=("contract", "gpus", "provider", "gpu", "age"),
            **rate,
            **seen,
        )
        for gpu, gpus in (("h100-sxm", 8), ("rtx-pro-6000-blackwell-server", 1))
    ]
    return outlook_view(OutlookPage(within_s=600, for_s=86_400, items=rows, next=None))


def history() -> Parts:
    seen = [HistoryPoint(NOW + timedelta(hours=i), 40.0 + 3 * i, 12 + i, 1.99, 2.4 - 0.05 * i) for i in range(5)]
    return history_view("h100-sxm", "on_demand", [*seen, HistoryPoint(NOW, None, None, None, None)])


def deployments() -> Parts:
    made: dict[str, Any] = {"id": ID, "version": 2, "plan_id": ID, "created_at": NOW, "updated_at": NOW, "url": "/x"}
    plan = CurrentPlanResource(
        id=ID, revision=12, status="optimal", cost_usd_per_hour=1_204.5, issued_at=NOW - timedelta(hours=3), url="/y"
    )
    watched = WatchSummary(status="calm", feed="live", looked_at=NOW)
    return list_view(
        [
            DeploymentSummary(name="chat-eu-production", revision=12, plan=plan, watch=watched, **made),
            DeploymentSummary(name="code", revision=0, plan=None, watch=None, **made),
        ],
        NOW,
    )


def decisions() -> Parts:
    drift = DriftResource(kind="rate", detail="chat/long: 31 requests/s, planned 22", value=0.41, threshold=0.2)
    why = "1.32 of the planned rate: 3 machines more, which pay for themselves in 25 minutes"
    made: dict[str, Any] = {"id": ID, "at": NOW, "options": []}
    return decisions_view(
        [
            DecisionResource(
                basis_revision=11, revision=12, chosen="refleet", reason=why, drifts=[drift, drift], **made
            ),
            DecisionResource(
                basis_revision=None, revision=None, chosen="keep", reason="nothing moved", drifts=[], **made
            ),
        ]
    )


def holdings() -> Parts:
    def machines(count: int, **others: Any) -> tuple[HoldingDocument, ...]:
        given = {"provider": "vastai", "offer_id": "31415926", "gpu": "h100-sxm", "gpus": 8, "count": count}
        return (HoldingDocument(**{**given, "price_usd_per_hour": 18.4, **others}),)

    return holdings_view(
        HoldingsResource(
            deployment="chat",
            reported=True,
            reported_at=NOW,
            usd_per_hour=55.2,
            holdings=machines(3),
            revision=12,
            lost=machines(1, contract="interruptible"),
            missing=machines(2, provider="runpod", offer_id="NVIDIA H100 80GB HBM3"),
            unplanned=(),
        )
    )


def traffic() -> Parts:
    workload = WorkloadTrafficResource(
        workload="long-prompts-short-answers",
        planned_rps=22.0,
        rate_rps=31.2,
        requests=3_744.0,
        input_tokens=8_120.0,
        output_tokens=210.0,
    )
    model = ModelTrafficResource(
        model="chat",
        state="live",
        window_s=120.0,
        requests=3_744.0,
        rate_rps=31.2,
        planned_rps=22.0,
        last_at=NOW - timedelta(seconds=10),
        workloads=[workload],
    )
    return traffic_view(TrafficResource(deployment="chat", models=[model]), NOW)


def rates() -> Parts:
    span: dict[str, Any] = {"first_at": NOW - timedelta(hours=1), "last_at": NOW, "cached_fraction": 0.0}
    points = [
        LearntPointResource(
            input_tokens=size,
            output_tokens=300,
            in_flight=load,
            faster=0.7,
            low=low,
            high=0.75,
            stretches=5.2,
            **span,
        )
        for size, load, low in ((3000, 15, 0.66), (512, 52, 0.61))
    ]
    layout = LearntLayoutResource(
        model="chat",
        gpu="rtx-pro-6000-server",
        tensor_parallel=2,
        precision="fp8",
        kv_precision="bf16",
        engine="vllm",
        is_known=True,
        beside_plan=0.71,
        points=points,
    )
    left = UnlearntResource(replica="chat-7", why="its GPUs are capped")
    found: dict[str, Any] = {"since": None, "until": NOW, "left_out": 0, "layouts": [layout], "not_learnt": [left]}
    return rates_view(RatesResource(deployment="chat", applied=False, **found))
