"""The pile of requests of an application, with the lengths that were drawn for them.

Flow: application.py -> sampling.py -> Pile (here) -> costs.py, bounds.py, execution.py. One draw serves every
schedule that is compared (common random numbers).
"""

from dataclasses import dataclass

import numpy as np

from sutler.solver.arrays import IntArray


@dataclass(frozen=True, slots=True)
class Pile:
    """Arrays [num_requests], ordered by node, then by item, then along the chain.

    node: position in Application.nodes; item: which document, question, ... of its node; input_tokens: the whole
    prompt, with what it reads of other requests; output_tokens: at least 1. The requests that request r waits for are
    parents[parent_start[r] : parent_start[r + 1]]; all are smaller than r where they are of the same node.
    """

    node: IntArray
    item: IntArray
    input_tokens: IntArray
    output_tokens: IntArray
    parent_start: IntArray
    parents: IntArray

    def __len__(self) -> int:
        return len(self.node)

    def of_node(self, node: int) -> IntArray:
        """Returns the numbers of the requests of one node."""
        return np.flatnonzero(self.node == node)

    def parents_of(self, request: int) -> list[int]:
        """The requests that it waits for."""
        found: list[int] = self.parents[self.parent_start[request] : self.parent_start[request + 1]].tolist()
        return found

    def waits(self) -> IntArray:
        """Counts for how many requests each waits [num_requests]."""
        return np.diff(self.parent_start)
