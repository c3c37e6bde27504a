"""Which stage gets how many layers, against every split that there is."""

from itertools import product

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
