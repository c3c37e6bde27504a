"""What clouds call a GPU, by table: every spelling that is known, and the traps that look like one.

The names are those of the clouds' documents; memory and power are what they state beside them.
"""

import sys
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sutler.adapters import gpu_names
from sutler.adapters.errors import RowError
from sutler.adapters.gpu_names import fold, identify, known_gpus
from sutler.solver.catalog import load_gpus, resolve_gpu
from sutler.solver.errors import UnknownNameError

# (gpu_name, gpu_ram in MiB, slug)
VAST: list[tuple[str, float, str]] = [
    ("H100 SXM", 81_559, "h100-sxm"),
    ("H100 PCIE", 81_559, "h100-pcie"),
    ("H100 NVL", 95_830, "h100-nvl"),
    ("H200", 143_771, "h200-sxm"),
    ("H200 NVL", 143_771, "h200-nvl"),
    ("GH200 SXM", 97_871, "gh200"),
    ("H20", 97_871, "h20"),
    ("B200", 183_359, "b200"),
    ("B300", 275_040, "b300"),
    ("B300 PC", 275_040, "b300"),
    ("A100 SXM4", 81_920, "a100-sxm4-80gb"),
    ("A100 SXM4", 40_960, "a100-sxm4-40gb"),
    ("A100 PCIE", 81_920, "a100-pcie-80gb"),
    ("A100 PCIE", 40_960, "a100-pcie-40gb"),
    ("A100X", 81_920, "a100-pcie-80gb"),
    ("A800 PCIE", 81_920, "a800-pcie-80gb"),
    ("A30", 24_576, "a30"),
    ("A40", 46_068, "a40"),
    ("A10", 23_028, "a10"),
    ("A10g", 23_028, "a10g"),
    ("A16", 15_356, "a16"),
    ("L4", 23_034, "l4"),
    ("L40", 46_068, "l40"),
    ("L40S", 46_068, "l40s"),
    ("Tesla V100", 32_768, "v100-sxm2-32gb"),
    ("Tesla V100", 16_384, "v100-pcie-16gb"),
    ("Tesla T4", 15_360, "t4"),
    ("RTX PRO 6000 S", 97_887, "rtx-pro-6000-server"),
    ("RTX PRO 6000 WS", 97_887, "rtx-pro-6000-ws"),
    ("RTX PRO 6000", 97_887, "rtx-pro-6000-ws"),
    ("RTX PRO 6000 Max-Q", 97_887, "rtx-pro-6000-maxq"),
    ("RTX PRO 5000", 48_935, "rtx-pro-5000"),
    ("RTX PRO 4500", 32_623, "rtx-pro-4500"),
    ("RTX 6000Ada", 49_140, "rtx-6000-ada"),
    ("RTX 5000Ada", 32_760, "rtx-5000-ada"),
    ("RTX 4500Ada", 24_570, "rtx-4500-ada"),
    ("RTX 4000Ada", 20_475, "rtx-4000-ada"),
    ("RTX 2000Ada", 16_380, "rtx-2000-ada"),
    ("RTX A6000", 49_140, "rtx-a6000"),
    ("RTX A5000", 24_564, "rtx-a5000"),
    ("RTX A4500", 20_470, "rtx-a4500"),
    ("RTX A4000", 16_376, "rtx-a4000"),
    ("Q RTX 8000", 49_152, "q-rtx-8000"),
    ("Q RTX 6000", 24_576, "q-rtx-6000"),
    ("RTX 5090", 32_607, "rtx-5090"),
    ("RTX 5080", 16_303, "rtx-5080"),
    ("RTX 5070 Ti", 16_303, "rtx-5070-ti"),
    ("RTX 5060 Ti", 16_311, "rtx-5060-ti-16gb"),
    ("RTX 4090", 24_564, "rtx-4090"),
    ("RTX 4090D", 24_564, "rtx-4090d"),
    ("RTX 4080S", 16_376, "rtx-4080-super"),
    ("RTX 4080", 16_376, "rtx-4080"),
    ("RTX 4070S Ti", 16_376, "rtx-4070-ti-super"),
    ("RTX 4070 Ti", 12_282, "rtx-4070-ti"),
    ("RTX 4060 Ti", 16_380, "rtx-4060-ti-16gb"),
    ("RTX 3090 Ti", 24_564, "rtx-3090-ti"),
    ("RTX 3090", 24_576, "rtx-3090"),
    ("RTX 3080 Ti", 12_288, "rtx-3080-ti"),
    ("RTX 3080", 10_240, "rtx-3080"),
    ("RTX 3060", 12_288, "rtx-3060"),
    ("RTX 2080 Ti", 11_264, "rtx-2080-ti"),
    ("InstinctMI250X", 131_072, "mi250x"),
    ("InstinctMI210", 65_536, "mi210"),
]
# (id, memory in GB, slug)
RUNPOD: list[tuple[str, float, str]] = [
    ("NVIDIA H100 80GB HBM3", 80, "h100-sxm"),
    ("NVIDIA H100 PCIe", 80, "h100-pcie"),
    ("NVIDIA H100 NVL", 94, "h100-nvl"),
    ("NVIDIA H200", 141, "h200-sxm"),
    ("NVIDIA H200 NVL", 143, "h200-nvl"),
    ("NVIDIA B200", 180, "b200"),
    ("NVIDIA B300 SXM6 AC", 288, "b300"),
    ("NVIDIA A100-SXM4-80GB", 80, "a100-sxm4-80gb"),
    ("NVIDIA A100 80GB PCIe", 80, "a100-pcie-80gb"),
    ("NVIDIA A30", 24, "a30"),
    ("NVIDIA A40", 48, "a40"),
    ("NVIDIA L4", 24, "l4"),
    ("NVIDIA L40", 48, "l40"),
    ("NVIDIA L40S", 48, "l40s"),
    ("Tesla V100-SXM2-32GB", 32, "v100-sxm2-32gb"),
    ("Tesla V100-SXM2-16GB", 16, "v100-sxm2-16gb"),
    ("Tesla V100-PCIE-16GB", 16, "v100-pcie-16gb"),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", 96, "rtx-pro-6000-server"),
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 96, "rtx-pro-6000-ws"),
    ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", 96, "rtx-pro-6000-maxq"),
    ("NVIDIA RTX PRO 4500 Blackwell", 32, "rtx-pro-4500"),
    ("NVIDIA RTX 6000 Ada Generation", 48, "rtx-6000-ada"),
    ("NVIDIA RTX 5000 Ada Generation", 32, "rtx-5000-ada"),
    ("NVIDIA RTX 4000 Ada Generation", 20, "rtx-4000-ada"),
    ("NVIDIA RTX 2000 Ada Generation", 16, "rtx-2000-ada"),
    ("NVIDIA RTX A6000", 48, "rtx-a6000"),
    ("NVIDIA RTX A5000", 24, "rtx-a5000"),
    ("NVIDIA RTX A4500", 20, "rtx-a4500"),
    ("NVIDIA  RTX A4500", 20, "rtx-a4500"),
    ("NVIDIA RTX A4000", 16, "rtx-a4000"),
    ("NVIDIA GeForce RTX 5090", 32, "rtx-5090"),
    ("NVIDIA GeForce RTX 5080", 16, "rtx-5080"),
    ("NVIDIA GeForce RTX 4090", 24, "rtx-4090"),
    ("NVIDIA GeForce RTX 4080 SUPER", 16, "rtx-4080-super"),
    ("NVIDIA GeForce RTX 4080", 16, "rtx-4080"),
    ("NVIDIA GeForce RTX 4070 Ti", 12, "rtx-4070-ti"),
    ("NVIDIA GeForce RTX 3090 Ti", 24, "rtx-3090-ti"),
    ("NVIDIA GeForce RTX 3090", 24, "rtx-3090"),
    ("NVIDIA GeForce RTX 3080 Ti", 12, "rtx-3080-ti"),
    ("NVIDIA GeForce RTX 3080", 10, "rtx-3080"),
    ("AMD Instinct MI300X OAM", 192, "mi300x"),
]
# (cloud, name, slug): names that say all, without memory beside them
OTHERS: list[tuple[str, str, str]] = [
    ("lambda", "H100 (80 GB SXM5)", "h100-sxm"),
    ("lambda", "A100 (40 GB SXM4)", "a100-sxm4-40gb"),
    ("lambda", "A100 (40 GB PCIe)", "a100-pcie-40gb"),
    ("lambda", "A10 (24 GB PCIe)", "a10"),
    ("lambda", "A6000 (48 GB)", "rtx-a6000"),
    ("lambda", "RTX 6000 (24 GB)", "q-rtx-6000"),
    ("lambda", "GH200", "gh200"),
    ("hyperstack", "H100-80G-PCIe", "h100-pcie"),
    ("hyperstack", "H100-80G-PCIe-NVLink", "h100-pcie"),
    ("verda", "H100 SXM5 80GB", "h100-sxm"),
    ("verda", "H200 SXM5 141GB", "h200-sxm"),
    ("verda", "B200 SXM6 180GB", "b200"),
    ("verda", "B300 SXM6 268GB", "b300"),
    ("verda", "A100 SXM4 80GB", "a100-sxm4-80gb"),
    ("verda", "A100 SXM4 40GB", "a100-sxm4-40gb"),
    ("verda", "L40S 48GB", "l40s"),
    ("verda", "RTX PRO 6000 96GB", "rtx-pro-6000-server"),
    ("verda", "RTX6000 Ada 48GB", "rtx-6000-ada"),
    ("verda", "RTX 6000 Ada 48GB", "rtx-6000-ada"),
    ("verda", "RTX A6000 48GB", "rtx-a6000"),
    ("prime", "H100_80GB SXM5", "h100-sxm"),
    ("tensordock", "h100-sxm5-80gb", "h100-sxm"),
    ("tensordock", "a100-pcie-80gb", "a100-pcie-80gb"),
    ("tensordock", "l40-pcie-48gb", "l40"),
    ("tensordock", "v100-pcie-16gb", "v100-pcie-16gb"),
    ("tensordock", "rtxa6000-pcie-48gb", "rtx-a6000"),
    ("tensordock", "rtxa5000-pcie-24gb", "rtx-a5000"),
    ("tensordock", "rtxa4000-pcie-16gb", "rtx-a4000"),
    ("tensordock", "geforcertx4090-pcie-24gb", "rtx-4090"),
    ("tensordock", "geforcertx5090-pcie-32gb", "rtx-5090"),
    ("tensordock", "geforcertx3090-pcie-24gb", "rtx-3090"),
    ("tensordock", "geforcertx3080ti-pcie-12gb", "rtx-3080-ti"),
    ("tensordock", "geforcertx3080-pcie-10gb", "rtx-3080"),
    ("tensordock", "geforcertx3060-pcie-12gb", "rtx-3060"),
    ("gpuhunt", "RTX4090", "rtx-4090"),
    ("cloudrift", "MI350X", "mi350x"),
    ("hotaisle", "MI300X", "mi300x"),
]


