"""GPUs of the catalogue: figures, provenance and the names they go by."""

import csv
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sutler.solver.catalog import gpu_facts, gpu_title, load_gpus, resolve_gpu
from sutler.solver.errors import UnknownNameError

SHARED_GPUS = Path(__file__).parents[4] / "shared" / "data" / "gpus.csv"

SPELLINGS = {
    "H100": "h100-sxm",
    "h100_sxm": "h100-sxm",
    "H100-80GB": "h100-sxm",
    "NVIDIA H100 80GB HBM3": "h100-sxm",
    "h100-sxm5-80gb": "h100-sxm",
    "H100_80GB+SXM5": "h100-sxm",
    "1x H100 (80 GB SXM5)": "h100-sxm",
    "NVIDIA H100 PCIe": "h100-pcie",
    "H100-80G-PCIe-NVLink": "h100-pcie",
    "NVIDIA H100 NVL": "h100-nvl",
    "H100 94GB": "h100-nvl",
    "H200": "h200-sxm",
    "h200_sxm": "h200-sxm",
    "NVIDIA H200 NVL": "h200-nvl",
    "NVIDIA GH200 480GB": "gh200",
    "b200_sxm": "b200",
    "1x B200 SXM6 180GB": "b200",
    "NVIDIA B300 SXM6 AC": "b300",
    "B300 PC": "b300",
    "1x B300 SXM6 268GB": "b300",
    "NVIDIA GB200 NVL72": "gb200",
    "A100": "a100-sxm4-80gb",
    "a100-80gb": "a100-sxm4-80gb",
    "a100_sxm": "a100-sxm4-80gb",
    "A100-SXM4-80GB": "a100-sxm4-80gb",
    "NVIDIA A100-SXM4-40GB": "a100-sxm4-40gb",
    "NVIDIA A100 80GB PCIe": "a100-pcie-80gb",
    "a100_pcie": "a100-pcie-80gb",
    "A100X": "a100-pcie-80gb",
    "1x A100 (40 GB PCIe)": "a100-pcie-40gb",
    "A800 PCIE": "a800-pcie-80gb",
    "A10g": "a10g",
    "NVIDIA L40": "l40",
    "l40-pcie-48gb": "l40",
    "L40S": "l40s",
    "Tesla T4": "t4",
    "Tesla V100-SXM2-32GB": "v100-sxm2-32gb",
    "Tesla V100-PCIE-16GB": "v100-pcie-16gb",
    "V100 32GB": "v100-sxm2-32gb",
    "RTX PRO 6000 S": "rtx-pro-6000-server",
    "rtx_pro_6000_server": "rtx-pro-6000-server",
    "NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition": "rtx-pro-6000-maxq",
    "RTX PRO 6000": "rtx-pro-6000-ws",
    "RTX 6000Ada": "rtx-6000-ada",
    "NVIDIA RTX 6000 Ada Generation": "rtx-6000-ada",
    "1x RTX 6000 (24 GB)": "q-rtx-6000",
    "Quadro RTX 8000": "q-rtx-8000",
    "A6000": "rtx-a6000",
    "1x RTX A6000 48GB": "rtx-a6000",
    "NVIDIA  RTX A4500": "rtx-a4500",
    "rtxa4000-pcie-16gb": "rtx-a4000",
    "RTX 4090": "rtx-4090",
    "RTX_4090": "rtx-4090",
    "RTX4090": "rtx-4090",
    "4090": "rtx-4090",
    "NVIDIA GeForce RTX 4090": "rtx-4090",
    "geforcertx4090-pcie-24gb": "rtx-4090",
    "RTX 4090 D": "rtx-4090d",
    "RTX 4080S": "rtx-4080-super",
    "RTX 4070S Ti": "rtx-4070-ti-super",
    "RTX 4070 Ti SUPER": "rtx-4070-ti-super",
    "geforcertx3080ti-pcie-12gb": "rtx-3080-ti",
    "RTX 4060 Ti 16GB": "rtx-4060-ti-16gb",
    "MI300X": "mi300x",
    "AMD Instinct MI300X OAM": "mi300x",
    "InstinctMI250X": "mi250x",
}


@pytest.mark.parametrize(("spelling", "slug"), SPELLINGS.items())
def test_usual_spellings_mean_one_gpu(spelling: str, slug: str) -> None:
    assert resolve_gpu(spelling).slug == slug


@given(st.sampled_from(sorted(load_gpus())), st.sampled_from([str.lower, str.upper, str.title]))
def test_every_slug_and_full_name_means_itself_in_any_case(slug: str, change: object) -> None:
    assert callable(change)
    for name in (slug, slug.replace("-", "_"), slug.replace("-", " "), gpu_title(slug)):
        assert resolve_gpu(change(name)).slug == slug
        assert resolve_gpu(f"  {change(name)} ").slug == slug


@pytest.mark.parametrize(
    ("name", "candidates"),
    [
        ("RTX 6000", ["q-rtx-6000", "rtx-6000-ada", "rtx-pro-6000-server"]),
        ("RTX 5000", ["rtx-5000-ada", "rtx-pro-5000"]),
        ("Tesla V100", ["v100-sxm2-32gb", "v100-sxm2-16gb", "v100-pcie-16gb"]),
        ("RTX 6000 96GB", ["rtx-pro-6000-server", "rtx-pro-6000-ws"]),
    ],
)
def test_a_name_that_several_generations_share_is_an_error_with_the_candidates(
    name: str, candidates: list[str]
) -> None:
    with pytest.raises(UnknownNameError) as caught:
        resolve_gpu(name, field="offers[3].gpu")
    assert caught.value.field == "offers[3].gpu"
    assert caught.value.value == name
    assert all(candidate in caught.value.remedy for candidate in candidates)


