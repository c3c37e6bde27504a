"""What other deployments have taken of the market, and the market without it. Pure.

A deployment takes what its current plan rents and it does not hold yet, and what it has come to hold since its cloud
was polled last. Nothing of this is stored: it follows from plans and reports of holdings.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Final
from uuid import UUID

from sutler.service.deployments.schemas import PolicyDocument, SharedBudgetDocument
from sutler.service.documents.market import OfferDocument
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.settings import DEFAULT_PROJECT
from sutler.service.translation.stored_market import MarketStore, StoredMarket

ROUNDING: Final = 1e-6  # relative
USUAL: Final = PolicyDocument()
LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)

OfferKey = tuple[str, str, str]
"""(provider, offer_id, contract)."""


@dataclass(frozen=True, slots=True)
class Claim:
    """Machines of one offer that a deployment has or is about to rent.

    `held_since`: it has come to hold them then, so a market that was seen later shows no more of them; None: its plan
    rents them, and is to be carried out by `until`: afterwards who wants them may have them. `issued_at`: when it was
    planned.
    """

    deployment_id: UUID
    key: OfferKey
    gpus: int
    count: int
    issued_at: datetime
    until: datetime
    held_since: datetime | None = None
    machine_id: str | None = None

    def hides(self, seen_at: datetime) -> bool:
        """Whether an offer, as it was seen then, still shows these machines although they are taken."""
        return self.held_since is None or seen_at <= self.held_since


def is_one_machine(offer: OfferDocument) -> bool:
    """Whether all of an offer is one certain machine, or part of one."""
    return offer.divisible or (offer.available == 1 and offer.machine_id is not None)


@dataclass(frozen=True, slots=True)
class Taken:
    """The claims of all other deployments that count for one."""

    claims: tuple[Claim, ...] = ()

    def less(self, market: StoredMarket) -> StoredMarket:
        """The market without what is taken: fewer machines, fewer GPUs of a machine that is rented by the GPU, and
        only such slices of a machine as its other GPUs have room for."""
        if not self.claims:
            return market
        machine_of = {offer.key: offer.machine_id for offer in market.offers}
        of_offer: dict[OfferKey, list[Claim]] = defaultdict(list)
        of_machine: dict[tuple[str, str | None], list[Claim]] = defaultdict(list)
        for claim in self.claims:
            of_offer[claim.key].append(claim)
            of_machine[claim.key[0], claim.machine_id or machine_of.get(claim.key)].append(claim)
        free = _free_gpus(market.offers)

        def left(offer: OfferDocument) -> OfferDocument:
            seen_at = offer.observed_at or market.taken_at
            same = [claim for claim in of_offer.get(offer.key, ()) if claim.hides(seen_at)]
            machine = offer.provider, offer.machine_id
            beside = [] if offer.machine_id is None else of_machine.get(machine, ())
            others = [c for c in beside if c.key != offer.key and c.hides(seen_at)]
            if not same and not others:
                return offer
            if offer.divisible:
                rest = offer.gpus - _gpus(same) - _gpus(others)
                return offer.model_copy(update={"gpus": rest} if rest > 0 else {"available": 0})
            fits = not others or offer.gpus <= free[machine] - _gpus(others)
            available = offer.available - sum(claim.count for claim in same)
            return offer.model_copy(update={"available": max(0, available) if fits else 0})

        offers = tuple(map(left, market.offers))
        taken = sum(one is not other for one, other in zip(offers, market.offers, strict=True))
        return replace(market, offers=offers, taken=taken)

    def of(self, plan: PlanDocument) -> Counter[tuple[str, ...]]:
        """How much is taken of each offer and each machine that a plan newly rents."""
        found: Counter[tuple[str, ...]] = Counter()
        wanted = {(r.provider, r.offer_id, r.contract) for r in plan.rentals if not r.held}
        machines = {(r.provider, r.machine_id) for r in plan.rentals if not r.held and r.machine_id is not None}
        for claim in self.claims:
            if claim.key in wanted:
                found[claim.key] += claim.count
            if claim.machine_id is not None and (claim.key[0], claim.machine_id) in machines:
                found[claim.key[0], claim.machine_id] += claim.gpus * claim.count
        return found


@dataclass(frozen=True, slots=True)
class SharedStore:
    """A store's market, of which others have taken something."""

    store: MarketStore
    taken: Taken

    def stored(self) -> StoredMarket:
        return self.taken.less(self.store.stored())

    def polled(self, providers: Sequence[str]) -> StoredMarket:
        return self.taken.less(self.store.polled(providers))


