"""The requests that a simulation replays: of a trace, or drawn at random from workloads.

Flow: service reads a trace, or `poisson` draws -> Requests (here) -> fleet.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sutler.solver.arrays import FloatArray, IntArray, take_rows
from sutler.solver.errors import InvalidProblemError


@dataclass(frozen=True, slots=True)
class RequestKind:
    """A workload of a model, by the caller's names; its mean lengths, its rate, and what of its prompts is in the
    prefix cache."""

    model: str
    workload: str
    input_tokens: float
    output_tokens: float
    rate_rps: float
    cached_fraction: float = 0.0


@dataclass(frozen=True, slots=True)
class Requests:
    """Requests in order of arrival; arrays [num_requests]. `kind` indexes kinds; at least one token each way."""

    kinds: tuple[RequestKind, ...]
    kind: IntArray
    arrival_s: FloatArray
    input_tokens: IntArray
    output_tokens: IntArray

    def __post_init__(self) -> None:
        if len(self.arrival_s) and (np.diff(self.arrival_s) < 0).any():
            raise InvalidProblemError("requests.arrival_s", "not sorted", "sort the requests by arrival")
        for name in ("input_tokens", "output_tokens"):
            tokens = getattr(self, name)
            if len(tokens) and tokens.min() < 1:
                raise InvalidProblemError(f"requests.{name}", int(tokens.min()), "use at least one token")

    def __len__(self) -> int:
        return len(self.arrival_s)

    def thinned(self, share: float, *, seed: int) -> "Requests":
        """Each of them kept with probability `share`, one at least: what is left when others take the rest."""
        kept = np.random.default_rng(seed).random(len(self)) < share
        kept[:1] |= not kept.any()
        return take_rows(self, kept)


def requests_of(
    kinds: Sequence[RequestKind], model: str, arrival_s: FloatArray, input_tokens: IntArray, output_tokens: IntArray
) -> Requests:
    """Requests of one model, each as the workload whose mean lengths are nearest by ratio."""
    of_model = [index for index, kind in enumerate(kinds) if kind.model == model]
    order = np.argsort(arrival_s, kind="stable")
    inputs, outputs = input_tokens[order], output_tokens[order]
    if not of_model:
        raise InvalidProblemError("model", model, "is none that the plan serves")
    means = np.log(np.array([[kinds[index].input_tokens, kinds[index].output_tokens] for index in of_model]))
    points = np.log(np.column_stack([inputs, outputs]))
    distance = np.abs(points[:, None, :] - means[None, :, :]).sum(axis=2)
    kind = np.array(of_model, dtype=np.int64)[distance.argmin(axis=1)]
    return Requests(tuple(kinds), kind, arrival_s[order], inputs, outputs)


def poisson(kinds: Sequence[RequestKind], *, duration_s: float, seed: int, load_multiple: float = 1.0) -> Requests:
    """Arrivals at random at the workloads' rates times `load_multiple`; every request has its workload's mean
    lengths, rounded at random so that their mean is kept."""
    draw = np.random.default_rng(seed)
    times, which = [], []
    for index, kind in enumerate(kinds):
        count = int(draw.poisson(kind.rate_rps * load_multiple * duration_s))
        times.append(draw.uniform(0.0, duration_s, count))
        which.append(np.full(count, index, dtype=np.int64))
    arrival_s, of_kind = np.concatenate(times), np.concatenate(which)
    order = np.argsort(arrival_s, kind="stable")
    of_kind = of_kind[order]
    inputs = np.array([kind.input_tokens for kind in kinds])[of_kind]
    outputs = np.array([kind.output_tokens for kind in kinds])[of_kind]
    return Requests(tuple(kinds), of_kind, arrival_s[order], _whole(inputs, draw), _whole(outputs, draw))


def sampled(
    kinds: Sequence[RequestKind],
    model: str,
    input_tokens: IntArray,
    output_tokens: IntArray,
    *,
    rate_rps: float,
    duration_s: float,
    seed: int,
) -> Requests:
    """Arrivals at random, each with the lengths of a recorded request that is drawn at random.

    Sampling what was seen before simulating is how SamuLLM (Fang et al., §4.1) meets unknown output lengths.
    """
    draw = np.random.default_rng(seed)
    count = int(draw.poisson(rate_rps * duration_s))
    chosen = draw.integers(0, len(input_tokens), count)
    arrival_s = np.sort(draw.uniform(0.0, duration_s, count))
    return requests_of(kinds, model, arrival_s, input_tokens[chosen], output_tokens[chosen])


def _whole(tokens: FloatArray, draw: np.random.Generator) -> IntArray:
    low = np.floor(tokens)
    whole = np.asarray(low + (draw.uniform(size=len(tokens)) < tokens - low))
    return np.asarray(np.maximum(whole, 1.0), dtype=np.int64)


def joined(parts: Sequence[Requests]) -> Requests:
    """Puts the requests of several models with the same kinds into one order."""
    arrival_s = np.concatenate([part.arrival_s for part in parts])
    order = np.argsort(arrival_s, kind="stable")
    kind, inputs, outputs = (
        np.concatenate([getattr(part, name) for part in parts])[order]
        for name in ("kind", "input_tokens", "output_tokens")
    )
    return Requests(parts[0].kinds, kind, arrival_s[order], inputs, outputs)
