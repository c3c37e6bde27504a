"""The problem document: what to serve, on which market, under which limits, what is best; with the rules of it.

A rule that one field can break alone is in its type (problem_parts.py); what fields break together is found here.
Each broken rule names a field, its value and a remedy.
"""

from collections.abc import Iterator, Mapping, Sequence
from math import ceil
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import Field, model_validator

from sutler.service.documents.fields import Document, GpuName, UsdPerHour, reject
from sutler.service.documents.model import GpuDocument
from sutler.service.documents.problem_parts import (
    EngineChoice,
    EngineVersion,
    LimitsDocument,
    MarketSourceDocument,
    ModelDocument,
    ObjectiveDocument,
    ResilienceDocument,
    SearchDocument,
    SolverDocument,
    ThroughputDocument,
    WorkloadDocument,
)
from sutler.service.documents.rules import either, plain, repeated
from sutler.service.errors import FieldProblem, short_repr

if TYPE_CHECKING:
    from sutler.solver.problem import Workload

NEEDS_BUDGET = ("max_throughput", "min_makespan")
LOADS = ("min_cost", "min_power")
"""The objectives whose rates are a load to carry."""


class ProblemDocument(Document):
    """A planning problem: models with their traffic, a market, a budget, and what is best."""

    objective: ObjectiveDocument
    """What is best."""
    budget_usd_per_hour: UsdPerHour | None = None
    """USD per hour; required by max_throughput and min_makespan."""
    models: Annotated[tuple[ModelDocument, ...], Field(strict=False, min_length=1, max_length=1000)]
    """What to serve."""
    market: MarketSourceDocument = MarketSourceDocument()
    """What is for rent."""
    limits: LimitsDocument = LimitsDocument()
    """What a plan must not exceed."""
    resilience: ResilienceDocument = ResilienceDocument()
    """What a plan is to survive."""
    search: SearchDocument = SearchDocument()
    """Which configurations are considered."""
    solver: SolverDocument = SolverDocument()
    """How hard to try."""
    catalog: Literal["default", "paper_table1"] = "default"
    """Which catalogue of GPUs; `paper_table1` holds the six of arXiv 2502.00722, as its Table 1 has them."""
    gpus: dict[GpuName, GpuDocument] = Field(default={})
    """GPUs of the caller's own, by name; they replace those of the catalogue."""
    throughput: ThroughputDocument = ThroughputDocument()
    """Measured rates."""
    engine: EngineChoice = "vllm"
    """What serves the models, which decides the layouts that exist: `vllm`, `sglang` and `tensorrt-llm` have one
    tensor-parallel size for all stages of a pipeline; `any-layout` stands for engines that run stages of any size on
    any GPUs, such as HexGen. Layouts with measured rates exist in any case. Its speed is what is
    estimated."""
    engine_version: EngineVersion | None = None
    """Its version, such as 0.6.3: old ones are slower, and less is known of them. Unset: a current one."""

    @model_validator(mode="after")
    def _check_rules(self) -> Self:
        reject(_broken_rules(self))
        return self


def _broken_rules(problem: ProblemDocument) -> list[FieldProblem]:
    """Lists every broken rule, in the order of the document."""
    return [
        *_objective_rules(problem),
        *_reserve_rules(problem),
        *repeated("models", [model.name for model in problem.models]),
        *(found for i, model in enumerate(problem.models) for found in _model_rules(f"models[{i}]", model)),
        *(found for i, model in enumerate(problem.models) for found in _demand_rules(f"models[{i}]", model, problem)),
        *_market_rules(problem),
        *_search_rules(problem),
        *_table_rules(problem),
    ]


def _objective_rules(problem: ProblemDocument) -> Iterator[FieldProblem]:
    kind = problem.objective.kind
    if kind in NEEDS_BUDGET and problem.budget_usd_per_hour is None:
        remedy = f"is required with {kind}: say how many USD per hour may be spent, or use min_cost"
        yield FieldProblem("budget_usd_per_hour", None, remedy)
    if problem.solver.method == "binary_search" and kind not in NEEDS_BUDGET:
        remedy = f"searches on the makespan and cannot answer {kind}: use method: exact"
        yield FieldProblem("solver.method", "'binary_search'", remedy)
    if problem.objective.robust and problem.objective.give_up_fraction:
        remedy = "stands beside robust, which plans for the low end whatever that gives up: keep one of the two"
        yield FieldProblem("objective.give_up_fraction", f"{problem.objective.give_up_fraction:g}", remedy)


def _reserve_rules(problem: ProblemDocument) -> Iterator[FieldProblem]:
    """What does not go with replicas that idle until something is lost."""
    survive = problem.resilience.survive
    yield from _named_twice("resilience.survive", survive, "loss")
    several = next(
        (
            (f"models[{i}].{name}", str(getattr(model, name)))
            for i, model in enumerate(problem.models)
            for name, usual in (("min_replicas", 1), ("min_on_demand_replicas", 0))
            if getattr(model, name) > usual
        ),
        None,
    )
    if survive:
        at, shown = "resilience.survive", ", ".join(survive)
    elif several is not None:
        at, shown = several
    else:
        return
    if survive and problem.objective.kind == "min_makespan":
        yield FieldProblem(at, shown, "is for traffic that goes on: min_makespan plans for requests that are given")
    if problem.solver.method == "binary_search":
        yield FieldProblem(at, shown, "is a question for method: exact, binary_search keeps no reserve")
    if problem.objective.give_up_fraction:
        yield FieldProblem(at, shown, "stands beside objective.give_up_fraction: keep one of the two")


