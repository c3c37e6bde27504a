"""Requests on the replicas of one model, as a client drives them that knows the whole pile.

Flow: execution.py -> NodeService (here) -> solver/simulation/engine.py. A model's requests wait in one queue, in the
order in which they became ready; a replica is given as many as keep its batch full until the client looks again. The
next chunk of a chain goes to the replica that answered the one before it. A request whose replica is stopped keeps
what it has written: it is computed anew with its prompt where it goes on.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from heapq import heapify, heapreplace
from math import nan
from typing import Final

import numpy as np

from sutler.solver.offline.costs import Shard
from sutler.solver.offline.request_set import Pile
from sutler.solver.offline.stages import RunningReplica
from sutler.solver.simulation.engine import Engine, EngineSettings

LEAST_SPARE: Final = 16  # requests that wait in a replica so that its batch stays full; chosen: more divide worse


class RequestStates:
    """All of an application: what each waits for, and when it was answered."""

    def __init__(self, pile: Pile, finished: Iterable[int], written: Mapping[int, int], at_s: float) -> None:
        count = len(pile)
        self.node = pile.node.tolist()
        self.input_tokens, self.output_tokens = pile.input_tokens.tolist(), pile.output_tokens.tolist()
        self.first_token_s, self.finish_s = [nan] * count, [nan] * count
        self.written = dict(written)
        self._waits = pile.waits().tolist()
        self._children: dict[int, list[int]] = {}
        for child, parent in zip(
            np.repeat(np.arange(count), pile.waits()).tolist(), pile.parents.tolist(), strict=True
        ):
            self._children.setdefault(parent, []).append(child)
        for request in finished:
            self.first_token_s[request] = self.finish_s[request] = at_s
            self.answered(request)

    def answered(self, request: int) -> Sequence[int]:
        """The requests that wait for nothing any more."""
        ready = []
        for child in self._children.get(request, ()):
            self._waits[child] -= 1
            if not self._waits[child]:
                ready.append(child)
        return ready

    def ready(self) -> list[int]:
        """What is not answered and waits for nothing."""
        return [r for r, waits in enumerate(self._waits) if not waits and self.finish_s[r] != self.finish_s[r]]

    @property
    def have_children(self) -> bool:
        return bool(self._children)


class Server:
    """A replica that is loading or up; it hears from its engine."""

    def __init__(self, replica: RunningReplica, shard: Shard, requests: RequestStates, max_sequences: int) -> None:
        self.replica, self.shard = replica, shard
        self.busy_s = 0.0
        self.ended: list[int] = []
        self.spare = LEAST_SPARE
        self._requests = requests
        settings = EngineSettings(max_sequences)
        self.engine = Engine(shard.times, settings, requests.input_tokens, requests.output_tokens, self)

    def offer(self, request: int, at_s: float) -> None:
        written = self._requests.written.pop(request, 0)
        self.engine.offer(request, max(at_s, self.replica.ready_s), written=written)

    def resume(self, request: int, at_s: float) -> None:
        self.engine.now_s = max(self.engine.now_s, at_s)
        self._requests.first_token_s[request] = at_s
        self.engine.resume(request, self._requests.written.pop(request))

    def first_token(self, request: int, at_s: float) -> None:
        self._requests.first_token_s[request] = at_s

    def finished(self, request: int, at_s: float) -> None:
        self._requests.finish_s[request] = at_s
        self.ended.append(request)

    def preempted(self, request: int) -> None:
        pass

    def busy(self, start_s: float, end_s: float, running: int, waiting: int, blocks: int) -> None:
        self.busy_s += end_s - start_s


class NodeService:
    """One model of the application, with its queue and its replicas."""

    def __init__(
        self, node: int, pile: Pile, requests: RequestStates, shards: Mapping[int, Shard], max_sequences: int
    ) -> None:
        numbers = pile.of_node(node)
        self.node, self.servers = node, list[Server]()
        self.finish_s = 0.0
        self.finished_requests = 0
        self._requests, self._shards, self._max_sequences = requests, shards, max_sequences
        self._count, self._tokens = len(numbers), int(pile.output_tokens[numbers].sum())
        self._longest = int(pile.output_tokens[numbers].max(initial=0))
        self._finished_tokens = 0
        self._queue: deque[int] = deque()
        self._arriving: list[tuple[float, int]] = []
        for request in numbers.tolist():
            if requests.finish_s[request] == requests.finish_s[request]:
                self._count_answered(request)

    @property
    def is_done(self) -> bool:
        return self.finished_requests == self._count

    @property
    def written_tokens(self) -> int:
        """The tokens of answers that are done and of those under way."""
        under_way = sum(sum(server.engine.undone().values()) for server in self.servers)
        written = self._requests.written
        waiting = sum(written.get(request, 0) for request in self._queue) if written else 0
        return self._finished_tokens + under_way + waiting

    @property
    def progress_fraction(self) -> float:
        """The share of the tokens that the model has to write."""
        return self.written_tokens / self._tokens if self._tokens else 1.0

    def has_reached(self, fraction: float) -> bool:
        """Whether it has written that share, without counting where what runs cannot make up what is missing."""
        missing = fraction * self._tokens - self._finished_tokens
        at_most = self._longest * (len(self._requests.written) + len(self.servers) * self._max_sequences)
        return missing <= at_most and self.progress_fraction >= fraction

    def arrive(self, request: int, at_s: float) -> None:
        self._arriving.append((at_s, request))

    def start(self, replica: RunningReplica) -> None:
        shard = self._shards[len(replica.gpus)]
        self.servers.append(Server(replica, shard, self._requests, self._max_sequences))

    def resume(self, at_s: float) -> None:
        """Requests that had begun to write go on in the replicas that are up, without being computed anew."""
        up = [server for server in self.servers if server.replica.ready_s <= at_s]
        if not up:
            return
        begun = [(ready_s, request) for ready_s, request in self._arriving if request in self._requests.written]
        for turn, (_, request) in enumerate(begun):
            up[turn % len(up)].resume(request, at_s)
        gone = set(begun)
        self._arriving = [arriving for arriving in self._arriving if arriving not in gone]

    def stop(self, server: Server) -> None:
        """What it has not answered goes back to the head of the queue."""
        self._queue_again(server.engine.undone())
        self.servers.remove(server)

    def share_again(self) -> None:
        """What waits in the replicas goes back to the head of the queue, to be divided anew."""
        for server in self.servers:
            self._queue_again(server.engine.take_back())

    def _queue_again(self, undone: Mapping[int, int]) -> None:
        self._requests.written.update({request: tokens for request, tokens in undone.items() if tokens})
        self._queue.extendleft(sorted(undone, reverse=True))

    def is_at_work(self, now_s: float) -> bool:
        """Whether a replica has something to do, or is still loading."""
        waiting = bool(self._queue or self._arriving)
        return any(waiting or server.engine.load or server.replica.ready_s > now_s for server in self.servers)

    def advance(self, now_s: float, until_s: float) -> list[tuple[float, int]]:
        """All replicas until then; requests of other models that became ready, with when."""
        released: list[tuple[float, int]] = []
        self._fill(now_s, until_s)
        for at_s, request in sorted(self._arriving):
            server = self._open(until_s)
            if self._queue or server is None:
                self._queue.append(request)
            else:
                self._advance(server, max(at_s, server.replica.ready_s), released)
                server.offer(request, at_s)
        self._arriving.clear()
        for server in self.servers:
            before = self.finished_requests
            self._advance(server, until_s, released)
            server.spare = max(LEAST_SPARE, 2 * (self.finished_requests - before))
        return released

    def _fill(self, now_s: float, until_s: float) -> None:
        servers = [server for server in self.servers if server.replica.ready_s <= until_s]
        if not servers or not self._queue:
            return
        if len(self.servers) == 1:
            while self._queue:
                servers[0].offer(self._queue.popleft(), now_s)
            return
        room = [self._max_sequences + server.spare for server in servers]
        loads = [(server.engine.load, at) for at, server in enumerate(servers) if server.engine.load < room[at]]
        heapify(loads)
        while self._queue and loads:
            load, at = loads[0]
            if load >= room[at]:
                break
            servers[at].offer(self._queue.popleft(), now_s)
            heapreplace(loads, (load + 1, at))

    def _open(self, until_s: float) -> Server | None:
        """The replica with the least to do that takes more."""
        found = [server for server in self.servers if server.replica.ready_s <= until_s]
        server = min(found, key=lambda one: one.engine.load, default=None)
        full = (
            server is not None and len(self.servers) > 1 and server.engine.load >= self._max_sequences + server.spare
        )
        return None if full else server

    def _advance(self, server: Server, until_s: float, released: list[tuple[float, int]]) -> None:
        if not self._requests.have_children:
            server.engine.advance(until_s)
            for request in server.ended:
                self._count_answered(request)
            server.ended.clear()
            return
        while server.engine.advance(until_s, to_an_end=True):
            for request in server.ended:
                self._count_answered(request)
                at_s = self._requests.finish_s[request]
                for child in self._requests.answered(request):
                    if self._requests.node[child] == self.node:
                        server.offer(child, at_s)
                    else:
                        released.append((at_s, child))
            server.ended.clear()

    def _count_answered(self, request: int) -> None:
        self.finished_requests += 1
        self._finished_tokens += self._requests.output_tokens[request]
        self.finish_s = max(self.finish_s, self._requests.finish_s[request])