def _gpus(claims: Iterable[Claim]) -> int:
    return sum(claim.gpus * claim.count for claim in claims)


def _free_gpus(offers: Iterable[OfferDocument]) -> dict[tuple[str, str | None], int]:
    """GPUs of each machine that are for rent: as many as its largest offer has."""
    found: dict[tuple[str, str | None], int] = {}
    for offer in offers:
        if offer.machine_id is not None:
            key = offer.provider, offer.machine_id
            found[key] = max(offer.gpus, found.get(key, 0))
    return found


@dataclass(frozen=True, slots=True)
class Rented:
    """Machines of one offer in a plan."""

    key: OfferKey
    gpus: int
    count: int
    machine_id: str | None


@dataclass(frozen=True, slots=True)
class Tenant:
    """A deployment: what its plan rents, what it holds, and by how much that has grown of late.

    `planned_usd_per_hour` and `held_usd_per_hour` are of all machines; None: it was never said what is held.
    `lack_fraction`: of its load, what is not carried; 1: its plan serves nothing. `is_shared`: it is on the store's
    market, not on one of its own. `is_planned_anew`: another plan of it is being made.
    """

    deployment_id: UUID
    issued_at: datetime
    until: datetime
    rentals: tuple[Rented, ...]
    held: Mapping[tuple[OfferKey, int], int] = field(default_factory=dict)
    grown: Mapping[tuple[OfferKey, int], Sequence[tuple[datetime, int]]] = field(default_factory=dict)
    project: str = DEFAULT_PROJECT
    name: str = ""
    version: int = 1
    plan_id: UUID | None = None
    policy: PolicyDocument = USUAL
    created_at: datetime = LONG_AGO
    planned_usd_per_hour: float = 0.0
    held_usd_per_hour: float | None = None
    lack_fraction: float = 0.0
    is_shared: bool = True
    is_planned_anew: bool = False

    @property
    def priority(self) -> int:
        return self.policy.priority

    @property
    def standing_usd_per_hour(self) -> float:
        """What it costs if nothing is added: what is held; of the plan, where it was never said what is."""
        return self.planned_usd_per_hour if self.held_usd_per_hour is None else self.held_usd_per_hour

    @property
    def usd_per_hour(self) -> float:
        """What others have to count on: the plan, or what is held, if that is dearer."""
        return max(self.planned_usd_per_hour, self.held_usd_per_hour or 0.0)

    def wanted(self) -> tuple[Rented, ...]:
        """What its plan rents and it does not hold."""
        left, found = Counter(self.held), []
        for one in self.rentals:
            covered = min(one.count, left[one.key, one.gpus])
            left[one.key, one.gpus] -= covered
            if one.count > covered:
                found.append(replace(one, count=one.count - covered))
        return tuple(found)

    def is_open(self, now: datetime) -> bool:
        """Whether what it is to rent may still be changed for others' sake: its plan is to be carried out and not
        held yet, or it lacks something. Of one that never says what it holds, all may run once it is older than a
        plan takes to be carried out."""
        if not self.is_shared or not self.policy.automatic or self.is_planned_anew:
            return False
        is_young = now < self.created_at + timedelta(seconds=self.policy.carry_out_s)
        is_known = self.held_usd_per_hour is not None or is_young or not self.rentals
        return is_known and (self.lack_fraction > 0 or (now < self.until and bool(self.wanted())))

    def renting(self, rentals: Sequence[Rented], usd_per_hour: float) -> "Tenant":
        """With so much to be rented beside what is held."""
        held = self.held_usd_per_hour or 0.0
        return replace(
            self,
            rentals=tuple(rentals),
            held={},
            planned_usd_per_hour=held + usd_per_hour,
            held_usd_per_hour=held,
        )

    def claims(self) -> Iterable[Claim]:
        machines = {(one.key, one.gpus): one.machine_id for one in self.rentals}
        for one in self.wanted():
            yield self._claim(one.key, one.gpus, one.count, one.machine_id)
        for (key, gpus), growths in self.grown.items():
            for at, count in growths:
                yield self._claim(key, gpus, count, machines.get((key, gpus)), held_since=at)

    def _claim(
        self, key: OfferKey, gpus: int, count: int, machine_id: str | None, *, held_since: datetime | None = None
    ) -> Claim:
        return Claim(self.deployment_id, key, gpus, count, self.issued_at, self.until, held_since, machine_id)


