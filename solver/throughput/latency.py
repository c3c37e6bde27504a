"""First-token and per-token latencies, in a closed loop and under a load with a queue, and the limits on them.

Flow: composer.py -> latencies (here) -> roofline.py lowers the batch until the limits hold.

Closed loop (as many clients as sequences, each sending its next request when the last ends; how engines are
benchmarked): a request takes  T = b / rate + base (1 - rate slowest_prefill)  in all (Little), of which the first
token takes

    TTFT = base + k prefill + w (b - 1) / 2 slowest_prefill,      TPOT = (T - TTFT) / (output - 1)

with base, k and w calibrated: base is spent outside the engine's steps, where a busy GPU does not miss it; w is the
share of the other prompts that arrive in the same wave.

Open loop: requests arrive at random at `utilisation_fraction` u of the rate, and limits hold for a percentile q:

    waiting for a free sequence   M/M/b: P(wait) = u^(sqrt(2 (b + 1)) - 1) (Sakasegawa 1977), then exponential
                                  with mean 1 / (rate (1 - u))
    waiting for other prefills    M/D/1 at load v = u rate slowest_prefill: P(wait) = v, then exponential with mean
                                  slowest_prefill / (2 (1 - v)) (Kingman 1961, heavy traffic)
    TTFT_q = base + k prefill + step + both q-quantiles
    TPOT_q = TPOT + z_q sqrt(b) slowest_prefill / (output - 1): about b prefills interrupt a request, Poisson
                                  with a normal tail (z = 0, 1.28, 1.64, 2.33 at 50, 90, 95, 99 %)
    E2E_q  = TTFT_q + (output - 1) TPOT_q

Adding quantiles of parts overstates that of the sum, which is the safe side.

Prefill and decode apart (roles.py), x what of the handing over is exposed to each:

    prefill: TTFT_q = base + k prefill + x + the wait for other prefills, which bounds its load
    decode:  TPOT_q = decode step + (x + the wait for a free sequence) / (output - 1): nothing interrupts it
    E2E_q    shared: prefill's TTFT_q and decode's (output - 1) TPOT_q each within its part of the limit
"""

from dataclasses import dataclass
from typing import Final

import numpy as np

from solver.problem import LatencyLimit, Role
from solver.throughput.base import BoolArray, FloatArray
from solver.throughput.composer import Composed
from solver.throughput.factors import Engine, Factors

# Standard normal quantiles.
Z: Final = {50: 0.0, 90: 1.2816, 95: 1.6449, 99: 2.3263}
_BISECTIONS: Final = 30
QUEUEING_NOTE: Final = "M/M/b slots, M/D/1 prefills and Poisson interruptions"


@dataclass(frozen=True, slots=True)
class FirstToken:
    """Calibrated parts of TTFT: seconds, prefills, and share of the others' prefills."""

    base_s: float
    prefills: float
    wave_fraction: float


@dataclass(frozen=True, slots=True)
class Load:
    """Composed pairs at a batch, with the decode steps of their workloads; arrays [num_pairs].

    handover_s: what of handing over is exposed; share: of an end-to-end limit. Both are prefill's and decode's alone.
    """

    composed: Composed
    batch: FloatArray
    decode_steps: FloatArray
    role: Role = "aggregated"
    handover_s: FloatArray | float = 0.0
    share: FloatArray | float = 1.0


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """Arrays [num_pairs]: rate = batch / (TTFT + (output - 1) TPOT), exactly."""

    rate_rps: FloatArray
    ttft_s: FloatArray
    tpot_s: FloatArray


def first_token(factors: Factors, engine: Engine) -> FirstToken:
    return FirstToken(
        base_s=factors.first_token_base_s * engine.first_token_base,
        prefills=factors.first_token_prefills * engine.first_token_prefills,
        wave_fraction=factors.first_token_wave_fraction * engine.first_token_wave,
    )


def closed_loop(load: Load, first: FirstToken) -> ClosedLoop:
    """With exactly `batch` requests in the system, all of them running."""
    composed, steps = load.composed, load.decode_steps
    with np.errstate(divide="ignore", invalid="ignore"):
        outside = first.base_s * (1.0 - np.minimum(composed.rate_rps * composed.slowest_prefill_s, 1.0))
        whole = load.batch / composed.rate_rps + outside
        waves = first.wave_fraction * (load.batch - 1.0) / 2.0
        ttft = first.base_s + first.prefills * composed.prefill_s + waves * composed.slowest_prefill_s
        # Decoding takes its steps whatever the prefills do; the first token cannot eat into them.
        ttft = np.minimum(ttft, np.maximum(whole - steps * composed.step_s, composed.prefill_s + outside))
        tpot = np.where(steps > 0, (whole - ttft) / np.maximum(steps, 1e-9), composed.step_s)
        ttft = np.where(steps > 0, ttft, whole)
    return ClosedLoop(rate_rps=load.batch / whole, ttft_s=ttft, tpot_s=tpot)


