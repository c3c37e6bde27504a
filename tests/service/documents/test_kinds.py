"""One document where another one is wanted: the error names both, and nothing else of it."""

from pathlib import Path
from typing import Any

import pytest

from sutler.service.documents.calibration import CalibrationDocument
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.fields import Document
from sutler.service.documents.kinds import CALLED
from sutler.service.documents.market import MarketDocument
from sutler.service.documents.plan import PlanDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.reading import read_document
from sutler.service.documents.validation import validate
from sutler.service.json_schemas import json_schema
from tests.service.builders import a_snapshot, an_offer

EXAMPLES = Path(__file__).parents[3] / "examples"


def problems_of(kind: type[Document], data: object) -> list[str]:
    with pytest.raises(DocumentError) as raised:
        validate(kind, data)
    return [str(problem) for problem in raised.value.problems]


def a_problem() -> Any:
    return read_document(EXAMPLES / "min_cost_slo.yaml")


@pytest.mark.parametrize(
    ("kind", "data", "said"),
    [
        (ProblemDocument, {"schema": "sutler/plan/v1", "id": "x"}, "is a plan, which is not what is wanted here"),
        (ProblemDocument, a_snapshot(an_offer()), "is a market, which is not what is wanted here: a problem names"),
        (PlanDocument, a_snapshot(an_offer()), "is a market"),
        (PlanDocument, a_problem(), "looks like a problem where a plan is wanted; `sutler plan PROBLEM --json`"),
        (CalibrationDocument, a_problem(), "looks like a problem where a calibration is wanted"),
        (MarketDocument, {"schema": "sutler/plan/v1"}, "is a plan"),
    ],
)
def test_another_document_is_named_as_what_it_is(kind: type[Document], data: object, said: str) -> None:
    [problem] = problems_of(kind, data)
    assert problem.startswith("schema: ")
    assert said in problem


def test_a_schema_that_nobody_knows_is_a_wrong_field_as_any_other() -> None:
    found = problems_of(PlanDocument, {"schema": "sutler/plan/v9"})
    assert any(problem.startswith("schema: 'sutler/plan/v9'") for problem in found)
    assert len(found) > 1


def test_all_that_have_a_schema_are_called_something() -> None:
    wanted = {
        json_schema(name)["properties"].get("schema", {}).get("const") for name in ("plan", "market", "calibration")
    }
    assert wanted <= CALLED.keys()
