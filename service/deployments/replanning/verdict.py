"""What a look comes to: what is done and why, what people are told, and when to look again. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from sutler.service.deployments.replanning.decision import Decision, decide
from sutler.service.deployments.replanning.drift import Drift
from sutler.service.deployments.replanning.facts import Facts
from sutler.service.deployments.replanning.load import carries_load, has_rates
from sutler.service.deployments.replanning.memory import Memory, Searched
from sutler.service.deployments.replanning.preparing import ANEW, Prepared
from sutler.service.deployments.replanning.pricing import as_issued, fallen_prices
from sutler.service.deployments.replanning.repeats import circumstances, rates_of
from sutler.service.deployments.replanning.state import State, alerts_of, feed_of
from sutler.service.deployments.traffic.planned import stated_rps
from sutler.service.deployments.watch_schema import Status
from sutler.service.documents.fields import finite
from sutler.service.documents.problem import ProblemDocument
from sutler.service.translation.to_problem import Translation
from sutler.solver.plan import Conflict, Plan
from sutler.solver.replanning import Considered, OptionKind, ReplanOption

CENT: Final = 1e-3  # of a plan's cost: as much as a solver may be off
FEED_PATIENCE: Final = 3.0  # windows
DARK: Final = "no provider has answered of late: only what is held is considered"


@dataclass(frozen=True, slots=True)
class Verdict:
    """`plan` is to be issued, if there is one. `alert`: what a person should know, once."""

    decision: Decision | None
    plan: Plan | None
    translation: Translation
    problem: ProblemDocument
    drifts: tuple[Drift, ...]
    considered: Considered | None
    state: State
    memory: Memory
    look_at: datetime
    alert: str = ""


def conclude(facts: Facts, prepared: Prepared, considered: Considered | None) -> Verdict:
    """What the options come to under the policy."""
    decision = None if considered is None else _told(_decided(facts, prepared, considered), prepared.drifts)
    changes = decision is not None and decision.chosen.kind != "keep"
    anew = any(drift.kind in ANEW for drift in prepared.drifts)
    allowed = facts.policy.automatic or facts.is_asked
    chosen = None if decision is None else decision.chosen
    issues = (
        chosen is not None and chosen.plan is not None and (changes or anew) and allowed and _holds(chosen, facts)
    )
    plan = issuable(chosen.plan, prepared) if issues and chosen is not None and chosen.plan is not None else None
    if plan is not None and _is_beyond_budget(plan, prepared) and not facts.is_asked:
        plan, issues = None, False
    state = _state(facts, prepared, considered, decision, issues=issues)
    alerts = alerts_of(state)
    memory = _memory(facts, prepared, considered, state, changes=changes)
    return Verdict(
        decision=decision,
        plan=plan,
        translation=_explained(facts, prepared, decision, plan),
        problem=prepared.problem,
        drifts=prepared.drifts,
        considered=considered,
        state=state,
        memory=memory,
        look_at=_look_at(facts, prepared, memory),
        alert="; ".join(alerts.values()) if alerts.keys() - set(facts.memory.alert.split(",")) else "",
    )


def instead(verdict: Verdict, best: Plan) -> Verdict:
    """Of a plan that was asked for: the best fleet of the market, where no change of the running one will do."""
    if verdict.decision is None:
        return verdict
    reason = "the best fleet of the market, since no change of the running one was found that will do"
    if best.value is None:
        reason = f"no fleet on this market does what is asked for: what runs is kept{_lacking(best.conflicts)}"
    told = (f"Replanned: {verdict.decision.reason}.", f"Replanned: {reason}.")
    notes = tuple(told[1] if note == told[0] else note for note in verdict.translation.notes)
    kind: OptionKind = "keep" if best.value is None else "refleet"
    decision = replace(verdict.decision, reason=reason, chosen=replace(verdict.decision.chosen, kind=kind))
    return replace(verdict, decision=decision, translation=replace(verdict.translation, notes=notes))


def _lacking(conflicts: Iterable[Conflict]) -> str:
    """What would have to give."""
    each = [f"{c.constraint}: {c.needed:.4g} {c.unit} needed, {c.available:.4g} there" for c in conflicts]
    return "".join(f"; {conflict}" for conflict in each)


def issuable(plan: Plan, prepared: Prepared) -> Plan:
    """`held` of its rentals is what is held, and not what is still for rent; prices are paid or today's."""
    if prepared.consideration is None:
        return plan
    offers = prepared.translation.problem.offers
    return as_issued(plan, prepared.consideration.problem, prepared.assessed, offers)


