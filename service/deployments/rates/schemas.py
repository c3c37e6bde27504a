"""What callers see of the rates that a deployment has learnt."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from math import exp

from sutler.service.deployments.rates.applying import SURE, Shift
from sutler.service.deployments.rates.learning import Cell, LayoutKey, Learnt
from sutler.service.web.resource import Resource


class LearntPointResource(Resource):
    """Stretches of some minutes in which engines of one layout served alike."""

    input_tokens: float
    """Of a request, on average."""
    output_tokens: float
    """Of a request, on average."""
    in_flight: float
    """Requests in an engine, on average."""
    cached_fraction: float
    """What of the prompts was in the prefix cache."""
    faster: float
    """How fast the engines were, as a multiple of the estimate."""
    low: float
    """Lower end of what that may be by chance."""
    high: float
    """Upper end of it."""
    stretches: float
    """How much it counts for: old ones count for less."""
    first_at: datetime
    """When the first of them began."""
    last_at: datetime
    """When the last of them ended."""


class LearntLayoutResource(Resource):
    """What was learnt of replicas of one layout."""

    model: str
    """The caller's name of the model."""
    gpu: str
    """Slug of the GPU."""
    tensor_parallel: int
    """GPUs that share a layer."""
    precision: str
    """Of the weights."""
    kv_precision: str
    """Of the KV cache."""
    engine: str
    """Whose estimates it is beside."""
    is_known: bool
    """Whether there are enough stretches to plan with."""
    beside_plan: float | None
    """What was learnt, as a multiple of what the plan that holds counts on, between 0.5 and 1.5 times the estimates;
    null where the plan does not use the layout, or not enough is known."""
    points: list[LearntPointResource]
    """By size of the requests and load, the one with the most evidence first."""


class UnlearntResource(Resource):
    """A replica of the plan of which nothing is learnt."""

    replica: str
    """Its id."""
    why: str
    """Why."""


class RatesResource(Resource):
    """What a deployment has learnt of its own engines."""

    deployment: str
    """Its name."""
    applied: bool
    """Whether plans rest on it (`policy.learn_rates`)."""
    since: datetime | None
    """Since when it learns; null: from its beginning."""
    until: datetime | None
    """Until when engines have told; null: none has yet."""
    left_out: int
    """Stretches that were more than 4 times off any estimate, and count for nothing."""
    layouts: list[LearntLayoutResource]
    """What was learnt."""
    not_learnt: list[UnlearntResource]
    """Of which replicas of the plan nothing can be."""


def layout_resources(learnt: Learnt, moved: Sequence[Shift], now: datetime) -> list[LearntLayoutResource]:
    """The layouts with what is known of each."""
    known = {cell.layout for cell in learnt.known(now)}
    beside = {shift.layout: shift.faster for shift in moved}
    layouts = dict.fromkeys(cell.layout for cell in learnt.cells)
    return [_layout(layout, learnt, now, is_known=layout in known, beside=beside.get(layout)) for layout in layouts]


def unlearnt_resources(why: Mapping[str, str]) -> list[UnlearntResource]:
    return [UnlearntResource(replica=replica, why=reason) for replica, reason in why.items()]


def _layout(
    layout: LayoutKey, learnt: Learnt, now: datetime, *, is_known: bool, beside: float | None
) -> LearntLayoutResource:
    cells = sorted((cell.at(now) for cell in learnt.of(layout)), key=lambda cell: -cell.stretches)
    return LearntLayoutResource(
        **layout.model_dump(), is_known=is_known, beside_plan=beside, points=[_point(cell) for cell in cells]
    )


def _point(cell: Cell) -> LearntPointResource:
    shared = ("input_tokens", "output_tokens", "in_flight", "cached_fraction", "stretches", "first_at", "last_at")
    low, high = (exp(cell.error + sign * SURE * cell.noise) for sign in (-1, 1))
    return LearntPointResource(
        faster=exp(cell.error), low=low, high=high, **{name: getattr(cell, name) for name in shared}
    )
