"""The paper's models as specs: of the catalogue where it has the architecture, described here where it has not.

Flow: models.py -> applications.py. Sizes are those of the config.json of each model at Hugging Face (chatglm3-6b:
also mindformers.models.glm2.ChatGLM2Config; stablelm: also the tables of github.com/Stability-AI/StableLM, which give
its 7,869,358,080 parameters). The sizes of two-matrix feed-forward parts are those of the two matrices.
"""

from dataclasses import replace
from typing import Final

from sutler.solver.catalog import load_models
from sutler.solver.catalog.entries import ModelSpec
from sutler.solver.catalog.parameters import GATED_FEED_FORWARD_MATRICES, count_parameters

_UNGATED: Final = 2
_LLAMA_1_CONTEXT_TOKENS: Final = 2048


def spec_of(name: str) -> ModelSpec:
    """Finds a model by the paper's name; raises KeyError for another."""
    return _specs()[name]


def _specs() -> dict[str, ModelSpec]:
    catalogue = load_models()
    llama_2 = catalogue["llama-2-13b"]
    # LLaMA-1-13B has the shapes of Llama-2-13B (arXiv 2302.13971, table 2), and half its context.
    llama_1 = replace(llama_2, id="llama-13b", max_context_tokens=_LLAMA_1_CONTEXT_TOKENS, hf_id=None)
    pythia = _described(
        "pythia-12b", layers=36, hidden_size=5120, heads=40, intermediate_size=20480, vocab_size=50688
    )
    chatglm = _described(
        "chatglm3-6b",
        layers=28,
        hidden_size=4096,
        heads=32,
        kv_heads=2,
        intermediate_size=13696,
        matrices=GATED_FEED_FORWARD_MATRICES,
        vocab_size=65024,
        max_context_tokens=8192,
    )
    mpt = _described(
        "mpt-7b", layers=32, hidden_size=4096, heads=32, intermediate_size=16384, vocab_size=50432, is_tied=True
    )
    stablelm = _described(
        "stablelm-alpha-7b",
        layers=16,
        hidden_size=6144,
        heads=48,
        intermediate_size=24576,
        vocab_size=50432,
        max_context_tokens=4096,
    )
    return {
        "vicuna-13b-v1.5": llama_2,
        "oasst-sft-4-pythia-12b": pythia,
        "alpaca-13b": llama_1,
        "baize-v2-13b": llama_1,
        "koala-13B": llama_1,
        "dolly-v2-12b": pythia,
        "mpt-7b-chat": mpt,
        "chatglm3-6b": chatglm,
        "stablelm-tuned-alpha-7b": stablelm,
        "Llama-2-70b-chat": catalogue["llama-2-70b"],
        "Mixtral-8x7B-Instruct": catalogue["mixtral-8x7b"],
        "WizardLM-13B-V1.2": llama_2,
        "CodeLlama-34b-Instruct": catalogue["codellama-34b"],
        "Mistral-7B-Instruct-v0.2": catalogue["mistral-7b"],
    }


def _described(
    name: str,
    *,
    layers: int,
    hidden_size: int,
    heads: int,
    intermediate_size: int,
    vocab_size: int,
    kv_heads: int | None = None,
    matrices: int = _UNGATED,
    max_context_tokens: int = 2048,
    is_tied: bool = False,
) -> ModelSpec:
    """Parameters are counted; that leaves out biases and norms, below 0.1 %."""
    spec = ModelSpec(
        id=name,
        layers=layers,
        hidden_size=hidden_size,
        heads=heads,
        kv_heads=kv_heads or heads,
        head_dim=hidden_size // heads,
        intermediate_size=intermediate_size,
        vocab_size=vocab_size,
        max_context_tokens=max_context_tokens,
        total_params=0.0,
        active_params=0.0,
        tied_embeddings=is_tied,
    )
    counted = count_parameters(spec, feed_forward_matrices=matrices)
    return replace(spec, total_params=counted.total, active_params=counted.active)
