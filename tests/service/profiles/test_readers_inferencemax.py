"""Aggregated results of InferenceMAX, and the lines of SGLang's bench_serving, from bytes to runs."""

import pytest

from sutler.service.documents.errors import DocumentError
from sutler.service.profiles.readers import read_runs
from sutler.service.profiles.runs import BenchmarkRun
from tests.service.profiles.payloads import INFERENCEMAX, VLLM, as_bytes, without


def test_every_field_of_a_result_is_read_and_lengths_follow_from_rates() -> None:
    found = read_runs(as_bytes([INFERENCEMAX, {**INFERENCEMAX, "framework": "trt", "image": "x"}]), name="agg_x.json")
    assert found.format == "inferencemax"
    rps = 32 / 30.0
    assert found.runs[0] == BenchmarkRun(
        place="result 1",
        model="meta-llama/Llama-3.1-70B-Instruct",
        gpu="h200",
        precision="fp8",
        engine="vllm",
        engine_version="0.11.2",
        tensor_parallel=4,
        input_tokens=960.0 / rps,
        output_tokens=960.0 / rps,
        concurrency=32,
        req_per_s=rps,
        ttft_s=0.35,
        tpot_s=0.032,
        e2e_s=30.0,
    )
    assert (found.runs[1].engine, found.runs[1].engine_version) == ("trtllm", None)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"spec_decoding": "mtp"}, "spec_decoding"),
        ({"disagg": True}, "disagg"),
        ({"is_multinode": True}, "disagg"),
        ({"dp_attention": "true"}, "dp_attention"),
        ({"tp": "four"}, "tp"),
        ({"conc": -1}, "conc"),
    ],
)
def test_runs_of_something_else_than_one_plain_engine_say_why(changes: dict[str, object], field: str) -> None:
    found = read_runs(as_bytes(INFERENCEMAX, {**INFERENCEMAX, **changes}), name="agg_x.json")
    assert len(found.runs) == 1
    assert [one.place for one in found.rejected] == ["result 2"]
    assert field in found.rejected[0].reasons[0]
    with pytest.raises(DocumentError, match=field):
        read_runs(as_bytes({**INFERENCEMAX, **changes}), name="agg_x.json")


def test_what_a_result_does_not_say_is_unknown() -> None:
    (run,) = read_runs(as_bytes(without(INFERENCEMAX, "mean_e2el", "image", "tp")), name="agg_x.json").runs
    assert (run.req_per_s, run.input_tokens, run.engine_version, run.tensor_parallel) == (None, None, None, None)


def test_lines_of_sglang_are_runs_of_sglang() -> None:
    """The same keys as vLLM's, but for the model; one line a run."""
    line = {**without(VLLM, "model_id", "endpoint_type", "date"), "backend": "sglang-oai", "dataset_name": "random"}
    found = read_runs(as_bytes(line, line), name="sglang.jsonl")
    assert [(run.engine, run.model, run.concurrency) for run in found.runs] == [("sglang", None, 64)] * 2
