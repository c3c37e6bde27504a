"""One look at a deployment, without a database or a clock: facts in, a verdict out, and what it asks of the solver.

    preparing.py    what has moved, and what the solver should consider, if anything
    verdict.py      what to do, why, what people are told, and when to look again

Flow: first_step -> (the solver considers what is prepared -> next_step) until there is a verdict. `look` takes these
steps with a solver at hand, the worker's `Looker.verdict` (service/workers/replan_job.py) with solver processes.

A plan that cannot be carried out, or a load that has moved, is judged on the market as it is; everything else on the
settled market: a lower price or a new offer counts once it has held for `settle_s`. Within the cool-down only a plan
that does not carry its load is changed. So a market that swings moves nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Literal

from sutler.service.deployments.replanning.avoiding import Avoided
from sutler.service.deployments.replanning.decision import Decision, decide
from sutler.service.deployments.replanning.drift import Drift
from sutler.service.deployments.replanning.expecting import with_expected
from sutler.service.deployments.replanning.facts import Facts
from sutler.service.deployments.replanning.load import carries_load, has_rates, headroom_of, stated_work
from sutler.service.deployments.replanning.memory import Memory, PastSearch
from sutler.service.deployments.replanning.preparing import ANEW, PreparedLook, prepare
from sutler.service.deployments.replanning.pricing import as_issued, fallen_prices
from sutler.service.deployments.replanning.repeats import circumstances, rates_of
from sutler.service.deployments.replanning.sleeping import sleepers, with_sleep, without
from sutler.service.deployments.traffic.planned import stated_rps
from sutler.service.deployments.traffic.window import SILENT_AFTER, ModelTraffic
from sutler.service.deployments.watch_schema import Feed, Status
from sutler.service.documents.fields import finite
from sutler.service.documents.problem import ProblemDocument
from sutler.service.translation.to_problem import Translation
from sutler.solver.answer.expected import counted_usd_per_hour
from sutler.solver.plan import Conflict, Plan
from sutler.solver.replanning import Consideration, Considered, OptionKind, ReplanOption, holdings_of

CARRIED: Final = 1e-6  # of the load: less is missing by rounding alone
MOST_TOLD: Final = 5  # chosen: what a note can say of places; the deployment's `watch` has all
LEAST_MORE: Final = 0.05  # chosen: of what runs; for less it is not worth changing a fleet that falls short anyway
CENT: Final = 1e-3  # of a plan's cost: as much as a solver may be off


@dataclass(frozen=True, slots=True)
class State:
    """What the last look found, for people.

    calm: nothing has moved; kept: something has, but no change is worth it; waiting: until the cool-down is over;
    short: the load is not carried, and no fleet would, so that at most a part of it is; manual: there is something
    worth doing, and nobody may do it; blind: it could not look, as the detail says.

    `unseen`: machines of a plan that nobody has ever reported as carried out, and that are not for rent any more.
    `avoided`: where machines were lost of late. `budget`: what a shared one lacks.
    """

    status: Status
    detail: str
    feed: Feed
    holdings: Literal["reported", "never"]
    drifts: tuple[Drift, ...]
    load_multiple: float | None = None
    conflicts: tuple[Conflict, ...] = ()
    unseen: int = 0
    avoided: tuple[Avoided, ...] = ()
    budget: str = ""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a look comes to.

    `plan` is to be issued, if there is one. `alert`: what a person should know, once. `prepared`: what it was judged
    on.
    """

    decision: Decision | None
    plan: Plan | None
    translation: Translation
    considered: Considered | None
    state: State
    memory: Memory
    look_at: datetime
    alert: str
    prepared: PreparedLook

    @property
    def problem(self) -> ProblemDocument:
        """What the plan was made for, with the models that it lets sleep."""
        return self.prepared.whole_problem

    @property
    def drifts(self) -> tuple[Drift, ...]:
        """What has moved."""
        return self.prepared.drifts


def feed_of(traffic: Iterable[ModelTraffic]) -> Feed:
    """The worst state of all models' feeds: without one, drift of the traffic cannot be seen."""
    heard = (model.heard or model.state for model in traffic)
    states = {"none" if state == "never" else state for state in heard}
    worst: tuple[Feed, ...] = ("silent", "none", "thin", "live")
    return next((state for state in worst if state in states), "none")


