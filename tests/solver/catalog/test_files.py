"""The catalogue's file format: whatever is missing, unknown or not positive is an error that names its place."""

import pytest

from sutler.solver.catalog import CatalogError
from sutler.solver.catalog.gpus import build_gpu_catalog
from sutler.solver.catalog.models import build_model_catalog
from sutler.solver.catalog.tables import parse_toml

GPU_FILE = """
as_of = "2026-11"
[basis]
memory_gb = "datasheet"
memory_bandwidth_gb_per_s = "datasheet"
peak_tflops_bf16_dense = "datasheet"
link_gb_per_s = "datasheet"
tdp_watts = "datasheet"
[families]
[ambiguous]
[gpus.x1]
name = "Example X1"
architecture = "Example"
family = "x1"
forms = ["pcie"]
memory_gb = 80
memory_bandwidth_gb_per_s = 2000
peak_tflops_bf16_dense = 300
link = "PCIe4"
link_gb_per_s = 32
tdp_watts = 300
source = "Example datasheet"
confidence = "A"
"""

MODEL_FILE = """
as_of = "2026-11"
source = "https://example.org/{hf_id}"
[basis]
layers = "config"
hidden_size = "config"
heads = "config"
kv_heads = "config"
head_dim = "config"
intermediate_size = "config"
vocab_size = "config"
max_context_tokens = "config"
total_params = "metadata"
active_params = "counted"
[models.tiny]
hf_id = "example/tiny"
layers = 2
hidden_size = 8
heads = 2
kv_heads = 1
head_dim = 4
intermediate_size = 16
vocab_size = 10
max_context_tokens = 128
total_params = 1312
"""


def test_the_smallest_complete_gpu_file_loads() -> None:
    catalog = build_gpu_catalog("x.toml", parse_toml("x.toml", GPU_FILE))
    assert catalog.gpus["x1"].gpu.memory_gb == 80
    assert {fact.source for fact in catalog.gpus["x1"].facts} == {"Example datasheet"}


def test_the_smallest_complete_model_file_loads() -> None:
    catalog = build_model_catalog(parse_toml("m.toml", MODEL_FILE))
    assert catalog["tiny"].spec.total_params == catalog["tiny"].counted.total == 1312


def test_an_entry_overrides_the_basis_and_the_date_of_the_file() -> None:
    own = GPU_FILE + 'as_of = "2025-01"\n[gpus.x1.basis]\ntdp_watts = "measured"\n'
    facts = {fact.figure: fact for fact in build_gpu_catalog("x.toml", parse_toml("x.toml", own)).gpus["x1"].facts}
    assert facts["tdp_watts"].basis == "measured"
    assert facts["memory_gb"].basis == "datasheet"
    assert facts["memory_gb"].as_of == "2025-01"


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('source = "Example datasheet"', "", "gpus.x1.source: missing"),
        ('as_of = "2026-11"', "", "as_of: missing"),
        ('as_of = "2026-11"', 'as_of = "last year"', "must be a month"),
        ('tdp_watts = "datasheet"', "", "gpus.x1.tdp_watts: no basis"),
        ("memory_gb = 80", "memory_gb = 0", "gpus.x1.memory_gb: 0"),
        ("memory_gb = 80", "memory_gb = -80", "must be a positive number"),
        ("memory_gb = 80", "memory_gb = nan", "must be a positive number"),
        ("memory_gb = 80", "memory_gb = inf", "must be a positive number"),
        ("memory_gb = 80", "memory_gb = true", "must be a positive number"),
        ("memory_gb = 80", 'memory_gb = "80"', "must be a positive number"),
        ("memory_gb = 80", "", "gpus.x1.memory_gb: missing"),
        ("memory_gb = 80", "memory_gb = 80\nmemory_gib = 80", "unknown keys ['memory_gib']"),
        ("[families]", '[families]\nx = ["y1"]', "not in the file: ['y1']"),
        ("[families]", "[familes]", "families: missing"),
        ('forms = ["pcie"]', 'forms = "pcie"', "must be a list of texts"),
        ('name = "Example X1"', 'name = ""', "must be a text that is not empty"),
        ('link = "PCIe4"', "link = ", "x.toml: "),
        ('confidence = "A"', 'confidence = "A"\nsupports_bf16 = 1', "must be true or false"),
    ],
)
def test_a_defect_of_a_gpu_file_is_named(old: str, new: str, named: str) -> None:
    assert old in GPU_FILE
    with pytest.raises(CatalogError) as caught:
        build_gpu_catalog("x.toml", parse_toml("x.toml", GPU_FILE.replace(old, new, 1)))
    assert named in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ("layers = 2", "layers = 2.5", "whole number of at least 1"),
        ("layers = 2", "layers = 0", "whole number of at least 1"),
        ("layers = 2", "", "models.tiny.layers: missing"),
        ("layers = 2", "layers = 2\nlayer = 2", "unknown keys ['layer']"),
        ("total_params = 1312", "", "models.tiny.total_params: missing"),
        ("total_params = 1312", 'total_params = 1312\nprecisions = ["fp3"]', "precisions: ['fp3']"),
        ("total_params = 1312", "total_params = 1312\nmoe = {experts = 8}", "moe.experts_per_token: missing"),
        ("total_params = 1312", "total_params = 1312\nmoe = 8", "must be a table"),
        (
            "total_params = 1312",
            "total_params = 1312\nsliding_window = {window_tokens = 8, global_layers = 1, x = 1}",
            "unknown keys ['x']",
        ),
        ('vocab_size = "config"', "", "vocab_size: no basis"),
        ("total_params = 1312", 'total_params = 1312\ncheckpoints = {fp3 = "a/b"}', "checkpoints: ['fp3']"),
        ("total_params = 1312", "total_params = 1312\ncheckpoints = {fp8 = 1}", "checkpoints.fp8: 1"),
        ("total_params = 1312", "total_params = 1312\nlinear_attention = {full_layers = 1}", "key_heads: missing"),
        ("total_params = 1312", "total_params = 1312\nsparse_attention = {top_tokens = 8}", "index_heads: missing"),
    ],
)
def test_a_defect_of_a_model_file_is_named(old: str, new: str, named: str) -> None:
    assert old in MODEL_FILE
    with pytest.raises(CatalogError) as caught:
        build_model_catalog(parse_toml("m.toml", MODEL_FILE.replace(old, new, 1)))
    assert named in str(caught.value)
