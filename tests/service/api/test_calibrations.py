"""Calibrations over HTTP: listed, read, named by plans and deployments."""

import json
from typing import Any

import pytest

from sutler.service.db.store import open_store
from sutler.service.profiles.checks import Given
from sutler.service.profiles.repository import RunFilter
from sutler.service.profiles.service import ProfilesService
from sutler.service.settings import StoreSettings
from tests.postgres import Server
from tests.service.builders import a_snapshot
from tests.service.profiles.builders import a_table
from tests.service.running import Running, until


@pytest.fixture(scope="module")
def mine(service: Running, postgres: Server) -> str:
    """Stored beside the running service, as the command line does it."""
    until(lambda: service.get("/readyz").ok)
    engine = open_store(StoreSettings(data_dir=postgres.data_dir, database_url=postgres.url("service")))
    profiles = ProfilesService(engine)
    profiles.import_file("runs.csv", a_table(0.7).encode(), Given())
    profiles.keep(profiles.calibrate("mine", RunFilter()))
    engine.dispose()
    return "mine"


def a_problem(**throughput: Any) -> dict[str, Any]:
    workload = {"name": "w", "input_tokens": 1024, "output_tokens": 256, "rate_rps": 1.0}
    return {
        "objective": {"kind": "max_throughput"},
        "budget_usd_per_hour": 20,
        "models": [{"name": "chat", "model": "llama-3.1-8b", "precision": "bf16", "workloads": [workload]}],
        "market": {"offers": a_snapshot()},
        "throughput": throughput,
    }


@pytest.mark.slow
def test_what_was_measured_and_fitted_is_listed(service: Running, mine: str) -> None:
    (profile,) = service.get("/v1/profiles").json()["items"]
    assert (profile["gpu"], profile["engine_version"], profile["runs"]) == ("h100-sxm", "0.11.0", 8)
    (found,) = service.get("/v1/calibrations").json()["items"]
    assert (found["name"], found["revision"], found["runs"]) == (mine, 1, 8)
    whole = service.get(found["url"]).json()
    assert len(whole["points"]) == 8
    assert whole["schema"] == "sutler/calibration/v1"


def test_a_plan_names_a_calibration_or_carries_it(service: Running, mine: str) -> None:
    shipped = service.post("/v1/plans", a_problem()).json()
    named = service.post("/v1/plans", a_problem(calibration=mine)).json()
    whole = service.get(f"/v1/calibrations/{mine}").json()
    carried = service.post("/v1/plans", a_problem(calibration=whole)).json()
    assert named["throughput_rps"] == pytest.approx(0.7 * shipped["throughput_rps"], rel=0.06)
    assert carried["throughput_rps"] == pytest.approx(named["throughput_rps"])
    assert named["evidence"][0]["source"] == "profiles"


@pytest.mark.parametrize(
    ("calibration", "field"),
    [("yours", "throughput.calibration"), ({"file": "mine.json"}, "throughput.calibration.file")],
)
def test_a_calibration_that_nobody_made_is_422_before_anything_is_queued(
    service: Running, mine: str, calibration: object, field: str
) -> None:
    answer = service.post("/v1/plans", a_problem(calibration=calibration))
    assert answer.status_code == 422
    assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert service.get("/v1/calibrations/yours").status_code == 404


def test_a_deployment_is_planned_and_asked_again_with_its_calibration(service: Running, mine: str, name: str) -> None:
    body = {"name": name, "problem": a_problem(calibration=mine)}
    assert service.post("/v1/deployments", body).status_code == 201
    until(lambda: service.get(f"/v1/deployments/{name}/plan").ok)
    plan = service.get(f"/v1/deployments/{name}/plan").json()
    assert plan["calibration"]["name"] == mine
    assert service.post(f"/v1/deployments/{name}/replan", {}).ok
    until(lambda: service.get(f"/v1/deployments/{name}/plan").json()["revision"] > 1)
    again = service.get(f"/v1/deployments/{name}/plan").json()
    assert again["calibration"]["name"] == mine
    kept = service.get(f"/v1/deployments/{name}").json()
    assert kept["problem"]["throughput"] == {"calibration": mine}
    assert json.dumps(kept).count("log2") == 0
