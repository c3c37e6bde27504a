"""SamuLLM's applications (Fang et al., §5) as the planner's inputs: ensembling, routing, chain summary, the mix.

Flow: lengths.py, models.py -> applications.py -> settings.py (the grid) -> run.py.

What the paper gives is taken from it: models, counts of requests, limits, the ends and means of prompts. The output
lengths are ours: the paper draws them from measured distributions of each model (10,000 open requests, §4.1), which
it does not print. We assume a lognormal per model:

- ensembling: means of 180 to 300 tokens without a limit, a standard deviation of the logarithm of 0.8. MixInstruct's
  own answers have a mean of 180 and a maximum of 490 (§5.1); chat models left alone write longer.
- routing, unknown: means of 250 to 300 tokens; known: 3 to 1,585 tokens with a mean of 199, as ROUTERBENCH (§5.2).
- summaries: a mean of 400 tokens. With 2 evaluations the summarising alone takes 1,324 s on 8 GPUs (§5.3), which is
  6.6 s for each of the 201 chunks of the longest document: about 440 tokens at 15 ms.
- chains: lognormal around the median of 3 chunks with a standard deviation of the logarithm of 1; the longest
  document, one in all, has 60 chunks of 100 documents and 201 of 300 (§5.3), hence of 500 at least that.

What comes of it: chatglm3-6b with limit 512 takes 50 s for 1,000 requests on one GPU and 57 s for 10,000 on eight, in
the paper 48 and 67 s (§5.1); the summaries of 300 documents take 1,060 to 1,720 s on all GPUs, by the layout.
"""

from collections.abc import Mapping
from typing import Final

from benchmarks.offline.lengths import heavy_tailed, lognormal, spaced
from benchmarks.offline.models import spec_of
from sutler.solver.catalog import load_gpus
from sutler.solver.offline.application import Application, Drawn, Edge, LengthDistribution, Node, Recorded
from sutler.solver.offline.hardware import Hardware, one_node

GPU: Final = "a100-sxm4-80gb"
GPUS: Final = 8
ISLAND_GPUS: Final = 2

ENSEMBLING_MEAN_TOKENS: Final[Mapping[str, float]] = {
    "vicuna-13b-v1.5": 280,
    "oasst-sft-4-pythia-12b": 260,
    "alpaca-13b": 180,
    "baize-v2-13b": 240,
    "koala-13B": 290,
    "dolly-v2-12b": 220,
    "mpt-7b-chat": 250,
    "chatglm3-6b": 230,
    "stablelm-tuned-alpha-7b": 300,
}
ROUTING_REQUESTS: Final[Mapping[str, int]] = {
    "Llama-2-70b-chat": 408,
    "Mixtral-8x7B-Instruct": 1267,
    "WizardLM-13B-V1.2": 2068,
    "CodeLlama-34b-Instruct": 456,
    "Mistral-7B-Instruct-v0.2": 2657,
}
"""Table 1."""
ROUTING_MEAN_TOKENS: Final[Mapping[str, float]] = {
    "Llama-2-70b-chat": 300,
    "Mixtral-8x7B-Instruct": 270,
    "WizardLM-13B-V1.2": 290,
    "CodeLlama-34b-Instruct": 250,
    "Mistral-7B-Instruct-v0.2": 260,
}
ROUTING_LIMIT_TOKENS: Final = 4096
SUMMARY: Final = "summary"
EVALUATOR: Final = "evaluator"
CHUNK_TOKENS: Final = 2048
LONGEST_CHUNKS: Final[Mapping[int, int]] = {100: 60, 300: 201}
"""By number of documents; any other has that of the next smaller one here."""
DOCUMENTS_SEED: Final = 66
"""Draws 100, 300 and 500 documents with exactly one of the longest; seed 0 draws two of 100 and none of 500."""

_OPEN_SPREAD: Final = 0.8
_SUMMARY_MEAN_TOKENS: Final = 400.0
_SUMMARY_SPREAD: Final = 0.5
_EVALUATION_MEAN_TOKENS: Final = 300.0
_INSTRUCTION_TOKENS: Final = 100
_EVALUATION_PROMPT_TOKENS: Final = 300
_LAST_CHUNK_FRACTION: Final = 0.18
"""Of all chunks: one of the five or six that a document has on average. It is as long as happens to be left."""
_MEDIAN_CHUNKS: Final = 3
_CHUNKS_SPREAD: Final = 1.0
_SEED: Final = 8
"""Of the order of recorded prompts and answers."""


def paper_hardware() -> Hardware:
    """8 x A100 80 GB in one host, two by two on NVLink (§5)."""
    return one_node(load_gpus()[GPU], GPUS, island_gpus=ISLAND_GPUS)


def ensembling(*, requests: int, limit_tokens: int) -> Application:
    """Nine models answer the same requests (§5.1)."""
    return Application(f"ensembling, {requests} requests, limit {limit_tokens}", _ensemble(requests, limit_tokens))


