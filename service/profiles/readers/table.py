"""sutler's own benchmark table: a CSV file with one run a row, for whatever no other reader knows.

Columns, in any order, others are ignored: gpu, model, precision, kv_precision (or kv_cache_dtype), engine (or
backend), engine_version (or backend_version), tp (or tensor_parallel), pp (or pipeline_parallel), input_tokens,
output_tokens, concurrency (or batch_or_concurrency), concurrency_verified, request_rate_rps, req_per_s, ttft_s,
tpot_s, e2e_s, completed, failed, duration_s, measured_at,
length_spread_fraction. An empty cell is an unknown value; so is a concurrency
where concurrency_verified is False. The same spellings serve `sutler estimate --csv`.
"""

from collections.abc import Sequence
from typing import Annotated, Final

from pydantic import BeforeValidator
from pydantic_core import PydanticCustomError

from sutler.service.documents.csv_tables import COLUMN_NAMES, CsvTable, read_csv, too_many_cells
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.validation import validate
from sutler.service.profiles.readers.labels import says_something
from sutler.service.profiles.readers.outcome import RunsRead, collected
from sutler.service.profiles.readers.values import (
    CountedText,
    DegreeText,
    Label,
    MeasuredText,
    PositiveText,
    Stated,
    Time,
    named,
)
from sutler.service.profiles.runs import BenchmarkRun

FORMAT: Final = "csv"
_MEASURED: Final = ("req_per_s", "ttft_s", "tpot_s", "e2e_s")
_TRUTHS: Final = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


def _truth(value: object) -> bool:
    found = _TRUTHS.get(str(value).strip().lower())
    if found is None:
        raise PydanticCustomError("sutler_truth", "must be True or False")
    return found


class _Row(Stated):
    gpu: Label | None = None
    model: Label | None = None
    precision: Label | None = None
    kv_precision: Label | None = named(*COLUMN_NAMES["kv_precision"])
    engine: Label | None = named(*COLUMN_NAMES["engine"])
    engine_version: Label | None = named(*COLUMN_NAMES["engine_version"])
    tensor_parallel: DegreeText | None = named(*COLUMN_NAMES["tp"])
    pipeline_parallel: DegreeText | None = named(*COLUMN_NAMES["pp"])
    input_tokens: MeasuredText | None = None
    output_tokens: MeasuredText | None = None
    concurrency: PositiveText | None = named(*COLUMN_NAMES["concurrency"])
    concurrency_verified: Annotated[bool, BeforeValidator(_truth)] = True
    request_rate_rps: PositiveText | None = None
    req_per_s: MeasuredText | None = None
    ttft_s: MeasuredText | None = None
    tpot_s: MeasuredText | None = None
    e2e_s: MeasuredText | None = None
    completed: CountedText | None = None
    failed: CountedText | None = None
    duration_s: MeasuredText | None = None
    measured_at: Time | None = None
    length_spread_fraction: MeasuredText | None = None


def read(content: bytes, name: str) -> RunsRead:
    """The runs of a table. Raises DocumentError where the file is no such table, or no row of it can be used."""
    table = read_csv(content, columns=("gpu", "model", *_MEASURED), field="file", name=name)
    _require_measurements(table, name)
    numbered = [(f"row {number}", row) for number, row in zip(table.numbers, table.rows, strict=True)]
    return collected(name, FORMAT, numbered, lambda place, row: _run(place, row, table.names))


def _require_measurements(table: CsvTable, name: str) -> None:
    if any(column in table.names for column in _MEASURED):
        return
    if table.names[0] == "metric":
        remedy = "is the CSV summary of AIPerf or GenAI-Perf, without model and load: give the .json file beside it"
    else:
        remedy = (
            "is not recognised: give a result file of vLLM, GuideLLM, AIPerf or GenAI-Perf in JSON, or a CSV file "
            f"whose first line names gpu, model and at least one of {', '.join(_MEASURED)}"
        )
    raise DocumentError.of("file", remedy, value=name)


def _run(place: str, row: Sequence[str], names: Sequence[str]) -> BenchmarkRun:
    if reason := too_many_cells(row, len(names)):
        raise DocumentError.of("(row)", f"{reason}: put cells that contain commas in quotes")
    # Reversed, so that the first of several columns of one name wins.
    cells = {name: cell for name, cell in reversed(list(zip(names, row, strict=False))) if says_something(cell)}
    stated = dict(validate(_Row, cells))
    if not stated.pop("concurrency_verified"):
        stated["concurrency"] = None
    return BenchmarkRun(place=place, **stated)