def reason_against(name: str | None, *, memory_gb: float | None = None, provider: str = "vastai") -> str:
    with pytest.raises(RowError) as caught:
        identify(name, provider=provider, memory_gb=memory_gb)
    assert caught.value.reason == "unknown_gpu"
    return str(caught.value)


# The table


def test_every_gpu_of_the_table_is_in_the_planners_catalogue_with_the_same_memory() -> None:
    catalogue = load_gpus()
    assert {slug: gpu.memory_gb for slug, gpu in known_gpus().items()} == {
        slug: catalogue[slug].memory_gb for slug in known_gpus()
    }


def test_every_gpu_of_the_planners_catalogue_has_a_name_here() -> None:
    assert set(load_gpus()) == set(known_gpus())


def test_every_gpu_answers_to_its_own_slug() -> None:
    for slug, gpu in known_gpus().items():
        assert identify(slug, provider="any", memory_gb=gpu.memory_gb) == slug


# Names that are known


@pytest.mark.parametrize(("name", "memory_mib", "slug"), VAST)
def test_a_name_of_vast_is_known(name: str, memory_mib: float, slug: str) -> None:
    assert identify(name, provider="vastai", memory_gb=memory_mib / 1024) == slug


@pytest.mark.parametrize(("name", "memory_gb", "slug"), RUNPOD)
def test_an_id_of_runpod_is_known_with_its_memory_and_without(name: str, memory_gb: float, slug: str) -> None:
    assert identify(name, provider="runpod", memory_gb=memory_gb) == slug
    assert identify(name, provider="runpod") == slug