def alerts_of(state: State) -> dict[str, str]:
    """What a person has to know, by kind; of a kind only the first is sent, until it has passed."""
    found = {}
    multiple = state.load_multiple
    if state.status == "short" or (state.status == "manual" and multiple is not None and multiple < 1 - CARRIED):
        found["short"] = f"short: {state.detail}"
    if state.status == "blind":
        found["blind"] = f"blind: {state.detail}"
    if state.unseen:
        found["unreported"] = (
            f"unreported: {state.unseen} machines of the plan are not for rent any more, and nobody has said what is "
            "rented; they count as running. Acknowledge the plan if they are yours (`sutler deployments ack`), else "
            "report what is (PUT .../holdings, [] for nothing): then others take their place"
        )
    if state.budget:
        found["budget"] = f"budget: {state.budget}"
    if state.feed == "silent":
        found["silent"] = "silent: the traffic is no longer reported, and changes of it cannot be seen"
    return found


def conclude(prepared: PreparedLook, considered: Considered | None) -> Verdict:
    """What the options come to under the policy."""
    decision = None if considered is None else _decided(prepared, considered)
    plan = None if decision is None else _to_issue(prepared, decision.chosen)
    state = _state(prepared, considered, decision, issues=plan is not None)
    memory = _memory(prepared, considered, decision, state, issues=plan is not None)
    alerts = alerts_of(state)
    return Verdict(
        decision=decision,
        plan=plan,
        translation=_explained(prepared, decision, plan),
        considered=considered,
        state=state,
        memory=memory,
        look_at=_look_at(prepared, memory),
        alert="; ".join(alerts.values()) if alerts.keys() - set(prepared.facts.memory.alert.split(",")) else "",
        prepared=prepared,
    )


def instead(verdict: Verdict, best: Plan) -> Verdict:
    """The verdict on a plan that was asked for, where no change of the running fleet will do: the market's best."""
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
    """Says what would have to give."""
    each = [f"{c.constraint}: {c.needed:.4g} {c.unit} needed, {c.available:.4g} there" for c in conflicts]
    return "".join(f"; {conflict}" for conflict in each)


def issuable(plan: Plan, prepared: PreparedLook) -> Plan:
    """The plan with `held` of its rentals for what is held alone, and at prices that are paid or today's."""
    return as_issued(plan, prepared.question.problem, prepared.assessed, prepared.translation.problem.offers)


def _decided(prepared: PreparedLook, considered: Considered) -> Decision:
    """The decision; machines that cannot be had are the first reason of whatever is done."""
    facts = prepared.facts
    moved = prepared.moved or facts.is_asked
    decision = decide(
        considered,
        facts.policy,
        headroom_fraction=headroom_of(prepared.problem),
        moved=moved,
        part=prepared.part,
    )
    missing = [drift.detail for drift in prepared.drifts if drift.is_urgent or drift.kind == "sleep"]
    stays = decision.chosen.kind == "keep" and decision.level > 0
    rest = "no other fleet is worth the change" if stays else decision.reason
    return replace(decision, reason="; ".join([*missing, rest])) if missing else decision


def _to_issue(prepared: PreparedLook, chosen: ReplanOption) -> Plan | None:
    """The plan of what is chosen, where one is to be issued.

    A plan that breaks a limit is none, nor one for a load that it does not carry.
    """
    facts = prepared.facts
    is_new = chosen.kind != "keep" or any(drift.kind in ANEW for drift in prepared.drifts)
    holds = chosen.is_valid and (chosen.carries or not carries_load(facts.planned))
    if chosen.plan is None or not (is_new and holds and (facts.policy.automatic or facts.is_asked)):
        return None
    plan = issuable(chosen.plan, prepared)
    if _dropped_unseen(plan, prepared):
        return None
    return None if _is_beyond_budget(plan, prepared) and not facts.is_asked else plan


def _dropped_unseen(plan: Plan, prepared: PreparedLook) -> int:
    """Machines that may be running, since nobody has ever said what is rented, and that the plan has no more."""
    if prepared.facts.reported is not None or prepared.facts.is_asked:
        return 0
    kept = {holding.key: holding.count for holding in holdings_of(plan.rentals)}
    return sum(max(0, one.of - kept.get(one.key, 0)) for one in prepared.assessed.unseen)


