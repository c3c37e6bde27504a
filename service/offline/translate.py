"""From a checked application document to the solver's application, hardware and options.

Flow: files.py has put the content of files in place -> translate, to_application, to_options (here) ->
solver/offline. Names are looked up in the catalogue and in the caller's own `gpus`. The way back is in plan_issue.py.

Every prompt that can come about has to leave its model room for an answer (check_context). What a model reads of
another is at most the longest output that can be drawn there, or that model's max_output_tokens.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sutler.service.documents.errors import DocumentError
from sutler.service.errors import FieldProblem
from sutler.service.offline.application_schema import ApplicationDocument, NodeDocument
from sutler.service.offline.counts import check_counts
from sutler.service.offline.files import inlined
from sutler.service.offline.hardware_schema import HardwareDocument, LoadingDocument
from sutler.service.offline.lengths import solver_lengths
from sutler.service.offline.requests_schema import DrawnRequests, RecordedRequests, RequestsDocument
from sutler.service.translation.given_models import given_spec
from sutler.service.translation.gpu_choice import NEEDED_FOR_ESTIMATES
from sutler.service.translation.market_source import path_refused
from sutler.solver.catalog import load_gpus, resolve_gpu
from sutler.solver.catalog.entries import Gpu, ModelSpec, usual_kv_precision
from sutler.solver.offline.application import Application, Drawn, Edge, LengthDistribution, Node, Recorded
from sutler.solver.offline.hardware import PCIE4_GB_PER_S, Hardware, Island, Loading
from sutler.solver.offline.machine_sets import BillingTerms
from sutler.solver.offline.plan import OfflineOptions

HOST: Final = 0
LEAST_ANSWER_TOKENS: Final = 1
Part = tuple[str, int]


@dataclass(frozen=True, slots=True)
class OfflineTranslation:
    """An application ready to plan. `document` stands by itself, without paths; `hardware` is None where it is to be
    rented; `notes` say how the input was read."""

    document: ApplicationDocument
    application: Application
    hardware: Hardware | None
    options: OfflineOptions
    notes: tuple[str, ...] = ()


def translate(document: ApplicationDocument, *, folder: Path | None) -> OfflineTranslation:
    """What the solver plans; paths are relative to `folder` (None: paths are refused).

    Raises DocumentError, InvalidProblemError and UnknownNameError for fields that are wrong.
    """
    notes: list[str] = []
    complete = inlined(document, folder=folder)
    application = to_application(complete, notes=notes)
    hardware = _hardware(complete, notes)
    return OfflineTranslation(complete, application, hardware, to_options(complete), tuple(notes))


def to_application(
    document: ApplicationDocument, *, notes: list[str] | None = None, specs: Mapping[str, ModelSpec] | None = None
) -> Application:
    """The models and edges of a document without paths; `specs` by name win over the catalogue.

    Raises DocumentError, InvalidProblemError and UnknownNameError for fields that are wrong.
    """
    found, known = [] if notes is None else notes, specs or {}
    nodes = tuple(_node(f"models[{i}]", model, known, found) for i, model in enumerate(document.models))
    application = Application(document.name, nodes, tuple(Edge(**edge.model_dump()) for edge in document.edges))
    check_counts(application)
    check_context(application)
    return application


def to_loading(given: LoadingDocument) -> Loading:
    """The solver's loading times."""
    table: dict[tuple[str, int], float] = {(row.model, row.tensor_parallel): row.seconds for row in given.table}
    return Loading(given.engine_start_s, given.read_gb_per_s, given.download_gb_per_s, table)


def to_rental_terms(document: ApplicationDocument) -> BillingTerms:
    """The solver's terms of renting."""
    return BillingTerms(**document.rental.model_dump(exclude={"loading"}))


def to_options(document: ApplicationDocument) -> OfflineOptions:
    """The solver's options."""
    search = document.search
    same = search.model_dump(exclude={"keep_replicas", "tensor_parallel"})
    sizes = tuple(sorted(search.tensor_parallel))
    return OfflineOptions(keeps_replicas=search.keep_replicas, tensor_parallel=sizes, **same)


def _hardware(document: ApplicationDocument, notes: list[str]) -> Hardware | None:
    """The GPUs at hand; None where they are to be rented.

    Raises DocumentError and UnknownNameError for GPUs that are unknown or lack figures.
    """
    given = document.hardware
    if given is None:
        return None
    gpu = _gpu(document, given.gpu, notes)
    link_gb_per_s = gpu.link_gb_per_s or PCIE4_GB_PER_S
    inside = given.island_gb_per_s or link_gb_per_s
    islands = tuple(Island(HOST, numbers, inside) for numbers in _islands(given))
    usual_across = min(link_gb_per_s, PCIE4_GB_PER_S)
    across = usual_across if given.across_gb_per_s is None else given.across_gb_per_s
    return Hardware(gpu, islands, across, to_loading(given.loading))


def _node(at: str, model: NodeDocument, specs: Mapping[str, ModelSpec], notes: list[str]) -> Node:
    spec = specs.get(model.name) or given_spec(f"{at}.model", model.name, model.model, None, notes)
    if model.precision not in spec.precisions:
        remedy = f"{spec.id} is served as {', '.join(spec.precisions)}"
        raise DocumentError.of(f"{at}.precision", remedy, value=model.precision)
    return Node(
        name=model.name,
        spec=spec,
        precision=model.precision,
        kv_precision=model.kv_precision or usual_kv_precision(spec, model.precision),
        output_tokens=_answers(at, model),
        requests=_requests(f"{at}.requests", model.requests),
        prompt_tokens=solver_lengths(model.prompt_tokens, field=f"{at}.prompt_tokens", least=0),
        max_output_tokens=model.max_output_tokens,
        weights_gb=model.weights_gb,
    )