@pytest.mark.parametrize(("provider", "name", "slug"), OTHERS)
def test_a_name_of_another_cloud_is_known(provider: str, name: str, slug: str) -> None:
    assert identify(name, provider=provider, memory_gb=known_gpus()[slug].memory_gb) == slug


@pytest.mark.parametrize(
    "spelling",
    [
        "RTX 4090",
        "RTX_4090",
        "rtx 4090",
        "  RTX   4090 ",
        "RTX\t4090",
        "RTX4090",
        "NVIDIA GeForce RTX 4090",
        "NVIDIA  GeForce  RTX  4090",
        "GeForce_RTX-4090",
        "geforcertx4090-pcie-24gb",
        "RTX 4090 (24 GB)",
    ],
)
def test_one_card_may_be_spelled_in_many_ways(spelling: str) -> None:
    assert identify(spelling, provider="any", memory_gb=24) == "rtx-4090"


@pytest.mark.parametrize("change", [str.upper, str.lower, lambda name: f"  {name.replace(' ', '   ')} "])
def test_case_and_blanks_never_matter(change: Callable[[str], str]) -> None:
    for name, memory_mib, slug in VAST:
        assert identify(change(name), provider="vastai", memory_gb=memory_mib / 1024) == slug


# Names that say too little


@pytest.mark.parametrize("off_fraction", [-0.079, 0.079])
def test_memory_may_be_eight_percent_off(off_fraction: float) -> None:
    assert identify("A40", provider="vastai", memory_gb=48 * (1 + off_fraction)) == "a40"


