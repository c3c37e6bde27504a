"""Candidates that no plan needs, dropped before anything is solved.

A candidate is dominated when others of its role and power cap that ask no more of any machine serve at least its rate
of every workload and of every fixed mix:

- another layout of the same pieces (TP 4 against TP 2 x PP 2 in one machine of 4), another operating point, or
  another precision that stores no more;
- two replicas that share its pieces between them (a pipeline over an H100 and an A100 against a replica on each);
- two replicas on half-size pieces each, which fit wherever the whole piece fits.

In each case the routing of the dominated replica carries over: with shares z of its time per workload, the
others at the same shares serve sum(z h') >= z h. Fewer GPUs in bigger pieces ask for *more*: a piece of 4 needs 4
GPUs of one machine, two pieces of 2 do not.
"""

from itertools import product

import numpy as np
from numpy.typing import NDArray

from sutler.solver.arrays import BoolArray, IntArray
from sutler.solver.candidates.enumerate import ROLES, Candidates
from sutler.solver.market.pools import PIECE_SIZES

UintArray = NDArray[np.uint64]

_TOLERANCE = 1e-12  # relative: what sums of a few floats may be off by
_COMPARED_AT_ONCE = 1 << 21  # comparisons of two rates, chosen: some megabytes of memory at a time
_MEMBERS_COMPARED = 4  # layouts per signature tried as a dominator; more would only drop a little more


def prune_dominated(candidates: Candidates) -> Candidates:
    """The candidates that are not dominated, in their order."""
    return candidates.take(undominated(candidates))


def undominated(candidates: Candidates) -> IntArray:
    """Rows of the candidates that are not dominated, ascending."""
    if len(candidates) == 0:
        return np.zeros(0, dtype=np.int64)
    rows = np.flatnonzero(_best_of_equal_pieces(candidates))
    candidates = candidates.take(rows)
    index = _SignatureIndex(candidates)
    dominated = _dominated_by_parts(candidates, index) | _dominated_by_halves(candidates, index)
    return rows[~dominated]


def signatures(candidates: Candidates) -> UintArray:
    """[C] hash of model, role, cap and multiset of pieces: a sum of one random number per piece, so that parts can be
    subtracted."""
    tokens = _piece_tokens(candidates)
    with np.errstate(over="ignore"):
        total: UintArray = tokens.sum(axis=1, dtype=np.uint64) + _owner_tokens(candidates)
    return total


def _owner_tokens(candidates: Candidates) -> UintArray:
    """Returns [C] a hash of model, role and cap; no piece has size 0, so that none has the same token."""
    values, cap = np.unique(candidates.power_cap_fraction, return_inverse=True)
    owner = (candidates.model * len(ROLES) + candidates.role) * len(values) + cap.reshape(-1)
    return _token(owner, np.zeros_like(owner))


def _piece_tokens(candidates: Candidates) -> UintArray:
    present = candidates.piece_size > 0
    return np.where(present, _token(candidates.piece_pool + 1, candidates.piece_size), np.uint64(0))


def _token(first: IntArray, second: IntArray) -> UintArray:
    """A well-mixed 64-bit number of two small ones (the finaliser of SplitMix64, Steele et al., OOPSLA 2014)."""
    with np.errstate(over="ignore"):
        z = (first.astype(np.uint64) * np.uint64(64) + second.astype(np.uint64) + np.uint64(1)) * np.uint64(
            0x9E3779B97F4A7C15
        )
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed: UintArray = z ^ (z >> np.uint64(31))
    return mixed


class _SignatureIndex:
    """Candidates by signature: rows of a signature are `order[start : start + count]`."""

    def __init__(self, candidates: Candidates) -> None:
        self.keys = signatures(candidates)
        self.order = np.argsort(self.keys, kind="stable")
        self.unique, self.start, self.count = np.unique(self.keys[self.order], return_index=True, return_counts=True)

    def members(self, keys: UintArray) -> list[IntArray]:
        """The first candidates of each signature, one array per rank, -1 where there is none."""
        position = np.minimum(np.searchsorted(self.unique, keys), len(self.unique) - 1)
        count = np.where(self.unique[position] == keys, self.count[position], 0)
        ranks = range(min(_MEMBERS_COMPARED, int(count.max(initial=0))))
        last = len(self.order) - 1
        return [
            np.where(count > rank, self.order[np.minimum(self.start[position] + rank, last)], -1) for rank in ranks
        ]


