"""`sutler profile` as people and scripts see it: without torch, without a GPU, and in miniature on a processor."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
import typer
from typer.testing import CliRunner, Result

from sutler.service.cli.time_layer import profile
from sutler.service.cli.views.layer_timings import peak_share, profile_table
from sutler.service.profiles.layer_profile import Kept, keep
from sutler.service.profiles.layer_rows import read
from sutler.solver.catalog import resolve_gpu, resolve_model
from sutler.solver.profiling.device import Device
from sutler.solver.profiling.measure import PointOutcome
from sutler.solver.profiling.timing import Timed
from tests.service.profiles.test_layer_rows import PREFILL, SUM
from tests.solver.profiling.builders import TORCH_NEEDED, a_point

ROOT = Path(__file__).parents[3]
MINIATURE = ["--model", "qwen2.5-0.5b", "--device", "cpu", "--quick"]
WITHOUT_TORCH = "import sys; sys.modules['torch'] = None; from sutler.service.cli.main import run; run()"
SPEC = resolve_model("llama-3-8b")
H100 = resolve_gpu("h100-sxm")
NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)


def run(*arguments: str) -> Result:
    app = typer.Typer()
    app.command()(profile)
    return CliRunner().invoke(app, list(arguments), env={"COLUMNS": "200", "NO_COLOR": "1"})


def test_without_torch_the_extra_is_named(tmp_path: Path) -> None:
    out = tmp_path / "p.csv"
    arguments = ["profile", "--model", "llama-3-8b", "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'sutler[profile]'" in done.stderr
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--model", "mixtral-8x7b"], "'mixtral-8x7b': has experts"),
        (["--model", "nope"], "--model: 'nope': no such model"),
        (["--model", "llama-3-8b", "--precision", "int4"], "--precision int4: give bf16, fp16, fp8"),
        (["--model", "llama-3-8b", "--tensor-parallel", "1,,2"], "--tensor-parallel 1,,2: give whole numbers"),
        (["--model", "llama-3-8b", "--device", "cpu", "--gpu", "h100"], "--gpu goes with --device cuda"),
        (["--model", "llama-3-8b", "--out", "/nowhere/p.csv"], "its folder does not exist"),
    ],
)
def test_bad_input_is_said_before_anything_is_measured(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.replace("│", " ").split())


def test_rows_are_kept_as_they_come_and_a_note_is_said_once() -> None:
    kept, device = Kept(), Device("cuda", cast(Any, None), "H100", 2, 5e7, "2.13.0", "13.0", "580.65.06")
    point = a_point(model=SPEC.id, phase="all_reduce", tensor_parallel=2, context_tokens=0, with_attention=False)
    outcomes = [PointOutcome(point, Timed(0.001, 10, 0.1), "launched"), PointOutcome(point, None, "launched")]
    said = [keep(kept, one, specs={SPEC.id: SPEC}, device=device, gpu="h100-sxm", now=NOON) for one in outcomes]
    assert said == ["launched", ""]
    assert kept.notes == {"launched"}
    (row,) = kept.rows
    assert (row.bytes, row.attention, row.measured_at) == (16 * 4096 * 2, "excluded", NOON)


def test_shares_of_the_peak_are_those_worked_out_by_hand() -> None:
    """llama-3-8b has 218,103,808 weights per layer. On 512 tokens each of two GPUs does half of 2 · 512 · 218,103,808
    operations, and 4 · 16 · 128 · 512 · 256 in attention. An all-reduce between two moves its 4 MB once."""
    flops = 512 * 218_103_808 + 4 * 16 * 128 * 512 * 256
    assert H100.peak_tflops_fp8_dense is not None
    expected = flops / PREFILL.seconds / (H100.peak_tflops_fp8_dense * 1e12)
    assert peak_share(PREFILL, SPEC, H100) == pytest.approx(expected, rel=1e-6)
    assert H100.link_gb_per_s is not None
    assert peak_share(SUM, SPEC, H100) == pytest.approx(4_194_304 / SUM.seconds / (H100.link_gb_per_s * 1e9))
    step = replace(PREFILL, phase="decode", new_tokens=1, batch=4, context_tokens=1000)
    assert H100.memory_bandwidth_gb_per_s is not None
    read_bytes = 218_103_808 / 2 + 4 * 1000 * 2 * 4 * 128 * 2
    expected = read_bytes / step.seconds / (H100.memory_bandwidth_gb_per_s * 1e9)
    assert peak_share(step, SPEC, H100) == pytest.approx(expected, rel=1e-6)
    assert peak_share(PREFILL, SPEC, None) is None


def test_the_table_has_a_line_per_phase() -> None:
    assert profile_table([PREFILL, PREFILL, SUM], {SPEC.id: SPEC}, H100).row_count == 2


def test_without_a_gpu_it_says_so_and_what_the_processor_is_for(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason=TORCH_NEEDED)
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    result = run("--model", "llama-3-8b", "--out", str(tmp_path / "p.csv"))
    assert result.exit_code == 2
    assert "finds no CUDA device here" in result.stderr
    assert "--device cpu only tests the tool" in result.stderr


def test_a_miniature_run_writes_the_rows_that_it_prints(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason=TORCH_NEEDED)
    out = tmp_path / "p.csv"
    result = run(*MINIATURE, "--tensor-parallel", "2,4", "--out", str(out), "--json")
    assert result.exit_code == 0, result.stderr
    rows = read(out.read_bytes())
    assert [row["seconds"] for row in json.loads(result.stdout)] == [row.seconds for row in rows]
    assert {row.tp for row in rows} == {2}
    assert {(row.phase, row.attention) for row in rows} >= {("prefill", "excluded"), ("decode", "included")}
    assert {row.gpu for row in rows} == {"cpu"}
    assert "query heads, 14, is no multiple of 4" in result.stderr
    assert "only show that the tool works" in result.stderr


def test_nothing_measured_is_an_error(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason=TORCH_NEEDED)
    out = tmp_path / "p.csv"
    result = run(*MINIATURE, "--tensor-parallel", "1", "--precision", "fp8", "--out", str(out))
    assert result.exit_code == 2
    assert "nothing could be measured" in result.stderr
    assert not out.exists()


def test_ctrl_c_keeps_the_rows_measured_so_far(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason=TORCH_NEEDED)
    out = tmp_path / "p.csv"
    command = [sys.executable, "-m", "sutler", "profile", "--device", "cpu", "--model", "llama-3-8b"]
    process = subprocess.Popen(
        [*command, "--tensor-parallel", "8", "--out", str(out)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    for _ in range(600):
        if out.exists():
            break
        time.sleep(0.1)
    assert process.poll() is None, "it ended before it could be interrupted"
    process.send_signal(signal.SIGINT)
    shown, said = process.communicate(timeout=60)
    assert (process.returncode, shown) == (130, b"")
    rows = read(out.read_bytes())
    assert rows
    assert said.decode().splitlines()[-2:] == [f"{len(rows)} of 56 rows are in {out}", "interrupted"]