def _state(
    prepared: PreparedLook, considered: Considered | None, decision: Decision | None, *, issues: bool
) -> State:
    facts, repeated = prepared.facts, prepared.repeated
    awake = [traffic for name, traffic in facts.traffic.items() if name not in facts.asleep]
    runs = decision.chosen if issues and decision is not None else None if considered is None else considered.keep
    multiple = None if runs is None else runs.load_multiple
    status, detail = _status(prepared, considered, decision, issues=issues)
    conflicts = () if considered is None or status != "short" else considered.conflicts or prepared.lacking
    if repeated is not None:
        status, detail = repeated.status, repeated.detail
        multiple, conflicts = repeated.load_multiple, repeated.conflicts
    elif conflicts:
        detail += _lacking(conflicts)
    if multiple is not None and repeated is None:
        multiple *= prepared.part
    if prepared.dark and not issues and status != "short":
        status, detail = "blind", f"{prepared.dark}: only what is held is considered"
    return State(
        status=status,
        detail=detail,
        feed=feed_of(awake) if has_rates(facts.problem) and awake else "live",
        holdings="never" if facts.holdings is None else "reported",
        drifts=prepared.drifts,
        load_multiple=multiple,
        conflicts=conflicts,
        unseen=0 if facts.reported is not None else sum(one.count for one in prepared.assessed.unseen),
        avoided=prepared.avoided,
        budget="" if facts.purse is None else facts.purse.exceeded,
    )


def _status(
    prepared: PreparedLook, considered: Considered | None, decision: Decision | None, *, issues: bool
) -> tuple[Status, str]:
    if considered is None or decision is None:
        return "calm", "all models sleep" if prepared.facts.all_sleep else "nothing has moved"
    if issues:
        return "calm" if prepared.part == 1 else "short", decision.reason
    if decision.level == 0 and carries_load(prepared.facts.planned):
        return "short", decision.reason
    if decision.chosen.kind != "keep":
        return _not_issued(prepared, decision)
    until = prepared.facts.cooling_until
    if until is not None and prepared.drifts and not considered.searched:
        return "waiting", f"until {until:%Y-%m-%d %H:%M:%S} UTC, when the cool-down is over"
    only_looked_over = all(drift.kind == "refinement" for drift in prepared.drifts)
    return "calm" if only_looked_over else "kept", decision.reason


def _not_issued(prepared: PreparedLook, decision: Decision) -> tuple[Status, str]:
    facts, plan = prepared.facts, decision.chosen.plan
    if plan is not None and _dropped_unseen(plan, prepared):
        return "kept", f"{decision.reason}; not issued, since it drops machines that may be running: report what is"
    if facts.policy.automatic:
        return "kept", f"{decision.reason}; not issued, since at today's prices it breaks the budget or another limit"
    remedy = "policy.automatic is off: POST /replan (`sutler deployments replan`) issues it"
    return "manual", f"{decision.reason}; {remedy}"


def _memory(
    prepared: PreparedLook, considered: Considered | None, decision: Decision | None, state: State, *, issues: bool
) -> Memory:
    facts = prepared.facts
    before = facts.memory
    searched = considered is not None and considered.searched
    changes = decision is not None and decision.chosen.kind != "keep"
    promise = None if changes or considered is None else considered.most_net_usd
    settles_at, settled_at = _settling(facts)
    kept, basis = before.kept, before.basis
    if considered is not None and prepared.known is None:
        kept, basis = None if changes else considered.kept, prepared.basis
    return Memory(
        revision=facts.plan.revision,
        most_net_usd=finite(promise) if searched else before.most_net_usd,
        searched_at=facts.now if searched else before.searched_at,
        searched=_searched(prepared, state) if searched else before.searched,
        looked_at=facts.now,
        settles_at=settles_at,
        settled_at=settled_at,
        market_version=facts.market_version,
        alert=",".join(sorted(alerts_of(state))),
        absent=dict(prepared.absent),
        before_climb=_before_climb(facts) if issues else before.before_climb,
        changed_at=_changed_at(facts, decision, issues=issues),
        kept=kept,
        basis=basis,
    )