@pytest.mark.parametrize(
    "name",
    [
        "NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb",
        "H100 MIG 1g.10gb",
        "RTX 4090 Laptop GPU",
        "RTX 3080 Max-Q",
        "RTX 4000 SFF Ada",
        "RTX 4090 48GB",
        "RTX 3080 12GB",
        "RTX 4060 Ti",
        "A800",
        "H800 PCIe",
        "A100 160GB",
        "8x H100",
        "MI300A",
        "RTX 6090",
        "unknown",
        "",
        "RTX",
    ],
)
def test_slices_laptops_modified_and_unknown_cards_do_not_pass_for_a_catalogue_gpu(name: str) -> None:
    with pytest.raises(UnknownNameError, match="catalogue"):
        resolve_gpu(name)


@given(st.text(max_size=40))
def test_any_text_gives_a_gpu_or_a_named_error(name: str) -> None:
    try:
        found = resolve_gpu(name).slug
    except UnknownNameError:
        return
    assert found in load_gpus()


def test_an_unknown_name_comes_with_close_matches() -> None:
    with pytest.raises(UnknownNameError, match="rtx-4090"):
        resolve_gpu("RTX 4099")


def test_an_unknown_catalogue_is_an_error_with_the_known_ones() -> None:
    with pytest.raises(UnknownNameError, match="paper_table1"):
        load_gpus("paper")


@pytest.mark.parametrize("catalog", ["default", "paper_table1"])
def test_every_figure_has_a_source_a_date_and_a_basis(catalog: str) -> None:
    for slug, gpu in load_gpus(catalog).items():
        facts = {fact.figure: fact for fact in gpu_facts(slug, catalog)}
        for figure in (
            "memory_gb",
            "memory_bandwidth_gb_per_s",
            "peak_tflops_bf16_dense",
            "link_gb_per_s",
            "tdp_watts",
        ):
            assert facts[figure].value == getattr(gpu, figure) > 0
        for fact in facts.values():
            assert fact.source
            assert fact.basis
            assert fact.as_of.startswith("20")


def test_peaks_at_lower_precision_follow_the_generation() -> None:
    for gpu in load_gpus().values():
        assert gpu.peak_tflops_bf16_dense is not None
        has_fp8 = gpu.architecture in {"Ada", "Hopper", "Blackwell", "CDNA3", "CDNA4"}
        assert (gpu.peak_tflops_fp8_dense is not None) == has_fp8
        if gpu.peak_tflops_fp8_dense is not None:
            assert gpu.peak_tflops_fp8_dense == pytest.approx(2 * gpu.peak_tflops_bf16_dense)
        assert (gpu.peak_tflops_fp4_dense is not None) == (gpu.architecture in {"Blackwell", "CDNA4"})
        assert gpu.supports_bf16 == (gpu.architecture not in {"Volta", "Turing"})


def test_links_are_one_direction_and_bridges_are_not_assumed() -> None:
    gpus = load_gpus()
    assert gpus["h100-sxm"].link_gb_per_s == 450
    assert gpus["h100-pcie"].link_gb_per_s == 64
    assert gpus["rtx-a6000"].link_gb_per_s == 32
    bases = {fact.figure: fact.basis for fact in gpu_facts("rtx-a6000")}
    assert "bridge" in bases["link_gb_per_s"]


def test_the_papers_table_stays_as_printed() -> None:
    gpus = load_gpus("paper_table1")
    printed = {
        "4090": (24, 1008, 83, 0.53),
        "a40": (48, 696, 150, 0.55),
        "a6000": (48, 960, 91, 0.83),
        "l40": (48, 864, 181, 0.83),
        "a100": (80, 1555, 312, 1.75),
        "h100": (80, 3350, 1979, 2.99),
    }
    prices = {
        fact.entry: fact.value
        for slug in gpus
        for fact in gpu_facts(slug, "paper_table1")
        if fact.figure == "price_usd_per_hour"
    }
    assert {
        slug: (gpu.memory_gb, gpu.memory_bandwidth_gb_per_s, gpu.peak_tflops_bf16_dense, prices[slug])
        for slug, gpu in gpus.items()
    } == printed
    assert resolve_gpu("RTX 4090", "paper_table1").slug == "4090"


def test_every_gpu_of_the_shared_table_is_here_with_its_figures() -> None:
    if not SHARED_GPUS.exists():
        pytest.skip("the shared GPU table is not beside this checkout")
    gpus = load_gpus()
    with SHARED_GPUS.open(newline="") as lines:
        rows = {row["canonical_id"].lower(): row for row in csv.DictReader(lines)}
    assert set(gpus) == set(rows)
    for slug, row in rows.items():
        gpu = gpus[slug]
        assert gpu.memory_gb == float(row["vram_gb"])
        assert gpu.memory_bandwidth_gb_per_s == float(row["mem_bw_gbs"])
        assert gpu.peak_tflops_bf16_dense == float(row["fp16_dense_tflops"])
        assert gpu.tdp_watts == float(row["tdp_w"])
        assert gpu.supports_bf16 == (row["bf16"] == "1")
        if row["runpod_gpu_id"]:
            assert resolve_gpu(row["runpod_gpu_id"].partition(" (")[0]).slug == slug
        if "bridge" not in row["link"]:
            assert gpu.link_gb_per_s == float(row["link_gbs_bidir_per_gpu"]) / 2
