"""Models of the catalogue: architectures that add up to the published sizes, and the names they go by."""

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sutler.solver.catalog import (
    load_models,
    model_aliases,
    model_facts,
    resolve_model,
    with_repository,
)
from sutler.solver.catalog.entries import (
    LatentAttention,
    LinearAttention,
    MixtureOfExperts,
    ModelSpec,
    Precision,
    SparseAttention,
)
from sutler.solver.catalog.models import model_catalog
from sutler.solver.catalog.parameters import ParameterCount, count_parameters
from sutler.solver.errors import UnknownNameError

RECOUNT_TOLERANCE_FRACTION = 0.02

SPELLINGS = {
    "meta-llama/Llama-3.1-70B-Instruct": "llama-3.1-70b",
    "meta-llama/Meta-Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "meta-llama/Meta-Llama-3-70B": "llama-3-70b",
    "Llama-3.1-70B": "llama-3.1-70b",
    "llama3-70b": "llama-3-70b",
    "Llama3-8B": "llama-3-8b",
    "Llama3.1 70B": "llama-3.1-70b",
    "llama3.1:70b-instruct-q4_K_M": "llama-3.1-70b",
    "llama-v3p1-70b-instruct": "llama-3.1-70b",
    "hf:meta-llama/Llama-3.1-8B": "llama-3.1-8b",
    "https://huggingface.co/Qwen/Qwen2.5-7B-Instruct": "qwen2.5-7b",
    "RedHatAI/Meta-Llama-3.1-70B-Instruct-FP8": "llama-3.1-70b",
    "neuralmagic/Meta-Llama-3.1-70B-Instruct-quantized.w8a8": "llama-3.1-70b",
    "nvidia/Qwen3-32B-NVFP4": "qwen3-32b",
    "Qwen/Qwen3-32B-FP8": "qwen3-32b",
    "Qwen/Qwen3-32B-FP8-Static-PerTensor": "qwen3-32b",
    "Qwen/Qwen2.5-72B-Instruct-AWQ": "qwen2.5-72b",
    "Qwen/Qwen-72B-Chat": "qwen-72b",
    "Qwen/Qwen3-235B-A22B-Instruct-2507-FP8": "qwen3-235b-a22b-2507",
    "unsloth/Llama-3.2-3B-Instruct-bnb-4bit": "llama-3.2-3b",
    "deepseek-ai/DeepSeek-V3-0324": "deepseek-v3",
    "deepseek-ai/DeepSeek-R1-0528": "deepseek-r1",
    "deepseek-ai/DeepSeek-R1-Distill-Llama-70B": "llama-3.3-70b",
    "openai/gpt-oss-120b": "gpt-oss-120b",
    "llama2-70b": "llama-2-70b",
    "meta-llama/Llama-2-70b-chat-hf": "llama-2-70b",
    "codellama/CodeLlama-34b-Instruct-hf": "codellama-34b",
    "bigscience/bloom": "bloom-176b",
    "mixtral-8x7b-instruct-v0.1": "mixtral-8x7b",
    "mistralai/Mistral-7B-Instruct-v0.3": "mistral-7b",
    "mistralai/Mistral-7B-Instruct-v0.1": "mistral-7b-v0.1",
    "mistralai/Mistral-Large-Instruct-2411": "mistral-large-2",
    "google/gemma-3-27b-it": "gemma-3-27b",
    "microsoft/Phi-4": "phi-4",
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8": "llama-4-maverick",
    "Qwen/Qwen3-Coder-30B-A3B-Instruct": "qwen3-coder-30b-a3b",
    "Qwen/Qwen3-Coder-Next": "qwen3-next-80b-a3b",
    "Qwen/Qwen3.5-122B-A10B-GPTQ-Int4": "qwen3.5-122b-a10b",
    "Qwen/Qwen2.5-VL-7B-Instruct-AWQ": "qwen2.5-vl-7b",
    "deepseek-ai/DeepSeek-V3.2-Exp": "deepseek-v3.2",
    "deepseek-ai/DeepSeek-R1-0528-Qwen3-8B": "deepseek-r1-0528-qwen3-8b",
    "moonshotai/Kimi-K2-Thinking": "kimi-k2-thinking",
    "mistralai/Devstral-Small-2507": "devstral-small-24b",
    "zai-org/GLM-4.7-FP8": "glm-4.7",
}


