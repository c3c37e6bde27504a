"""The OpenAPI document is true: Schemathesis sends what it allows, and what it does not, to a running service.

No answer is a 5xx that is not documented, none has an undocumented status, type, header or shape, none ignores a
missing key. https://schemathesis.readthedocs.io
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest

from tests.service.api.conftest import Guarded
from tests.service.running import Running

SETTINGS: Final = Path(__file__).with_name("schemathesis.toml")
LEAST_CASES: Final = 300
# Their problems and plans are those of other groups: only what is around them is generated here.
FUZZED_ALONE: Final = {"studies": 60, "deployments": 60}
# Rules that several fields break together cannot be said in a schema, so not all that it allows is accepted.
NOT_CHECKED: Final = "positive_data_acceptance"
# Tags of a group, and examples per operation, so that each group gets hundreds of cases: groups differ in parameters.
GROUPS: Final = {
    "plans": (("plans",), 4),
    "offline": (("offline plans",), 4),
    "deployments": (("deployments",), 6),
    "studies": (("what-ifs", "comparisons", "simulations", "catalogue"), 8),
    "traffic": (("traffic",), 14),
    "market": (("market",), 40),
    "administration": (("webhooks", "audit", "keys", "operation", "profiles"), 15),
}
# A problem may be wrong in thousands of places. Of the calls that take one, one gets it as YAML, the others as JSON.
LEFT_OUT: Final = {
    "/v1/plans": ("post", "application/yaml"),
    "/v1/offline-plans": ("post", "application/yaml"),
    "/v1/deployments": ("post", "application/yaml"),
    "/v1/deployments/{name}": ("put", "application/json"),
}
GENERATED: Final = re.compile(r"([\d,]+) generated")


def schemathesis(
    running: Running, key: str, document: str, *arguments: str, folder: Path
) -> subprocess.CompletedProcess[str]:
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(SETTINGS)),
        *("run", document, "--url", running.url),
        *("--header", f"Authorization: Bearer {key}", "--exclude-checks", NOT_CHECKED, "--seed", "1"),
        *("--generation-database", "none", "--suppress-health-check", "all", "--warnings", "off", "--no-color"),
        *arguments,
    ]
    environment = {**os.environ, "COLUMNS": "100"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, encoding="utf-8", check=False, timeout=300
    )


def each_problem_once(guarded: Guarded) -> dict[str, Any]:
    """The document, without what is `LEFT_OUT`."""
    document: dict[str, Any] = guarded.ask(None, "GET", "/openapi.json").json()
    for path, (method, media_type) in LEFT_OUT.items():
        del document["paths"][path][method]["requestBody"]["content"][media_type]
    return document


def assert_keys_are_good(guarded: Guarded) -> None:
    """What is generated revokes none that the next test needs."""
    assert {scope: guarded.ask(scope, "GET", "/v1/plans").status_code for scope in guarded.keys} == dict.fromkeys(
        guarded.keys, 200
    )


@pytest.mark.slow
@pytest.mark.parametrize("group", sorted(GROUPS))
def test_hundreds_of_requests_of_every_kind_get_documented_answers(
    guarded: Guarded, group: str, tmp_path: Path
) -> None:
    running, key = guarded.running, guarded.keys["admin"]
    tags, examples = GROUPS[group]
    chosen = [word for tag in tags for word in ("--include-tag", tag)]
    phases = "examples,fuzzing" if group in FUZZED_ALONE else "examples,coverage,fuzzing"
    arguments = ("--phases", phases, "--max-examples", str(examples), *chosen)
    (tmp_path / "openapi.json").write_text(json.dumps(each_problem_once(guarded)), encoding="utf-8")
    done = schemathesis(running, key, "openapi.json", *arguments, folder=tmp_path)
    assert done.returncode == 0, done.stdout[-8_000:]
    generated = GENERATED.search(done.stdout)
    assert generated is not None
    assert int(generated[1].replace(",", "")) >= FUZZED_ALONE.get(group, LEAST_CASES)
    assert "a defect of sutler" not in running.said()
    assert_keys_are_good(guarded)


@pytest.mark.slow
def test_calls_that_follow_from_each_other_get_documented_answers(guarded: Guarded, tmp_path: Path) -> None:
    running, key = guarded.running, guarded.keys["admin"]
    arguments = ("--phases", "stateful", "--max-examples", "4")
    done = schemathesis(running, key, f"{running.url}/openapi.json", *arguments, folder=tmp_path)
    assert done.returncode == 0, done.stdout[-8_000:]
    assert "a defect of sutler" not in running.said()
    assert_keys_are_good(guarded)


def test_every_call_has_a_group_a_summary_and_documented_problems(service: Running) -> None:
    document: dict[str, Any] = service.get("/openapi.json").json()
    operations = [operation for path in document["paths"].values() for operation in path.values()]
    assert {tag for operation in operations for tag in operation["tags"]} == {
        tag for tags, _ in GROUPS.values() for tag in tags
    }
    assert len({operation["operationId"] for operation in operations}) == len(operations)
    assert all(operation["description"] for operation in operations)
    for operation in operations:
        for status, response in operation["responses"].items():
            problems = response.get("content", {})
            assert (
                status[0] not in "45"
                or operation["operationId"] == "readyz"
                or set(problems) == {"application/problem+json"}
            ), (operation["operationId"], status)