def _changed_at(facts: Facts, decision: Decision | None, *, issues: bool) -> datetime | None:
    """When machines were last changed, a plan of now included; None: by the plan that this is the memory of."""
    if not issues or decision is None:
        return facts.memory.changed_at
    change = decision.chosen.change
    return None if change.started or change.stopped else facts.changed_at


def _before_climb(facts: Facts) -> dict[str, float]:
    """The work that was planned for before the climbs that a plan of now is for."""
    if not carries_load(facts.planned):
        return {}
    climbing = facts.climbing_to(facts.lead_s + facts.policy.window_s)
    return {
        model.name: facts.memory.before_climb.get(model.name, stated_work(model))
        for model in facts.planned.models
        if climbing.get(model.name, 0.0) > facts.traffic[model.name].rate_rps
    }


def _searched(prepared: PreparedLook, state: State) -> PastSearch | None:
    if state.status == "blind":
        return None
    return PastSearch(
        circumstances=circumstances(prepared.facts, prepared.assessed, prepared.drifts, prepared.avoided),
        rates_rps=rates_of(prepared.problem),
        status=state.status,
        detail=state.detail,
        load_multiple=finite(state.load_multiple),
        conflicts=state.conflicts,
    )


def _settling(facts: Facts) -> tuple[datetime | None, datetime | None]:
    """Returns when the first and the last of what is new on the market will have held for long enough."""
    first, last, now = facts.memory.settles_at, facts.memory.settled_at, facts.now
    if facts.memory.market_version != facts.market_version:
        last = now + timedelta(seconds=facts.policy.settle_s + 1)
    if first is None or first <= now:
        first = last if last is not None and last > now else None
    return first, last


def _look_at(prepared: PreparedLook, memory: Memory) -> datetime:
    """When the cool-down, the calm, the plan's life, the feed's patience or a rental ends, offers settle, a place is
    avoided no longer, or machines for an event have to be ordered."""
    facts = prepared.facts
    policy, now = facts.policy, facts.now
    times = [facts.calm_since + timedelta(seconds=policy.refine_s), facts.carried_out_at]
    times += [time for time in (facts.cooling_until, memory.settles_at) if time is not None]
    times += [one.until for one in prepared.avoided]
    times += [absence.since + timedelta(seconds=policy.settle_s) for absence in memory.absent.values()]
    events = (event.next_change(now, facts.ahead) for event in policy.calendar)
    times += [moment for moment in events if moment is not None]
    if policy.max_age_s is not None:
        times.append(facts.issued_at + timedelta(seconds=policy.max_age_s))
    patience = timedelta(seconds=SILENT_AFTER * policy.window_s + 1)
    lead = timedelta(seconds=policy.startup_s + policy.drain_s)
    times += [h.expires_at - lead for h in facts.reported or () if h.expires_at is not None]
    times += [t.last_at + patience for t in facts.traffic.values() if t.last_at is not None]
    soonest = now + timedelta(seconds=1)
    return min((time for time in times if time > soonest), default=now + timedelta(seconds=policy.refine_s))


def _explained(prepared: PreparedLook, decision: Decision | None, plan: Plan | None) -> Translation:
    """The translation, with notes that say why the plan is there, and on what it rests."""
    if decision is None:
        return prepared.translation
    facts = prepared.facts
    notes = (
        *prepared.translation.notes,
        f"Replanned: {decision.reason}.",
        *_part_of_the_load(prepared),
        *_less_than_stated(prepared),
        *_of_dearer_offers(prepared),
        *_beyond_budget(plan, prepared),
        *_avoided(prepared),
    )
    problem = prepared.question.problem
    return replace(prepared.translation, problem=problem, notes=notes, sleeping=sleepers(facts))


def _part_of_the_load(prepared: PreparedLook) -> Iterable[str]:
    if prepared.part < 1:
        yield (
            f"Planned for {prepared.part:.0%} of the load, the most that was found to be carried on this market "
            "within what is set; all of it is planned for again as soon as there is a fleet for it."
        )


def _less_than_stated(prepared: PreparedLook) -> Iterable[str]:
    """Tells who has stated a rate that is yet to come that it is not planned for."""
    facts = prepared.facts
    if not carries_load(facts.problem):
        return
    planned = {model.name: stated_rps(model) for model in prepared.problem.models}
    for model in without(facts.problem, facts.asleep).models:
        stated, traffic = stated_rps(model), facts.traffic.get(model.name)
        is_seen = traffic is not None and traffic.state == "live"
        if is_seen and planned[model.name] < stated / (1 + facts.policy.rate_drift_fraction):
            yield (
                f"{model.name}: planned for the {planned[model.name]:.4g} requests/s that are seen, not for the "
                f"{stated:.4g} that the problem states; policy.at_least_stated plans for no fewer than stated."
            )