@pytest.mark.parametrize(("spelling", "model"), SPELLINGS.items())
def test_usual_spellings_mean_one_model(spelling: str, model: str) -> None:
    assert resolve_model(spelling).id == model


@given(st.sampled_from(sorted(load_models())), st.sampled_from([str.lower, str.upper]))
def test_every_id_repository_and_alias_means_itself_in_any_case(model: str, change: object) -> None:
    assert callable(change)
    spec = load_models()[model]
    for name in (model, spec.hf_id or model, *model_aliases(model)):
        assert resolve_model(change(name)).id == model


@given(
    st.sampled_from(sorted(load_models())), st.sampled_from(["-FP8", "-AWQ", "-NVFP4", "-GGUF", "-quantized.w4a16"])
)
def test_a_quantisation_is_the_same_architecture(model: str, suffix: str) -> None:
    assert resolve_model(f"someone/{model}{suffix}").id == model


def test_no_two_models_share_a_name() -> None:
    names = [
        name.lower()
        for model, spec in load_models().items()
        for name in {model, (spec.hf_id or "").lower(), *model_aliases(model)}
    ]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    "name",
    [
        "llama-70b",
        "Llama-3-8",
        "Qwen2-72B",
        "qwen3",
        "phi-4-mini",
        "bloom-7b1",
        "deepseek-v4",
        "qwen3.5-14b",
        "mistral-small-instruct-2409",
        "Qwen3-VL-32B",
        "gpt-4o",
        "",
    ],
)
def test_another_size_or_generation_is_not_guessed(name: str) -> None:
    with pytest.raises(UnknownNameError, match="no such model") as caught:
        resolve_model(name, field="models[0].model")
    assert caught.value.field == "models[0].model"


def test_an_unknown_name_comes_with_close_matches() -> None:
    with pytest.raises(UnknownNameError, match=r"llama-3\.1-70b"):
        resolve_model("llama-3.1-71b")


@given(st.text(max_size=40))
def test_any_text_gives_a_model_or_a_named_error(name: str) -> None:
    try:
        found = resolve_model(name).id
    except UnknownNameError:
        return
    assert found in load_models()


@pytest.mark.parametrize("model", sorted(load_models()))
def test_the_architecture_adds_up_to_the_published_parameters(model: str) -> None:
    published = load_models()[model].total_params
    assert model_catalog()[model].counted.total == pytest.approx(published, rel=RECOUNT_TOLERANCE_FRACTION)


@pytest.mark.parametrize(
    ("model", "published_billions"),
    [
        ("mixtral-8x7b", 12.9),
        ("mixtral-8x22b", 39),
        ("deepseek-v3", 37),
        ("deepseek-v2", 21),
        ("kimi-k2", 32.6),
        ("qwen3-30b-a3b", 3.3),
        ("qwen3-235b-a22b", 22),
        ("qwen3-coder-480b-a35b", 35),
        ("llama-4-scout", 17),
        ("llama-4-maverick", 17),
        ("qwen3.5-122b-a10b", 10),
        ("qwen3.5-397b-a17b", 17),
    ],
)
def test_active_parameters_are_those_the_publisher_states(model: str, published_billions: float) -> None:
    assert load_models()[model].active_params / 1e9 == pytest.approx(published_billions, rel=0.03)


