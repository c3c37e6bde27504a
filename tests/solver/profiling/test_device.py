"""What is said about a machine, with GPUs as torch would describe them."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sutler.solver.profiling.device import USUAL_CACHE_BYTES, described, driver_version

ROOT = Path(__file__).parents[3]
NO_TORCH = "import sys; sys.modules['torch'] = None; from sutler.solver.profiling.device import {call}; {call}()"


def played_torch(*names: str, capability: tuple[int, int], l2_cache_bytes: int = 0, hip: str | None = None) -> Any:
    cuda = SimpleNamespace(
        get_device_properties=lambda _: SimpleNamespace(L2_cache_size=l2_cache_bytes),
        get_device_name=lambda i: names[i],
        device_count=lambda: len(names),
        get_device_capability=lambda _: capability,
    )
    version = SimpleNamespace(cuda=None if hip else "13.0", hip=hip)
    return SimpleNamespace(cuda=cuda, version=version, __version__="2.13.0")


def test_a_hopper_machine_computes_at_all_precisions() -> None:
    h100 = "NVIDIA H100 80GB HBM3"
    found = described(played_torch(*[h100] * 8, capability=(9, 0), l2_cache_bytes=50 * 2**20))
    assert (found.name, found.gpus, found.cache_bytes) == (h100, 8, 50 * 2**20)
    assert [found.refusal(precision) for precision in ("bf16", "fp16", "fp8")] == ["", "", ""]
    assert (found.torch_version, found.cuda_version) == ("2.13.0", "13.0")


def test_older_gpus_say_what_to_ask_for_instead() -> None:
    a100 = described(played_torch("NVIDIA A100-SXM4-80GB", capability=(8, 0)))
    assert "8.0, not 8.9): use --precision bf16" in a100.refusal("fp8")
    assert a100.cache_bytes == USUAL_CACHE_BYTES
    t4 = described(played_torch("Tesla T4", capability=(7, 5)))
    assert "7.5, not 8.0): use --precision fp16" in t4.refusal("bf16")
    assert not t4.has_flash_attention


def test_gpus_of_several_kinds_are_not_reduced_over() -> None:
    assert described(played_torch("NVIDIA L4", "Tesla T4", capability=(8, 9))).gpus == 1


def test_amd_gpus_have_no_fp8_here_and_name_their_runtime() -> None:
    found = described(played_torch("AMD Instinct MI300X", capability=(9, 4), hip="6.4"))
    assert "NVIDIA GPUs only" in found.refusal("fp8")
    assert found.cuda_version == "hip 6.4"


def test_the_driver_is_the_kernel_module(tmp_path: Path) -> None:
    file = tmp_path / "version"
    file.write_text(
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\nGCC version:  gcc 11.4.0\n"
    )
    assert driver_version(file) == "550.54.15"
    assert driver_version(tmp_path / "absent") == ""


@pytest.mark.parametrize("call", ["cuda_device", "cpu_device"])
def test_without_torch_the_extra_is_named(call: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", NO_TORCH.format(call=call)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "NoTorchError: PyTorch cannot be imported" in done.stderr
    assert "pip install 'sutler[profile]'" in done.stderr
