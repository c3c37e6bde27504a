"""From the bytes of one benchmark result file to the runs it states. The front door is `read_runs`.

Flow: bytes -> recognised by content -> vllm.py, guidellm.py, aiperf.py, inferencemax.py (JSON), table.py (CSV) ->
RunsRead -> checks. The readers change units and names, and judge nothing: whether a run is plausible is for the
checks to say.
"""

from typing import Final

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.reading import MOST_JSON_BYTES, parse_json_sequence
from sutler.service.profiles.readers import aiperf, guidellm, inferencemax, table, vllm
from sutler.service.profiles.readers.outcome import RejectedRun, RunsRead

__all__ = ["RejectedRun", "RunsRead", "read_runs"]

_FIELD: Final = "file"
_BOM: Final = b"\xef\xbb\xbf"
_JSON_READERS: Final = (
    (guidellm.recognises, guidellm.read),
    (aiperf.recognises, aiperf.read),
    (inferencemax.recognises, inferencemax.read),
    (vllm.recognises, vllm.read),
)
_ACCEPTED: Final = (
    "a result file of `vllm bench serve` or SGLang's bench_serving, GuideLLM (benchmarks.json), AIPerf "
    "(profile_export_aiperf.json), GenAI-Perf (profile_export_genai_perf.json) or InferenceMAX (agg_*.json), or "
    "sutler's CSV table"
)


def read_runs(content: bytes, *, name: str) -> RunsRead:
    """The runs that a file states; `name` is what errors call it and has no say in how it is read.

    A run with a wrong value is in `rejected` and the others are kept. Raises DocumentError where the file is none of
    the known formats or cannot be read at all, and where no run is left.
    """
    if len(content) > MOST_JSON_BYTES:
        remedy = f"is larger than {MOST_JSON_BYTES // 1_000_000} MB: save it without the details of single requests"
        raise DocumentError.of(_FIELD, remedy, value=name)
    start = content.removeprefix(_BOM).lstrip()[:1]
    if not start:
        raise DocumentError.of(_FIELD, f"is empty: give {_ACCEPTED}", value=name)
    return _read_json(content, name) if start in (b"{", b"[") else table.read(content, name)


def _read_json(content: bytes, name: str) -> RunsRead:
    values = parse_json_sequence(content, field=_FIELD, name=name)
    for recognises, read in _JSON_READERS:
        if recognises(values):
            return read(values, name)
    raise DocumentError.of(_FIELD, f"is JSON of no known format: give {_ACCEPTED}", value=name)
