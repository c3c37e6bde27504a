"""What is refused of a deployment and its policy, and in which words."""

from typing import Any

import pytest

from sutler.service.deployments.schemas import NAME_PATTERN, NewDeploymentDocument
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.validation import validate
from tests.service.deployments.replanning.builders import a_problem


def refused(*, name: str = "chat", **policy: Any) -> dict[str, str]:
    """The remedy for each field."""
    document = {"name": name, "problem": a_problem().model_dump(mode="json", exclude_unset=True), "policy": policy}
    with pytest.raises(DocumentError) as raised:
        validate(NewDeploymentDocument, document)
    return {problem.field: problem.remedy for problem in raised.value.problems}


def test_a_name_that_none_can_be_is_refused_with_the_form_of_those_that_can() -> None:
    assert refused(name="My chat") == {"name": f"must match {NAME_PATTERN}"}
    budget = {"name": "Team A", "usd_per_hour": 5.0}
    assert refused(budget=budget) == {"policy.budget.name": f"must match {NAME_PATTERN}"}
    assert "control characters" in refused(sleep={"models": ["a\x1b"]})["policy.sleep.models[0]"]


def test_only_models_of_the_problem_may_sleep() -> None:
    assert list(refused(sleep={"models": ["nobody"]})) == ["policy.sleep.models"]
