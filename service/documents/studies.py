"""What a service is asked besides plans: what-ifs, comparisons, simulations. Each names what it is about in one way.

Where that is a deployment or a stored plan, what it stood for is put into the question when it is asked.
"""

from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import BeforeValidator, Field, model_validator

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.fields import Document, Name, Seconds, reject
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import of_json
from sutler.service.errors import FieldProblem

MOST_VARIANTS = 100
Path = Annotated[str, Field(min_length=1, max_length=1000)]
Variant = dict[Path, Any]


class AboutDocument(Document):
    """What a question is about: exactly one of these."""

    deployment: Name | None = None
    """The deployment of this name, as it stands."""
    plan_id: Annotated[UUID, Field(strict=False)] | None = None
    """This plan of `/v1/plans`."""

    @model_validator(mode="after")
    def _check_one(self) -> Self:
        names = [name for name in ("problem", "plan", "deployment", "plan_id") if name in type(self).model_fields]
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            field = given[1] if given else names[0]
            remedy = "stands beside another one" if given else "is missing"
            reject([FieldProblem(field, None, f"{remedy}: give exactly one of {', '.join(names)}")])
        return self


class OfProblemDocument(AboutDocument):
    """A question about a problem."""

    problem: ProblemDocument | None = None
    """The problem itself."""


class WhatIfQuestion(OfProblemDocument):
    """Plan a problem as it is and with some things changed."""

    variants: Annotated[tuple[Variant, ...], Field(strict=False, min_length=1, max_length=MOST_VARIANTS)]
    """New values by path for each variant, as `{"budget_usd_per_hour": 20}` or `{"models.*.precision": "fp8"}`; null:
    as if nothing stood there."""


class SweepDocument(Document):
    """Compare at other budgets too, or loads where the load is given."""

    points: Annotated[int, Field(ge=2, le=50)] = 6
    """How many of them."""
    first: Annotated[float, Field(gt=0, le=1e7)] | None = None
    """Least budget, USD per hour, or load, requests/s; null: half of the problem's."""
    last: Annotated[float, Field(gt=0, le=1e7)] | None = None
    """Largest one; null: the double."""


class ComparisonQuestion(OfProblemDocument):
    """Plan a problem with other strategies as well."""

    only: Annotated[tuple[Name, ...], Field(strict=False, max_length=100)] = ()
    """Strategies, families or patterns such as `homogeneous/*`; empty: all."""
    sweep: SweepDocument | None = None
    """Other budgets or loads; null: none."""


class RequestsDocument(Document):
    """Recorded requests, as columns of the same length."""

    arrival_s: Annotated[tuple[Annotated[float, Field(ge=0, le=1e9)], ...], Field(strict=False, min_length=1)]
    """Seconds from any beginning, in any order."""
    input_tokens: Annotated[tuple[Annotated[int, Field(ge=1, le=10**7)], ...], Field(strict=False, min_length=1)]
    """Tokens of each prompt."""
    output_tokens: Annotated[tuple[Annotated[int, Field(ge=1, le=10**7)], ...], Field(strict=False, min_length=1)]
    """Tokens of each answer."""

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        lengths = {len(self.arrival_s), len(self.input_tokens), len(self.output_tokens)}
        if len(lengths) > 1:
            reject([FieldProblem("arrival_s", str(len(self.arrival_s)), "all three columns need the same length")])
        return self


def _written(plan: object) -> object:
    """What sutler wrote as JSON, whose arrays strict checks of Python's values would refuse as tuples."""
    if not isinstance(plan, dict):
        return plan
    try:
        return of_json(PlanDocument, plan)
    except DocumentError as error:
        reject(list(error.problems))
        raise AssertionError from None


class SimulationQuestion(AboutDocument):
    """Send requests through a plan one by one."""

    plan: Annotated[PlanDocument, BeforeValidator(_written, json_schema_input_type=PlanDocument)] | None = None
    """The plan itself."""
    traces: Annotated[dict[Name, RequestsDocument], Field(max_length=1000)] = Field(default={})
    """Recorded requests by model; empty: arrivals at random at the plan's rates."""
    duration_s: Seconds = 600.0
    """Seconds of arrivals at random."""
    load_multiple: Annotated[float, Field(gt=0, le=1e6)] = 1.0
    """That many times the requests/s."""
    at_rated_load: bool = False
    """Traces faster or slower, at the plan's own rate."""
    routing: Literal["round_robin", "random", "least_loaded"] = "round_robin"
    """How a gateway divides requests by the plan's fractions."""
    roles: Literal["fixed", "mixed_pool", "opportunistic"] = "fixed"
    """When prefill and decode replicas serve whole requests: never, where a queue is long, where one is idle."""
    scheduling: Literal["chunked", "prefill_first"] = "chunked"
    """How engines put prompts into steps."""
    max_batched_tokens: Annotated[int, Field(ge=16, le=10**7)] = 2048
    """Most tokens of one step."""
    warm_up_s: Annotated[float, Field(ge=0, le=1e7)] | None = None
    """Leave out requests before this; null: the first tenth."""
    seed: Annotated[int, Field(ge=0, le=2**31 - 1)] = 0
    """Of all that is drawn at random."""
    lose: Annotated[str, Field(max_length=300)] | None = None
    """What is lost on the way: `provider=vastai@120` for all of a provider after 120 s, likewise place, machine and
    `interruptible@120`, named as in the plan's `losses`."""
    detection_s: Seconds | None = None
    """Seconds until requests are sent elsewhere; null: as the plan's `resilience` says, else 60."""


StudyQuestion = WhatIfQuestion | ComparisonQuestion | SimulationQuestion