def _best_of_equal_pieces(candidates: Candidates) -> BoolArray:
    """Keeps of the layouts of one signature those that no other matches on every workload (the first of equals)."""
    index = _SignatureIndex(candidates)
    kept = np.ones(len(candidates), dtype=np.bool_)
    for count in np.unique(index.count):
        if count == 1:
            continue
        groups = index.order[index.start[index.count == count][:, None] + np.arange(count)]
        earlier = np.tri(count, k=-1, dtype=np.bool_)
        size = max(1, _COMPARED_AT_ONCE // (count**2 * candidates.rps.shape[1]))
        for start in range(0, len(groups), size):
            rows = groups[start : start + size]
            ours, theirs = candidates.rps[rows][:, :, None, :], candidates.rps[rows][:, None, :, :]
            stored = candidates.storage_usd_per_hour[rows]
            less, more = stored[:, None, :] < stored[:, :, None], stored[:, None, :] > stored[:, :, None]
            better = (theirs > ours).any(axis=-1) | less | earlier
            kept[rows[((theirs >= ours).all(axis=-1) & better & ~more).any(axis=2)]] = False
    return kept


def _dominated_by_parts(candidates: Candidates, index: _SignatureIndex) -> BoolArray:
    """Replicas that one of their pieces and the rest of them, each a replica of its own, replace."""
    dominated = np.zeros(len(candidates), dtype=np.bool_)
    if candidates.piece_size.shape[1] == 1:
        return dominated
    tokens = _piece_tokens(candidates)
    base = _owner_tokens(candidates)
    several = candidates.piece_size[:, 1] > 0
    for column in range(candidates.piece_size.shape[1]):
        rows = np.flatnonzero(several & ~dominated & (candidates.piece_size[:, column] > 0))
        with np.errstate(over="ignore"):
            part_keys = base[rows] + tokens[rows, column]
            rest_keys = index.keys[rows] - tokens[rows, column]
        for part, rest in product(index.members(part_keys), index.members(rest_keys)):
            both = (part >= 0) & (rest >= 0)
            dominated[rows[both]] |= _together_as_good(candidates, rows[both], part[both], rest[both])
    return dominated


def _dominated_by_halves(candidates: Candidates, index: _SignatureIndex) -> BoolArray:
    """One-piece replicas that two replicas on pieces of half the size replace."""
    dominated = np.zeros(len(candidates), dtype=np.bool_)
    single = (candidates.piece_size[:, 1:] == 0).all(axis=1) & np.isin(candidates.piece_size[:, 0], PIECE_SIZES[1:])
    rows = np.flatnonzero(single)
    with np.errstate(over="ignore"):
        keys = _owner_tokens(candidates)[rows] + _token(
            candidates.piece_pool[rows, 0] + 1, candidates.piece_size[rows, 0] // 2
        )
    for half in index.members(keys):
        there = half >= 0
        dominated[rows[there]] |= _together_as_good(candidates, rows[there], half[there], half[there])
    return dominated


def _together_as_good(candidates: Candidates, rows: IntArray, first: IntArray, second: IntArray) -> BoolArray:
    rates = candidates.rps[first] + candidates.rps[second]
    storage = candidates.storage_usd_per_hour[first] + candidates.storage_usd_per_hour[second]
    same = np.ones(len(rows), dtype=np.bool_)
    for owner in (candidates.model, candidates.role, candidates.power_cap_fraction):
        same &= (owner[first] == owner[rows]) & (owner[second] == owner[rows])
    as_fast = np.all(rates >= candidates.rps[rows] * (1 - _TOLERANCE), axis=1)
    as_good: BoolArray = as_fast & same & (storage <= candidates.storage_usd_per_hour[rows] + _TOLERANCE)
    return as_good
