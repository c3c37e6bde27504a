"""What has moved since the plan was made, and what the solver is to consider because of it, if anything. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

from sutler.service.deployments.holdings.schemas import HoldingDocument
from sutler.service.deployments.replanning.avoiding import Avoided, avoided, left_out
from sutler.service.deployments.replanning.decision import margin_usd, step_limits, switching
from sutler.service.deployments.replanning.drift import (
    URGENT,
    Drift,
    fleet_drifts,
    rates_drifts,
    timed_drifts,
    traffic_drifts,
)
from sutler.service.deployments.replanning.facts import Facts, OfferKey, key_of
from sutler.service.deployments.replanning.load import carries_load, headroom_of, part_of, seen
from sutler.service.deployments.replanning.memory import Absence, PastSearch
from sutler.service.deployments.replanning.repeats import basis_of, repeated_search, something_has_come
from sutler.service.deployments.replanning.sleeping import sleep_drifts, whole, without
from sutler.service.deployments.replanning.standing_machines import Assessed, assess, settled_offers, supply
from sutler.service.deployments.replanning.stated_machines import StatedMachines, stated_machines
from sutler.service.deployments.traffic.planned import stated_rps
from sutler.service.documents.errors import NoMarketDataError
from sutler.service.documents.problem import ProblemDocument
from sutler.service.simulation.simulated import known_deratings
from sutler.service.translation.to_plan import solver_plan
from sutler.service.translation.to_problem import Translation, to_problem
from sutler.solver.plan import Conflict, Plan
from sutler.solver.problem import Offer
from sutler.solver.replanning import Consideration, Considered, HoldingKey, kept_again, standing_of

ANEW: Final = frozenset({"age", "asked", "lost", "shared"})  # said again even where nothing better is found
MOVED: Final = frozenset({"rate", "mix", "size", "rates"}) | URGENT
ASKED: Final = Drift("asked", "a new plan was asked for, or the problem was changed", 1.0, 0.0)
# Chosen: by a fiftieth and a cent a promise must be better than one that was not kept, so that noise in prices and
# rates starts no search again. A larger margin would overlook offers that are a little better.
BETTER_PROMISE: Final = 1.02
LEAST_PROMISE_USD: Final = 0.01
SILENT: Final = "no provider has answered of late"
LONGEST_SEARCH_S: Final = 20.0  # chosen: a longer search finds more, but other deployments wait for their looks


@dataclass(frozen=True, slots=True)
class PreparedLook:
    """What a look has found before the solver is asked anything.

    `problem` is the deployment's with all of the traffic that is seen. `consideration` None: nothing has moved that
    could call for a change, or the same has been `repeated`. `is_whole`: it is on the market as it is, not on what of
    it has settled. `dark`: why nothing is for rent at all, where only what is held is considered; else empty.
    `absent`: what the next look has to know of machines that are not for rent any more. `avoided`: where machines
    were lost of late; `left_out`: how many offers do not count because of that, `anywhere`: they count all the same;
    `reserve`: what is to be survived is, as far as the problem asks for it. `part`: of the load that is considered;
    `lacking`: why not all of it. `known`: what the solver would find, where an earlier look on the same `basis` has
    made that clear.
    """

    facts: Facts
    problem: ProblemDocument
    translation: Translation
    drifts: tuple[Drift, ...]
    assessed: Assessed
    consideration: Consideration | None
    moved: bool
    is_whole: bool
    dark: str
    repeated: PastSearch | None
    absent: Mapping[str, Absence] = field(default_factory=dict)
    avoided: tuple[Avoided, ...] = ()
    left_out: int = 0
    anywhere: bool = False
    reserve: bool = True
    part: float = 1.0
    lacking: tuple[Conflict, ...] = ()
    basis: str = ""
    known: Considered | None = None

    @property
    def question(self) -> Consideration:
        """What the solver is to consider, where there is anything."""
        assert self.consideration is not None
        return self.consideration

    @property
    def whole_problem(self) -> ProblemDocument:
        """The problem with the models that sleep."""
        return whole(self.problem, self.facts)

    @property
    def may_be_in_part(self) -> bool:
        """Whether a part of the load is better than none: where a fleet carried it, not where a person asks for what
        cannot be had. A model that wakes takes nothing from those that are served."""
        facts = self.facts
        is_better = bool(facts.plan.replicas) != bool(facts.waking)
        return self.part == 1 and is_better and not (facts.is_asked or facts.is_behind)


def prepare(
    facts: Facts,
    *,
    whole_market: bool = False,
    anywhere: bool = False,
    reserve: bool = True,
    part: float = 1.0,
) -> PreparedLook:
    """What has moved, and what to consider; with `whole_market` on offers that have not settled, too; `anywhere`:
    also where machines were lost of late; without `reserve` nothing is kept for losses; `part`: of the load.

    Raises what `to_problem` raises: DocumentError, UnknownNameError, NoMarketDataError.
    """
    lead_s = facts.lead_s
    document = seen(
        without(facts.problem, facts.asleep),
        facts.traffic,
        None if facts.is_asked or facts.is_behind else facts.planned,
        # What is ordered is to last for a window: until there is something new to tell of the climb.
        climbing_to=facts.climbing_to(lead_s + facts.policy.window_s),
    )
    if facts.purse is not None:
        document = facts.purse.of(document)
    plan = solver_plan(facts.plan)
    rented = {rental.gpu for rental in plan.rentals} | {holding.gpu for holding in facts.holdings or ()}
    translation, dark = _translated(facts, part_of(document, part) if part < 1 else document, rented)
    if not reserve:
        translation = _without_reserve(translation)
    stated = stated_machines(translation.market.stock, facts.holdings or (), facts.known)
    places = avoided(facts.losses, facts.now, first_s=facts.policy.avoid_lost_s)
    shunned = set() if anywhere else _shunned(places, translation, stated)

    def assessed_with(doubtful: Collection[HoldingKey]) -> Assessed:
        return assess(
            plan,
            stated.promised(translation.problem.offers),
            holdings=_known_holdings(facts, translation),
            settled=facts.settled,
            silent_providers=[provider.provider for provider in translation.market.providers if provider.stale],
            held_before=facts.held_before,
            doubted=_unconfirmed(facts, translation),
            is_carried_out=facts.issued_at <= facts.now < facts.carried_out_at,
            stated=stated.offers,
            doubtful=doubtful,
            avoided=shunned,
            held_only=bool(facts.given_up_for),
        )

    assessed = assessed_with(())
    absent = _absences(facts, assessed, translation)
    doubtful = _doubtful(facts, assessed, absent, translation)
    assessed = assessed_with(doubtful) if doubtful else assessed
    drifts = (
        *fleet_drifts(assessed.missing, assessed.dearer),
        *traffic_drifts(
            without(facts.planned, facts.asleep),
            facts.traffic,
            facts.policy,
            climbing_to=facts.climbing_to(lead_s),
            usual=[name for name, traffic in facts.traffic.items() if traffic.trend is None],
            lead_s=lead_s,
        ),
        *(rates_drifts(facts.lesson.shifts) if facts.policy.learn_rates else ()),
        *sleep_drifts(facts),
        *timed_drifts(facts.policy, issued_at=facts.issued_at, calm_since=facts.calm_since, now=facts.now),
        *((ASKED,) if facts.is_asked else ()),
        *((Drift("shared", facts.given_up_for, 1.0, 0.0),) if facts.given_up_for else ()),
    )
    is_cooling = facts.cooling_until is not None
    moved = any(drift.kind in MOVED and (drift.is_urgent or not is_cooling) for drift in drifts)
    consideration, is_whole = None, True
    repeated = repeated_search(facts, document, assessed, drifts, places)
    if repeated is None and _is_needed(facts, drifts):
        settled_only = not (moved or whole_market or facts.is_asked or is_cooling)
        offers = () if dark else stated.for_rent(translation.problem.offers)
        offers = tuple(offer for offer in offers if key_of(offer) not in shunned)
        offers = settled_offers(offers, facts.settled, stated.offers) if settled_only else offers
        consideration = _consideration(
            facts, plan, translation, assessed, drifts, moved=moved, offers=offers, stated=stated
        )
        is_whole = bool(dark) or not settled_only or facts.settled is None
    basis = "" if consideration is None else basis_of(document, consideration)
    known = None
    if consideration is not None and facts.memory.kept is not None and facts.memory.basis == basis:
        known = kept_again(consideration, facts.memory.kept, plan)
    return PreparedLook(
        facts,
        document,
        translation,
        drifts,
        assessed,
        consideration,
        moved,
        is_whole,
        dark,
        repeated,
        absent,
        places,
        len(shunned),
        anywhere,
        reserve,
        part,
        basis=basis,
        known=known,
    )


def _without_reserve(translation: Translation) -> Translation:
    problem = translation.problem
    return replace(translation, problem=replace(problem, resilience=replace(problem.resilience, survive=())))


def _shunned(places: Sequence[Avoided], translation: Translation, stated: StatedMachines) -> set[OfferKey]:
    """Offers of places that are avoided; machines that the problem states are never."""
    offers = (offer for offer in translation.problem.offers if key_of(offer) not in stated.offers)
    return {key_of(offer) for offer in offers if left_out(offer, places)}


def _polled_at(translation: Translation) -> dict[str, datetime]:
    """When anything of each provider was seen last."""
    return {provider.provider: provider.last_seen_at for provider in translation.market.providers}


def _absences(facts: Facts, assessed: Assessed, translation: Translation) -> dict[str, Absence]:
    """What is not for rent any more, since when, and as of which poll of its provider that was first noticed."""
    polled_at, found = _polled_at(translation), {}
    for one in assessed.missing:
        if one.kind != "lost":
            key = key_text(one.key)
            first = Absence(since=facts.now, polled_at=polled_at.get(one.key[0]))
            found[key] = facts.memory.absent.get(key, first)
    return found


def _doubtful(
    facts: Facts, assessed: Assessed, absent: Mapping[str, Absence], translation: Translation
) -> set[HoldingKey]:
    """Machines that may be there although the market does not show them: where nobody has ever said what is rented,
    all; else those that have not been missing for long enough. A snapshot is as the caller says."""
    unseen = {one.key for one in assessed.missing if one.kind != "lost"}
    if facts.reported is None:
        return unseen
    if facts.settled is None:
        return set()
    polled_at = _polled_at(translation)
    return {key for key in unseen if not _is_confirmed(facts, absent[key_text(key)], polled_at.get(key[0]))}


def _is_confirmed(facts: Facts, absence: Absence, polled_at: datetime | None) -> bool:
    """Missing for as long as any change must hold, or in two polls of its provider."""
    if (facts.now - absence.since).total_seconds() >= facts.policy.settle_s:
        return True
    return absence.polled_at is not None and polled_at is not None and polled_at > absence.polled_at


def key_text(key: HoldingKey) -> str:
    """A kind of machines as memories name it."""
    return "/".join(map(str, key))


def _translated(facts: Facts, document: ProblemDocument, rented: Collection[str]) -> tuple[Translation, str]:
    """The problem on the market, and why nothing of that is for rent, where nothing is.

    The market is then taken as it was, unfit and old offers too, so that what is held can be judged.
    """

    def translated(problem: ProblemDocument, *, may_be_empty: bool = False) -> Translation:
        found = to_problem(
            problem,
            folder=None,
            now=facts.now,
            store=facts.market,
            rented_gpus=rented,
            rented_offers=_wished(facts),
            may_be_empty=may_be_empty,
        )
        names = {model.name for model in problem.models}
        derated = tuple(one for one in known_deratings(facts.plan) if one.model in names)
        objective = found.problem.objective
        if objective.count_interruptions and problem.objective.restart_s is None:
            objective = replace(objective, restart_s=facts.lead_s)
        derated = (*found.problem.derated, *derated)
        return replace(found, problem=replace(found.problem, derated=derated, objective=objective))

    past = document.market.filter.model_copy(update={"stale": "flag", "fit": "off"})
    past_document = document.model_copy(update={"market": document.market.model_copy(update={"filter": past})})
    if not document.models:  # nothing is wanted of the market
        return translated(past_document, may_be_empty=True), ""
    try:
        return translated(document), ""
    except NoMarketDataError as error:
        if not facts.holdings and not (facts.taken and facts.taken.claims):
            raise
        return translated(past_document, may_be_empty=True), SILENT if error.is_stale else error.reason


def _wished(facts: Facts) -> set[OfferKey]:
    """Offers of which the plan has more machines than are reported as held."""
    machines: Counter[OfferKey] = Counter()
    for rental in facts.plan.rentals:
        machines[rental.provider, rental.offer_id, rental.contract] += rental.count
    for holding in facts.holdings or ():
        machines[holding.provider, holding.offer_id, holding.contract] -= holding.count
    return {key for key, count in machines.items() if count > 0}


def _is_needed(facts: Facts, drifts: Iterable[Drift]) -> bool:
    """Whether the solver has to consider anything.

    Nothing is considered twice: without a drift, only what is new on the market, or under a greater load. Where
    nothing runs, something is to, unless all models sleep.
    """
    if facts.all_sleep and not facts.plan.rentals:
        return False
    return (
        any(drifts)
        or not facts.plan.replicas
        or facts.is_behind
        or facts.memory.market_version != facts.market_version
        or _has_grown(facts)
        or something_has_come(facts)
    )


def _has_grown(facts: Facts) -> bool:
    """Beyond the headroom, or beyond what the plan carries where that had none."""
    if not carries_load(facts.planned):
        return False
    most = min(1 + (headroom_of(facts.planned) or 0.0), facts.plan.load_multiple or float("inf"))
    planned = {model.name: stated_rps(model) for model in facts.planned.models}
    return any(
        traffic.state == "live" and traffic.rate_rps > planned.get(name, float("inf")) * most
        for name, traffic in facts.traffic.items()
    )


def _consideration(
    facts: Facts,
    plan: Plan,
    translation: Translation,
    assessed: Assessed,
    drifts: Iterable[Drift],
    *,
    moved: bool,
    offers: Sequence[Offer],
    stated: StatedMachines,
) -> Consideration:
    """What the solver is to consider; in the cool-down only what has to be done is.

    `offers` are those of the market as it is where something has to be done, else of what of it has settled.
    """
    problem = translation.problem
    known = {**facts.known, **stated.offers, **{key_of(offer): offer for offer in problem.offers}}
    limit_s = min(problem.options.time_limit_s, LONGEST_SEARCH_S)
    options = replace(problem.options, method="exact", alternatives=False, time_limit_s=limit_s)
    problem = replace(problem, offers=supply(assessed, offers, known=known), options=options)
    kinds = {drift.kind for drift in drifts}
    insists = moved or bool(kinds & {"age", "asked", "refinement"})
    costs = switching(facts.policy, plan, is_urgent=moved)
    if facts.given_up_for and not assessed.standing:  # what is not there yet may begin anywhere
        costs = replace(costs, weight=0.0, needed_weight=0.0)
    return Consideration(
        problem=problem,
        standing=standing_of(plan, assessed.standing),
        switching=costs,
        least_net_usd=_least_net_usd(facts, plan),
        is_issued_anyway=bool(kinds & ANEW),
        is_urgent=insists and (moved or facts.cooling_until is None or facts.is_asked),
        limits=step_limits(facts.policy, is_replacing=bool(kinds & URGENT)),
    )


def _least_net_usd(facts: Facts, plan: Plan) -> float:
    """What a change has to net: more than a search has promised in vain; in the cool-down no sum is enough."""
    if facts.cooling_until is not None:
        return float("inf")
    margin = margin_usd(facts.policy, plan.cost_usd_per_hour or 0.0)
    promised = facts.memory.most_net_usd
    return margin if promised is None else max(margin, promised * BETTER_PROMISE + LEAST_PROMISE_USD)


def _known_holdings(facts: Facts, translation: Translation) -> tuple[HoldingDocument, ...] | None:
    """The holdings without machines whose GPU the problem knows no more: these cannot be planned with."""
    if facts.holdings is None:
        return None
    return tuple(holding for holding in facts.holdings if holding.gpu in translation.problem.gpus)


def _unconfirmed(facts: Facts, translation: Translation) -> set[OfferKey]:
    """Offers that no poll has seen since the last report of holdings: of what was lost, they may be ghosts."""
    if facts.holdings_at is None:
        return set()
    return {
        offer.key
        for _, offer in translation.market.offers
        if (offer.observed_at or translation.market.taken_at) <= facts.holdings_at
    }
