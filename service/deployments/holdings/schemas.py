"""What is rented, as callers report it. A holding is a number of machines of one offer at one price."""

from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import Field, GetJsonSchemaHandler, model_validator
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from sutler.service.documents.fields import Document, GpuName, Name, Timestamp, reject
from sutler.service.documents.market import ContractName
from sutler.service.documents.rules import repeats
from sutler.service.errors import FieldProblem, short_repr
from sutler.service.web.resource import Resource

MachineKey = tuple[str, str, str, str, int]
"""(provider, offer_id, contract, gpu, gpus): machines with the same key are interchangeable."""


class HoldingDocument(Document):
    """Machines of one offer that are rented now, at one price."""

    provider: Name
    """Who rents them out."""
    offer_id: Name
    """The provider's id of the offer that they were rented by."""
    gpu: GpuName
    """Canonical slug of the GPU, or a name under the problem's `gpus`."""
    gpus: Annotated[int, Field(ge=1, le=1024)]
    """GPUs of one machine."""
    count: Annotated[int, Field(ge=1, le=10_000)] = 1
    """Machines."""
    price_usd_per_hour: Annotated[float, Field(ge=0, le=1e7)]
    """USD per hour and machine that is paid; 0 for a machine of one's own."""
    contract: ContractName = "on_demand"
    """As in the market snapshot."""
    expires_at: Timestamp | None = None
    """When the rental ends by itself; unset: not known to end."""
    started_at: Timestamp | None = None
    """Since when it is rented."""

    @property
    def key(self) -> MachineKey:
        return (self.provider, self.offer_id, self.contract, self.gpu, self.gpus)

    @model_validator(mode="after")
    def _check_times(self) -> Self:
        if self.started_at is not None and self.expires_at is not None and self.expires_at <= self.started_at:
            shown = self.expires_at.isoformat()
            reject([FieldProblem("expires_at", shown, f"must be after started_at {self.started_at.isoformat()}")])
        return self


class HoldingsDocument(Document):
    """Everything that is rented now: `{"holdings": [...]}`, or the list alone. Nothing is rented: an empty list."""

    holdings: Annotated[tuple[HoldingDocument, ...], Field(strict=False)]
    """What is rented; what is not listed is not rented."""

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> JsonSchemaValue:
        found = super().__get_pydantic_json_schema__(core_schema, handler)
        schema = handler.resolve_ref_schema(found)
        whole = {key: schema.pop(key) for key in list(schema) if key not in ("title", "description")}
        schema["anyOf"] = [whole, whole["properties"]["holdings"]]
        return found

    @model_validator(mode="before")
    @classmethod
    def _of_a_bare_list(cls, data: Any) -> Any:
        return {"holdings": data} if isinstance(data, list) else data

    @model_validator(mode="after")
    def _check_repeated(self) -> Self:
        problems = []
        for i, earlier in repeats(
            (h.provider, h.offer_id, h.contract, h.gpus, h.price_usd_per_hour) for h in self.holdings
        ):
            remedy = f"holdings[{earlier}] has the same offer, size and price: add up their counts"
            problems.append(FieldProblem(f"holdings[{i}].offer_id", short_repr(self.holdings[i].offer_id), remedy))
        reject(problems)
        return self


class AckDocument(Document):
    """The current plan is carried out: what it rents is what is rented."""

    revision: Annotated[int, Field(ge=1, le=2**31 - 1)] | None = None
    """The plan that is carried out, which must be the current one; unset: the current one, whichever it is."""


class HoldingsResource(Resource):
    """What is rented, and how that differs from the plan that holds."""

    deployment: str
    """Name of the deployment."""
    reported: bool
    """False: nobody has said yet what is rented, and nothing is known to be lost or missing."""
    reported_at: datetime | None
    """When it was said last."""
    usd_per_hour: float
    """USD per hour of all that is rented."""
    holdings: tuple[HoldingDocument, ...]
    """What is rented."""
    revision: int | None
    """The plan that holds; null without one that serves."""
    lost: tuple[HoldingDocument, ...]
    """In the answer to a report: what the report before had and this one has not."""
    missing: tuple[HoldingDocument, ...]
    """What the plan rents and is not held, at the plan's prices."""
    unplanned: tuple[HoldingDocument, ...]
    """What is held and the plan does not rent."""
