"""sutler's own benchmark table, from bytes to runs."""

from datetime import UTC, datetime

import pytest

from sutler.service.documents.errors import DocumentError
from sutler.service.profiles.readers import RunsRead, read_runs
from sutler.service.profiles.runs import BenchmarkRun
from tests.service.profiles.payloads import TABLE


def read(text: str) -> RunsRead:
    return read_runs(text.encode(), name="runs.csv")


def test_every_column_is_read() -> None:
    assert read(TABLE) == RunsRead(
        format="csv",
        runs=(
            BenchmarkRun(
                place="row 2",
                model="llama-3.1-70b",
                gpu="h100-sxm",
                precision="fp8",
                kv_precision="bf16",
                engine="vllm",
                engine_version="0.11.0",
                tensor_parallel=4,
                pipeline_parallel=2,
                input_tokens=1024,
                output_tokens=256,
                concurrency=64,
                req_per_s=2.5,
                ttft_s=0.75,
                tpot_s=0.0955,
                e2e_s=25.1,
                completed=400,
                failed=3,
                duration_s=160,
                measured_at=datetime(2026, 11, 2, 10, 15, 30, tzinfo=UTC),
            ),
            BenchmarkRun(
                place="row 3",
                model="llama-3.1-70b",
                gpu="h200-sxm",
                precision="fp8",
                engine="sglang",
                tensor_parallel=4,
                input_tokens=1024.5,
                output_tokens=256,
                request_rate_rps=2.25,
                req_per_s=2.2,
                ttft_s=0.31,
                tpot_s=0.025,
                measured_at=datetime(2026, 11, 3, 8, 0, tzinfo=UTC),
            ),
        ),
    )


def test_other_spellings_of_the_columns_are_understood() -> None:
    header = (
        " GPU ,backend,backend_version,tensor_parallel,pipeline_parallel,batch_or_concurrency,kv_cache_dtype,ttft_s"
    )
    (run,) = read(f"{header}\nl40s,trtllm,1.0.0rc3,2,1,13,fp8,0.5\n").runs
    assert (run.gpu, run.engine, run.engine_version) == ("l40s", "trtllm", "1.0.0rc3")
    assert (run.tensor_parallel, run.pipeline_parallel, run.concurrency, run.kv_precision) == (2, 1, 13, "fp8")


def test_a_concurrency_that_is_not_verified_is_unknown() -> None:
    rows = [f"64,{said},2.5" for said in ("True", "False", "no", "", "1")]
    found = read("\n".join(["concurrency,concurrency_verified,req_per_s", *rows]))
    assert [run.concurrency for run in found.runs] == [64, None, None, 64, 64]


def test_a_short_row_lacks_its_last_values_and_empty_rows_still_count() -> None:
    found = read("req_per_s,ttft_s,gpu\n2.5,0.1,l4\n\n\n2.6\n")
    assert [(run.place, run.ttft_s) for run in found.runs] == [("row 2", 0.1), ("row 5", None)]


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("fast", "'fast': must be a number"),
        ("nan", "'nan': must be a number"),
        ("inf", "'inf': must be a number"),
        ("1e999", "inf: must be a finite number"),
        ("-1", "-1.0: must be at least 0"),
        ("1_000", "'1_000': must be a number"),
        ("0x10", "'0x10': must be a number"),
        ("٣", "'٣': must be a number"),
    ],
)
def test_a_wrong_number_costs_its_row_and_no_other(cell: str, reason: str) -> None:
    found = read(f"gpu,ttft_s\nl4,0.1\nl4,{cell}\nl4,0.2\n")
    assert [run.place for run in found.runs] == ["row 2", "row 4"]
    (rejected,) = found.rejected
    assert rejected.place == "row 3"
    assert rejected.reasons == (f"ttft_s: {reason}",)


@pytest.mark.parametrize(
    ("column", "cell", "reason"),
    [
        ("tensor_parallel", "1.5", "tensor_parallel: 1.5: must be a whole number"),
        ("measured_at", "1700000000", "measured_at: '1700000000': must be a time"),
        ("concurrency_verified", "perhaps", "concurrency_verified: 'perhaps': must be True or False"),
        ("gpu", "l4\x07", "gpu: 'l4\\x07': contains control characters"),
        ("gpu", "l4,5", "(row): the row has 3 cells, the header names 2: put cells that contain commas in quotes"),
    ],
)
def test_a_wrong_cell_is_named_by_its_column(column: str, cell: str, reason: str) -> None:
    (rejected,) = read(f"req_per_s,{column}\n1,\n1,{cell}\n").rejected
    assert rejected.reasons[0].startswith(reason)


def test_a_table_of_wrong_rows_is_an_error() -> None:
    with pytest.raises(DocumentError, match="row 2: req_per_s: 'x': must be a number"):
        read("req_per_s\nx\n")


def test_a_header_alone_holds_no_run() -> None:
    with pytest.raises(DocumentError, match="holds no csv run"):
        read("gpu,req_per_s\n")


def test_the_summaries_of_nvidia_are_sent_to_their_json() -> None:
    with pytest.raises(DocumentError, match=r"give the \.json file beside it"):
        read("Metric,avg,min,max\nTime to First Token (ms),90.00,45.00,270.00\n\nMetric,Value\nRequest Count,480\n")