@pytest.mark.parametrize("off_fraction", [-0.081, 0.081, -1.0, 1.0])
def test_a_card_whose_memory_is_more_than_eight_percent_off_is_another(off_fraction: float) -> None:
    detail = reason_against("A40", memory_gb=48 * (1 + off_fraction))
    assert "another card than that of 48 GB" in detail


@pytest.mark.parametrize(
    ("name", "memory_gb"),
    [
        ("RTX 4090", 48.0),
        ("RTX 4090D", 48.0),
        ("RTX 2080 Ti", 22.0),
        ("RTX 3060", 8.0),
        ("RTX 4060 Ti", 8.0),
        ("RTX 5060 Ti", 8.0),
        ("RTX PRO 5000", 72.0),
        ("GH200 SXM", 144.0),
        ("InstinctMI250X", 64.0),
        ("H100 SXM", 10.0),
        ("RTX 3080", 12.0),
        ("A100 SXM4", 64.0),
    ],
)
def test_a_modded_card_or_another_version_is_unknown(name: str, memory_gb: float) -> None:
    assert "another card" in reason_against(name, memory_gb=memory_gb)


@pytest.mark.parametrize(
    "name", ["A100 SXM4", "A100 PCIE", "RTX 4060 Ti", "RTX 5060 Ti", "RTX 3060", "Tesla V100", "V100 SXM2"]
)
def test_a_name_that_hides_the_memory_is_unknown_without_it(name: str) -> None:
    for watts in (None, 250.0, 300.0, 400.0):
        with pytest.raises(RowError, match=r"may be|several memory sizes"):
            identify(name, provider="vastai", watts=watts, nvlink=True)


@pytest.mark.parametrize(
    ("watts", "nvlink", "slug"),
    [
        (None, None, "v100-pcie-16gb"),
        (250.0, None, "v100-pcie-16gb"),
        (300.0, None, "v100-sxm2-16gb"),
        (300.0, False, "v100-sxm2-16gb"),
        (None, True, "v100-sxm2-16gb"),
        (250.0, True, "v100-sxm2-16gb"),
        (163.0, False, "v100-pcie-16gb"),
    ],
)
def test_a_v100_of_16_gb_shows_its_form_by_link_or_power(watts: float | None, nvlink: bool | None, slug: str) -> None:
    assert identify("Tesla V100", provider="vastai", memory_gb=16, watts=watts, nvlink=nvlink) == slug


