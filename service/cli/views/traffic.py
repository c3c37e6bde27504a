"""Traffic and where it is read from, as people read it."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import starmap
from typing import Final

from rich.console import RenderableType
from rich.text import Text

from sutler.service.cli.views.layout import listed, table_of
from sutler.service.deployments.rates.schemas import RatesResource
from sutler.service.deployments.traffic.counters import KEPT
from sutler.service.deployments.traffic.feed_schema import FeedResource, FeedsResource
from sutler.service.deployments.traffic.schemas import (
    AcceptedResource,
    ModelTrafficResource,
    TrafficResource,
    WorkloadTrafficResource,
)
from sutler.service.deployments.traffic.window import ENOUGH_REQUESTS
from sutler.service.wording.words import age, ago, counted, moment, number

MOST_URLS: Final = 3  # chosen: the first ones tell which service it is
STATES: Final = {
    "never": "nothing was ever seen",
    "silent": "nothing is seen any more",
    "thin": "too little to tell",
    "live": "known",
}


def accepted_words(name: str, found: Sequence[AcceptedResource]) -> Iterator[str]:
    """What was counted, what was known already, and what is known of each model's traffic now."""
    requests = sum(accepted.accepted_requests for accepted in found)
    known = sum(accepted.duplicate for accepted in found)
    if found and known == len(found):
        yield f"{name}: nothing counted, it was sent before ({counted(known, 'report')})"
    else:
        words = f"{name}: {requests:,.0f} requests counted ({counted(len(found), 'report')}"
        yield f"{words}, {known} of them sent before)" if known else f"{words})"
    for accepted in {accepted.model: accepted for accepted in found}.values():
        yield f"{accepted.model}: {_model_words(accepted.traffic)}"


def _model_words(traffic: ModelTrafficResource) -> str:
    if traffic.state == "live":
        planned = f"planned {number(traffic.planned_rps)}"
        return f"{number(traffic.rate_rps)} requests/s over {age(traffic.window_s)} ({planned})"
    seen = f", {traffic.requests:,.0f} requests so far" if traffic.state == "thin" else ""
    return f"{traffic.state}: {STATES[traffic.state]}{seen}"


def traffic_view(found: TrafficResource, now: datetime) -> Iterator[RenderableType]:
    """A line per model and, below it, one per workload: of both, what was seen beside what is planned."""
    table = table_of(
        texts=("model", "workload"), numbers=("state", "seen req/s", "planned", "requests", "tokens", "window")
    )
    table.add_column("last seen", no_wrap=True)
    for model in found.models:
        is_seen = model.state in ("thin", "live")
        seen = (number(model.rate_rps) if is_seen else "–", number(model.planned_rps), _requests(model, is_seen))
        last = "never" if model.last_at is None else ago(model.last_at, now)
        window = f"{model.window_s:,.0f} s" if is_seen else "–"
        table.add_row(model.model, "", model.state, *seen, "", window, last)
        for w in model.workloads:
            seen = (number(w.rate_rps) if is_seen else "–", number(w.planned_rps), _requests(w, is_seen))
            table.add_row("", w.workload, "", *seen, f"{w.input_tokens:,.0f} → {w.output_tokens:,.0f}", "", "")
    yield table
    latencies = (words for model in found.models for words in _latency_words(model))
    yield from listed("Latencies of the newest reading", latencies)


def _requests(traffic: ModelTrafficResource | WorkloadTrafficResource, is_seen: bool) -> str:
    return f"{traffic.requests:,.0f}" if is_seen else "–"


def _latency_words(model: ModelTrafficResource) -> Iterator[str]:
    if model.latencies:
        yield f"{model.model}: {', '.join(starmap(_latency_word, model.latencies.items()))}"


def _latency_word(name: str, value: float) -> str:
    if name.endswith(KEPT):
        return f"{name.removesuffix(KEPT).removesuffix('_s')} kept by {value:.1%}"
    return f"{name.removesuffix('_s')} {number(value)} s"


