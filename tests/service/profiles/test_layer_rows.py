"""Times of layers as a file: what is written is read back, and what is wrong is named."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from sutler.service.documents.errors import DocumentError
from sutler.service.profiles.layer_rows import COLUMNS, LayerRow, read, written

PREFILL = LayerRow(
    gpu="h100-sxm",
    model="llama-3-8b",
    precision="fp8",
    kv_precision="bf16",
    tp=2,
    phase="prefill",
    new_tokens=512,
    batch=1,
    context_tokens=512,
    attention="included",
    seconds=0.000123456,
    repetitions=50,
    spread_fraction=0.01,
    bytes=None,
    torch="2.13.0",
    cuda="13.0",
    driver="580.65.06",
    measured_at=datetime(2026, 11, 21, 12, 0, tzinfo=UTC),
)
SUM = replace(PREFILL, phase="all_reduce", context_tokens=0, attention="excluded", bytes=4_194_304)


def test_the_columns_are_those_that_importers_rely_on() -> None:
    assert ",".join(COLUMNS) == (
        "gpu,model,precision,kv_precision,tp,phase,new_tokens,batch,context_tokens,attention,seconds,repetitions,"
        "spread_fraction,bytes,torch,cuda,driver,measured_at"
    )


def test_what_is_written_is_read_back() -> None:
    assert read(written([PREFILL, SUM])) == (PREFILL, SUM)
    assert read(b"\xef\xbb\xbf" + written([])) == ()


def test_further_columns_do_no_harm() -> None:
    lines = written([PREFILL]).decode().splitlines()
    assert read(f"{lines[0]},note\n{lines[1]},mine\n".encode()) == (PREFILL,)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("prefill", "train", "FILE row 1, phase: 'train': must be one of prefill"),
        ("0.000123456", "0", "FILE row 1, seconds: '0': must be above 0"),
        ("0.000123456", "nan", "FILE row 1, seconds: 'nan': must be a finite number"),
        (",2,prefill", ",two,prefill", "FILE row 1, tp: 'two': must be a whole number from 1"),
        ("+00:00", "", "FILE row 1, measured_at: '2026-11-21T12:00:00': must be a time with its UTC offset"),
        ("h100-sxm", "", "FILE row 1, gpu: '': must not be empty"),
        ("kv_precision", "kv", "FILE: lacks the columns kv_precision"),
    ],
)
def test_a_wrong_cell_is_named_with_its_row(old: str, new: str, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        read(written([PREFILL]).replace(old.encode(), new.encode(), 1))
    assert str(caught.value).startswith(message)


def test_a_short_row_is_no_defect_of_ours() -> None:
    with pytest.raises(DocumentError, match="row 1"):
        read(f"{','.join(COLUMNS)}\nh100-sxm,llama-3-8b\n".encode())


def test_what_is_no_text_is_refused() -> None:
    with pytest.raises(DocumentError, match="is no CSV file"):
        read(b"\xff\xfe\x00")