def _told(decision: Decision, drifts: Iterable[Drift]) -> Decision:
    """Machines that cannot be had are the first reason of whatever is done."""
    missing = [drift.detail for drift in drifts if drift.is_urgent]
    stays = decision.chosen.kind == "keep" and decision.level > 0
    rest = "no other fleet is worth the change" if stays else decision.reason
    return replace(decision, reason="; ".join([*missing, rest])) if missing else decision


def _decided(facts: Facts, prepared: Prepared, considered: Considered) -> Decision:
    headroom = getattr(prepared.problem.objective, "headroom_fraction", None)
    return decide(
        considered,
        headroom_fraction=headroom,
        least_gain_fraction=facts.policy.least_gain_fraction,
        horizon_s=facts.policy.horizon_s,
        moved=prepared.moved or facts.is_asked,
    )


def _holds(option: ReplanOption, facts: Facts) -> bool:
    """A plan that breaks a limit is none, nor one for a load that it does not carry."""
    return option.is_valid and (option.carries or not carries_load(facts.planned))


def _state(
    facts: Facts, prepared: Prepared, considered: Considered | None, decision: Decision | None, *, issues: bool
) -> State:
    repeated = prepared.repeated
    runs = decision.chosen if issues and decision is not None else None if considered is None else considered.keep
    multiple = None if runs is None else runs.load_multiple
    status, detail = _status(facts, prepared, considered, decision, issues=issues)
    conflicts = () if considered is None or status != "short" else considered.conflicts
    if repeated is not None:
        status, detail = repeated.status, repeated.detail
        multiple, conflicts = repeated.load_multiple, repeated.conflicts
    elif conflicts:
        detail += _lacking(conflicts)
    if prepared.is_dark and not issues and status != "short":
        status, detail = "blind", DARK
    return State(
        status=status,
        detail=detail,
        feed=feed_of(facts.traffic.values()) if has_rates(facts.problem) else "live",
        holdings="never" if facts.holdings is None else "reported",
        drifts=prepared.drifts,
        load_multiple=multiple,
        conflicts=conflicts,
    )


def _status(
    facts: Facts, prepared: Prepared, considered: Considered | None, decision: Decision | None, *, issues: bool
) -> tuple[Status, str]:
    if considered is None or decision is None:
        return "calm", "nothing has moved"
    if decision.level == 0 and not issues and carries_load(facts.planned):
        return "short", decision.reason
    if decision.chosen.kind != "keep" and not issues:
        return _not_issued(facts, decision)
    if issues:
        return "calm", decision.reason
    if prepared.cooling_until is not None and prepared.drifts and not considered.searched:
        return "waiting", f"until {prepared.cooling_until:%Y-%m-%d %H:%M:%S} UTC, when the cool-down is over"
    only_looked_over = all(drift.kind == "refinement" for drift in prepared.drifts)
    return "calm" if only_looked_over else "kept", decision.reason


def _not_issued(facts: Facts, decision: Decision) -> tuple[Status, str]:
    if facts.policy.automatic:
        return "kept", f"{decision.reason}; not issued, since at today's prices it breaks the budget or another limit"
    remedy = "policy.automatic is off: POST /replan (`sutler deployments replan`) issues it"
    return "manual", f"{decision.reason}; {remedy}"


def _memory(
    facts: Facts, prepared: Prepared, considered: Considered | None, state: State, *, changes: bool
) -> Memory:
    before = facts.memory
    searched = considered is not None and considered.searched
    promise = None if changes or considered is None else considered.most_net_usd
    settles_at, settled_at = _settling(facts)
    return Memory(
        revision=facts.plan.revision,
        most_net_usd=finite(promise) if searched else before.most_net_usd,
        searched_at=facts.now if searched else before.searched_at,
        searched=_searched(facts, prepared, state) if searched else before.searched,
        looked_at=facts.now,
        settles_at=settles_at,
        settled_at=settled_at,
        market_version=facts.market_version,
        alert=",".join(sorted(alerts_of(state))),
    )


