"""Every stored plan in every format, compared to the text that was looked at."""

import pytest

from sutler.service.export import FORMATS, exported
from tests.service.export.golden_files import GOLDEN, golden_path, text_of
from tests.service.export.plans import NAMES, a_plan


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("name", NAMES)
def test_a_plan_becomes_the_expected_text(name: str, format: str) -> None:
    expected = golden_path(name, format).read_text(encoding="utf-8")
    assert text_of(name, format) == expected, "if this is meant: python -m tests.service.export.regenerate"


def test_there_is_no_golden_file_too_many() -> None:
    expected = {golden_path(name, format).name for name in NAMES for format in FORMATS}
    assert {path.name for path in GOLDEN.iterdir()} == expected


def test_the_plans_cover_what_replicas_can_be() -> None:
    plans = [a_plan(name) for name in NAMES]
    replicas = [replica for plan in plans for replica in plan.replicas]
    assert any(len(r.stages) == 1 and r.stages[0].tensor_parallel == 1 for r in replicas)
    assert any(len(r.stages) == 1 and r.stages[0].tensor_parallel > 1 for r in replicas)
    assert any(r.engine_env and len({s.machine for s in r.stages}) == 1 < len(r.stages) for r in replicas)
    assert any(len({(s.rental, s.machine) for s in r.stages}) > 1 for r in replicas)
    assert any(len({s.gpu for s in r.stages}) > 1 for r in replicas)
    assert any(len({r.model for r in plan.replicas}) > 1 and len(plan.rentals) == 1 for plan in plans)


def test_the_result_says_what_it_is() -> None:
    plan = a_plan("single_gpu")
    result = exported(plan, "kubernetes")
    assert (result.format, result.media_type) == ("kubernetes", "application/yaml")
    assert result.filename == f"sutler-{plan.id}-1.kubernetes.yaml"
    assert exported(plan, "vllm").media_type == "text/x-shellscript"
    assert exported(plan, "router").media_type == "application/json"
