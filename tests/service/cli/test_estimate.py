"""`sutler estimate` as people and scripts see it."""

import csv
import io
import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from sutler.service.cli.estimate import estimate
from sutler.service.translation.estimate_table import ADDED_COLUMNS

ONE = {
    "--model": "llama-3.1-70b",
    "--gpu": "h200-sxm",
    "--tensor-parallel": "4",
    "--precision": "fp8",
    "--input-tokens": "1024",
    "--output-tokens": "512",
}
HEADER = "gpu,model,precision,tp,pp,input_tokens,output_tokens,concurrency"
GOOD = "h100_sxm,meta-llama/Llama-3.1-70B,fp8,4,1,1024,512,64"


def run(*arguments: str, stdin: str | None = None) -> Result:
    app = typer.Typer()
    app.command()(estimate)
    return CliRunner().invoke(app, list(arguments), input=stdin, env={"COLUMNS": "200", "NO_COLOR": "1"})


def run_one(*extra: str, **changes: str | None) -> Result:
    """`changes` by option name with underscores; None leaves the option out."""
    options = {**ONE, **{f"--{name.replace('_', '-')}": value for name, value in changes.items()}}
    words = [word for name, value in options.items() if value is not None for word in (name, value)]
    return run(*words, *extra)


def run_table(tmp_path: Path, text: str | bytes) -> list[dict[str, str]]:
    """The rows that come out, by column."""
    source, target = tmp_path / "in.csv", tmp_path / "out.csv"
    source.write_bytes(text.encode() if isinstance(text, str) else text)
    result = run("--csv", str(source), "--out", str(target))
    assert result.exit_code == 0, result.stderr
    return list(csv.DictReader(io.StringIO(target.read_text(encoding="utf-8"))))


def test_json_obeys_the_closed_loop_identity() -> None:
    found = json.loads(run_one("--json", concurrency="64").stdout)
    assert found["req_per_s"] == pytest.approx(64 / (found["ttft_s"] + 511 * found["tpot_s"]))
    assert found["low_req_per_s"] < found["req_per_s"] < found["high_req_per_s"]
    assert (found["gpu"], found["model"], found["source"]) == ("h200-sxm", "llama-3.1-70b", "roofline")


def test_a_config_stands_in_for_a_model_that_the_catalogue_lacks(tmp_path: Path) -> None:
    """That of Llama-3.1-8B gives what the catalogue's entry does."""
    config = {
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
    }
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    ours = run_one("--json", model=None, config=str(path), concurrency="64")
    assert ours.exit_code == 0
    assert "8.03 billion parameters" in ours.stderr
    found, known = (
        json.loads(ours.stdout),
        json.loads(run_one("--json", model="llama-3.1-8b", concurrency="64").stdout),
    )
    assert found["model"] == "mine"
    assert found["req_per_s"] == pytest.approx(known["req_per_s"], rel=1e-3)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        ('{"hidden_size": 4096}', "mine.json.num_hidden_layers"),
        ("[1]", "--config: 'mine.json': holds no config.json"),
        ("{", "--config: 'mine.json': is not valid JSON"),
        (None, "--config"),
    ],
)
def test_a_config_that_cannot_be_read_is_bad_input(tmp_path: Path, content: str | None, named: str) -> None:
    path = tmp_path / "mine.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    result = run_one(model=None, config=str(path))
    assert result.exit_code == 2
    assert named in result.stderr


def test_a_model_and_a_config_are_one_too_many(tmp_path: Path) -> None:
    assert run_one(config=str(tmp_path)).exit_code == 2


def test_people_see_rate_latencies_and_source() -> None:
    shown = run_one(concurrency="64").stdout
    assert "requests/s" in shown
    assert "time to first token" in shown
    assert "calibrated roofline" in shown


def test_an_old_version_is_slower_and_said() -> None:
    now, then = (
        json.loads(run_one("--json", concurrency="16", engine_version=one).stdout) for one in (None, "0.6.3")
    )
    assert then["req_per_s"] < now["req_per_s"]
    assert then["high_req_per_s"] / then["req_per_s"] > now["high_req_per_s"] / now["req_per_s"]
    assert (now["engine"], now["engine_version"]) == ("vllm", "")
    assert (then["engine"], then["engine_version"]) == ("vllm", "0.6.3")
    assert "vllm 0.6.3" in run_one(concurrency="16", engine_version="0.6.3").stdout


