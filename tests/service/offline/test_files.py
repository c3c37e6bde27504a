"""Traces and lengths in files become part of the application."""

from pathlib import Path
from typing import Any

import pytest

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.validation import validate
from sutler.service.offline.application_schema import ApplicationDocument
from sutler.service.offline.files import inlined
from sutler.service.offline.translate import translate
from sutler.solver.errors import InvalidProblemError
from sutler.solver.offline.application import LengthDistribution, Recorded
from tests.service.offline.builders import an_application, an_asker

TRACE = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.6805900,374,44
2023-11-16 18:15:50.9951690,396,109
2023-11-16 18:15:51.2225670,879,44
"""


def application(**model: Any) -> ApplicationDocument:
    return validate(ApplicationDocument, an_application(models=[an_asker(**model)], edges=[]))


def traced(folder: Path, text: str = TRACE, *, known: bool = False, **model: Any) -> ApplicationDocument:
    (folder / "x.csv").write_text(text)
    return application(
        requests={"trace": {"file": "x.csv", "known_output_tokens": known}}, **{"output_tokens": None, **model}
    )


def test_a_trace_gives_prompts_and_the_distribution_of_its_answers(tmp_path: Path) -> None:
    [node] = translate(traced(tmp_path), folder=tmp_path).application.nodes
    assert node.requests == Recorded((374, 396, 879), None)
    assert node.output_tokens == LengthDistribution((44, 109), (2 / 3, 1.0))


def test_a_trace_whose_answers_are_known_gives_them_one_by_one(tmp_path: Path) -> None:
    [node] = translate(traced(tmp_path, known=True), folder=tmp_path).application.nodes
    assert node.requests == Recorded((374, 396, 879), (44, 109, 44))


def test_a_stated_distribution_wins_over_that_of_the_trace(tmp_path: Path) -> None:
    [node] = translate(traced(tmp_path, output_tokens=70), folder=tmp_path).application.nodes
    assert node.output_tokens == LengthDistribution.always(70)


def test_the_document_then_stands_by_itself(tmp_path: Path) -> None:
    translation = translate(traced(tmp_path), folder=tmp_path)
    written = translation.document.model_dump_json(by_alias=True)
    assert "x.csv" not in written
    again = ApplicationDocument.model_validate_json(written)
    assert translate(again, folder=None).application == translation.application


def test_lengths_come_from_a_column_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(TRACE)
    lengths = {"file": {"path": "x.csv", "column": "GeneratedTokens"}}
    document = application(output_tokens=lengths, requests={"count": 4, "input_tokens": lengths})
    [node] = translate(document, folder=tmp_path).application.nodes
    assert node.output_tokens == LengthDistribution((44, 109), (2 / 3, 1.0))
    assert node.requests.input_tokens == node.output_tokens  # type: ignore[union-attr]


def test_paths_are_refused_where_there_is_no_folder(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"models\[0\].requests.trace.file: .*command line only"):
        inlined(traced(tmp_path), folder=None)
    lengths = {"file": {"path": "x.csv", "column": "c"}}
    with pytest.raises(DocumentError, match=r"models\[0\].output_tokens.file.path: .*command line only"):
        inlined(application(output_tokens=lengths), folder=None)


@pytest.mark.parametrize(
    ("text", "field", "remedy"),
    [
        ("a,b\n1,2\n", "column", "is not once among the columns of x.csv: a, b"),
        ("c,c\n1,2\n", "column", "is not once among"),
        ("c\n", "path", "has 0 rows below its header"),
        ("", "path", "the file is empty"),
        ("c\n5\nmany\n", "path", "row 3: must be a whole number"),
        ("c\n-5\n", "path", "row 2: must be a whole number"),
        ("c\n99999999\n", "path", "row 2: must be a whole number"),
        ("d,c\n7\n", "path", "row 2: must be a whole number"),
    ],
)
def test_a_wrong_column_is_named(tmp_path: Path, text: str, field: str, remedy: str) -> None:
    (tmp_path / "x.csv").write_text(text)
    document = application(output_tokens={"file": {"path": "x.csv", "column": "c"}})
    with pytest.raises(DocumentError) as error:
        inlined(document, folder=tmp_path)
    [problem] = error.value.problems
    assert problem.field == f"models[0].output_tokens.file.{field}"
    assert remedy in problem.remedy


@pytest.mark.parametrize(("path", "remedy"), [("none.csv", "cannot be read"), (".", "is no ordinary file")])
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, path: str, remedy: str) -> None:
    lengths = {"file": {"path": path, "column": "c"}}
    with pytest.raises(DocumentError, match=rf"models\[0\].output_tokens.file.path: .*{remedy}"):
        inlined(application(output_tokens=lengths), folder=tmp_path)
    document = application(requests={"trace": {"file": path}})
    with pytest.raises((DocumentError, InvalidProblemError), match=rf"models\[0\].requests.trace.file: .*{remedy}"):
        inlined(document, folder=tmp_path)


def test_a_trace_that_is_none_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidProblemError, match=r"models\[0\].requests.trace.file: .*header must hold"):
        inlined(traced(tmp_path, "a,b\n1,2\n"), folder=tmp_path)
