"""Whether every prompt that can come about leaves its model room for an answer.

Flow: translate.py makes the application -> check_context (here). What a model reads of another is at most the longest
output that can be drawn there, or that model's max_output_tokens.
"""

from collections.abc import Iterator
from typing import Final

from sutler.service.documents.errors import DocumentError
from sutler.service.errors import FieldProblem
from sutler.solver.offline.application import Application, Drawn, Node, Recorded

LEAST_ANSWER_TOKENS: Final = 1
Part = tuple[str, int]


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
