"""A simulation as people read it: what was met, rates, latencies, limits, workloads, replicas."""

from collections.abc import Iterable, Iterator, Sequence

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sutler.service.cli.views.layout import listed, section, table_of
from sutler.service.simulation.schemas import (
    METRIC_WORDS,
    LatencyResource,
    LimitResource,
    SimulatedLossResource,
    SimulatedReplicaResource,
    SimulationResource,
    TrafficResource,
)
from sutler.service.wording.words import counted, number, percent

SHOWN_PERCENTILES = ("p10", "p50", "p90", "p95", "p99", "p100")
MOST_REPLICAS = 40  # chosen: what a screen holds


def simulation_view(found: SimulationResource) -> Iterator[RenderableType]:
    """The parts to print, in order."""
    yield Text(headline(found), style="bold")
    yield Text(
        f"{found.traffic}; {found.requests:,} requests through {counted(len(found.replicas), 'replica')} in "
        f"{found.seconds:.2f} s; what arrived in the first {number(found.warm_up_s, digits=3)} s is not counted"
    )
    if found.loss is not None:
        yield from listed("Lost on the way", _loss(found.loss))
    yield from section("Rates", _rates(found.models))
    for model in found.models:
        of_model = f" of {model.model}" if len(found.models) > 1 else ""
        yield from section(f"Latencies{of_model}", _latencies(model))
    limits = [(model.model, limit) for model in found.models for limit in model.limits]
    if limits:
        yield from section("Limits", limits_table(limits))
    if len(found.workloads) > len(found.models):
        yield from section("By workload, p90", _workloads(found.workloads))
    yield from section("Replicas, means over time", _replicas(found.replicas))
    yield from listed("What to know", _notes(found))


def headline(found: SimulationResource) -> str:
    limits = [limit for model in found.models for limit in model.limits]
    unserved = sum(model.unserved for model in found.models)
    if not limits:
        return "simulated: no limits to meet" + (f", {unserved:,} requests unserved" if unserved else "")
    missed = sum(not limit.met for limit in limits)
    if not missed:
        return f"every limit is met ({counted(len(limits), 'limit')})"
    return f"{missed} of {counted(len(limits), 'limit')} missed"


def _loss(loss: SimulatedLossResource) -> Iterator[str]:
    what = loss.kind if loss.name == loss.kind else f"{loss.kind} {loss.name}"
    fallen = counted(len(loss.replicas), "replica")
    detected = f"requests were sent elsewhere from {number(loss.detected_s)} s"
    yield f"{what} at {number(loss.at_s)} s, with {fallen}; {detected}"
    spans = (
        ("before", loss.served_before_fraction),
        ("until that was detected", loss.served_meanwhile_fraction),
        ("from then on", loss.served_after_fraction),
    )
    parts = [f"{percent(served)} of what arrived {when}" for when, served in spans if served is not None]
    yield f"served: {', '.join(parts)}; {loss.unserved:,} requests unserved"
    if loss.carried_after_fraction is not None:
        yield f"carried from then on, as it came: {percent(loss.carried_after_fraction)} of the load"


def _rates(models: Iterable[TrafficResource]) -> Table:
    table = table_of(
        texts=("model",),
        numbers=("requests", "offered req/s", "done req/s", "goodput req/s", "in tok/s", "out tok/s", "unserved"),
    )
    for model in models:
        requests = (model.offered_rps, model.throughput_rps, model.goodput_rps)
        rates = (*requests, model.input_tokens_per_s, model.output_tokens_per_s)
        table.add_row(model.model, f"{model.requests:,}", *map(number, rates), f"{model.unserved:,}")
    return table


def _latencies(model: TrafficResource) -> Table:
    table = table_of(texts=("",), numbers=("mean", *SHOWN_PERCENTILES))
    for metric, words in METRIC_WORDS.items():
        latency: LatencyResource = getattr(model, metric)
        values = [latency.mean_s, *(latency.percentiles_s[name] for name in SHOWN_PERCENTILES)]
        table.add_row(f"{words}, {_unit(metric)}", *(_shown(metric, value) for value in values))
    return table


def limits_table(limits: Iterable[tuple[str, LimitResource]]) -> Table:
    limits = list(limits)
    has_own = any(limit.workload for _, limit in limits)
    table = table_of(texts=("model", *["workload"] * has_own, "limit", ""), numbers=("came to", "within"))
    for model, limit in limits:
        table.add_row(
            model,
            *[limit.workload or ""] * has_own,
            f"{METRIC_WORDS[limit.metric]} p{limit.percentile} at most {_with_unit(limit.metric, limit.seconds)}",
            "met" if limit.met else "missed",
            _with_unit(limit.metric, limit.at_percentile_s),
            f"{100 * limit.within_fraction:.2f} %",
        )
    return table


def _workloads(workloads: Iterable[TrafficResource]) -> Table:
    table = table_of(
        texts=("model", "workload"),
        numbers=("requests", "done req/s", "first token s", "per token ms", "whole s", "unserved"),
    )
    for workload in workloads:
        p90 = (_shown(metric, getattr(workload, metric).percentiles_s["p90"]) for metric in METRIC_WORDS)
        done = (f"{workload.requests:,}", number(workload.throughput_rps))
        table.add_row(workload.model, workload.workload, *done, *p90, f"{workload.unserved:,}")
    return table


def _unit(metric: str) -> str:
    return "ms" if metric == "tpot" else "s"


def _shown(metric: str, seconds: float | None) -> str:
    value = seconds if seconds is None or metric != "tpot" else 1000 * seconds
    return number(value, digits=3)


def _with_unit(metric: str, seconds: float | None) -> str:
    return f"{_shown(metric, seconds)} {_unit(metric)}"


def _replicas(replicas: Sequence[SimulatedReplicaResource]) -> Table:
    has_roles = any(replica.role != "aggregated" for replica in replicas)
    table = table_of(
        texts=("replica", *["role"] * has_roles),
        numbers=("requests", "busy", "running", "waiting", "most", "cache", "most", "preempted"),
    )
    for replica in replicas[:MOST_REPLICAS]:
        table.add_row(
            *(replica.replica, *[replica.role] * has_roles),
            f"{replica.requests:,}",
            percent(replica.busy_fraction),
            *(number(one, digits=3) for one in (replica.running, replica.waiting, replica.most_waiting)),
            percent(replica.cache_fraction),
            percent(replica.most_cache_fraction),
            f"{replica.preemptions:,}",
        )
    if len(replicas) > MOST_REPLICAS:
        table.add_row(f"... {len(replicas) - MOST_REPLICAS} more (--json has all)")
    return table


def _notes(found: SimulationResource) -> Iterator[str]:
    if found.roles != "fixed":
        yield f"{found.whole_requests:,} of {found.requests:,} requests were served whole by replicas of one phase."
    for model in found.models:
        if model.unserved:
            yield (
                f"{model.unserved:,} requests of {model.model} were served by no replica: their workload has no "
                "share in the routing, or no cache holds them at their full length."
            )
        finished = f"{model.model} finished {number(model.throughput_rps)} of {number(model.offered_rps)} requests/s"
        falls_behind = model.offered_rps > 1.02 * model.throughput_rps
        if falls_behind and all(replica.waiting < 1 for replica in found.replicas):
            yield (
                f"{finished}, and none waited: the rest was still being answered after "
                f"{number(found.end_s, digits=3)} s. Simulate for longer (--duration-s)."
            )
        elif falls_behind:
            yield f"{finished}: its queue grows. Plan for more, or try a smaller --load-multiple."
