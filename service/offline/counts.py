"""How many requests an application comes to, and whether what is read side by side is there as often.

Flow: translate.py makes the application -> check_counts (here) -> check_context. Counts are None where chance
decides: every output of chains of drawn lengths, or a share of the outputs.
"""

from collections.abc import Iterator
from typing import Final

from sutler.service.documents.errors import DocumentError
from sutler.service.errors import FieldProblem, short_repr
from sutler.solver.offline.application import Application, Drawn, Edge, Node, Recorded

MOST_REQUESTS: Final = 2_000_000  # chosen: bounds the memory and time of drawing and simulating an application


def check_counts(application: Application) -> None:
    """Raises DocumentError where sources that are concatenated do not match one by one, or where there would be more
    than two million requests."""
    problems = [*_unequal(application)]
    if not problems:
        problems = [*_too_many(application)]
    if problems:
        raise DocumentError(problems)


def item_counts(application: Application) -> dict[str, int | None]:
    """Items of each model, sources before targets: a chain is one item, any other request too."""
    counts: dict[str, int | None] = {}
    for position in application.order:
        node = application.nodes[position]
        separate = [_handed(application, edge, counts) for edge in _of_kind(application, node, "separate")]
        side_by_side = [
            None if count is None else count * _copies(application, node)
            for _, count in _side_by_side(application, position, counts)
        ]
        counts[node.name] = _sum([*separate, *side_by_side[:1]])
    return counts


def _unequal(application: Application) -> Iterator[FieldProblem]:
    counts = item_counts(application)
    for position, node in enumerate(application.nodes):
        for edge in _of_kind(application, node, "concatenate"):
            if edge.copies != _copies(application, node):
                remedy = f"is read side by side with others of {_copies(application, node)}: make them equal"
                yield FieldProblem(f"edges[{application.edges.index(edge)}].copies", str(edge.copies), remedy)
        parts = _side_by_side(application, position, counts)
        if len(parts) < 2:
            continue
        if any(count is None for _, count in parts):
            yield from _unknown(application, position, counts)
            continue
        (first, wanted), *others = parts
        for field, count in others:
            if count != wanted:
                remedy = f"hands on so many outputs to be read side by side with {wanted} of {first}: make them equal"
                yield FieldProblem(field, str(count), remedy)


def _unknown(application: Application, position: int, counts: dict[str, int | None]) -> Iterator[FieldProblem]:
    for edge in _of_kind(application, application.nodes[position], "concatenate"):
        at = f"edges[{application.edges.index(edge)}]"
        remedy = "is read side by side with others, one by one, and so must be known"
        if edge.share_fraction < 1:
            yield FieldProblem(f"{at}.share_fraction", f"{edge.share_fraction:g}", f"a share {remedy}: hand on all")
        elif edge.outputs == "every" and application.has_chains(edge.source):
            yield FieldProblem(f"{at}.outputs", "'every'", f"the number of a chain's outputs {remedy}: use last")
        elif counts[edge.source] is None:
            shown = short_repr(edge.source)
            yield FieldProblem(f"{at}.from", shown, f"does a number of requests that is chance, which {remedy}")


def _too_many(application: Application) -> Iterator[FieldProblem]:
    """Names the first model with too many requests, by mean lengths of chains, shares counted."""
    expected: dict[str, float] = {}
    for position in application.order:
        node = application.nodes[position]
        own = _own(node) or 0
        handed = {
            edge: expected[edge.source] * edge.copies * edge.share_fraction * _outputs_per_item(application, edge)
            for edge in application.sources(node.name)
        }
        separate = sum(count for edge, count in handed.items() if edge.fan_in == "separate")
        side_by_side = max([own, *(count for edge, count in handed.items() if edge.fan_in == "concatenate")])
        expected[node.name] = separate + side_by_side
        requests = separate + side_by_side * _chain_mean(node)
        if requests > MOST_REQUESTS:
            remedy = f"comes to so many requests, more than {MOST_REQUESTS:,}: lower counts, chains or copies"
            yield FieldProblem(f"models[{position}]", f"{requests:,.0f}", remedy)
            return


def _side_by_side(
    application: Application, position: int, counts: dict[str, int | None]
) -> list[tuple[str, int | None]]:
    """What one request of the model is put together from: (field, how many there are before they are copied)."""
    node = application.nodes[position]
    own = _own(node)
    parts: list[tuple[str, int | None]] = [] if own is None else [(f"models[{position}].requests", own)]
    parts.extend(
        (f"edges[{application.edges.index(edge)}]", _outputs(application, edge, counts))
        for edge in _of_kind(application, node, "concatenate")
    )
    return parts


def _handed(application: Application, edge: Edge, counts: dict[str, int | None]) -> int | None:
    outputs = _outputs(application, edge, counts)
    return None if outputs is None else outputs * edge.copies


def _outputs(application: Application, edge: Edge, counts: dict[str, int | None]) -> int | None:
    is_chance = edge.share_fraction < 1 or (edge.outputs == "every" and application.has_chains(edge.source))
    return None if is_chance else counts[edge.source]


def _copies(application: Application, node: Node) -> int:
    """How often each request that is put together is made."""
    return next((edge.copies for edge in _of_kind(application, node, "concatenate")), 1)


def _of_kind(application: Application, node: Node, fan_in: str) -> list[Edge]:
    return [edge for edge in application.sources(node.name) if edge.fan_in == fan_in]


def _own(node: Node) -> int | None:
    match node.requests:
        case Drawn():
            return node.requests.items
        case Recorded():
            return len(node.requests.input_tokens)
        case _:
            return None


def _outputs_per_item(application: Application, edge: Edge) -> float:
    source = next(node for node in application.nodes if node.name == edge.source)
    return _chain_mean(source) if edge.outputs == "every" else 1.0


def _chain_mean(node: Node) -> float:
    chain = node.requests.chain_length if isinstance(node.requests, Drawn) else None
    return 1.0 if chain is None else chain.mean


def _sum(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None
