"""Models of the catalogue: architectures that add up to the published sizes, and the names they go by."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from solver.catalog import count_parameters, load_models, model_aliases, model_facts, resolve_model
from solver.catalog.entries import LatentAttention, MixtureOfExperts
from solver.catalog.models import model_catalog
from solver.errors import UnknownNameError

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
}


@pytest.mark.parametrize(("spelling", "model"), SPELLINGS.items())
def test_usual_spellings_mean_one_model(spelling: str, model: str) -> None:
    assert resolve_model(spelling).id == model


@settings(deadline=None)
@given(st.sampled_from(sorted(load_models())), st.sampled_from([str.lower, str.upper]))
def test_every_id_repository_and_alias_means_itself_in_any_case(model: str, change: object) -> None:
    assert callable(change)
    spec = load_models()[model]
    for name in (model, spec.hf_id or model, *model_aliases(model)):
        assert resolve_model(change(name)).id == model


@settings(deadline=None)
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
        "deepseek-v3.2",
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


@settings(deadline=None)
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
    assert model_catalog().counted[model].total == pytest.approx(published, rel=RECOUNT_TOLERANCE_FRACTION)


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
    ],
)
def test_active_parameters_are_those_the_publisher_states(model: str, published_billions: float) -> None:
    assert load_models()[model].active_params / 1e9 == pytest.approx(published_billions, rel=0.03)


def test_parameters_of_a_tiny_dense_model_counted_by_hand() -> None:
    # attention 2*8*4*(2+1) = 192, feed-forward 3*8*16 = 384, embeddings 2*10*8 = 160; 2 layers
    count = count_parameters(
        layers=2, hidden_size=8, heads=2, kv_heads=1, head_dim=4, intermediate_size=16, vocab_size=10
    )
    assert count.total == count.active == 160 + 2 * (192 + 384)


def test_parameters_of_a_tiny_mixture_with_latent_attention_counted_by_hand() -> None:
    # attention: query 8*2*(3+1) = 64, compressed 8*(4+1) = 40, expanded 4*2*(3+2) = 40, output 2*2*8 = 32: 176
    # dense layer 3*8*16 = 384; expert 3*8*5 = 120, shared 3*8*6 = 144, router 8*4 = 32; tied embeddings 80
    count = count_parameters(
        layers=3,
        hidden_size=8,
        heads=2,
        kv_heads=2,
        head_dim=4,
        intermediate_size=16,
        vocab_size=10,
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
        if spec.sliding_window is not None:
            assert spec.sliding_window.global_layers < spec.layers


def test_at_least_thirty_models_of_every_kind_are_known() -> None:
    models = load_models().values()
    assert len(models) >= 30
    assert any(spec.moe and spec.mla for spec in models)
    assert any(spec.moe and spec.sliding_window for spec in models)


def test_loading_the_catalogue_needs_no_other_package() -> None:
    code = (
        "import sys, solver.catalog as c; c.load_gpus(); c.load_models();"
        "print([m for m in ('numpy', 'scipy', 'ortools', 'pydantic') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
