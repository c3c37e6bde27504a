"""One look at a deployment, without a database or a clock: facts in, a verdict out.

    preparing.py    what has moved, and what the solver should consider, if anything
    verdict.py   what to do, why, what people are told, and when to look again

A plan that cannot be carried out, or a load that has moved, is judged on the market as it is; everything else on the
settled market: a lower price or a new offer counts once it has held for `settle_s`. Within the cool-down only a plan
that does not carry its load is changed. So a market that swings moves nothing.
"""

from collections.abc import Callable

from sutler.service.deployments.replanning.facts import Facts
from sutler.service.deployments.replanning.preparing import Prepared, prepare
from sutler.service.deployments.replanning.verdict import Verdict, conclude
from sutler.solver.replanning import Consideration, Considered

__all__ = ["Prepared", "Verdict", "conclude", "is_too_little", "look", "prepare"]


def look(facts: Facts, consider: Callable[[Consideration], Considered]) -> Verdict:
    """All of it. Raises what `prepare` and `consider` raise."""
    prepared, considered = prepare(facts), None
    if prepared.consideration is not None:
        considered = consider(prepared.consideration)
        if is_too_little(prepared, considered):
            prepared = prepare(facts, whole_market=True)
            assert prepared.consideration is not None  # as before, on more offers
            considered = consider(prepared.consideration)
    return conclude(facts, prepared, considered)


def is_too_little(prepared: Prepared, considered: Considered) -> bool:
    """Whether what has settled does not carry the load, so that all of the market has to be considered."""
    carries = any(option.carries and option.is_valid for option in considered.options)
    return not prepared.is_whole and not carries
