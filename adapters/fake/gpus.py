"""What the fake market deals in: GPU models with invented prices, and which cloud sells which of them.

Technical figures are those of the vendors' data sheets; `usd_per_gpu_hour` is only the centre of what hosts ask.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["data_centre", "workstation", "consumer"]


@dataclass(frozen=True, slots=True)
class GpuModel:
    """`full_name` and `memory_mib` as the driver reports them; `nvlink_gb_per_s` 0 without a switch; `weight`: how
    common it is."""

    slug: str
    name: str
    full_name: str
    memory_gb: int
    memory_mib: int
    usd_per_gpu_hour: float
    weight: float
    fp32_tflops: float
    memory_gb_per_s: float
    watts: float
    compute_capability: int
    nvlink_gb_per_s: float = 0.0
    pcie_generation: float = 4.0

    @property
    def kind(self) -> Kind:
        """The vendor's line of products, which its full name tells."""
        if "GeForce" in self.full_name:
            return "consumer"
        return "workstation" if "RTX" in self.full_name else "data_centre"


_MODELS: Final = (
    GpuModel("b200", "B200", "NVIDIA B200", 180, 183359, 4.6, 4, 75.0, 7700, 1000, 1000, 900.0, 5.0),
    GpuModel("h200-sxm", "H200", "NVIDIA H200", 141, 143771, 2.9, 8, 67.0, 4800, 700, 900, 450.0, 5.0),
    GpuModel("h100-sxm", "H100 SXM", "NVIDIA H100 80GB HBM3", 80, 81559, 2.1, 14, 67.0, 3350, 700, 900, 450.0, 5.0),
    GpuModel("h100-pcie", "H100 PCIE", "NVIDIA H100 PCIe", 80, 81559, 1.9, 6, 51.0, 2039, 350, 900, 0.0, 5.0),
    GpuModel("h100-nvl", "H100 NVL", "NVIDIA H100 NVL", 94, 95830, 2.0, 4, 60.0, 3938, 400, 900, 0.0, 5.0),
    GpuModel(
        "a100-sxm4-80gb", "A100 SXM4", "NVIDIA A100-SXM4-80GB", 80, 81920, 1.15, 10, 19.5, 2039, 400, 800, 300.0
    ),
    GpuModel("a100-pcie-80gb", "A100 PCIE", "NVIDIA A100 80GB PCIe", 80, 81920, 0.95, 8, 19.5, 1935, 300, 800),
    GpuModel("l40s", "L40S", "NVIDIA L40S", 48, 46068, 0.72, 8, 91.6, 864, 350, 890),
    GpuModel("l40", "L40", "NVIDIA L40", 48, 46068, 0.62, 5, 90.5, 864, 300, 890),
    GpuModel("a40", "A40", "NVIDIA A40", 48, 46068, 0.38, 8, 37.4, 696, 300, 860),
    GpuModel(
        "rtx-6000-ada", "RTX 6000Ada", "NVIDIA RTX 6000 Ada Generation", 48, 49140, 0.66, 7, 91.1, 960, 300, 890
    ),
    GpuModel("rtx-a6000", "RTX A6000", "NVIDIA RTX A6000", 48, 49140, 0.41, 10, 38.7, 768, 300, 860),
    GpuModel("rtx-a5000", "RTX A5000", "NVIDIA RTX A5000", 24, 24564, 0.21, 6, 27.8, 768, 230, 860),
    GpuModel(
        "rtx-5090", "RTX 5090", "NVIDIA GeForce RTX 5090", 32, 32607, 0.52, 14, 104.8, 1792, 575, 1200, 0.0, 5.0
    ),
    GpuModel("rtx-4090", "RTX 4090", "NVIDIA GeForce RTX 4090", 24, 24564, 0.34, 22, 82.6, 1008, 450, 890),
    GpuModel("rtx-3090", "RTX 3090", "NVIDIA GeForce RTX 3090", 24, 24576, 0.17, 14, 35.6, 936, 350, 860),
)
GPUS: Final[Mapping[str, GpuModel]] = {model.slug: model for model in _MODELS}

_ANY: Final = tuple(GPUS)
SOLD_BY: Final[Mapping[str, tuple[str, ...]]] = {
    "vastai": _ANY,
    "runpod": _ANY,
    "lium": (
        "b200",
        "h200-sxm",
        "h100-sxm",
        "h100-pcie",
        "a100-sxm4-80gb",
        "l40s",
        "rtx-a6000",
        "rtx-4090",
        "rtx-5090",
    ),
    "lambda": ("b200", "h100-sxm", "h100-pcie", "rtx-a6000"),
    "verda": ("b200", "h200-sxm", "h100-sxm", "a100-sxm4-80gb", "l40s", "rtx-6000-ada"),
    "hyperstack": ("h200-sxm", "h100-sxm", "h100-pcie", "a100-pcie-80gb", "l40", "rtx-a6000"),
    "vultr": ("b200", "h100-sxm", "a100-pcie-80gb", "l40s", "a40"),
    "shadeform": ("h200-sxm", "h100-sxm", "a100-sxm4-80gb", "l40s", "rtx-a6000"),
}
