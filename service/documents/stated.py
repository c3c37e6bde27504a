"""What users know of supply that clouds only hint at: machines that can be had, networks between machines, and how
often machines are taken away."""

from collections.abc import Iterator, Sequence
from typing import Annotated

from pydantic import Field

from sutler.adapters.base import MOST_AVAILABLE, MOST_GPUS_OF_AN_OFFER, OFFER_LIMITS
from sutler.service.documents.fields import Document, GpuName, Name, UsdPerHour
from sutler.service.documents.market import ContractName
from sutler.service.documents.rules import repeats
from sutler.service.errors import FieldProblem, short_repr


class StockDocument(Document):
    """Machines that can be had although the market does not show (all of) them: a quota, a stock word, a promise."""

    provider: Name
    """Whose machines, as the market calls it, or the cloud of a price list (`aws`)."""
    gpu: GpuName
    """Their GPU."""
    region: Name | None = None
    """Where, as the provider says it; `us` holds for us-east-1, too. Unset: wherever the filter allows."""
    gpus: Annotated[int, Field(ge=1, le=MOST_GPUS_OF_AN_OFFER)]
    """GPUs of each machine."""
    machines: Annotated[int, Field(ge=1, le=MOST_AVAILABLE)]
    """How many can be had in all. What the market shows of them, and what is held, is part of it."""
    contract: ContractName = "on_demand"
    """Under which contract."""
    price_usd_per_hour: UsdPerHour | None = None
    """Of a whole machine; unset: that of the provider's offers and list prices, GPU by GPU where sizes differ."""


class NetworkDocument(Document):
    """A network between machines of one site that the provider does not tell of. What an offer states itself wins."""

    provider: Name
    """Whose machines."""
    region: Name | None = None
    """Where; `us` holds for us-east-1, too. Unset: all sites of the provider. Of several the longest region wins."""
    inter_machine_gb_per_s: Annotated[float, Field(gt=0, le=OFFER_LIMITS["inter_machine_gb_per_s"][1])]
    """10^9 bytes/s, one direction, per machine; 400 Gb/s are 50."""


class InterruptionsDocument(Document):
    """How often each machine of a kind is taken away. Of several that hold for a machine, what names its provider
    wins, then what names its GPU."""

    per_hour: Annotated[float, Field(ge=0, le=1000)]
    """Times per machine and hour; 0.042 is once a day."""
    provider: Name | None = None
    """Whose machines; unset: those of all."""
    gpu: GpuName | None = None
    """Their GPU; unset: all."""
    contract: ContractName = "interruptible"
    """Under which contract."""


def stated_rules(
    stock: Sequence[StockDocument],
    networks: Sequence[NetworkDocument],
    interruptions: Sequence[InterruptionsDocument] = (),
) -> Iterator[FieldProblem]:
    """One problem for each entry that says again, perhaps in other numbers, what an earlier one says."""
    machines = [(_place(one), one.gpu, one.gpus, one.contract) for one in stock]
    for i, earlier in repeats(machines):
        remedy = f"stock[{earlier}] states the same machines: say in one entry how many there are in all"
        yield FieldProblem(f"stock[{i}]", short_repr(f"{stock[i].provider} {stock[i].gpu}"), remedy)
    for i, earlier in repeats(map(_place, networks)):
        remedy = f"networks[{earlier}] is of the same machines: keep one of the two"
        yield FieldProblem(f"networks[{i}]", short_repr(networks[i].provider), remedy)
    kinds = [(one.provider and one.provider.lower(), one.gpu, one.contract) for one in interruptions]
    for i, earlier in repeats(kinds):
        remedy = f"interruptions[{earlier}] is of the same machines: keep one of the two"
        yield FieldProblem(f"interruptions[{i}]", f"{interruptions[i].per_hour:g}", remedy)


def _place(one: StockDocument | NetworkDocument) -> tuple[str, str | None]:
    return one.provider.lower(), one.region and one.region.lower()