def _beyond_budget(plan: Plan | None, prepared: PreparedLook) -> Iterable[str]:
    if plan is not None and _is_beyond_budget(plan, prepared):
        budget = prepared.translation.problem.budget_usd_per_hour
        yield f"At today's prices it costs more than the budget of {budget:.4g} $/h: what is not held is dearer now."


def _avoided(prepared: PreparedLook) -> Iterable[str]:
    if not prepared.reserve:
        yield "No reserve for losses is kept until machines may be rented again where they were lost."
    if prepared.left_out:
        yield f"{prepared.left_out} offers do not count, since machines were lost there: {_until(prepared.avoided)}."
    elif prepared.anywhere:
        yield (
            f"Machines were lost of late, and the load is carried in no other way than there again: "
            f"{_until(prepared.avoided)}."
        )


def _until(places: Sequence[Avoided]) -> str:
    """Places with the times until which they are avoided, the last first, since they are the larger ones."""
    told = [f"{one.place} until {one.until:%Y-%m-%d %H:%M:%S} UTC" for one in reversed(places)]
    more = f", and {len(told) - MOST_TOLD} others" if len(told) > MOST_TOLD else ""
    return ", ".join(told[:MOST_TOLD]) + more


def _is_beyond_budget(plan: Plan, prepared: PreparedLook) -> bool:
    """Whether the plan costs more than the problem allows, at today's prices."""
    problem = prepared.translation.problem
    budget, cost = problem.budget_usd_per_hour, counted_usd_per_hour(problem, plan.rentals)
    return budget is not None and cost > budget * (1 + CENT)


def _of_dearer_offers(prepared: PreparedLook) -> Iterable[str]:
    """Tells where the bound rests on older prices: a cost's bound is restated with the prices, another cannot be."""
    problem = prepared.question.problem
    if problem.objective.kind != "min_cost" and fallen_prices(problem, prepared.translation.problem.offers):
        yield "The bound is of the offers at the highest price that they have had of late; some are cheaper now."


def look(facts: Facts, consider: Callable[[Consideration], Considered]) -> Verdict:
    """Takes all steps of a look. Raises what `prepare` and `consider` raise."""
    step = first_step(facts)
    while isinstance(step, PreparedLook):
        step = next_step(step, consider(step.question))
    return step


def first_step(facts: Facts) -> PreparedLook | Verdict:
    """Prepares what the solver is to consider; the verdict, where nothing calls for that."""
    prepared = prepare(with_expected(with_sleep(facts)))
    is_clear = prepared.consideration is None or prepared.known is not None
    return conclude(prepared, prepared.known) if is_clear else prepared


def next_step(prepared: PreparedLook, considered: Considered) -> PreparedLook | Verdict:
    """The verdict; where what has settled does not carry the load, first the same on all of the market, then without
    a reserve for losses, which is none where machines were just lost, then also there, and at last for the part of
    the load that can be carried, if that is clearly more than what runs carries."""
    if any(option.carries and option.is_valid for option in considered.options):
        return conclude(prepared, considered)
    if not prepared.is_whole:
        return prepare(prepared.facts, whole_market=True)
    if prepared.left_out and prepared.translation.problem.resilience.survive:
        return prepare(prepared.facts, whole_market=True, reserve=False)
    if prepared.left_out:
        return prepare(prepared.facts, whole_market=True, anywhere=True)
    part, running = considered.carried_part, considered.keep.load_multiple or 0.0
    least = 0.0 if prepared.facts.given_up_for else running * (1 + LEAST_MORE)  # what it has not, no plan may have
    if prepared.may_be_in_part and 1 > part > least:
        anywhere, reserve = prepared.anywhere, prepared.reserve
        reduced = prepare(prepared.facts, whole_market=True, anywhere=anywhere, reserve=reserve, part=part)
        return replace(reduced, lacking=considered.conflicts)
    return conclude(prepared, considered)
