"""Files of traffic as bodies for `/observations`."""

import io
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from sutler.service.cli.deployments.files import REQUESTS_AT_ONCE, observations, wanted_deployment
from sutler.service.documents.errors import DocumentError
from tests.service.builders import a_model, a_problem

OBSERVED = {
    "model": "chat",
    "observed_at": "2026-11-20T12:00:00Z",
    "window_s": 60,
    "buckets": [{"input_tokens": 500, "output_tokens": 100, "requests": 42}],
}
A_REQUEST = {"at": "2026-11-20T12:00:01Z", "input_tokens": 500, "output_tokens": 100}
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"


def read(folder: Path, text: str, model: str | None = None) -> list[Any]:
    path = folder / "traffic"
    path.write_text(text, encoding="utf-8")
    return list(observations(path, model))


def refused(folder: Path, text: str, model: str | None = "chat") -> str:
    with pytest.raises(DocumentError) as caught:
        read(folder, text, model)
    return str(caught.value)


@pytest.mark.parametrize("document", [OBSERVED, [OBSERVED, {**OBSERVED, "model": "code"}]])
@pytest.mark.parametrize("indent", [None, 2])
def test_json_documents_are_sent_as_they_are(tmp_path: Path, document: Any, indent: int | None) -> None:
    expected = document if isinstance(document, list) else [document]
    assert read(tmp_path, json.dumps(document, indent=indent)) == expected


def test_yaml_is_read_too(tmp_path: Path) -> None:
    [found] = read(tmp_path, "model: chat\nwindow_s: 60\nbuckets: []\n")
    assert found == {"model": "chat", "window_s": 60, "buckets": []}


def test_json_lines_are_observations_or_single_requests(tmp_path: Path) -> None:
    requests = [{**A_REQUEST, "model": "chat"}, {**A_REQUEST, "model": "code"}, {**A_REQUEST, "model": "chat"}]
    lines = "\n".join(json.dumps(record) for record in [*requests, OBSERVED])
    found = read(tmp_path, f"{lines}\n\n")
    assert found[0] == OBSERVED
    assert {body["model"]: len(body["requests"]) for body in found[1:]} == {"chat": 2, "code": 1}
    assert found[1]["requests"][0] == A_REQUEST


def test_the_model_is_added_where_the_file_names_none(tmp_path: Path) -> None:
    nameless = {key: value for key, value in OBSERVED.items() if key != "model"}
    assert read(tmp_path, json.dumps(nameless), "chat") == [OBSERVED]
    assert read(tmp_path, json.dumps(OBSERVED), "other") == [OBSERVED]
    assert "--model" in refused(tmp_path, json.dumps(nameless), None)


def test_a_trace_as_csv_is_single_requests_in_utc(tmp_path: Path) -> None:
    rows = "2023-11-16 18:15:46.6805900,374,44\n2023-11-16T20:15:50+02:00,396,109\n"
    [body] = read(tmp_path, f"\ufeff{HEADER}{rows}", "chat")
    assert body == {
        "model": "chat",
        "requests": [
            {"at": "2023-11-16T18:15:46.680590+00:00", "input_tokens": 374.0, "output_tokens": 44.0},
            {"at": "2023-11-16T20:15:50+02:00", "input_tokens": 396.0, "output_tokens": 109.0},
        ],
    }


def test_columns_may_stand_in_any_order_beside_others(tmp_path: Path) -> None:
    [body] = read(tmp_path, "id, GeneratedTokens ,TIMESTAMP,ContextTokens\n7,44,2023-11-16 18:15:46,374\n", "chat")
    assert body["requests"] == [{"at": "2023-11-16T18:15:46+00:00", "input_tokens": 374.0, "output_tokens": 44.0}]


def test_many_requests_are_sent_in_parts(tmp_path: Path) -> None:
    rows = "2023-11-16 18:15:46,374,44\n" * (REQUESTS_AT_ONCE + 1)
    assert [len(body["requests"]) for body in read(tmp_path, HEADER + rows, "chat")] == [REQUESTS_AT_ONCE, 1]


def test_standard_input_is_read_like_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(OBSERVED).encode())))
    assert list(observations(Path("-"), None)) == [OBSERVED]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("[1, 2]", "must hold observations"),
        ('{"a": 1}\n{"a": 1, "a": 2}\n', "line 2"),
        (HEADER + "yesterday,374,44\n", "line 2: must be a time"),
        (HEADER + "2023-11-16 18:15:46,many,44\n", "line 2: must be a number"),
        (HEADER + "2023-11-16 18:15:46,374\n", "line 2: must be a number"),
        ("a: [", "is not valid YAML"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    assert said in refused(tmp_path, text)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match="no such file"):
        list(observations(tmp_path / "nowhere", None))
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DocumentError, match="UTF-8"):
        list(observations(tmp_path / "binary", None))


def test_a_config_beside_a_problem_goes_along_with_it(tmp_path: Path) -> None:
    config = {"num_hidden_layers": 4, "layer_types": []}
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    problem = a_problem(models=[a_model(model={"config_file": "config.json", "hf_id": "org/mine"})])
    (tmp_path / "problem.json").write_text(json.dumps(problem), encoding="utf-8")
    body = wanted_deployment(tmp_path / "problem.json", "mine").body
    assert body["problem"]["models"][0]["model"] == {"config": config, "hf_id": "org/mine"}
