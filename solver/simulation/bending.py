"""Who serves a request as a whole where the replica that was to take its phase is short: roles that bend.

Flow: fleet.py chooses a replica for the prompt and one for the answer -> whole_at (here) -> one for both, or none.

A replica of one phase whose engine takes either serves a whole request without a transfer. So an answer that finds no
place stays where its prompt was computed, and a prompt that would wait goes to where answers are written.

- `mixed_pool` (Splitwise, section IV.A): where the queue is longer than a threshold, first a replica that serves both
  phases already, then one of the other phase. It is in the mixed pool until it has done what it took for the other.
- `opportunistic` (Cauchy, section 3.4.2): where some replica has nothing to do, it; the answers of others go to the
  replica that has the fewest.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, Protocol

from sutler.solver.problem import Role
from sutler.solver.throughput.memory import MAX_SEQUENCES

RolePolicy = Literal["fixed", "mixed_pool", "opportunistic"]

# Prompt tokens before a new one that call for help: four steps of 2,048, beyond which a batch brings nothing
# (Splitwise, Fig. 6). From 2,048 to 32,768 the Azure traces are served alike (benchmarks/results/roles.md).
QUEUE_TOKENS: Final = 8192


class Planned(Protocol):
    """A replica of a plan, or of its document."""

    @property
    def model(self) -> str: ...

    @property
    def role(self) -> Role: ...

    @property
    def max_batch(self) -> int | None: ...


def most_answers(replica: Planned, replicas: Sequence[Planned]) -> int:
    """The answers that a replica writes at once before it is short: what its plan counts on; of one that prefills the
    fewest of its model's that decode."""
    alike = [one for one in replicas if one.model == replica.model and one.role == "decode"]
    of = alike if replica.role == "prefill" else [replica]
    return min((one.max_batch or MAX_SEQUENCES for one in of), default=MAX_SEQUENCES)


@dataclass(frozen=True, slots=True)
class PhaseLoad:
    """What a replica of one phase has to do. `answers`: requests that it has and that end there, of `planned`."""

    position: int
    prompt_tokens: int
    answers: int
    planned: int
    is_idle: bool
    is_mixed: bool

    @property
    def is_short_of_prompts(self) -> bool:
        return self.prompt_tokens > QUEUE_TOKENS

    @property
    def is_short_of_answers(self) -> bool:
        return self.answers >= self.planned


def whole_at(roles: RolePolicy, prefill: PhaseLoad, decode: PhaseLoad, others: Sequence[PhaseLoad]) -> int | None:
    """The position of the replica that serves the request as a whole, None: `prefill` and `decode` as planned.

    `others`: all replicas of the model that take either phase, these two among them.
    """
    if roles == "opportunistic":
        return next((other.position for other in others if other.is_idle), None)
    if prefill.is_short_of_prompts:
        return _helper([one for one in others if not one.is_short_of_prompts and not one.is_short_of_answers])
    if decode.is_short_of_answers and not prefill.is_short_of_answers:
        return prefill.position
    return None


def _helper(able: Sequence[PhaseLoad]) -> int | None:
    """One of the mixed pool before any other, with the fewest prompt tokens, then the fewest answers for its plan."""
    best = min(able, key=lambda one: (not one.is_mixed, one.prompt_tokens, one.answers / one.planned), default=None)
    return None if best is None else best.position
