"""First-token and per-token latencies: in a closed loop, and of random arrivals on a replica that is partly busy.

Closed loop (as many clients as sequences, each sending its next request when the last ends; how engines are
benchmarked): a request takes  T = b / rate + base (1 - rate slowest_prefill)  in all (Little), of which the first
token takes

    TTFT = base + k prefill + w (b - 1) / 2 slowest_prefill,      TPOT = (T - TTFT) / (output - 1)

with base, k and w calibrated: base is spent outside the engine's steps, where a busy GPU does not miss it; w is the
share of the other prompts that arrive in the same wave.

Open loop: requests arrive at random; limits hold for a percentile q, tail = 1 - q. On a replica on which a share of
the sequences runs (loaded.py), with rho the share of time that prompts keep others from, D the step and m the sum of
rate s^2 over what is served:

    the wait for other prompts   M/G/1 in its effective bandwidths (Kelly 1991): where sum rate (e^(theta s) - 1) =
                                 theta, P(W > t) decays as e^(-theta t); W_q = ln(sqrt(rho_s) / tail) / theta, 0 where
                                 prompts are under way for less than a share tail of the time
    the wait for a sequence      birth and death around the mean n, normal with variance n / ((1 - e)(1 - rho)) below
                                 the cap (e: elasticity of D) and geometric above it, exponential once one waits
    TTFT_q  =  base + prefill + D + token of the others + W_q + rho_s / 2 min(W_q + D, full step) + slot_q
    ITL     =  D / (1 - rho)
    TPOT_q  =  ITL + sqrt((W_q / (1 - rho))^2 + z_q^2 (interruptions + fluctuation of n)) / (output - 1)
    E2E_q   =  the means of both parts and the root of the sum of squares of what they may take longer

and a full replica is no slower per token than b sequences that interrupt each other in turn, whatever waits outside.
The shapes are derived, the constants 1/2, sqrt, and those named below are chosen against the event simulation (docs/
estimates.md says how well it does).

Prefill and decode apart (roles.py), x what of the handing over is exposed to each:

    prefill: TTFT_q = base + prefill + x + W_q
    decode:  TPOT_q with no prompts; the second token also waits for x and for a sequence
    E2E_q    shared: prefill's TTFT_q and decode's (output - 1) TPOT_q each within its part of the limit
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import scipy

from sutler.solver.arrays import FloatArray, IntArray
from sutler.solver.calibration.factors import EngineFactors, Factors
from sutler.solver.problem import LatencyMetric, Role
from sutler.solver.throughput.composer import Composed

# Standard normal quantiles.
Z: Final = {50: 0.0, 90: 1.2816, 95: 1.6449, 99: 2.3263}
QUEUEING_NOTE: Final = "random arrivals: effective bandwidths of prompts, birth and death of sequences"
_SPREAD: Final = 1.15  # of the number of running sequences, over that of the birth-and-death process
_DRAIN: Final = 0.8  # the answers have lengths of little variance, so that a queue drains the sooner
# Share of the load at which limits are looked at that is counted on: queues near saturation are sharp, and what the
# closed form does not know (chunks, blocks, clumps of long prompts) costs some per cent of the load, seldom more.
QUEUED_SHARE: Final = 0.93
_UNLIMITED_S: Final = 1e12
_TAIL: Final = 1.4  # of the fluctuations of a token's time, over normal ones


@dataclass(frozen=True, slots=True)
class FirstToken:
    """Calibrated parts of TTFT: seconds, prefills, and share of the others' prefills."""

    base_s: float
    prefills: float
    wave_fraction: float


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """What engines are measured by, arrays [num_pairs] or [num_runs]: requests/s = requests in flight / (TTFT +
    (output - 1) TPOT), exactly."""

    req_per_s: FloatArray
    ttft_s: FloatArray
    tpot_s: FloatArray


