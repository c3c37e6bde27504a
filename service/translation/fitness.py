"""Whether an offer is fit to serve, by what it states: rules that newly rented machines must meet.

Flow: market_source.py asks `Fitness` of each offer that passes the filter; what is unfit for all models is left out,
what is unfit for some says so (`Offer.unfit_for`), and the plan names each rule with what it left out (from_plan.py).
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from sutler.service.documents.fitness import RULES, FitDocument, Off
from sutler.service.documents.market import OfferDocument
from sutler.solver.candidates.engines import ABILITIES
from sutler.solver.catalog.compute_capability import compute_capability
from sutler.solver.catalog.entries import Gpu, Precision
from sutler.solver.market.pools import checkpoint_gb
from sutler.solver.problem import EngineName, ServedModel

OfferKey = tuple[str, str, str]
"""(provider, offer_id, contract)."""
Amounts = tuple[float | None, float | None]
"""What an offer states of a rule's subject and the least that it must be; None: not stated, or nothing is needed."""

ENGINE_OF_OFFLINE: Final[EngineName] = "vllm"


@dataclass(frozen=True, slots=True)
class Need:
    """What runs at one precision: `weights_gb` None where its architecture is unknown."""

    model: str
    precision: Precision
    engine: EngineName
    weights_gb: float | None


ANYTHING: Final = Need("", "fp16", ENGINE_OF_OFFLINE, None)
"""For applications whose models are no part of the question yet."""


def needs_of(models: Iterable[ServedModel]) -> tuple[Need, ...]:
    """What each model needs at each of its precisions."""
    return tuple(
        Need(
            one.name,
            one.precision,
            one.engine,
            None if one.spec is None else checkpoint_gb(one.spec, one.precision),
        )
        for model in models
        for one in model.at_each_precision
    )


@dataclass(slots=True)
class RuleOutcome:
    """What one rule did: offers that it left out, for all models or for some, and how many did not state enough."""

    rule: str
    at_least: str
    left_out: list[OfferDocument] = field(default_factory=list)
    left_out_for_some: int = 0
    not_stated: int = 0


@dataclass(frozen=True, slots=True)
class Fitness:
    """The rules of a problem, for its models, at an instant.

    `known`: offers that count as fit whatever they state, because a plan that stands rents them already.
    """

    rules: FitDocument
    needs: Sequence[Need]
    gpus: Mapping[str, Gpu]
    now: datetime
    known: Collection[OfferKey] = ()
    outcomes: dict[str, RuleOutcome] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for rule in RULES:
            if getattr(self.rules, rule) != "off":
                self.outcomes[rule] = RuleOutcome(rule, self._words(rule))

    def unmet(self, offer: OfferDocument) -> tuple[str | None, frozenset[tuple[str, Precision]]]:
        """The first rule that leaves the offer out for all models, or None and those that it is unfit for."""
        if offer.key in self.known:
            return None, frozenset()
        unfit_for: set[tuple[str, Precision]] = set()
        for rule, outcome in self.outcomes.items():
            amounts_of, not_stated, fails = _AMOUNTS[rule], False, False
            for need in self.needs:
                stated, least = amounts_of(self, offer, need)
                if least is None:
                    continue
                if stated is None:
                    not_stated = True
                elif stated < least * (1 - 1e-9):
                    fails = True
                    unfit_for.add((need.model, need.precision))
            outcome.not_stated += not_stated
            if len(unfit_for) == len(self.needs):
                outcome.left_out.append(offer)
                return rule, frozenset()
            outcome.left_out_for_some += fails
        return None, frozenset(unfit_for)

    def _words(self, rule: str) -> str:
        """What the rule asks for; of what the engine decides, each value that one of the models needs."""
        least = getattr(self.rules, rule)
        if rule == "verified":
            return "yes"
        if least == "auto":
            nothing = OfferDocument.model_construct(cuda_max=None, compute_capability=None, gpu="")
            needed = {_AMOUNTS[rule](self, nothing, need)[1] for need in self.needs}
            return " or ".join(f"{value:g}" for value in sorted(value for value in needed if value)) or "nothing"
        return f"{least:g} × weights" if rule == "min_ram_per_weights" else f"{least:g}"

    def _cuda(self, offer: OfferDocument, need: Need) -> Amounts:
        return offer.cuda_max, _chosen(self.rules.min_cuda, ABILITIES[need.engine].least_cuda)

    def _compute_capability(self, offer: OfferDocument, need: Need) -> Amounts:
        gpu = self.gpus.get(offer.gpu)
        stated = offer.compute_capability
        if stated is None and gpu is not None:
            stated = compute_capability(gpu)
        needed = ABILITIES[need.engine].compute_capability_at(need.precision)
        return stated, _chosen(self.rules.min_compute_capability, needed)

    def _ram(self, offer: OfferDocument, need: Need) -> Amounts:
        gpu, factor = self.gpus.get(offer.gpu), self.rules.min_ram_per_weights
        if need.weights_gb is None or factor == "off":
            return offer.ram_gb, None
        held_gb = float("inf") if gpu is None else gpu.memory_gb * offer.gpus
        return offer.ram_gb, factor * min(need.weights_gb, held_gb)

    def _lifetime(self, offer: OfferDocument, _: Need) -> Amounts:
        left = None if offer.listed_until is None else (offer.listed_until - self.now).total_seconds()
        return left, _number(self.rules.min_lifetime_s)

    def _verified(self, offer: OfferDocument, _: Need) -> Amounts:
        return None if offer.is_verified is None else float(offer.is_verified), 1.0


_AMOUNTS: Final[Mapping[str, Callable[[Fitness, OfferDocument, Need], Amounts]]] = {
    "min_open_ports": lambda fit, offer, _: (offer.open_ports, _number(fit.rules.min_open_ports)),
    "min_cuda": Fitness._cuda,
    "min_compute_capability": Fitness._compute_capability,
    "min_ram_per_weights": Fitness._ram,
    "min_cpu_cores_per_gpu": lambda fit, offer, _: (
        None if offer.cpu_cores is None else offer.cpu_cores / offer.gpus,
        _number(fit.rules.min_cpu_cores_per_gpu),
    ),
    "min_download_gb_per_s": lambda fit, offer, _: (
        offer.inet_down_gb_per_s,
        _number(fit.rules.min_download_gb_per_s),
    ),
    "min_lifetime_s": Fitness._lifetime,
    "verified": Fitness._verified,
}


def _number(least: float | Off) -> float | None:
    return None if least == "off" else least


def _chosen(least: float | str, of_engine: float | None) -> float | None:
    """The rule's own value, or the engine's where it is left to that."""
    return of_engine if least == "auto" else least if isinstance(least, float) else None
