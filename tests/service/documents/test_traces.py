"""Traces become buckets that keep every request and every token, and bad files are named to the line."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sutler.service.documents.traces import BucketedTrace, bucket_trace, bucket_trace_file
from sutler.solver.errors import InvalidProblemError

SHARED_TRACES = Path(__file__).parents[4] / "shared" / "data" / "traces"
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"

lengths = st.integers(min_value=1, max_value=20_000)
requests_of_a_trace = st.lists(st.tuples(lengths, lengths), min_size=1, max_size=60)


def trace(*requests: tuple[int, int]) -> list[str]:
    """One request a second."""
    rows = [
        f"2023-11-16 18:{second // 60:02d}:{second % 60:02d}.0000000,{input_tokens},{output_tokens}"
        for second, (input_tokens, output_tokens) in enumerate(requests)
    ]
    return [HEADER, *rows]


def totals(bucketed: BucketedTrace) -> tuple[int, float, float]:
    return (
        sum(bucket.requests for bucket in bucketed.buckets),
        math.fsum(bucket.requests * bucket.input_tokens for bucket in bucketed.buckets),
        math.fsum(bucket.requests * bucket.output_tokens for bucket in bucketed.buckets),
    )


@given(requests_of_a_trace, st.integers(min_value=1, max_value=30))
def test_bucketing_keeps_all_requests_and_all_tokens(requests: list[tuple[int, int]], buckets: int) -> None:
    bucketed = bucket_trace(trace(*requests), buckets=buckets, duration_s=100.0)
    count, input_tokens, output_tokens = totals(bucketed)
    assert count == len(requests)
    assert input_tokens == pytest.approx(sum(request[0] for request in requests), rel=1e-12)
    assert output_tokens == pytest.approx(sum(request[1] for request in requests), rel=1e-12)
    assert 1 <= len(bucketed.buckets) <= buckets
    assert len({bucket.name for bucket in bucketed.buckets}) == len(bucketed.buckets)


@given(requests_of_a_trace, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(requests: list[tuple[int, int]], random: object) -> None:
    header, *rows = trace(*requests, (5, 5))
    shuffled = list(rows)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert bucket_trace([header, *shuffled]) == bucket_trace([header, *rows])


@given(requests_of_a_trace)
def test_requests_of_equal_length_stay_together(requests: list[tuple[int, int]]) -> None:
    doubled = bucket_trace(trace(*requests, *requests), duration_s=1.0)
    single = bucket_trace(trace(*requests), duration_s=1.0)
    assert [2 * bucket.requests for bucket in single.buckets] == [bucket.requests for bucket in doubled.buckets]


def test_nine_buckets_are_thirds_by_thirds() -> None:
    requests = [(100 * i, 10 * o) for i in (1, 2, 3) for o in (1, 2, 3)]
    bucketed = bucket_trace(trace(*requests), buckets=9)
    assert [(bucket.input_tokens, bucket.output_tokens) for bucket in bucketed.buckets] == requests
    assert bucketed.buckets[0].name == "in-p0-33_out-p0-33"
    assert bucketed.buckets[-1].name == "in-p67-100_out-p67-100"


@pytest.mark.parametrize(
    ("buckets", "input_parts", "output_parts"), [(1, 1, 1), (4, 2, 2), (6, 3, 2), (7, 7, 1), (12, 4, 3), (16, 4, 4)]
)
def test_the_grid_is_as_square_as_the_number_of_buckets_allows(
    buckets: int, input_parts: int, output_parts: int
) -> None:
    requests = [(i, o) for i in range(1, 85) for o in (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)]
    bucketed = bucket_trace(trace(*requests), buckets=buckets)
    names = [bucket.name.split("_") for bucket in bucketed.buckets]
    assert len({name[0] for name in names}) == input_parts
    assert len({name[1] for name in names}) == output_parts
    assert len(bucketed.buckets) == buckets


def test_ties_merge_cuts_and_name_what_they_cover() -> None:
    # every input is 10; outputs are 1 up to the 75th percentile
    bucketed = bucket_trace(trace((10, 1), (10, 1), (10, 1), (10, 9)), buckets=4)
    assert [(bucket.name, bucket.requests) for bucket in bucketed.buckets] == [
        ("in-p0-100_out-p0-50", 3),
        ("in-p0-100_out-p50-100", 1),
    ]


def test_rates_are_requests_over_the_time_between_first_and_last() -> None:
    bucketed = bucket_trace(trace((10, 1), (10, 1), (10, 1), (20, 1), (20, 1)), buckets=2)
    assert "over 4 s" in bucketed.description
    assert [bucket.rate_rps for bucket in bucketed.buckets] == [3 / 4, 2 / 4]


def test_a_stated_duration_replaces_the_span() -> None:
    bucketed = bucket_trace(trace((10, 1), (20, 1)), duration_s=100.0)
    assert "over 100 s" in bucketed.description
    assert sum(bucket.rate_rps for bucket in bucketed.buckets) == pytest.approx(0.02)


def test_the_description_says_how_requests_were_divided() -> None:
    description = bucket_trace(trace((10, 1), (20, 2), (30, 3), (40, 4)), buckets=4).description
    assert description.startswith("4 requests over 3 s (1.333 requests/s) were put into 2 buckets by quantiles")
    assert "2 by 2 parts" in description


def test_byte_order_mark_windows_lines_blank_lines_and_further_columns_are_fine(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    rows = ["id,GeneratedTokens,TIMESTAMP,ContextTokens", "a,2,2024-05-10 00:00:00.009930+00:00,7", ""]
    rows.append("b,4,2024-05-10T00:00:10.0099300Z,9")
    path.write_bytes(b"\xef\xbb\xbf" + "\r\n".join(rows).encode())
    bucketed = bucket_trace_file(path, buckets=1)
    assert "over 10 s" in bucketed.description
    assert (bucketed.buckets[0].input_tokens, bucketed.buckets[0].output_tokens) == (8.0, 3.0)


def test_times_without_a_zone_are_utc() -> None:
    rows = [HEADER, "2023-11-16 18:00:00,5,5", "2023-11-16 19:00:01+01:00,5,5"]
    assert "over 1 s" in bucket_trace(rows).description


GOOD = "2023-11-16 18:15:46.6805900,374,44"


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        ([], "line 1: the header must hold the columns TIMESTAMP, ContextTokens, GeneratedTokens"),
        (["time,in,out", "1,2,3"], "time,in,out"),
        ([HEADER.replace(",", ";"), GOOD.replace(",", ";")], "separated by commas"),
        ([HEADER + ",ContextTokens", GOOD + ",5"], "once each"),
        ([GOOD], "line 1: the header"),
        ([HEADER], "at least one request"),
        ([HEADER, GOOD, "2023-11-16 18:15:47,374"], "line 3: has 2 cells where the header has 3"),
        ([HEADER, GOOD, GOOD + ",1"], "line 3: has 4 cells"),
        ([HEADER, GOOD, "yesterday,374,44"], "line 3, TIMESTAMP: must be a time"),
        ([HEADER, GOOD, "nan,374,44"], "line 3, TIMESTAMP"),
        ([HEADER, GOOD, "2023-11-16 18:15:46,many,44"], "line 3, ContextTokens: must be a whole number"),
        ([HEADER, GOOD, "2023-11-16 18:15:46,-5,44"], "'-5'"),
        ([HEADER, GOOD, "2023-11-16 18:15:46,NaN,44"], "'NaN'"),
        ([HEADER, GOOD, "2023-11-16 18:15:46,inf,44"], "'inf'"),
        ([HEADER, GOOD, "2023-11-16 18:15:46,2.5,44"], "'2.5'"),
        ([HEADER, GOOD, "2023-11-16 18:15:46,374,0"], "line 3, GeneratedTokens"),
        ([HEADER, GOOD, "2023-11-16 18:15:46,374,"], "line 3, GeneratedTokens"),
        ([HEADER, GOOD, "2023-11-16 18:15:46,374,1" + "0" * 400], "line 3, GeneratedTokens"),
        ([HEADER, GOOD, "2023-11-16 18:15:46,\x00374,44"], "line 3"),
        ([HEADER, '"' + "x" * 200_000], "is not CSV"),
    ],
)
def test_a_bad_line_is_named_with_its_value_and_the_remedy(lines: list[str], named: str) -> None:
    with pytest.raises(InvalidProblemError) as caught:
        bucket_trace(lines, field="models[0].trace")
    assert named in str(caught.value)
    assert caught.value.field == "models[0].trace.file"
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("rows", [[GOOD], [GOOD, GOOD]])
def test_without_a_span_of_time_the_duration_must_be_stated(rows: list[str]) -> None:
    with pytest.raises(InvalidProblemError, match="say how long") as caught:
        bucket_trace([HEADER, *rows], field="models[0].trace")
    assert caught.value.field == "models[0].trace.duration_s"
    assert bucket_trace([HEADER, *rows], duration_s=2.0).buckets[0].rate_rps == len(rows) / 2


def test_a_file_that_is_missing_a_folder_or_binary_is_named(tmp_path: Path) -> None:
    binary = tmp_path / "binary.csv"
    binary.write_bytes(bytes(range(256)) * 8)
    utf16 = tmp_path / "utf16.csv"
    utf16.write_text("\n".join(trace((1, 1), (2, 2))), encoding="utf-16")
    for path, said in [
        (tmp_path / "none.csv", "cannot be read"),
        (tmp_path, "cannot be read"),
        (binary, "save the trace as UTF-8"),
        (utf16, "save the trace as UTF-8"),
    ]:
        with pytest.raises(InvalidProblemError, match=said):
            bucket_trace_file(path)


@pytest.mark.parametrize(
    ("name", "requests"), [("AzureLLMInferenceTrace_code.csv", 8819), ("AzureLLMInferenceTrace_conv.csv", 19366)]
)
def test_the_azure_traces_keep_their_tokens(name: str, requests: int) -> None:
    path = SHARED_TRACES / name
    if not path.exists():
        pytest.skip("the Azure traces are not beside this checkout")
    rows = [line.split(",") for line in path.read_text("utf-8").splitlines()[1:] if line.strip()]
    bucketed = bucket_trace_file(path)
    count, input_tokens, output_tokens = totals(bucketed)
    assert count == requests == len(rows)
    assert len(bucketed.buckets) == 9
    assert input_tokens == pytest.approx(sum(int(row[1]) for row in rows), rel=1e-12)
    assert output_tokens == pytest.approx(sum(int(row[2]) for row in rows), rel=1e-12)