def first_token(factors: Factors, engine: EngineFactors) -> FirstToken:
    return FirstToken(
        base_s=factors.first_token_base_s * engine.first_token_base,
        prefills=factors.first_token_prefills * engine.first_token_prefills,
        wave_fraction=factors.first_token_wave_fraction * engine.first_token_wave,
    )


def closed_loop(composed: Composed, batch: FloatArray, steps: FloatArray, first: FirstToken) -> ClosedLoop:
    """Returns what clients measure with exactly `batch` requests in the system, all of them running, `steps` decode
    steps each [num_pairs]."""
    with np.errstate(divide="ignore", invalid="ignore"):
        outside = first.base_s * (1.0 - np.minimum(composed.rate_rps * composed.slowest_prefill_s, 1.0))
        whole = batch / composed.rate_rps + outside
        waves = first.wave_fraction * (batch - 1.0) / 2.0
        ttft = first.base_s + first.prefills * composed.prefill_s + waves * composed.slowest_prefill_s
        # Decoding takes its steps whatever the prefills do; the first token cannot eat into them.
        ttft = np.minimum(ttft, np.maximum(whole - steps * composed.step_s, composed.prefill_s + outside))
        tpot = np.where(steps > 0, (whole - ttft) / np.maximum(steps, 1e-9), composed.step_s)
        ttft = np.where(steps > 0, ttft, whole)
    return ClosedLoop(req_per_s=batch / whole, ttft_s=ttft, tpot_s=tpot)


@dataclass(frozen=True, slots=True)
class LimitOfEach:
    """One metric at one percentile: seconds [W], or where layouts are looked at [W, 1] or [W, num_layouts]; inf where
    a workload has no such limit."""

    metric: LatencyMetric
    percentile: int
    seconds: FloatArray

    @property
    def tail(self) -> float:
        return 1.0 - self.percentile / 100.0

    def take(self, chosen: IntArray) -> "LimitOfEach":
        """Cuts it to some layouts."""
        return replace(self, seconds=self.seconds.take(chosen, axis=1)) if self.seconds.shape[1] > 1 else self


@dataclass(frozen=True, slots=True)
class Behaviour:
    """How a replica behaves at a load, arrays [num_layouts]: at worst, or on average over what it is given.

    step_s, written_s, chunk_s, full_s: a step, a token of all beside a prompt, a step full of prompts, and a token
    when all sequences run. delay, queue: shares of time that prompts keep others' tokens and others' prompts waiting.
    interruption_s: sum of rate x s^2; full_interruption_s: its variance when all sequences run. spread_s: by how much
    a step varies with the number of sequences; most_spread_s: at most, up to the cap. waits: probability that no
    sequence is free; drain_rps: how fast a queue
    shrinks. through_s: what a prompt takes longer through all stages than on the slowest.
    """

    step_s: FloatArray
    written_s: FloatArray
    chunk_s: FloatArray
    full_s: FloatArray
    delay: FloatArray
    queue: FloatArray
    interruption_s: FloatArray
    full_interruption_s: FloatArray
    spread_s: FloatArray
    most_spread_s: FloatArray
    waits: FloatArray
    drain_rps: FloatArray
    through_s: FloatArray


@dataclass(frozen=True, slots=True)
class Own:
    """What the requests themselves take, arrays [W, num_layouts]. prefill_s: a prompt through all stages; handover_s:
    exposed of a hand-over; chunks: steps that a prompt takes part in; through_s: what a prompt takes longer through
    all stages than on the slowest; share: of an end-to-end limit."""

    role: Role
    base_s: float
    prefill_s: FloatArray
    handover_s: FloatArray
    chunks: FloatArray
    through_s: FloatArray
    decode_steps: FloatArray
    share: FloatArray

    def take(self, chosen: IntArray) -> "Own":
        """Cuts it to some layouts."""
        return Own(self.role, self.base_s, *(each.take(chosen, axis=1) for each in self._arrays()))

    def of(self, pairs: IntArray) -> "Own":
        """Cuts it to these of its pairs of a workload and a layout [size, n], counted workload by workload."""
        return Own(self.role, self.base_s, *(each.take(pairs) for each in self._arrays()))

    def _arrays(self) -> Iterator[FloatArray]:
        return (getattr(self, name) for name in Own.__slots__[2:])


