"""What has moved since the plan was made: small functions of the facts, each drift with its evidence.

The thresholds are Cauchy's (section 3.5: 20 % for two minutes, a refinement after thirty); what is added is that a
sample must be large enough to tell a change from noise.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import pi, sqrt
from types import MappingProxyType
from typing import Literal

from sutler.service.deployments.rates.applying import LEAST_SHIFT, Shift
from sutler.service.deployments.replanning.load import carries_load, has_rates, lasting_rps, stated_work
from sutler.service.deployments.replanning.standing_machines import Dearer, Missing
from sutler.service.deployments.schemas import PolicyDocument
from sutler.service.deployments.traffic.planned import stated_rps
from sutler.service.deployments.traffic.window import ModelTraffic
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.problem_parts import ModelDocument

DriftKind = Literal[
    "lost",
    "gone",
    "scarce",
    "shared",
    "dearer",
    "rate",
    "mix",
    "size",
    "rates",
    "sleep",
    "wake",
    "refinement",
    "age",
    "asked",
]
URGENT = frozenset({"lost", "gone", "scarce", "shared", "wake"})


@dataclass(frozen=True, slots=True)
class Drift:
    """One thing that has moved. `value` beyond `threshold` is what makes it one; both in the unit of `detail`."""

    kind: DriftKind
    detail: str
    value: float
    threshold: float

    @property
    def is_urgent(self) -> bool:
        """The plan cannot be carried out as it is, or lacks a model."""
        return self.kind in URGENT


def fleet_drifts(missing: Sequence[Missing], dearer: Sequence[Dearer]) -> Iterator[Drift]:
    """Machines of the plan that cannot be had, or not at its price."""
    words = {"lost": "no longer held", "gone": "not for rent any more", "scarce": "for rent too seldom"}
    for one in missing:
        machine = f"{one.of} x {one.key[3]} {one.gpu} of {one.key[0]}/{one.key[1]}"
        others = f"{one.again} of it can be rented again" if one.again else "no other of it is for rent"
        detail = f"{one.count} of {machine}: {words[one.kind]}, {others}"
        yield Drift(one.kind, detail, float(one.count), 0.0)
    for one_dearer in dearer:
        change = one_dearer.now_usd_per_hour / max(one_dearer.planned_usd_per_hour, 1e-9) - 1
        detail = (
            f"{one_dearer.key[0]}/{one_dearer.key[1]} costs {one_dearer.now_usd_per_hour:.4g} $/h, "
            f"{one_dearer.planned_usd_per_hour:.4g} were planned"
        )
        yield Drift("dearer", detail, change, 0.0)


def traffic_drifts(
    planned: ProblemDocument,
    traffic: Mapping[str, ModelTraffic],
    policy: PolicyDocument,
    *,
    climbing_to: Mapping[str, float] = MappingProxyType({}),
    usual: Collection[str] = (),
    lead_s: float = 0.0,
) -> Iterator[Drift]:
    """Rates, mixes and sizes of requests that differ from what the plan was made for, beyond noise.

    `climbing_to`: requests/s, by model, when what is ordered now serves, in `lead_s`, of those whose traffic climbs;
    that of the `usual` ones is not seen to, but does at this time of other days.
    """
    if not has_rates(planned):
        return
    for model in planned.models:
        seen = traffic.get(model.name)
        if seen is None or seen.state != "live":
            continue
        if carries_load(planned):
            yield from _rate(model, seen, policy) or _climb(
                model, climbing_to.get(model.name, 0.0), lead_s, is_usual=model.name in usual
            )
        if seen.requests > 0:
            yield from _mix(model, seen, policy)
            yield from _size(model, seen, policy)
    if not carries_load(planned):
        yield from _shares_of_models(planned, traffic, policy)


def rates_drifts(shifts: Iterable[Shift]) -> Iterator[Drift]:
    """Layouts of the plan whose engines are faster or slower than it counts on, beyond chance."""
    for shift in shifts:
        if shift.is_one:
            layout = shift.layout
            detail = (
                f"{layout.model} on {layout.tensor_parallel} x {layout.gpu} at {layout.precision}: engines serve "
                f"{shift.faster:.2f} times what the plan counts on ({shift.stretches:.0f} stretches of minutes)"
            )
            yield Drift("rates", detail, abs(shift.faster - 1.0), LEAST_SHIFT + shift.noise)


def timed_drifts(
    policy: PolicyDocument, *, issued_at: datetime, calm_since: datetime, now: datetime
) -> Iterator[Drift]:
    """A plan that is too old, and calm that has lasted."""
    age_s = (now - issued_at).total_seconds()
    if policy.max_age_s is not None and age_s >= policy.max_age_s:
        yield Drift("age", f"the plan is {age_s:.0f} s old", age_s, policy.max_age_s)
    calm_s = (now - calm_since).total_seconds()
    if calm_s >= policy.refine_s:
        yield Drift("refinement", f"nothing has changed for {calm_s:.0f} s", calm_s, policy.refine_s)


def _climb(model: ModelDocument, comes_to_rps: float, lead_s: float, *, is_usual: bool) -> list[Drift]:
    """Any that is not planned for: it is judged by how sure it is, and what comes late is not carried meanwhile."""
    planned_rps = stated_rps(model)
    if comes_to_rps <= planned_rps:
        return []
    change = comes_to_rps / planned_rps - 1 if planned_rps > 0 else 0.0
    comes_to = f"{'usually at' if is_usual else 'climbing to'} {comes_to_rps:.4g} requests/s"
    detail = (
        f"{model.name}: {comes_to} in {lead_s:.0f} s, when what is ordered now serves; "
        f"{planned_rps:.4g} were planned ({change:+.0%})"
    )
    return [Drift("rate", detail, change, 0.0)]


def _rate(model: ModelDocument, seen: ModelTraffic, policy: PolicyDocument) -> list[Drift]:
    planned = stated_rps(model)
    stated = stated_work(model)
    peak = min(1.0, seen.peak_work / stated) if stated > 0 else 0.0
    load = max(lasting_rps(seen, planned), planned * peak)
    change = load / planned - 1 if planned > 0 else 0.0
    threshold = policy.rate_drift_fraction + _noise(planned * seen.window_s)
    if abs(change) > threshold:
        over_s = seen.window_s if load == seen.rate_rps else seen.window_s / 2  # a surge, in its newer half
        how = f"over {over_s:.0f} s" if change > 0 else f"at most for {policy.shrink_after_s:.0f} s"
        how = f"with {seen.raised_by}" if seen.raised_by else how
        detail = f"{model.name}: {load:.4g} requests/s {how}, {planned:.4g} were planned ({change:+.0%})"
        return [Drift("rate", detail, abs(change), threshold)]
    return []


def _mix(model: ModelDocument, seen: ModelTraffic, policy: PolicyDocument) -> Iterator[Drift]:
    planned = {workload.name: workload.rate_rps or 0.0 for workload in model.workloads or ()}
    found = {workload.workload: workload.rate_rps for workload in seen.workloads}
    distance = mix_distance(planned, found)
    noise = mix_noise(planned.values(), seen.requests)
    if distance - noise > policy.mix_drift:
        most = max(planned, key=lambda name: _share(found, name) - _share(planned, name))
        detail = (
            f"{model.name}: {distance:.0%} of the requests are of other kinds than planned, {noise:.0%} by chance; "
            f"{most} has {_share(found, most):.0%} instead of {_share(planned, most):.0%}"
        )
        yield Drift("mix", detail, distance - noise, policy.mix_drift)


def _size(model: ModelDocument, seen: ModelTraffic, policy: PolicyDocument) -> Iterator[Drift]:
    """Requests that have grown within their buckets: judged by the tokens of all of them."""
    stated = {workload.name: workload for workload in model.workloads or ()}
    planned = sum(
        w.rate_rps * (stated[w.workload].input_tokens + stated[w.workload].output_tokens)
        for w in seen.workloads
        if w.workload in stated
    )
    found = sum(w.rate_rps * (w.input_tokens + w.output_tokens) for w in seen.workloads if w.workload in stated)
    change = found / planned - 1 if planned > 0 else 0.0
    threshold = policy.rate_drift_fraction + _noise(seen.requests)
    if abs(change) > threshold:
        detail = f"{model.name}: requests of a kind have {change:+.0%} tokens against what was planned"
        yield Drift("size", detail, abs(change), threshold)


def _noise(requests: float) -> float:
    """The share of so many requests, or of their tokens, by which chance rarely exceeds what is expected.

    Two standard deviations: sqrt(n) of n arrivals; and sizes within a kind are as spread as their mean at most.
    """
    return 2.0 / sqrt(max(1.0, requests))


def _shares_of_models(
    planned: ProblemDocument, traffic: Mapping[str, ModelTraffic], policy: PolicyDocument
) -> Iterator[Drift]:
    """The models' shares of the requests, which are part of the mix where only that counts."""
    rates = {model.name: stated_rps(model) for model in planned.models}
    if len(rates) < 2 or any(name not in traffic or traffic[name].state != "live" for name in rates):
        return
    found = {name: traffic[name].rate_rps for name in rates}
    noise = mix_noise(rates.values(), sum(traffic[name].requests for name in rates))
    distance = mix_distance(rates, found)
    if distance - noise > policy.mix_drift:
        detail = f"{distance:.0%} of the requests are for other models than planned, {noise:.0%} would be chance"
        yield Drift("mix", detail, distance - noise, policy.mix_drift)


def mix_distance(planned: Mapping[str, float], found: Mapping[str, float]) -> float:
    """Total variation distance of two mixes: half the sum of the changes of the shares; in [0, 1]."""
    if sum(planned.values()) <= 0 or sum(found.values()) <= 0:
        return 0.0
    names = planned.keys() | found.keys()
    return 0.5 * sum(abs(_share(planned, name) - _share(found, name)) for name in names)


def mix_noise(planned: Iterable[float], requests: float) -> float:
    """The distance that so many requests of the planned mix show by chance, on average.

    A share p of n requests is off by sqrt(2 p (1 - p) / (pi n)) on average (the mean of a normal's absolute value).
    """
    rates = list(planned)
    total = sum(rates)
    if total <= 0 or requests <= 0:
        return 1.0
    shares = [rate / total for rate in rates]
    return min(1.0, 0.5 * sum(sqrt(2 * p * (1 - p) / (pi * requests)) for p in shares))


def _share(mix: Mapping[str, float], name: str) -> float:
    total = sum(mix.values())
    return mix.get(name, 0.0) / total if total > 0 else 0.0
