"""What layouts carry within their limits at most: had for ten thousands of them in the time that looking for the
operating points of some hundreds takes, and enough to tell which are worth it (polytope/by_need.py).

No point (points.py) carries more than all sequences do whatever the limits, of several workloads in the proportions
of their mix. And where a limit counts the wait for other prompts, with s the seconds of a prompt on the slowest stage
and x those that a request takes at least beside that wait,

    sum rate (e^(theta s) - 1)  <=  theta    with    theta  >=  ln(sqrt(sum rate s) / tail) / (limit - x)

as soon as prompts keep others waiting for a share `tail` of the time (latency.py). The more is carried the less does
this hold, so that the most is found by halving.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from sutler.solver.arrays import BoolArray, FloatArray, IntArray
from sutler.solver.throughput.behaviour import MOST_EXPONENT
from sutler.solver.throughput.composer import Pairs, compose
from sutler.solver.throughput.latency import QUEUED_SHARE, LimitOfEach
from sutler.solver.throughput.prepare import PreparedLayouts

_HALVINGS: Final = 9  # of the logarithm of the load: to 1 % of the load, chosen: the bound itself is no closer
_LEAST_LOAD: Final = 1 / 64  # of what is carried whatever the limits: no bound is lower
_OF_PROMPTS: Final = ("ttft", "e2e")  # limits that count the wait for other prompts


def most_rps(prepared: PreparedLayouts, full_rps: FloatArray, mixes: FloatArray, *, base_s: float) -> FloatArray:
    """Returns requests/s [num_layouts, V] of which no point of a layout carries more, in the columns of `mixes`
    [V, W]. `full_rps` [num_layouts, W]: with all sequences busy; `base_s`: as of latency.FirstToken."""
    with np.errstate(divide="ignore", invalid="ignore"):
        most = np.asarray(1.0 / (mixes / full_rps[:, None]).sum(axis=2, where=mixes > 0))
    limits = [limit for limit in prepared.limits if limit.metric in _OF_PROMPTS]
    if prepared.layouts.role == "aggregated" and limits:
        prompts = _prompts_of(prepared, base_s)
        for column, mix in enumerate(mixes):
            members = np.flatnonzero(mix)
            own = [limit for limit in limits if np.isfinite(limit.seconds[members]).any()]
            if own:  # whatever waits outside counts then
                load = prompts.most_load(most[:, column] * mix[members, None], members, own)
                most[:, column] *= QUEUED_SHARE * load
    return most


@dataclass(frozen=True, slots=True)
class _Prompts:
    """Seconds [W, num_layouts] of a prompt on the slowest stage, and what a request takes at least to its first token
    and after it."""

    slot_s: FloatArray
    first_s: FloatArray
    rest_s: FloatArray

    def most_load(self, rps: FloatArray, members: IntArray, limits: Sequence[LimitOfEach]) -> FloatArray:
        """Returns the most times [num_layouts], 1 at most, `rps` [len(members), num_layouts] that keep the limits."""
        slot_s, busy = self.slot_s[members], (rps * self.slot_s[members]).sum(axis=0)
        rooms = [(limit.tail, self._room_s(limit, members)) for limit in limits]

        def keeps(load: FloatArray) -> BoolArray:
            decay = np.zeros(len(load))
            with np.errstate(divide="ignore", invalid="ignore"):
                for tail, room_s in rooms:
                    needed = np.where(room_s > 0, np.log(np.sqrt(load * busy) / tail) / room_s, np.inf)
                    decay = np.maximum(decay, np.where(load * busy > tail, needed, 0.0))
            exponent = np.minimum(np.where(np.isfinite(decay), decay, 0.0) * slot_s, MOST_EXPONENT)
            return np.asarray(np.isfinite(decay) & (load * (rps * np.expm1(exponent)).sum(axis=0) <= decay))

        high = np.zeros(rps.shape[1])
        low = np.where(keeps(np.exp(high)), high, np.log(_LEAST_LOAD))
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            kept = keeps(np.exp(middle))
            low, high = np.where(kept, middle, low), np.where(kept, high, middle)
        return np.asarray(np.exp(high))

    def _room_s(self, limit: LimitOfEach, members: IntArray) -> FloatArray:
        taken_s = self.first_s[members] + (self.rest_s[members] if limit.metric == "e2e" else 0.0)
        return np.asarray((limit.seconds[members, None] - taken_s).min(axis=0))


def _prompts_of(prepared: PreparedLayouts, base_s: float) -> _Prompts:
    traffic = prepared.pipes.traffic
    shape = (len(prepared.layouts), len(traffic.new_tokens))
    pairs = Pairs(np.repeat(np.arange(shape[0]), shape[1]), np.tile(np.arange(shape[1]), shape[0]))
    with np.errstate(invalid="ignore"):  # nothing over no link, where a layout cannot run anyway
        alone = compose(prepared.pipes, pairs, np.ones(len(pairs)))
    of = {name: getattr(alone, name).reshape(shape).T for name in ("slowest_prefill_s", "prefill_s", "step_s")}
    first_s = base_s + of["prefill_s"] + of["step_s"]
    return _Prompts(of["slowest_prefill_s"], first_s, traffic.decode_steps[:, None] * of["step_s"])