def thin_words(traffic: TrafficResource | None, *, window_s: float) -> Iterator[str]:
    """How much was seen of what is too thin, as far as it is known."""
    thin = [] if traffic is None else [model for model in traffic.models if model.state == "thin"]
    for model in thin:
        whose = model.model if traffic is not None and len(traffic.models) > 1 else "its traffic"
        if model.requests < ENOUGH_REQUESTS:
            seen = f"{model.requests:,.0f} of {ENOUGH_REQUESTS} requests so far"
        else:
            seen = f"{model.requests:,.0f} requests so far, of less than half of the window of {window_s:,.0f} s"
        yield f"{whose} is too thin to tell whether it has changed: {seen}"
    if not thin:
        yield "its traffic was too thin to tell whether it has changed"


def rates_view(found: RatesResource) -> Iterator[RenderableType]:
    """One line per layout, size of requests and load."""
    if not found.layouts and not found.not_learnt:
        hint = "feeds of the engines' own metrics tell it (docs/rates.md)"
        yield Text(f"{found.deployment}: nothing is learnt of the engines' rates yet; {hint}")
        return
    table = table_of(
        texts=("model", "layout"), numbers=("input", "output", "in flight", "times estimate", "95 %", "stretches")
    )
    for layout in found.layouts:
        where = f"{layout.tensor_parallel} x {layout.gpu} {layout.precision}, {layout.engine}"
        for point in layout.points:
            sizes = (f"{tokens:,.0f}" for tokens in (point.input_tokens, point.output_tokens, point.in_flight))
            span = f"{point.low:.2f}–{point.high:.2f}"
            table.add_row(layout.model, where, *sizes, f"{point.faster:.2f}", span, f"{point.stretches:.1f}")
    yield table
    off = (one for one in found.layouts if one.beside_plan is not None)
    words = (
        f"{one.model} on {one.tensor_parallel} x {one.gpu}: {one.beside_plan:.2f} times what the plan counts on"
        for one in off
    )
    yield from listed("Beside the plan", words)
    yield from listed("Not learnt", (f"{one.replica}: {one.why}" for one in found.not_learnt))
    applied = "Plans rest on it." if found.applied else "Only shown: policy `learn_rates: true` plans with it."
    yield Text(applied)


def feeds_view(found: FeedsResource) -> Iterator[RenderableType]:
    """One line per feed, and what went wrong below."""
    if not found.feeds:
        hint = f"`sutler deployments feeds {found.deployment} --file FILE` says from where"
        yield Text(f"{found.deployment}: its traffic is not read from anywhere; {hint}")
        return
    table = table_of(texts=("model", "kind", "from"), numbers=("every",))
    table.add_column("read last (UTC)", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for feed in found.feeds:
        read_at = "never" if feed.read_at is None else moment(feed.read_at)
        table.add_row(feed.model, feed.kind, _places(feed), f"{feed.every_s:g} s", read_at, _feed_state(feed))
    yield table
    yield from listed("Could not be read", (words for feed in found.feeds for words in _failures(feed)))


def _places(feed: FeedResource) -> str:
    shown = [*feed.urls[:MOST_URLS], *([f"and {len(feed.urls) - MOST_URLS} more"] * (len(feed.urls) > MOST_URLS))]
    labels = ", ".join(f'{name}="{value}"' for name, value in feed.selector.items())
    return "\n".join([*shown, f"{{{labels}}}"] if labels else shown)


def _feed_state(feed: FeedResource) -> str:
    if feed.error is not None:
        return f"fails, {counted(feed.failures, 'time')}"
    if feed.partial:
        return f"{len(feed.partial)} of {len(feed.urls)} fail"
    return "not read yet" if feed.read_at is None else "ok"


def _failures(feed: FeedResource) -> Iterator[str]:
    if feed.error is not None:
        next_at = "" if feed.next_at is None else f"; tried again at {moment(feed.next_at)}"
        yield f"{feed.urls[0]}{' and the others' if len(feed.urls) > 1 else ''}: {feed.error}{next_at}"
    yield from (f"{failed.url}: {failed.error}" for failed in feed.partial)
