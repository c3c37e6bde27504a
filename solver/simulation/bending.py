"""Who serves a request as a whole where the replica that was to take its phase is short: roles that bend.

Flow: fleet.py chooses a replica for the prompt and one for the answer -> whole_at (here) -> one for both, or none.

A replica of one phase whose engine takes either serves a whole request without a transfer. So an answer that finds no
place stays where its prompt was computed, and a prompt that would wait goes to where answers are written.

- `mixed_pool` (Splitwise, section IV.A): where the queue is longer than a threshold (`either_phases`), first one that
  serves both phases already, then one of the other phase. It is in the mixed pool until it has done what it took
  for the other.
- `opportunistic` (Cauchy, section 3.4.2): where some replica has nothing to do, it; the answers of others go to the
  replica that has the fewest.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from sutler.solver.plan import Replica
from sutler.solver.problem import ServedModel
from sutler.solver.throughput.memory import MAX_SEQUENCES
from sutler.solver.throughput.stage_times import CHUNK_TOKENS

RolePolicy = Literal["fixed", "mixed_pool", "opportunistic"]

# Of the tightest limit on the first token, what the prompts that wait may take. Chosen: with a third of it decode
# replicas took so many prompts on the Azure traces that tokens came late, with all of it help came late.
WAIT_FRACTION: Final = 0.5
USUAL_TTFT_S: Final = 2.0  # where there is no limit


@dataclass(frozen=True, slots=True)
class EitherPhase:
    """From when on a replica of a model is short: more prompt tokens wait there, or as many answers are written."""

    model: str
    prompt_tokens: int
    answers: int


def either_phases(replicas: Sequence[Replica], models: Mapping[str, ServedModel]) -> dict[str, EitherPhase]:
    """Of the prefill and decode replicas of a plan, by id.

    Of one that prefills, the tokens that it computes in half of the limit on the first token; as answers, the fewest
    that one of its model's decode replicas counts on. Of one that decodes, its own answers, and the fewest tokens.
    """
    found = {}
    for name, model in models.items():
        prefill, decode = (
            [one for one in replicas if (one.model, one.role) == (name, role)] for role in ("prefill", "decode")
        )
        tokens = {one.id: _prompt_tokens(one, model) for one in prefill}
        answers = {one.id: one.max_batch or MAX_SEQUENCES for one in decode}
        fewest = min(tokens.values(), default=int(CHUNK_TOKENS)), min(answers.values(), default=MAX_SEQUENCES)
        for one in (*prefill, *decode):
            found[one.id] = EitherPhase(name, tokens.get(one.id, fewest[0]), answers.get(one.id, fewest[1]))
    return found


def _prompt_tokens(replica: Replica, model: ServedModel) -> int:
    """At least a step's."""
    input_tokens = {workload.name: workload.input_tokens for workload in model.workloads}
    full_rps = {rate.workload: rate.rps for rate in replica.sustained_rps}
    routed = [one for one in replica.throughput_rps if full_rps.get(one.workload)] or replica.sustained_rps
    busy = sum(one.rps / full_rps[one.workload] for one in routed)
    tokens_per_s = sum(one.rps * input_tokens[one.workload] for one in routed) / busy if busy else 0.0
    limits = [one for workload in model.workloads for one in model.limits_of(workload) if one.metric == "ttft"]
    wait_s = WAIT_FRACTION * min((limit.seconds for limit in limits), default=USUAL_TTFT_S)
    return max(int(CHUNK_TOKENS), int(tokens_per_s * wait_s))


@dataclass(frozen=True, slots=True)
class PhaseLoad:
    """What a replica of one phase has to do. `answers`: requests that it has and that end there."""

    position: int
    prompt_tokens: int
    answers: int
    short: EitherPhase
    is_idle: bool
    is_mixed: bool

    @property
    def is_short_of_prompts(self) -> bool:
        return self.prompt_tokens > self.short.prompt_tokens

    @property
    def is_short_of_answers(self) -> bool:
        return self.answers >= self.short.answers


def whole_at(roles: RolePolicy, prefill: PhaseLoad, decode: PhaseLoad, others: Iterable[PhaseLoad]) -> int | None:
    """The position of the replica that serves the request as a whole, None: `prefill` and `decode` as planned.

    `others`: all replicas of the model that take either phase, these two among them; read where they are needed.
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

    def order(one: PhaseLoad) -> tuple[bool, int, float]:
        return not one.is_mixed, one.prompt_tokens, one.answers / one.short.answers

    return min(able, key=order).position if able else None
