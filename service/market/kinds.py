"""What is told of kinds of machines: how long they are for rent, and how often they are taken away."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from sutler.service.market.outlook import Outlook
from sutler.service.market.resources import (
    ChanceResource,
    InterruptionsPage,
    InterruptionsResource,
    OutlookPage,
    OutlookResource,
)
from sutler.service.market.selection import contract_named, gpu_slug, provider_names
from sutler.service.translation.mapping import mapped
from sutler.solver.outlook.chances import Chance, Prospect
from sutler.solver.outlook.interruptions import LearntRate
from sutler.solver.outlook.lives import HOUR_S, Slot

Kind = tuple[str, int, str, str]
"""(gpu, gpus, contract, provider)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KindFilter:
    """Kinds that are wanted, in the words of people; an empty collection wants all.

    Raises DocumentError and UnknownNameError for words that mean nothing.
    """

    gpus: Collection[str] = ()
    providers: Sequence[str] = ()
    contracts: Collection[str] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "gpus", frozenset(map(gpu_slug, self.gpus)))
        object.__setattr__(self, "providers", provider_names(self.providers))
        object.__setattr__(self, "contracts", frozenset(map(contract_named, self.contracts)))

    def wants(self, one: Slot | LearntRate) -> bool:
        """Whether it is of what is wanted; what holds for all GPUs or providers is."""
        return (
            (not self.gpus or one.gpu is None or one.gpu in self.gpus)
            and (not self.providers or one.provider is None or one.provider in self.providers)
            and (not self.contracts or one.contract in self.contracts)
        )


def outlook_page(outlook: Outlook, wanted: KindFilter, *, within_s: float, for_s: float) -> OutlookPage:
    """Every kind of offer that is wanted, by GPU, size, contract and provider.

    The figures are the mean over the machines that are for rent now; where there is none, those of a new one.
    """
    lives = outlook.prospects.estimates.lives
    there: dict[Kind, list[Slot]] = {}
    for slot in filter(wanted.wants, lives.slots):
        own = there.setdefault((slot.gpu, slot.gpus, slot.contract, slot.provider), [])
        if slot in lives.since_s:
            own.append(slot)
    items = [_of_kind(outlook, kind, there[kind], within_s=within_s, for_s=for_s) for kind in sorted(there)]
    return OutlookPage(within_s=within_s, for_s=for_s, items=items, next=None)


def interruptions_page(rates: Iterable[LearntRate], wanted: KindFilter) -> InterruptionsPage:
    """The rates that are wanted: of a contract as a whole, then of its providers and of their GPUs."""
    found = sorted(filter(wanted.wants, rates), key=lambda one: (one.contract, one.provider or "", one.gpu or ""))
    return InterruptionsPage(items=[mapped(InterruptionsResource, rate) for rate in found], next=None)


def _of_kind(
    outlook: Outlook, kind: Kind, there: Sequence[Slot], *, within_s: float, for_s: float
) -> OutlookResource:
    gpu, gpus, contract, provider = kind
    slots = there or [Slot(provider, gpu, contract, gpus, machine="")]
    soon, late = _prospects(outlook, slots, within_s), _prospects(outlook, slots, for_s)
    seen = soon[0]
    return OutlookResource(
        provider=provider,
        gpu=gpu,
        contract=contract,
        gpus=gpus,
        for_rent=len(there),
        within=_mean_chance([each.is_there for each in soon]),
        lasting=_mean_chance([each.stays for each in late]),
        expected_lifetime_s=fmean(each.expected_lifetime_h for each in soon) * HOUR_S,
        rate_per_hour=fmean(each.rate_per_hour for each in soon),
        rate_low_per_hour=fmean(each.rate_low_per_hour for each in soon),
        rate_high_per_hour=fmean(each.rate_high_per_hour for each in soon),
        machines=seen.machines,
        lives=seen.lives,
        deaths=seen.deaths,
        machine_hours=seen.machine_hours,
        cell=("contract", "gpus", *seen.cell),
    )


def _prospects(outlook: Outlook, slots: Sequence[Slot], within_s: float) -> list[Prospect]:
    at_s = outlook.at.timestamp()
    found = (outlook.prospects.of(slot, at_s=at_s, within_s=within_s) for slot in slots)
    return [prospect for prospect in found if prospect is not None]


def _mean_chance(found: Sequence[Chance]) -> ChanceResource:
    return ChanceResource(
        fraction=fmean(each.fraction for each in found),
        low_fraction=fmean(each.low_fraction for each in found),
        high_fraction=fmean(each.high_fraction for each in found),
    )