def _answers(at: str, model: NodeDocument) -> LengthDistribution:
    field = f"{at}.output_tokens"
    if model.output_tokens is not None:
        return solver_lengths(model.output_tokens, field=field, least=1)
    if isinstance(model.requests, RecordedRequests) and model.requests.recorded.output_tokens is not None:
        return LengthDistribution.of_sample(model.requests.recorded.output_tokens)
    raise DocumentError.of(field, "is missing: say how long its answers are")


def _requests(at: str, given: RequestsDocument | None) -> Drawn | Recorded | None:
    if given is None:
        return None
    if isinstance(given, RecordedRequests):
        return Recorded(given.recorded.input_tokens, given.recorded.output_tokens)
    if isinstance(given, DrawnRequests):
        chain = given.chain_length
        return Drawn(
            given.count,
            solver_lengths(given.input_tokens, field=f"{at}.input_tokens", least=1),
            None if chain is None else solver_lengths(chain, field=f"{at}.chain_length", least=1),
        )
    raise path_refused(f"{at}.trace.file", given.trace.file)


def _gpu(document: ApplicationDocument, name: str, notes: list[str]) -> Gpu:
    if name in document.gpus:
        gpu = Gpu(slug=name, **document.gpus[name].model_dump())
        lacking = [figure for figure in NEEDED_FOR_ESTIMATES if getattr(gpu, figure) is None]
        if lacking:
            remedy = "is missing: estimates need it"
            raise DocumentError(FieldProblem(f"gpus.{name}.{figure}", None, remedy) for figure in lacking)
        return gpu
    found = load_gpus(document.catalog).get(name) or resolve_gpu(name, document.catalog, field="hardware.gpu")
    if found.slug != name:
        notes.append(f"hardware.gpu: {name} is planned as {found.slug} of the catalogue.")
    return found


def _islands(given: HardwareDocument) -> tuple[tuple[int, ...], ...]:
    if given.islands is not None:
        return given.islands
    gpus = given.gpus or 0
    size = given.island_gpus or gpus
    return tuple(tuple(range(start, min(start + size, gpus))) for start in range(0, gpus, size))


def check_context(application: Application) -> None:
    """Raises DocumentError for every model whose longest prompt does not fit its context window."""
    problems = [
        problem
        for position, node in enumerate(application.nodes)
        for problem in _too_long(application, f"models[{position}]", node)
    ]
    if problems:
        raise DocumentError(problems)


def longest_output(node: Node) -> int:
    """Most tokens of one answer."""
    seen = node.requests.output_tokens if isinstance(node.requests, Recorded) else None
    longest = min(max([node.output_tokens.most, *(seen or ())]), node.spec.max_context_tokens - 1)
    return longest if node.max_output_tokens is None else min(longest, node.max_output_tokens)


def _too_long(application: Application, at: str, node: Node) -> Iterator[FieldProblem]:
    room = node.spec.max_context_tokens - LEAST_ANSWER_TOKENS
    for field, parts in _prompts(application, at, node):
        longest = sum(tokens for _, tokens in parts)
        if longest > room:
            made_of = ", ".join(f"{what} up to {tokens}" for what, tokens in parts)
            remedy = (
                f"prompts of so many tokens ({made_of}) leave no room for an answer in the "
                f"{node.spec.max_context_tokens} of {node.spec.id}: {_remedy(parts)}"
            )
            yield FieldProblem(field, str(longest), remedy)
            return


def _prompts(application: Application, at: str, node: Node) -> Iterator[tuple[str, list[Part]]]:
    """The longest prompts of each kind: (the field that says most about them, what they are made of)."""
    around = [("prompt_tokens", node.prompt_tokens.most)] if node.prompt_tokens.most else []
    sources = application.sources(node.name)
    outputs = {edge: (f"an output of {edge.source}", _output_of(application, edge.source)) for edge in sources}
    own = _own(at, node)
    together = [outputs[edge] for edge in sources if edge.fan_in == "concatenate"]
    looped = [("its own output before", longest_output(node))] if application.has_chains(node.name) else []
    if own is not None or together:
        field = at if own is None else own[0]
        start = [] if own is None else [("its own prompt", own[1])]
        yield field, [*start, *(around if together else []), *together, *looped]
    for edge in sources:
        if edge.fan_in == "separate":
            yield f"edges[{application.edges.index(edge)}]", [*around, outputs[edge]]


def _own(at: str, node: Node) -> Part | None:
    match node.requests:
        case Drawn():
            return f"{at}.requests.input_tokens", node.requests.input_tokens.most
        case Recorded():
            return f"{at}.requests", max(node.requests.input_tokens)
        case _:
            return None


def _output_of(application: Application, name: str) -> int:
    return longest_output(next(node for node in application.nodes if node.name == name))


def _remedy(parts: list[Part]) -> str:
    if len(parts) == 1 and parts[0][0] == "its own prompt":
        return "leave out or cut longer ones, or use a model with a longer context"
    return "shorten them, or limit what is read with max_output_tokens of the model that writes it"
