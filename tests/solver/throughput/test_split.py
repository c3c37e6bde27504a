"""Which stage gets how many layers, against every split that there is."""

from itertools import product
from typing import Any

import numpy as np
import pytest

from sutler.solver.throughput.split import BATCHES, SplitCosts, balanced_layers


def test_layers_lie_as_evenly_as_any_whole_split_allows() -> None:
    """12 layers on two or three stages, with memory for 3 to 12 on each."""
    draw, layers, depth = np.random.default_rng(1), 12, 3
    layer_s = np.append(draw.uniform(0.5, 2.0, 4), 0.0)
    head_s = np.append(draw.uniform(0.0, 3.0, 4), 0.0)
    kind = draw.integers(0, 4, (40, depth))
    kind[:10, 2] = 4
    stages, room = (kind < 4).sum(axis=1), draw.integers(3, 13, (40, depth))
    nothing = np.zeros(5)
    shape = (5, depth, len(BATCHES))
    costs = SplitCosts(
        layer_s=np.broadcast_to(layer_s[:, None, None], shape),
        head_s=np.broadcast_to(head_s[:, None, None], shape),
        layer_bytes=np.ones(5),
        sequence_bytes=nothing,
        longest_bytes=nothing,
        shortest_bytes=nothing,
    )
    found = balanced_layers(costs, kind, stages, room.astype(np.float64), layers)
    for row, count in enumerate(stages.tolist()):
        own, most = layer_s[kind[row, :count]], room[row, :count]
        head = np.where(np.arange(count) == count - 1, head_s[kind[row, :count]], 0.0)
        splits = [np.array(each) for each in product(range(1, layers + 1), repeat=count) if sum(each) == layers]
        slowest = [float((each * own + head).max()) for each in splits if (each <= most).all()]
        if slowest:
            assert float((found[row, :count] * own + head).max()) == pytest.approx(min(slowest))
        else:
            assert not found[row].any()


@pytest.mark.parametrize("is_slower_when_small", [True, False])
def test_the_batch_whose_slowest_stage_is_fastest_says_how_layers_lie(is_slower_when_small: bool) -> None:
    """Memory for a layer and some of the batches on each stage; small batches cost more of a request's time, or as
    the draw has it."""
    draw, layers, depth, kinds = np.random.default_rng(2), 10, 3, 5
    layer_s = draw.uniform(0.5, 2.0, (kinds + 1, 1, len(BATCHES)))
    head_s = draw.uniform(0.0, 3.0, (kinds + 1, 1, len(BATCHES)))
    if is_slower_when_small:
        layer_s, head_s = -np.sort(-layer_s, axis=-1), -np.sort(-head_s, axis=-1)
    layer_s, head_s = (np.repeat(each, depth, axis=1) for each in (layer_s, head_s))
    layer_s[-1] = head_s[-1] = 0.0
    sequence_bytes = draw.uniform(0.001, 0.02, kinds + 1)
    costs = SplitCosts(layer_s, head_s, np.ones(kinds + 1), sequence_bytes, sequence_bytes, sequence_bytes)
    kind, room = draw.integers(0, kinds, (60, depth)), draw.uniform(3.0, 12.0, (60, depth))
    found = balanced_layers(costs, kind, np.full(60, depth), room, layers)

    def least_s(row: int, splits: list[np.ndarray[Any, Any]]) -> float:
        """Of the best batch that some split has memory for."""
        own, best = kind[row], np.inf
        for index, batch in enumerate(BATCHES):
            bytes_of_layer = 1 + np.maximum(batch * sequence_bytes, sequence_bytes)[own]
            head = np.where(np.arange(depth) == depth - 1, head_s[own, depth - 1, index], 0.0)
            times = [
                float((each * layer_s[own, depth - 1, index] + head).max())
                for each in splits
                if (each <= np.floor(room[row] / bytes_of_layer)).all()
            ]
            best = min([best, *times])
        return best

    every = [np.array(each) for each in product(range(1, layers + 1), repeat=depth) if sum(each) == layers]
    least = [least_s(row, every) for row in range(60)]
    assert costs.is_slower_in_smaller_batches == is_slower_when_small
    assert sum(np.isfinite(least)) > 40
    for row in np.flatnonzero(np.isfinite(least)).tolist():
        assert least_s(row, [found[row]]) == pytest.approx(least[row])
