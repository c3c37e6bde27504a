"""Searches that would be made again: under the same facts a fleet is not sought twice in vain. Pure."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from hashlib import sha256

from sutler.service.deployments.replanning.avoiding import Avoided, is_freed
from sutler.service.deployments.replanning.drift import Drift
from sutler.service.deployments.replanning.facts import Facts
from sutler.service.deployments.replanning.memory import PastSearch
from sutler.service.deployments.replanning.standing_machines import Assessed
from sutler.service.documents.problem import ProblemDocument
from sutler.solver.replanning import Consideration
from sutler.solver.version import VERSION


def repeated_search(
    facts: Facts, document: ProblemDocument, assessed: Assessed, drifts: Sequence[Drift], avoided: Sequence[Avoided]
) -> PastSearch | None:
    """The search in vain that would be made again; None: there was none, or it is time for another."""
    before, at = facts.memory.searched, facts.memory.searched_at
    if before is None or at is None or facts.is_asked or facts.given_up_for or something_has_come(facts):
        return None
    if any(drift.kind == "refinement" for drift in drifts):
        return None
    is_same = before.is_for(circumstances(facts, assessed, drifts, avoided), rates_of(document))
    return before if is_same and facts.now < at + timedelta(seconds=facts.policy.refine_s) else None


def circumstances(facts: Facts, assessed: Assessed, drifts: Sequence[Drift], avoided: Sequence[Avoided]) -> str:
    """All that a search depends on but the rates, as one line."""
    kinds = sorted({drift.kind for drift in drifts if drift.kind != "refinement"})
    stands = sorted(f"{'/'.join(map(str, h.key))} x {h.count} {h.price_usd_per_hour:.6g}" for h in assessed.standing)
    cooling = facts.cooling_until is not None
    policy = sha256(facts.policy.model_dump_json().encode()).hexdigest()[:16]
    places = sorted(f"not {one.place}" for one in avoided)
    others = [f"market {facts.market_version}", f"cooling {cooling}", f"policy {policy}"]
    if facts.purse is not None:
        others.append(f"may spend {facts.purse.limit_usd_per_hour:.2f}")
    return "; ".join([*kinds, *stands, *places, *others])


def basis_of(document: ProblemDocument, question: Consideration) -> str:
    """A digest of all that keeping a plan depends on, but for the rest of the market."""
    held = (offer for offer in question.problem.offers if offer.held)
    stands = [f"{replace(offer, unfit_for=frozenset())} {sorted(offer.unfit_for)}" for offer in held]
    problem = document.model_dump_json(by_alias=True, exclude={"market": {"offers"}})
    return sha256("\n".join([VERSION, problem, str(question.switching), *sorted(stands)]).encode()).hexdigest()[:32]


def rates_of(document: ProblemDocument) -> dict[str, float]:
    return {f"{m.name}/{w.name}": w.rate_rps or 0.0 for m in document.models for w in m.workloads or ()}


def something_has_come(facts: Facts) -> bool:
    """Since the last look, offers have settled, the cool-down has ended, or a place is avoided no longer."""
    since = facts.memory.looked_at
    if since is None:
        return False
    moments = (facts.memory.settles_at, facts.changed_at + timedelta(seconds=facts.policy.cooldown_s))
    if any(moment is not None and since < moment <= facts.now for moment in moments):
        return True
    return is_freed(facts.losses, since, facts.now, first_s=facts.policy.avoid_lost_s)