@pytest.mark.parametrize(
    ("model", "published_billions"),
    [
        ("qwen3-next-80b-a3b", 80),
        ("qwen3.5-27b", 27),
        ("qwen3.5-35b-a3b", 35),
        ("qwen3.5-122b-a10b", 122),
        ("qwen3.5-397b-a17b", 397),
        ("llama-4-maverick", 400),
        ("deepseek-v3.2", 671),
        ("glm-5", 744),
    ],
)
def test_hybrids_and_sparse_models_add_up_to_their_names(model: str, published_billions: float) -> None:
    assert model_catalog()[model].counted.total / 1e9 == pytest.approx(published_billions, rel=0.01)


def tiny(layers: int, kv_heads: int = 1, **others: Any) -> ParameterCount:
    """What a model of 8 wide, 2 heads of 4, feed-forward 16 and 10 words adds up to."""
    sizes = {"hidden_size": 8, "heads": 2, "head_dim": 4, "intermediate_size": 16, "vocab_size": 10}
    known: dict[str, Any] = {**sizes, "max_context_tokens": 1, "total_params": 0.0, "active_params": 0.0, **others}
    return count_parameters(ModelSpec("tiny", layers, kv_heads=kv_heads, **known))


def test_parameters_of_a_tiny_hybrid_counted_by_hand() -> None:
    # full: gated queries 8*4*3*2 and keys, values 8*4*2*1: 256; index: 8*2*3 + 8*(3+2) = 88
    # linear: channels 2*1*2 + 2*3 = 10; in 8*(10 + 6 + 4), out 8*6, convolution 10*4: 248; feed-forward 384
    count = tiny(
        3,
        kv_heads=1,
        gated_attention=True,
        linear_attention=LinearAttention(
            full_layers=1, key_heads=1, value_heads=2, key_head_dim=2, value_head_dim=3, conv_kernel_tokens=4
        ),
        sparse_attention=SparseAttention(top_tokens=4, index_heads=2, index_head_dim=3),
    )
    assert count.total == 160 + (256 + 88) + 2 * 248 + 3 * 384


def test_parameters_of_a_tiny_dense_model_counted_by_hand() -> None:
    # attention 2*8*4*(2+1) = 192, feed-forward 3*8*16 = 384, embeddings 2*10*8 = 160; 2 layers
    count = tiny(2)
    assert count.total == count.active == 160 + 2 * (192 + 384)


def test_parameters_of_a_tiny_mixture_with_latent_attention_counted_by_hand() -> None:
    # attention: query 8*2*(3+1) = 64, compressed 8*(4+1) = 40, expanded 4*2*(3+2) = 40, output 2*2*8 = 32: 176
    # dense layer 3*8*16 = 384; expert 3*8*5 = 120, shared 3*8*6 = 144, router 8*4 = 32; tied embeddings 80
    count = tiny(
        3,
        kv_heads=2,
        tied_embeddings=True,
        moe=MixtureOfExperts(
            experts=4,
            experts_per_token=1,
            expert_intermediate_size=5,
            shared_experts=1,
            shared_expert_intermediate_size=6,
            dense_layers=1,
        ),
        mla=LatentAttention(kv_lora_rank=4, q_lora_rank=None, qk_rope_head_dim=1, qk_nope_head_dim=3, v_head_dim=2),
    )
    assert count.total == 80 + 3 * 176 + 384 + 2 * (144 + 32 + 4 * 120)
    assert count.active == 80 + 3 * 176 + 384 + 2 * (144 + 32 + 1 * 120)


def test_every_figure_has_a_source_a_date_and_a_basis() -> None:
    for model, spec in load_models().items():
        facts = {fact.figure: fact for fact in model_facts(model)}
        assert facts["layers"].value == spec.layers
        assert facts["active_params"].value == spec.active_params
        assert all(fact.source.startswith("https://huggingface.co/") and fact.basis for fact in facts.values())