def _model_rules(at: str, model: ModelDocument) -> Iterator[FieldProblem]:
    if model.workloads is None and model.trace is None:
        yield FieldProblem(f"{at}.workloads", None, "is missing: describe the traffic with workloads or with trace")
    if model.workloads is not None and model.trace is not None:
        shown = short_repr(model.trace.file)
        yield FieldProblem(f"{at}.trace", shown, "stands beside workloads: keep one of the two")
    yield from repeated(f"{at}.workloads", [workload.name for workload in model.workloads or ()])
    yield from context_rule(at, model.max_context_tokens, model.workloads or ())
    yield from _named_twice(f"{at}.precision", model.precisions, "precision")


def context_rule(
    at: str, max_context_tokens: int | None, workloads: "Sequence[WorkloadDocument | Workload]"
) -> Iterator[FieldProblem]:
    """Checks that servers accept the requests that the model at `at` is planned for."""
    if max_context_tokens is None or not workloads:
        return
    longest = max(workloads, key=lambda workload: workload.input_tokens + workload.output_tokens)
    needed = longest.input_tokens + longest.output_tokens
    if needed > max_context_tokens:
        remedy = f"is less than input and output of workload {plain(longest.name)}: give at least {ceil(needed)}"
        yield FieldProblem(f"{at}.max_context_tokens", str(max_context_tokens), remedy)


def _demand_rules(at: str, model: ModelDocument, problem: ProblemDocument) -> Iterator[FieldProblem]:
    kind = problem.objective.kind
    wanted, unwanted = ("requests", "rate_rps") if kind == "min_makespan" else ("rate_rps", "requests")
    for i, workload in enumerate(model.workloads or ()):
        given = getattr(workload, unwanted)
        if given is not None:
            remedy = f"does not go with {kind}, which counts {_MEANING[wanted]}: give {wanted} instead"
            yield FieldProblem(f"{at}.workloads[{i}].{unwanted}", f"{given:g}", remedy)
        elif getattr(workload, wanted) is None:
            remedy = f"is missing: {kind} needs {_MEANING[wanted]}"
            yield FieldProblem(f"{at}.workloads[{i}].{wanted}", None, remedy)


_MEANING = {"requests": "a number of requests", "rate_rps": "requests per second"}


def _market_rules(problem: ProblemDocument) -> Iterator[FieldProblem]:
    if problem.market.live and problem.market.offers is not None:
        yield FieldProblem("market.live", "True", "stands beside offers: keep one of the two")


def _search_rules(problem: ProblemDocument) -> Iterator[FieldProblem]:
    yield from _named_twice("search.tensor_parallel", problem.search.tensor_parallel, "size")
    yield from _named_twice("search.power_caps_fraction", problem.search.power_caps_fraction, "share")


def _named_twice(path: str, values: Sequence[object], what: str) -> Iterator[FieldProblem]:
    if len(set(values)) < len(values):
        yield FieldProblem(path, short_repr(list(values)), f"names a {what} twice")


def _table_rules(problem: ProblemDocument) -> Iterator[FieldProblem]:
    """Rows must speak of models and workloads that exist; buckets of a trace are checked once it is read."""
    table = problem.throughput.table
    for i, model in enumerate(problem.models):
        if problem.throughput.only and len(model.precisions) > 1:
            remedy = "is for estimated rates to choose from: keep one, or set throughput.only to false"
            yield FieldProblem(f"models[{i}].precision", short_repr(list(model.precisions)), remedy)
    if problem.throughput.only and not table:
        remedy = "is empty while throughput.only is true: no configuration would exist; add rows or drop `only`"
        yield FieldProblem("throughput.table", None, remedy)
    models = {model.name: model for model in problem.models}
    first: dict[object, int] = {}
    for i, row in enumerate(table):
        at = f"throughput.table[{i}]"
        yield from _row_names(at, row.model, row.rps, models)
        listed = models[row.model].precisions if row.model in models else ()
        if row.precision is not None and listed and row.precision not in listed:
            remedy = f"is not among the precisions of {plain(row.model)}: use {either(listed)}"
            yield FieldProblem(f"{at}.precision", short_repr(row.precision), remedy)
        earlier = first.setdefault((row.model, row.role, row.stages, row.precision or (listed or (None,))[0]), i)
        if earlier != i:
            remedy = f"repeats the model, role and stages of throughput.table[{earlier}]: merge the two rows"
            yield FieldProblem(f"{at}.stages", None, remedy)


def _row_names(
    at: str, name: str, rps: Mapping[str, float], models: Mapping[str, ModelDocument]
) -> Iterator[FieldProblem]:
    if name not in models:
        yield FieldProblem(f"{at}.model", short_repr(name), f"is no model of this problem: use {either(models)}")
        return
    workloads = models[name].workloads
    if workloads is None:
        return
    known = [workload.name for workload in workloads]
    for workload in rps:
        if workload not in known:
            remedy = f"is no workload of {plain(name)}: use {either(known)}"
            yield FieldProblem(f"{at}.rps", short_repr(workload), remedy)