def _searched(facts: Facts, prepared: Prepared, state: State) -> Searched | None:
    if state.status == "blind":
        return None
    return Searched(
        circumstances=circumstances(facts, prepared.assessed, prepared.drifts),
        rates_rps=rates_of(prepared.problem),
        status=state.status,
        detail=state.detail,
        load_multiple=None if state.load_multiple is None else finite(state.load_multiple),
        conflicts=state.conflicts,
    )


def _settling(facts: Facts) -> tuple[datetime | None, datetime | None]:
    """When the first and the last of what is new on the market will have held for long enough."""
    first, last, now = facts.memory.settles_at, facts.memory.settled_at, facts.now
    if facts.memory.market_version != facts.market_version:
        last = now + timedelta(seconds=facts.policy.settle_s + 1)
    if first is None or first <= now:
        first = last if last is not None and last > now else None
    return first, last


def _look_at(facts: Facts, prepared: Prepared, memory: Memory) -> datetime:
    """At the end of the cool-down, of the calm, of the plan's life, of the feed's patience, or when offers settle."""
    policy, now = facts.policy, facts.now
    times = [facts.calm_since + timedelta(seconds=policy.refine_s), facts.carried_out_at]
    if prepared.cooling_until is not None:
        times.append(prepared.cooling_until)
    if policy.max_age_s is not None:
        times.append(facts.issued_at + timedelta(seconds=policy.max_age_s))
    if memory.settles_at is not None:
        times.append(memory.settles_at)
    patience = timedelta(seconds=FEED_PATIENCE * policy.window_s + 1)
    lead = timedelta(seconds=policy.startup_s + policy.drain_s)
    times += [h.expires_at - lead for h in facts.reported or () if h.expires_at is not None]
    times += [t.last_at + patience for t in facts.traffic.values() if t.last_at is not None]
    soonest = now + timedelta(seconds=1)
    return min((time for time in times if time > soonest), default=now + timedelta(seconds=policy.refine_s))


def _explained(facts: Facts, prepared: Prepared, decision: Decision | None, plan: Plan | None) -> Translation:
    """The plan's notes say why it is there, and on what it rests."""
    if decision is None or prepared.consideration is None:
        return prepared.translation
    notes = (
        *prepared.translation.notes,
        f"Replanned: {decision.reason}.",
        *_less_than_stated(facts, prepared),
        *_of_dearer_offers(prepared),
        *_beyond_budget(plan, prepared),
    )
    return replace(prepared.translation, problem=prepared.consideration.problem, notes=notes)


def _less_than_stated(facts: Facts, prepared: Prepared) -> Iterable[str]:
    """Who has stated a rate that is yet to come is told that it is not planned for."""
    if not carries_load(facts.problem):
        return
    planned = {model.name: stated_rps(model) for model in prepared.problem.models}
    for model in facts.problem.models:
        stated, traffic = stated_rps(model), facts.traffic.get(model.name)
        is_seen = traffic is not None and traffic.state == "live"
        if is_seen and planned[model.name] < stated / (1 + facts.policy.rate_drift_fraction):
            yield (
                f"{model.name}: planned for the {planned[model.name]:.4g} requests/s that are seen, not for the "
                f"{stated:.4g} that the problem states; policy.at_least_stated plans for no fewer than stated."
            )


def _beyond_budget(plan: Plan | None, prepared: Prepared) -> Iterable[str]:
    if plan is not None and _is_beyond_budget(plan, prepared):
        budget = prepared.translation.problem.budget_usd_per_hour
        yield f"At today's prices it costs more than the budget of {budget:.4g} $/h: what is not held is dearer now."


def _is_beyond_budget(plan: Plan, prepared: Prepared) -> bool:
    """Machines that are wished for count at their lowest price of late, so that a swing is no drift."""
    budget, cost = prepared.translation.problem.budget_usd_per_hour, plan.cost_usd_per_hour
    return budget is not None and cost is not None and cost > budget * (1 + CENT)


def _of_dearer_offers(prepared: Prepared) -> Iterable[str]:
    """A cost's bound is restated with the prices; another cannot be."""
    assert prepared.consideration is not None
    problem = prepared.consideration.problem
    if problem.objective.kind != "min_cost" and fallen_prices(problem, prepared.translation.problem.offers):
        yield "The bound is of the offers at the highest price that they have had of late; some are cheaper now."