@pytest.mark.parametrize(
    ("watts", "slug"),
    [(None, "rtx-pro-6000-ws"), (600.0, "rtx-pro-6000-ws"), (450.0, "rtx-pro-6000-ws"), (300.0, "rtx-pro-6000-maxq")],
)
def test_an_rtx_pro_6000_without_an_edition_shows_it_by_power(watts: float | None, slug: str) -> None:
    assert identify("RTX PRO 6000", provider="vastai", memory_gb=95.6, watts=watts) == slug


# Traps


@pytest.mark.parametrize(
    "name",
    [
        None,
        "",
        "   ",
        "NVIDIA",
        "GPU",
        "RTX",
        "unknown",
        "4090",
        "RTX 6000",
        "NVIDIA RTX 6000",
        "Quadro RTX 6000 8GB",
        "6000",
        "H100",
        "A100",
        "RTX 6090 Ti",
        "RTX 4090 laptop",
        "NVIDIA GeForce RTX 4090 Laptop GPU",
        "RTX 4090 Max-Q",
        "RTX 4090M",
        "RTX 4090 Super",
        "RTX 3080 mobile",
        "RTX 3060 laptop",
        "NVIDIA A100 MIG 1g.10gb",
        "NVIDIA H100 80GB HBM3 MIG 1g.10gb",
        "NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb",
        "H200 MIG",
        "A30-1g.6gb",
        "GRID A100X-40C",
        "NVIDIA RTX 4000 SFF Ada Generation",
        "2x RTX 4090",
        "RTX 4090, RTX 3090",
        "xRTX 4090",
        "RTX 40900",
        "L40 S",
        "MI300",
        "MI300A",
        "GTX 1080 Ti",
        "Tesla P100",
        "x" * 5000,
        "\ud800",
    ],
)
def test_what_only_looks_like_a_card_is_unknown(name: str | None) -> None:
    assert len(reason_against(name)) < 400
    assert len(reason_against(name, memory_gb=24)) < 400


def test_ampere_and_ada_cards_of_one_number_are_two() -> None:
    assert identify("A6000", provider="any", memory_gb=48) == "rtx-a6000"
    assert identify("RTX 6000 Ada", provider="any", memory_gb=48) == "rtx-6000-ada"
    assert identify("A4000", provider="any", memory_gb=16) == "rtx-a4000"
    assert identify("RTX 4000 Ada", provider="any", memory_gb=20) == "rtx-4000-ada"
    assert "another card" in reason_against("A4000", memory_gb=20)


def test_the_bare_rtx_6000_is_the_turing_card_at_lambda_only() -> None:
    assert identify("RTX 6000", provider="lambda", memory_gb=24) == "q-rtx-6000"
    assert "in the name table" in reason_against("RTX 6000", provider="vastai", memory_gb=48)


@given(st.text(max_size=60), st.none() | st.floats())
def test_any_text_is_a_known_gpu_or_unknown(name: str, memory_gb: float | None) -> None:
    try:
        slug = identify(name, provider="vastai", memory_gb=memory_gb)
    except RowError:
        return
    assert slug in known_gpus()


@given(st.text(max_size=60))
def test_folding_twice_changes_nothing(name: str) -> None:
    assert fold(fold(name)) == fold(name)


# The other table of names, the planner's


def planners_view(name: str) -> str | None:
    try:
        return resolve_gpu(name).slug
    except UnknownNameError:
        return None


SPELLINGS = sorted({name for names in (VAST, RUNPOD) for name, _, _ in names} | {name for _, name, _ in OTHERS})


@pytest.mark.parametrize("name", SPELLINGS)
def test_the_planner_means_the_same_card_where_the_name_alone_says_which(name: str) -> None:
    with suppress(RowError):
        assert planners_view(name) in {identify(name, provider="any"), None}


@pytest.mark.parametrize(
    ("name", "slug"), sorted({(name, slug) for names in (VAST, RUNPOD) for name, _, slug in names})
)
def test_the_planner_means_the_same_card_once_the_memory_is_stated(name: str, slug: str) -> None:
    assert planners_view(f"{name} {known_gpus()[slug].memory_gb:g}GB") in {slug, None}


def test_the_table_is_read_where_no_other_package_is_called_adapters(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed sutler has no top-level `adapters`, unlike a checkout."""
    monkeypatch.setitem(sys.modules, "adapters", None)
    gpu_names._table.cache_clear()
    assert gpu_names._table()["gpus"]