class Tenancy(tuple[Tenant, ...]):
    """All deployments at one time; what follows from them is found once, however many look."""

    @cached_property
    def by_id(self) -> dict[UUID, Tenant]:
        return {tenant.deployment_id: tenant for tenant in self}

    @cached_property
    def claims(self) -> tuple[Claim, ...]:
        """Of all that are on the store's market."""
        return tuple(claim for tenant in self if tenant.is_shared for claim in tenant.claims())


def taken_from(tenants: Iterable[Tenant], me: UUID, now: datetime) -> Taken:
    """What the others have taken. Of a machine that two plans are to rent, the earlier plan's deployment has it."""
    tenancy = tenants if isinstance(tenants, Tenancy) else Tenancy(tenants)
    mine = tenancy.by_id.get(me)
    own = {one.key for one in mine.rentals} if mine is not None and now < mine.until else set()

    def counts(claim: Claim) -> bool:
        if claim.deployment_id == me:
            return False
        if claim.held_since is not None:
            return True
        if now >= claim.until:
            return False
        if mine is None or claim.key not in own or claim.machine_id is None:
            return True
        return (claim.issued_at, claim.deployment_id) < (mine.issued_at, me)

    return Taken(tuple(filter(counts, tenancy.claims)))


@dataclass(frozen=True, slots=True)
class Purse:
    """A shared budget as one deployment sees it: what others spend of it, and what stands of its own."""

    name: str
    usd_per_hour: float
    others_usd_per_hour: float
    standing_usd_per_hour: float

    @property
    def left_usd_per_hour(self) -> float:
        """What the others leave of it."""
        return max(0.0, self.usd_per_hour - self.others_usd_per_hour)

    @property
    def limit_usd_per_hour(self) -> float:
        """What it may cost: what the others leave, and never less than what stands."""
        return max(self.left_usd_per_hour, self.standing_usd_per_hour)

    @property
    def exceeded(self) -> str:
        """What a person has to know where all together cost more than the budget; else empty."""
        all_of_them = self.others_usd_per_hour + self.standing_usd_per_hour
        if all_of_them <= self.usd_per_hour * (1 + ROUNDING):
            return ""
        return (
            f"budget {self.name} is exceeded: {self.usd_per_hour:.2f} $/h, of which {self.standing_usd_per_hour:.2f} "
            f"stand here and {self.others_usd_per_hour:.2f} elsewhere; nothing is added, and nothing torn down"
        )

    def of(self, problem: ProblemDocument) -> ProblemDocument:
        """The problem within what may be spent."""
        budget = problem.budget_usd_per_hour
        most = self.limit_usd_per_hour * (1 + ROUNDING)
        return problem.model_copy(update={"budget_usd_per_hour": most if budget is None else min(budget, most)})

    def pays(self, plan: PlanDocument, known: "Purse | None") -> bool:
        """Whether a plan that was made when this much was `known` is still paid for."""
        was = 0.0 if known is None else known.limit_usd_per_hour
        enough = max(plan.cost_usd_per_hour or 0.0, 0.0) <= self.limit_usd_per_hour * (1 + 2 * ROUNDING)
        return enough or self.limit_usd_per_hour >= was > 0


def purse_from(
    tenants: Iterable[Tenant], me: UUID, budget: SharedBudgetDocument | None, *, project: str
) -> Purse | None:
    """The budget that a deployment shares with others of its project; None: it has none."""
    if budget is None:
        return None
    members = [
        one
        for one in tenants
        if one.policy.budget is not None and (one.project, one.policy.budget.name) == (project, budget.name)
    ]
    amounts = [one.policy.budget.usd_per_hour for one in members if one.policy.budget is not None]
    return Purse(
        budget.name,
        min([budget.usd_per_hour, *amounts]),
        sum(one.usd_per_hour for one in members if one.deployment_id != me),
        sum(one.standing_usd_per_hour for one in members if one.deployment_id == me),
    )
