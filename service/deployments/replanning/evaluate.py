"""One look at a deployment, without a database or a clock: facts in, a verdict out, and what it asks of the solver.

    preparing.py    what has moved, and what the solver should consider, if anything
    verdict.py      what to do, why, what people are told, and when to look again

Flow: first_step -> (the solver considers what is prepared -> next_step) until there is a verdict. `look` takes these
steps with a solver at hand, the worker's `Looker.verdict` (service/workers/replan_job.py) with solver processes.

A plan that cannot be carried out, or a load that has moved, is judged on the market as it is; everything else on the
settled market: a lower price or a new offer counts once it has held for `settle_s`. Within the cool-down only a plan
that does not carry its load is changed. So a market that swings moves nothing.
"""

from collections.abc import Callable

from sutler.service.deployments.replanning.facts import Facts
from sutler.service.deployments.replanning.preparing import PreparedLook, prepare
from sutler.service.deployments.replanning.verdict import Verdict, conclude
from sutler.solver.replanning import Consideration, Considered


def look(facts: Facts, consider: Callable[[Consideration], Considered]) -> Verdict:
    """Takes all steps of a look. Raises what `prepare` and `consider` raise."""
    step = first_step(facts)
    while isinstance(step, PreparedLook):
        step = next_step(step, consider(step.question))
    return step


def first_step(facts: Facts) -> PreparedLook | Verdict:
    """Prepares what the solver is to consider; the verdict, where nothing calls for that."""
    prepared = prepare(facts)
    return conclude(prepared, None) if prepared.consideration is None else prepared


def next_step(prepared: PreparedLook, considered: Considered) -> PreparedLook | Verdict:
    """The verdict; where what has settled does not carry the load, first the same on all of the market."""
    if not prepared.is_whole and not any(option.carries and option.is_valid for option in considered.options):
        return prepare(prepared.facts, whole_market=True)
    return conclude(prepared, considered)