def spread(n: FloatArray, elasticity: FloatArray, delay: FloatArray) -> FloatArray:
    """Standard deviation of the number of running sequences around n."""
    room = np.maximum(1.0 - elasticity, 0.05) * np.maximum(1.0 - delay, 1e-3)
    return np.asarray(_SPREAD * np.sqrt(np.maximum(n, 0.05) / room))


def waiting_probability(free: FloatArray, deviation: FloatArray, load: FloatArray) -> FloatArray:
    """The probability that none of the sequences is free, `free` of them on average, at a load of what all of them
    carry."""
    z = free / deviation
    with np.errstate(divide="ignore", invalid="ignore"):
        above = np.exp(-(z**2) / 2) / (deviation * np.sqrt(2 * np.pi) * np.maximum(1.0 - load, 0.0))
        found = np.fmin(above / (scipy.special.ndtr(z) + above), 1.0)  # 1 where there is no number
    return np.where(load >= 1 - 1e-9, 1.0, found)


def includes_queue(metric: LatencyMetric, role: Role) -> bool:
    """Whether waiting for others counts: of tokens only where they are all that a replica writes."""
    return metric != "tpot" or role == "decode"


def longest_wait_s(behaviour: Behaviour, own: Own, limit: LimitOfEach) -> FloatArray:
    """How long the wait for other prompts may be at the limit's percentile [W, num_layouts]: inf where it does not
    matter, below 0 where the limit is missed without any."""
    if own.role == "prefill":
        return _longest_of_prefill(own, limit)
    if own.role == "aggregated" and limit.metric == "ttft":
        room_s = np.minimum(limit.seconds, _UNLIMITED_S) - _started_s(behaviour, own, limit.tail)
        half = behaviour.queue / 2
        slowed_s = (room_s - half * behaviour.step_s) / (1 + half)
        return _unlimited(np.maximum(slowed_s, room_s - half * behaviour.chunk_s), limit)
    tokens = _Tokens(behaviour, own, limit.percentile)
    if own.role == "decode":
        return _longest_of_decode(own, limit, tokens, _slot_wait_s(behaviour, limit.tail))
    if limit.metric == "tpot":
        kept = tokens.full_s <= limit.seconds
        return np.where(kept | (own.decode_steps <= 0), np.inf, tokens.longest_wait_s(limit.seconds))
    room_s = np.minimum(limit.seconds, _UNLIMITED_S) - _started_s(behaviour, own, limit.tail)
    room_s = room_s - own.decode_steps * tokens.mean_s
    varying = room_s**2 - (own.decode_steps * tokens.deviation_s) ** 2
    room_s = np.where(room_s > 0, np.sqrt(np.maximum(varying, 0.0)), room_s) - behaviour.queue / 2 * behaviour.step_s
    room_s = np.where(varying >= 0, room_s, -1.0)
    return _unlimited(room_s / np.hypot(1 + behaviour.queue / 2, 1.0 / tokens.left), limit)