def routing(*, is_known: bool) -> Application:
    """Five models, each with the requests that it answers best (§5.2); `is_known`: their outputs' lengths."""
    nodes = tuple(_routed(name, position, is_known=is_known) for position, name in enumerate(ROUTING_REQUESTS))
    return Application(f"routing, {'known' if is_known else 'unknown'} lengths", nodes)


def chain_summary(*, documents: int, limit_tokens: int, evaluations: int) -> Application:
    """Documents are summarised chunk by chunk, and each last summary is judged `evaluations` times (§5.3)."""
    title = f"chain summary, {documents} documents, limit {limit_tokens}, {evaluations} evaluations"
    return Application(title, _chain(documents, limit_tokens), _chain_edges(evaluations))


def mixed(*, documents: int, requests: int = 5000, ensembling_limit_tokens: int = 256) -> Application:
    """The chain summary with limit 900 and 4 evaluations beside the ensembling (§5.4, §5.5)."""
    title = f"mixed, {documents} documents, {requests} requests, limit {ensembling_limit_tokens}"
    nodes = (*_chain(documents, 900), *_ensemble(requests, ensembling_limit_tokens))
    return Application(title, nodes, _chain_edges(4))


def chunks_of(documents: int) -> LengthDistribution:
    """Chunks of a document."""
    longest = LONGEST_CHUNKS[max((known for known in LONGEST_CHUNKS if known <= documents), default=100)]
    return heavy_tailed(median=_MEDIAN_CHUNKS, spread=_CHUNKS_SPREAD, most=longest, top_fraction=1 / documents)


def _ensemble(requests: int, limit_tokens: int) -> tuple[Node, ...]:
    prompts = spaced(lognormal(mean=21, spread=0.6, least=5, most=127), requests, seed=_SEED)
    return tuple(
        _node(name, name, mean, requests=Recorded(prompts), limit_tokens=limit_tokens)
        for name, mean in ENSEMBLING_MEAN_TOKENS.items()
    )


def _routed(name: str, position: int, *, is_known: bool) -> Node:
    count = ROUTING_REQUESTS[name]
    prompts = spaced(lognormal(mean=310, spread=0.7, least=9, most=577), count, seed=_SEED + position)
    if not is_known:
        return _node(
            name, name, ROUTING_MEAN_TOKENS[name], requests=Recorded(prompts), limit_tokens=ROUTING_LIMIT_TOKENS
        )
    answers = lognormal(mean=199, spread=_OPEN_SPREAD, least=3, most=1585)
    recorded = Recorded(prompts, spaced(answers, count, seed=_SEED + len(ROUTING_REQUESTS) + position))
    return Node(name, spec_of(name), "fp16", "fp16", answers, recorded, max_output_tokens=ROUTING_LIMIT_TOKENS)


def _chain(documents: int, limit_tokens: int) -> tuple[Node, ...]:
    asked = Drawn(documents, _chunk_prompts(), chunks_of(documents))
    summary = _node(
        SUMMARY,
        "vicuna-13b-v1.5",
        _SUMMARY_MEAN_TOKENS,
        spread=_SUMMARY_SPREAD,
        requests=asked,
        limit_tokens=limit_tokens,
    )
    evaluator = _node(EVALUATOR, "Llama-2-70b-chat", _EVALUATION_MEAN_TOKENS, limit_tokens=limit_tokens)
    return summary, evaluator


def _chain_edges(evaluations: int) -> tuple[Edge, ...]:
    return Edge(SUMMARY, SUMMARY), Edge(SUMMARY, EVALUATOR, copies=evaluations)


def _chunk_prompts() -> LengthDistribution:
    """Whole chunks but for the last of a document, with the instructions around them."""
    parts = 8
    part_tokens = CHUNK_TOKENS // parts
    lasts = [part_tokens * part + part_tokens // 2 for part in range(parts)]
    shares = [_LAST_CHUNK_FRACTION * (part + 1) / parts for part in range(parts)]
    return LengthDistribution(
        tuple(tokens + _INSTRUCTION_TOKENS for tokens in (*lasts, CHUNK_TOKENS)), (*shares, 1.0)
    )


def _node(
    name: str,
    model: str,
    mean_tokens: float,
    *,
    limit_tokens: int,
    spread: float = _OPEN_SPREAD,
    requests: Drawn | Recorded | None = None,
) -> Node:
    """`mean_tokens`: of its answers without a limit."""
    spec = spec_of(model)
    outputs = lognormal(mean=mean_tokens, spread=spread, least=1, most=min(spec.max_context_tokens, 4096))
    prompt = LengthDistribution.always(0 if requests is not None else _EVALUATION_PROMPT_TOKENS)
    return Node(name, spec, "fp16", "fp16", outputs, requests, prompt, max_output_tokens=limit_tokens)
