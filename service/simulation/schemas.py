"""The document of a simulation: what a plan did with its traffic. Units: seconds, requests/s, tokens/s."""

from typing import Final, Literal
from uuid import UUID

from pydantic import Field

from sutler.service.documents.fields import Document

METRIC_WORDS: Final = {"ttft": "time to first token", "tpot": "time per output token", "e2e": "whole request"}


class LatencyResource(Document):
    """Over the requests that were counted; null where none has it."""

    mean_s: float | None
    """Mean."""
    percentiles_s: dict[str, float | None]
    """p10, p25, p50, p75, p90, p95, p99 and p100."""


class LimitResource(Document):
    """One latency limit of a model or a workload."""

    metric: Literal["ttft", "tpot", "e2e"]
    """Time to first token, time per output token after the first, whole request."""
    percentile: int
    """Of the requests, in percent."""
    seconds: float
    """The limit."""
    within_fraction: float
    """Share of the requests within it; those that were not served are not."""
    at_percentile_s: float | None
    """What the limit's own percentile came to."""
    met: bool
    """Whether as many as asked for are within it."""
    workload: str | None = None
    """Of a model: which workload has it for itself; null: all that are under it, together."""


class TrafficResource(Document):
    """One model, or one workload of it."""

    model: str
    """The caller's name of the model."""
    workload: str | None
    """Name of the workload; null: all of the model."""
    requests: int
    """Requests that were counted: those after the warm-up."""
    unserved: int
    """Of those: no replica could take them."""
    offered_rps: float
    """Requests/s that arrived."""
    throughput_rps: float
    """Requests/s that were finished."""
    input_tokens_per_s: float
    """Of finished requests."""
    output_tokens_per_s: float
    """Of finished requests."""
    goodput_rps: float
    """Requests/s that arrived and were served within every limit of their workload."""
    ttft: LatencyResource
    """Time to first token."""
    tpot: LatencyResource
    """Time per output token after the first."""
    e2e: LatencyResource
    """Whole request."""
    limits: tuple[LimitResource, ...]
    """Of a model: its limits, over the requests that are under them, and those that workloads have for themselves; of
    a workload: all that it is under, over its requests."""


class SimulatedReplicaResource(Document):
    """One replica; means over time from the warm-up on, empty times included."""

    replica: str
    """Id of the replica in the plan."""
    role: Literal["aggregated", "prefill", "decode"] = "aggregated"
    """What it does."""
    requests: int
    """Requests that it got; one that is handed over counts for both replicas."""
    busy_fraction: float
    """Share of the time with a step under way."""
    running: float
    """Sequences in its batch."""
    waiting: float
    """Requests in its queue."""
    most_waiting: float
    """The longest queue of any span of the timeline."""
    cache_fraction: float
    """Used part of its KV cache."""
    most_cache_fraction: float
    """The fullest span."""
    preemptions: int
    """Sequences that were taken out for want of cache, and computed anew."""


class SimulatedLossResource(Document):
    """What was lost on the way, and what was served of the requests."""

    kind: Literal["provider", "place", "machine", "interruptible"]
    """What kind of loss."""
    name: str
    """What was lost."""
    at_s: float
    """When; from then on its replicas answer nothing, and what they had under way is lost."""
    detected_s: float
    """From when on requests were sent to the others alone, by the plan's routing for the loss where it has one."""
    replicas: tuple[str, ...]
    """Those that fell."""
    served_before_fraction: float | None
    """Of the requests that arrived before it; null: none did."""
    served_meanwhile_fraction: float | None
    """Of those that arrived until it was detected."""
    served_after_fraction: float | None
    """Of those that arrived from then on."""
    unserved: int
    """Requests that were not served, in all."""
    carried_after_fraction: float | None
    """Requests that were finished from the detection to the last arrival, over those that arrived in that time; 1 at
    most."""


class SimulationResource(Document):
    """What came of a plan's traffic; the same plan, traffic and seed give the same."""

    schema_: Literal["sutler/simulation/v1"] = Field(alias="schema")
    """Version of this format."""
    plan_id: UUID
    """Which plan."""
    traffic: str
    """What was replayed, in words."""
    routing: Literal["round_robin", "random", "least_loaded"]
    """How requests were divided by the plan's fractions."""
    scheduling: Literal["chunked", "prefill_first"]
    """How engines put prompts into steps."""
    max_batched_tokens: int
    """Most tokens of one step."""
    seed: int
    """Of all that was drawn at random."""
    roles: Literal["fixed", "mixed_pool", "opportunistic"] = "fixed"
    """When prefill and decode replicas served whole requests: never, where a queue was long, where one was idle."""
    whole_requests: int = 0
    """Requests of more than one token that prefill and decode replicas served whole."""
    loss: SimulatedLossResource | None = None
    """What was lost on the way; null: nothing."""
    requests: int
    """Requests in all, those of the warm-up included."""
    warm_up_s: float
    """Requests before it are not counted."""
    end_s: float
    """The last arrival."""
    seconds: float
    """How long the simulation took."""
    meets_all_limits: bool
    """Whether every limit of every model and workload is met; true where there is none."""
    models: tuple[TrafficResource, ...]
    """Each model as a whole."""
    workloads: tuple[TrafficResource, ...]
    """Each workload."""
    replicas: tuple[SimulatedReplicaResource, ...]
    """Each replica."""