def test_first_tokens_are_those_of_the_benchmark_that_is_described() -> None:
    """One wave meets an idle engine with all prompts at once; clients that drift apart wait less."""
    asked: tuple[dict[str, str], ...] = (
        {},
        {"requests_per_client": "1"},
        {"length_spread_fraction": "0.5"},
        {"requests_per_client": "10"},
    )
    found = [json.loads(run_one("--json", concurrency="32", **one).stdout) for one in asked]
    assert found[1]["ttft_s"] > 1.5 * found[0]["ttft_s"]
    assert found[2]["ttft_s"] != found[0]["ttft_s"]
    assert found[3] == found[0]
    assert "length_spread_fraction" in run_one(concurrency="32", length_spread_fraction="2").stderr
    assert "at most 100" in run_one(concurrency="1000", requests_per_client="101").stderr


def test_usual_spellings_are_understood() -> None:
    canonical = json.loads(run_one("--json").stdout)
    spelled = json.loads(
        run_one("--json", model="meta-llama/Llama-3.1-70B-Instruct-FP8", gpu="NVIDIA H200", precision="FP8").stdout
    )
    assert spelled == canonical


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"gpu": "h1000"}, "gpu"),
        ({"model": "llama-9"}, "model"),
        ({"precision": "fp3"}, "use one of bf16"),
        ({"input_tokens": "nan"}, "input_tokens: 'nan': give a finite number"),
        ({"input_tokens": "0"}, "input_tokens"),
        ({"output_tokens": "1e300"}, "output_tokens"),
        ({"concurrency": "0"}, "concurrency"),
        ({"concurrency": "9" * 40}, "concurrency"),
        ({"tensor_parallel": "3"}, "does not divide the 64 attention heads"),
        ({"pipeline_parallel": "81"}, "has only 80 layers"),
        ({"gpu": "rtx-4090", "tensor_parallel": "1"}, "do not fit"),
        ({"gpu": "t4", "precision": "bf16"}, "use precision fp16"),
    ],
)
def test_bad_input_is_named_and_ends_with_2(changes: dict[str, str], message: str) -> None:
    result = run_one(**changes)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("missing", ["--model", "--gpu", "--precision", "--input-tokens", "--output-tokens"])
def test_a_missing_option_is_named(missing: str) -> None:
    result = run_one(**{missing.removeprefix("--").replace("-", "_"): None})
    assert result.exit_code == 2
    assert missing in result.stderr


def test_a_table_gains_its_columns_and_keeps_the_others_in_order(tmp_path: Path) -> None:
    (row,) = run_table(tmp_path, f"note,{HEADER},measured\nfirst,{GOOD},3.5\n")
    assert list(row) == ["note", *HEADER.split(","), "measured", *ADDED_COLUMNS]
    assert (row["note"], row["measured"], row["source"], row["error"]) == ("first", "3.5", "roofline", "")
    whole = float(row["predicted_ttft_s"]) + 511 * float(row["predicted_tpot_s"])
    assert float(row["predicted_req_per_s"]) == pytest.approx(64 / whole, rel=1e-4)


def test_a_table_and_a_single_estimate_agree(tmp_path: Path) -> None:
    (row,) = run_table(tmp_path, f"{HEADER}\n{GOOD}\n")
    single = json.loads(run_one("--json", gpu="h100", concurrency="64").stdout)
    assert float(row["predicted_req_per_s"]) == pytest.approx(single["req_per_s"], rel=1e-5)


@pytest.mark.parametrize(
    ("cells", "reason"),
    [
        ("h100,llama-9,fp8,4,1,1024,512,64", "model"),
        ("h1000,llama-3.1-70b,fp8,4,1,1024,512,64", "gpu"),
        ("h100,llama-3.1-70b,,4,1,1024,512,64", "precision: is empty"),
        ("h100,llama-3.1-70b,fp8,,1,1024,512,64", "tp: is empty"),
        ("h100,llama-3.1-70b,fp8,4,1,1024,512,", "concurrency: is empty"),
        ("h100,llama-3.1-70b,fp8,4,1,NaN,512,64", "input_tokens"),
        ("h100,llama-3.1-70b,fp8,4,1,inf,512,64", "input_tokens"),
        ("h100,llama-3.1-70b,fp8,4,1,1024,-5,64", "output_tokens"),
        ("h100,llama-3.1-70b,fp8,2.5,1,1024,512,64", "tp"),
        (f"h100,llama-3.1-70b,fp8,4,1,1024,512,{'9' * 5000}", "concurrency"),
        ("h100,llama-3.1-70b,bf16,1,1,1024,512,64", "do not fit"),
        ("h100,llama-3.1-70b,fp8,4,1,1024,512,64,65,66", "10 cells"),
        ("h100,llama-3.1-70b", "precision: is empty"),
    ],
)
def test_a_row_that_cannot_be_predicted_says_why_and_spares_the_others(
    tmp_path: Path, cells: str, reason: str
) -> None:
    bad, good = run_table(tmp_path, f"{HEADER}\n{cells}\n{GOOD}\n")
    assert reason in bad["error"]
    assert bad["predicted_req_per_s"] == ""
    assert good["error"] == ""
    assert float(good["predicted_req_per_s"]) > 0