def test_architectures_are_consistent() -> None:
    for spec in load_models().values():
        assert spec.heads % spec.kv_heads == 0
        assert spec.active_params <= spec.total_params
        if spec.moe is not None:
            assert 0 < spec.moe.experts_per_token < spec.moe.experts
            assert spec.moe.dense_layers < spec.layers
        else:
            assert spec.active_params == spec.total_params
        if spec.linear_attention is not None:
            assert spec.linear_attention.full_layers < spec.layers
        if spec.sliding_window is not None:
            assert spec.sliding_window.global_layers < spec.layers


def test_checkpoints_are_repositories_at_precisions_that_the_model_is_served_at() -> None:
    for spec in load_models().values():
        for precision, name in spec.checkpoints:
            assert precision in spec.precisions
            assert name.count("/") == 1
            assert resolve_model(name).id == spec.id, name


@pytest.mark.parametrize(
    ("model", "native", "at", "checkpoint"),
    [
        ("qwen3-32b", None, "bf16", "Qwen/Qwen3-32B"),
        ("qwen3-32b", None, "fp8", "Qwen/Qwen3-32B-FP8"),
        ("qwen3-32b", None, "int8", None),
        ("deepseek-v3", "fp8", "fp8", "deepseek-ai/DeepSeek-V3"),
        ("deepseek-v3", "fp8", "bf16", None),
        ("kimi-k2-thinking", "int4", "int4", "moonshotai/Kimi-K2-Thinking"),
        ("gpt-oss-20b", "fp4", "fp4", "openai/gpt-oss-20b"),
        ("gpt-oss-20b", "fp4", "bf16", "unsloth/gpt-oss-20b-BF16"),
        ("minimax-m2.5", "fp8", "fp8", "MiniMaxAI/MiniMax-M2.5"),
        ("deepseek-r1-distill-llama-8b", None, "bf16", "deepseek-ai/DeepSeek-R1-Distill-Llama-8B"),
        ("deepseek-r1-distill-llama-8b", None, "fp8", None),
    ],
)
def test_weights_are_known_at_a_precision_or_not(
    model: str, native: str | None, at: Precision, checkpoint: str | None
) -> None:
    spec = resolve_model(model)
    assert (spec.native_precision, spec.checkpoint(at)) == (native, checkpoint)


@pytest.mark.parametrize(
    ("repository", "at", "checkpoint"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "fp8", "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic"),
        ("RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic", "fp8", "RedHatAI/Llama-3.3-70B-Instruct-FP8-dynamic"),
        ("me/Llama-3.3-70B-tuned", "bf16", "me/Llama-3.3-70B-tuned"),
        ("me/Llama-3.3-70B-tuned", "fp8", None),
        ("me/Llama-3.3-70B-tuned-AWQ", "int4", "me/Llama-3.3-70B-tuned-AWQ"),
        ("me/Llama-3.3-70B-tuned-AWQ", "bf16", None),
        ("me/Llama-3.3-70B-tuned-quantized.w8a8", "int8", "me/Llama-3.3-70B-tuned-quantized.w8a8"),
    ],
)
def test_a_repository_that_is_named_is_the_one_to_load(
    repository: str, at: Precision, checkpoint: str | None
) -> None:
    assert with_repository(load_models()["llama-3.3-70b"], repository).checkpoint(at) == checkpoint


def test_at_least_thirty_models_of_every_kind_are_known() -> None:
    models = load_models().values()
    assert len(models) >= 30
    assert any(spec.moe and spec.mla for spec in models)
    assert any(spec.moe and spec.sliding_window for spec in models)
    assert any(spec.moe and spec.linear_attention for spec in models)
    assert any(spec.mla and spec.sparse_attention for spec in models)


def test_loading_the_catalogue_needs_no_other_package() -> None:
    code = (
        "import sys, sutler.solver.catalog as c; c.load_gpus(); c.load_models();"
        "print([m for m in ('numpy', 'scipy', 'ortools', 'pydantic') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