@dataclass(frozen=True, slots=True)
class LimitParts:
    """The percentile of a limit's metric in two parts, seconds [num_pairs]: `growing` with the batch, and `slot`,
    the wait for a free sequence, which falls with it (inf where the queue never ends)."""

    growing: FloatArray
    slot: FloatArray


def limit_parts(load: Load, first: FirstToken, limit: LatencyLimit, utilisation_fraction: float) -> LimitParts:
    """What has to stay under `limit.seconds` in sum."""
    tail = 1.0 - limit.percentile / 100.0
    if load.role == "prefill":
        return _prefill_parts(load, first, limit)
    if load.role == "decode":
        return _decode_parts(load, limit, tail, utilisation_fraction)
    tpot = _tpot_quantile(load, first, limit.percentile)
    if limit.metric == "tpot":
        return LimitParts(growing=tpot, slot=np.zeros(len(tpot)))
    growing = _ttft_without_slot(load, first, tail, utilisation_fraction)
    slot = _slot_wait(load, tail, utilisation_fraction)
    if limit.metric == "e2e":
        growing = growing + load.decode_steps * tpot
    return LimitParts(growing=growing, slot=slot)


def _prefill_parts(load: Load, first: FirstToken, limit: LatencyLimit) -> LimitParts:
    """Without the wait for other prefills: that is a matter of load, see `prefill_utilisation_fraction`."""
    own = first.base_s + first.prefills * load.composed.prefill_s + load.handover_s
    growing = own / load.share if limit.metric == "e2e" else own
    return LimitParts(growing=np.asarray(growing), slot=np.zeros(len(load.batch)))


def prefill_utilisation_fraction(
    load: Load, first: FirstToken, limits: tuple[LatencyLimit, ...], most: float
) -> FloatArray:
    """The load of prefill replicas, up to `most`, at which the wait for other prefills still leaves every limit
    [num_pairs]; by bisection, since the wait grows with the load."""
    low, high = np.zeros(len(load.batch)), np.full(len(load.batch), most)

    def within(utilisation_fraction: FloatArray) -> BoolArray:
        holds = np.ones(len(load.batch), dtype=np.bool_)
        for limit in limits:
            share = load.share if limit.metric == "e2e" else 1.0
            own = _prefill_parts(load, first, limit).growing * share
            wait = _prefill_wait(load.composed, 1.0 - limit.percentile / 100.0, utilisation_fraction)
            holds &= own + wait <= limit.seconds * share
        return holds

    at_most = within(high)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        good = within(middle)
        low, high = np.where(good, middle, low), np.where(good, high, middle)
    return np.where(at_most, most, low)


def _decode_parts(load: Load, limit: LatencyLimit, tail: float, utilisation_fraction: float) -> LimitParts:
    """A fleet that is used to the full has no say in how long its queue is: then of TPOT only the tokens count."""
    slot = np.zeros(len(load.batch))
    if utilisation_fraction < 1 or limit.metric == "e2e":
        slot = _slot_wait(load, tail, utilisation_fraction)
    steps = load.decode_steps if limit.metric == "tpot" else np.asarray(load.share)
    whole = load.decode_steps * load.composed.step_s + load.handover_s
    return LimitParts(growing=whole / steps, slot=slot / steps)


def _ttft_without_slot(load: Load, first: FirstToken, tail: float, utilisation_fraction: float) -> FloatArray:
    composed = load.composed
    base = first.base_s + first.prefills * composed.prefill_s + composed.step_s
    return np.asarray(base + _prefill_wait(composed, tail, utilisation_fraction))


def _prefill_wait(composed: Composed, tail: float, utilisation_fraction: FloatArray | float) -> FloatArray:
    """inf where prefills alone take all the time there is."""
    busy = np.minimum(utilisation_fraction * composed.rate_rps * composed.slowest_prefill_s, 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = composed.slowest_prefill_s / (2.0 * (1.0 - busy))
        prefills = np.maximum(np.log(busy / tail), 0.0) * mean
    return np.nan_to_num(prefills, nan=np.inf, posinf=np.inf)


def _slot_wait(load: Load, tail: float, utilisation_fraction: float) -> FloatArray:
    waits = utilisation_fraction ** (np.sqrt(2.0 * (load.batch + 1.0)) - 1.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        wait = np.maximum(np.log(waits / tail), 0.0) / ((1.0 - utilisation_fraction) * load.composed.rate_rps)
    return np.nan_to_num(wait, nan=np.inf, posinf=np.inf)


def _tpot_quantile(load: Load, first: FirstToken, percentile: int) -> FloatArray:
    """With the shortest first token, so that the rest of a request's time is never understated and grows with the
    batch."""
    composed, steps = load.composed, np.maximum(load.decode_steps, 1e-9)
    with np.errstate(divide="ignore"):
        whole = load.batch / composed.rate_rps
    ttft = first.base_s + first.prefills * composed.prefill_s
    ttft = np.minimum(ttft, np.maximum(whole - load.decode_steps * composed.step_s, composed.prefill_s))
    mean = (whole - ttft) / steps
    tail = Z[percentile] * np.sqrt(load.batch) * composed.slowest_prefill_s / steps
    return np.where(load.decode_steps > 0, mean + tail, composed.step_s)