def test_integers_written_as_floats_and_a_byte_order_mark_are_fine(tmp_path: Path) -> None:
    text = f"\ufeff{HEADER}\r\nH100,llama-3.1-70b,FP8,4.0,1.0,1024.0,512,64.0\r\n"
    (row,) = run_table(tmp_path, text)
    assert row["error"] == ""
    assert row["gpu"] == "H100"


def test_stages_default_to_one_and_the_other_name_of_concurrency_works(tmp_path: Path) -> None:
    header = "gpu,model,precision,tp,input_tokens,output_tokens,batch_or_concurrency"
    (row,) = run_table(tmp_path, f"{header}\nh100,llama-3.1-70b,fp8,4,1024,512,64\n")
    (same,) = run_table(tmp_path, f"{HEADER}\n{GOOD}\n")
    assert row["predicted_req_per_s"] == same["predicted_req_per_s"]


def test_the_engine_of_a_row_counts(tmp_path: Path) -> None:
    rows = run_table(tmp_path, f"{HEADER},backend\n{GOOD},vllm\n{GOOD},TensorRT-LLM\n{GOOD},lmdeploy\n{GOOD},\n")
    vllm, trtllm, unknown, absent = (float(row["predicted_req_per_s"]) for row in rows)
    assert vllm == absent == unknown != trtllm
    assert float(rows[2]["high_req_per_s"]) > float(rows[0]["high_req_per_s"])


def test_a_column_that_is_taken_is_not_overwritten(tmp_path: Path) -> None:
    (row,) = run_table(tmp_path, f"{HEADER},source\n{GOOD},a benchmark\n")
    assert row["source"] == "a benchmark"
    assert row["predicted_source"] == "roofline"


def test_predicting_again_replaces_the_old_predictions(tmp_path: Path) -> None:
    stale = ",".join(ADDED_COLUMNS)
    (row,) = run_table(tmp_path, f"{HEADER},{stale}\n{GOOD},1,1,1,1,1,old,old\n")
    assert list(row) == [*HEADER.split(","), *ADDED_COLUMNS]
    assert (row["source"], row["error"]) == ("roofline", "")
    assert float(row["predicted_req_per_s"]) != 1


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"\xff\xfe\x00g", "UTF-8"),
        (
            b"gpu,model\nh100,llama-3-8b\n",
            "missing column precision, tp, input_tokens, output_tokens, concurrency;",
        ),
        (f'{HEADER}\n"h100'.encode(), "is not a CSV file"),
    ],
)
def test_a_file_that_is_no_such_table_ends_with_2(tmp_path: Path, content: bytes, message: str) -> None:
    source = tmp_path / "in.csv"
    source.write_bytes(content)
    result = run("--csv", str(source))
    assert result.exit_code == 2
    assert message in result.stderr


def test_a_header_alone_gives_a_header_alone(tmp_path: Path) -> None:
    assert run_table(tmp_path, f"{HEADER}\n") == []


def test_a_missing_file_or_folder_ends_with_2(tmp_path: Path) -> None:
    assert run("--csv", str(tmp_path / "none.csv")).exit_code == 2
    source = tmp_path / "in.csv"
    source.write_text(f"{HEADER}\n{GOOD}\n", encoding="utf-8")
    assert run("--csv", str(source), "--out", str(tmp_path / "none" / "out.csv")).exit_code == 2


def test_a_table_goes_to_standard_output_by_default() -> None:
    result = run("--csv", "-", stdin=f"{HEADER}\n{GOOD}\n")
    assert result.exit_code == 0
    (row,) = csv.DictReader(io.StringIO(result.stdout))
    assert float(row["predicted_req_per_s"]) > 0


@pytest.mark.parametrize("extra", [["--model", "llama-3-8b"], ["--json"]])
def test_a_table_takes_nothing_from_the_command_line(tmp_path: Path, extra: list[str]) -> None:
    source = tmp_path / "in.csv"
    source.write_text(f"{HEADER}\n{GOOD}\n", encoding="utf-8")
    assert run("--csv", str(source), *extra).exit_code == 2