def decay_needed(behaviour: Behaviour, longest_s: FloatArray, tail: float) -> FloatArray:
    """theta [num_layouts] at which no wait is longer than that [W, num_layouts] at a percentile; inf where no theta
    does it."""
    queue, shortest_s = behaviour.queue, longest_s.min(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        needed = np.log(np.sqrt(queue) / tail) / shortest_s
    waits = (queue > tail) & np.isfinite(shortest_s)
    return np.where(shortest_s >= 0, np.where(waits, needed, 0.0), np.inf)


def _unlimited(seconds: FloatArray, limit: LimitOfEach) -> FloatArray:
    return np.where(np.isfinite(limit.seconds), seconds, np.inf)


def _started_s(behaviour: Behaviour, own: Own, tail: float) -> FloatArray:
    """Seconds to the first token without any wait for other prompts."""
    return _first_token_s(behaviour, own, tail) + _slot_wait_s(behaviour, tail)


def _first_token_s(behaviour: Behaviour, own: Own, tail: float) -> FloatArray:
    """Seconds to the first token without any wait for other prompts or for a sequence."""
    behind = np.maximum(behaviour.through_s - own.through_s, 0.0)  # pipelines pass prompts on in their order
    behind = behind * (behaviour.queue > tail)
    started_s = behaviour.step_s + own.chunks * behaviour.written_s
    return np.asarray(own.base_s + own.prefill_s + own.handover_s + started_s + behind)


def _slot_wait_s(behaviour: Behaviour, tail: float) -> FloatArray:
    with np.errstate(divide="ignore", invalid="ignore"):
        wait = _DRAIN * np.log(behaviour.waits / tail) / behaviour.drain_rps
    return np.where(behaviour.waits > tail, wait, 0.0)


def full_token_s(behaviour: Behaviour, own: Own, limit: LimitOfEach) -> FloatArray:
    """Seconds per token, or of a whole answer where that is limited, at the limit's percentile where all sequences
    run, whatever waits outside [W, num_layouts]."""
    full_s = _Tokens(behaviour, own, limit.percentile).full_s
    if limit.metric == "tpot":
        return full_s
    return np.asarray(_first_token_s(behaviour, own, limit.tail) + own.decode_steps * full_s)


class _Tokens:
    """A token after the first: mean_s and deviation_s of it, times z at the percentile; left: the share of time that
    prompts leave; full_s: at most, where all sequences run. Arrays [W, num_layouts] or [num_layouts]."""

    def __init__(self, behaviour: Behaviour, own: Own, percentile: int) -> None:
        z, self._steps = Z[percentile], np.maximum(own.decode_steps, 1e-9)
        self.left = np.maximum(1.0 - behaviour.delay, 1e-9)
        self.mean_s = behaviour.step_s / self.left
        interruption_s = np.sqrt(behaviour.interruption_s * self.mean_s / self._steps) / self.left
        spread_s = np.minimum(_TAIL * z * behaviour.spread_s, behaviour.most_spread_s) / self.left
        self.deviation_s = np.minimum(np.hypot(_TAIL * z * interruption_s, spread_s), _UNLIMITED_S)
        self.full_s = behaviour.full_s + z * np.sqrt(behaviour.full_interruption_s * behaviour.full_s / self._steps)

    def longest_wait_s(self, seconds: FloatArray) -> FloatArray:
        room_s = np.minimum(seconds, _UNLIMITED_S) - self.mean_s
        varying = room_s**2 - self.deviation_s**2
        kept = (room_s >= 0) & (varying >= 0)
        return np.where(kept, np.sqrt(np.maximum(varying, 0.0)) * self.left * self._steps, -1.0)

    def most_s(self) -> FloatArray:
        """Seconds at the percentile with no wait for prompts."""
        return np.asarray(np.minimum(self.mean_s + self.deviation_s, self.full_s))


def _longest_of_prefill(own: Own, limit: LimitOfEach) -> FloatArray:
    share = own.share if limit.metric == "e2e" else 1.0
    own_s = own.base_s + own.prefill_s + own.handover_s
    return _unlimited(limit.seconds * share - own_s, limit)


def _longest_of_decode(own: Own, limit: LimitOfEach, tokens: _Tokens, slot_s: FloatArray) -> FloatArray:
    """Nothing waits for prompts, but the second token for its turn."""
    whole_s = own.decode_steps * tokens.most_s() + own.handover_s + slot_s
    most_s = limit.seconds * (own.decode_steps if limit.metric == "tpot" else own.share)
    return np.where(whole_s <= most_s, np.inf, -1.0)
