"""The machine that is timed, and the only place that imports torch: everything else gets it from `Device.torch`.

Flow: the service opens a device -> measure.py.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from sutler.solver.errors import NoDeviceError, NoTorchError

Torch = Any  # the module; torch is optional, so its types are not at hand
DRIVER_FILE: Final = Path("/proc/driver/nvidia/version")
FP8_CAPABILITY: Final = (8, 9)  # Ada; torch._scaled_mm needs its tensor cores
AMPERE: Final = (8, 0)  # bf16, and torch's flash attention, the only fast kernel that takes grouped heads
# Larger than the last-level cache of any GPU in the catalogue but AMD's 256 MB; used where torch does not say.
USUAL_CACHE_BYTES: Final = 128e6
INSTALL: Final = "pip install 'sutler[profile]'"
WHERE_THERE_IS_A_GPU: Final = (
    "run this where `nvidia-smi` lists a GPU, with a CUDA build of torch; --device cpu only tests the tool"
)


@dataclass(frozen=True, slots=True)
class Device:
    """`name` as the driver spells it; `gpus` of one kind that can reduce together. Versions are "" where there are
    none, refusals empty where the precision works."""

    kind: Literal["cuda", "cpu"]
    torch: Torch
    name: str
    gpus: int
    cache_bytes: float
    torch_version: str
    cuda_version: str
    driver_version: str
    has_flash_attention: bool = True
    bf16_refusal: str = ""
    fp8_refusal: str = ""

    def free_bytes(self) -> float:
        """Memory that can be asked for now."""
        if self.kind == "cuda":
            self.torch.cuda.empty_cache()
            return float(self.torch.cuda.mem_get_info()[0])
        return float(os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))

    def refusal(self, precision: str) -> str:
        """Why this machine does not compute at `precision`; "" if it does."""
        return {"bf16": self.bf16_refusal, "fp8": self.fp8_refusal}.get(precision, "")


def load_torch() -> Torch:
    """Raises NoTorchError."""
    try:
        import torch
    except ImportError as error:
        raise NoTorchError(f"PyTorch cannot be imported ({error}): {INSTALL}") from error
    return torch


def cuda_device() -> Device:
    """The first GPU, and how many like it. Raises NoTorchError, NoDeviceError."""
    torch = load_torch()
    if not torch.cuda.is_available():
        raise NoDeviceError(f"torch {torch.__version__} finds no CUDA device here: {WHERE_THERE_IS_A_GPU}")
    return described(torch)


def described(torch: Torch) -> Device:
    """What torch says of its first GPU."""
    properties = torch.cuda.get_device_properties(0)
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    capability = torch.cuda.get_device_capability(0)
    return Device(
        kind="cuda",
        torch=torch,
        name=names[0],
        gpus=len(names) if len(set(names)) == 1 else 1,
        cache_bytes=float(getattr(properties, "L2_cache_size", 0) or USUAL_CACHE_BYTES),
        torch_version=str(torch.__version__),
        cuda_version=_cuda_version(torch),
        driver_version=driver_version(),
        has_flash_attention=capability >= AMPERE,
        bf16_refusal=_bf16_refusal(names[0], capability),
        fp8_refusal=_fp8_refusal(names[0], capability, is_amd=torch.version.hip is not None),
    )


def cpu_device() -> Device:
    """This machine's processor, to test the tool: its times say nothing about GPUs. Raises NoTorchError."""
    torch = load_torch()
    return Device(
        kind="cpu",
        torch=torch,
        name="cpu",
        gpus=os.cpu_count() or 1,
        cache_bytes=0.0,
        torch_version=str(torch.__version__),
        cuda_version="",
        driver_version="",
        fp8_refusal="fp8 is timed on GPUs only: leave it out of --precision",
    )


def driver_version(file: Path = DRIVER_FILE) -> str:
    """The version of NVIDIA's kernel module, as Linux shows it; "" elsewhere."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    found = re.search(r"\b\d{3,}\.\d+(?:\.\d+)?\b", text)
    return found[0] if found else ""


def _cuda_version(torch: Torch) -> str:
    return str(torch.version.cuda) if torch.version.cuda else f"hip {torch.version.hip}"


def _bf16_refusal(name: str, capability: tuple[int, int]) -> str:
    if capability >= AMPERE:
        return ""
    return f"{name} has no bf16 arithmetic (compute capability {_dotted(capability)}, not 8.0): use --precision fp16"


def _fp8_refusal(name: str, capability: tuple[int, int], *, is_amd: bool) -> str:
    if is_amd:
        return f"fp8 is timed on NVIDIA GPUs only, and this is {name}: leave it out of --precision"
    if capability >= FP8_CAPABILITY:
        return ""
    return f"{name} has no fp8 arithmetic (compute capability {_dotted(capability)}, not 8.9): use --precision bf16"


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))
