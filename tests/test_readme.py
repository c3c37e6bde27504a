"""README.md says what sutler does: its commands run, and their results are the ones that it shows."""

import re
from contextlib import ExitStack
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from sutler.service.documents.market import MarketDocument
from sutler.service.documents.problem import ProblemDocument
from sutler.service.documents.validation import validate
from sutler.service.documents.yaml_loader import load_yaml
from sutler.service.offline.application_schema import ApplicationDocument
from sutler.service.offline.files import checked_application
from sutler.service.offline.progress_schema import ProgressDocument
from sutler.service.offline.translate import translate
from tests.readme import README, ROOT, RUN, Reader, Step, steps

NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")
WITHIN = 0.002  # twice the gap to which plans are solved
PAGES = (
    *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "examples/README.md"),
    *sorted(page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").rglob("*.md")),
)
ACCURACY = ROOT / "benchmarks" / "results" / "accuracy.txt"


def key_lines(output: str) -> list[str]:
    """What a plan achieves and what an estimate says; the rest holds seconds, ages and equally good choices."""
    lines = output.splitlines()
    return [line for index, line in enumerate(lines) if index == 0 or "requests/s" in line or ",roofline," in line]


def numbers_in(lines: list[str]) -> list[float]:
    return [float(found.replace(",", "")) for line in lines for found in NUMBER.findall(line)]


@pytest.mark.slow
@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_every_command_of_the_page_does_what_is_shown(page: Path, tmp_path: Path) -> None:
    ran = 0
    with ExitStack() as opened:
        reader = Reader(tmp_path, opened)
        for step in steps(page.read_text(encoding="utf-8")):
            ran += _does_what_is_shown(step, reader.run(step))
    assert ran >= 1


def test_the_readme_is_one_page() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150


def _does_what_is_shown(step: Step, result: "CompletedProcess[str]") -> bool:
    assert result.returncode == 0, f"{step.command}: {result.stderr}"
    shown, now = key_lines(step.shown), key_lines(result.stdout)
    refresh = f"{step.command}: run `make readme` and read what it changes"
    assert [NUMBER.sub("#", line) for line in shown] == [NUMBER.sub("#", line) for line in now], refresh
    assert numbers_in(shown) == pytest.approx(numbers_in(now), rel=WITHIN), refresh
    return not step.command.startswith("cat ")


def test_the_accuracy_in_the_readme_is_that_of_the_last_report() -> None:
    readme = " ".join(README.read_text(encoding="utf-8").split())
    report = ACCURACY.read_text(encoding="utf-8")
    for group in ("leaving one GPU out, all vLLM", "leaving one model out, all vLLM"):
        [line] = [line for line in report.splitlines() if line.startswith(group)]
        rows, median = line.removeprefix(group).split()[:2]
        assert f"{median} %" in readme
        assert f"{rows} verified vLLM runs" in readme


@pytest.mark.parametrize("page", PAGES)
def test_every_link_between_the_pages_leads_somewhere(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    targets = [link.partition("#")[0] for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    missing = [target for target in targets if target and not (ROOT / page).parent.joinpath(target).exists()]
    assert missing == []


def test_the_documents_in_the_problem_page_are_valid() -> None:
    text = (ROOT / "docs" / "problem.md").read_text(encoding="utf-8")
    blocks = [load_yaml(block) for block in re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]
    problems = [block for block in blocks if isinstance(block, dict) and "objective" in block]
    markets = [block for block in blocks if isinstance(block, dict) and "schema" in block]
    assert problems
    assert markets
    for problem in problems:
        validate(ProblemDocument, problem)
    for market in markets:
        validate(MarketDocument, market)


def test_the_documents_in_the_page_of_applications_are_valid_and_show_every_key() -> None:
    text = (ROOT / "docs" / "offline.md").read_text(encoding="utf-8")
    blocks = [load_yaml(block) for block in re.findall(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]
    whole, renting, report = (block for block in blocks if isinstance(block, dict))
    application = checked_application(whole)
    translate(application, folder=None)
    validate(
        ApplicationDocument,
        {key: value for key, value in {**whole, **renting}.items() if key != "hardware"} | {"market": {}},
    )
    validate(ProgressDocument, report)
    told = {*whole, *renting, "market", "gpus", "catalog"}
    assert told == set(ApplicationDocument.model_fields)
    for field in ("search", "hardware"):
        untold = set(type(getattr(application, field)).model_fields) - set(whole[field])
        assert untold <= {"islands"}
