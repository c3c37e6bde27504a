"""Several projects on one market at once: they take machines from each other, and hear nothing of each other."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

import pytest
import requests
from typer.testing import CliRunner

from sutler.service.cli.app import app
from tests.postgres import Server
from tests.service.faults.replans import Standing, standing
from tests.service.faults.scenes import kill, of
from tests.service.faults.test_cleared_supply import LARGE, POLICY, a_market, a_problem, assert_once, rentals
from tests.service.running import made_key, until

LISTS: Final = ("/v1/deployments", "/v1/plans", "/v1/audit", "/v1/deliveries", "/v1/costs", "/metrics")
ATTENTION: Final = {
    "url": "http://127.0.0.1:1024/hook",
    "events": ["plan.issued", "plan.infeasible", "plan.failed", "deployment.attention"],
}


@dataclass(frozen=True)
class Project:
    """One with a deployment of its own name, which nobody else may ever read."""

    site: Standing
    name: str
    key: str

    @property
    def secret(self) -> str:
        return f"secret-{self.name}"

    def ask(self, method: str, path: str, **options: Any) -> requests.Response:
        return self.site.api.ask(method, path, headers={"Authorization": f"Bearer {self.key}"}, **options)

    def deploy(self, problem: dict[str, Any], **policy: Any) -> None:
        deployment = {"name": self.secret, "problem": problem, "policy": {**POLICY, **policy}}
        answer = self.ask("POST", "/v1/deployments", json=deployment)
        assert answer.status_code in {201, 202}, answer.text

    def all_it_reads(self) -> str:
        """Lists, what is told of its deployment, and what its webhook was told."""
        mine = [f"/v1/deployments/{self.secret}{part}" for part in ("", "/decisions", "/plan", "/holdings", "/plans")]
        found = [self.ask("GET", path).text for path in (*LISTS, *mine)]
        deliveries = self.ask("GET", "/v1/deliveries").json()["items"]
        return "\n".join([*found, *(self.ask("GET", f"/v1/deliveries/{one['id']}").text for one in deliveries)])


def a_project(site: Standing, name: str) -> Project:
    environment = site.scene.environment
    done = CliRunner().invoke(app, ["projects", "create", name], env=environment, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    project = Project(site, name, made_key(environment, "admin", "--project", name))
    assert project.ask("POST", "/v1/webhooks", json=ATTENTION).status_code == 201
    return project


@pytest.fixture
def site(postgres: Server) -> Iterator[Standing]:
    """The file's offers are everybody's, as a cloud's are."""
    with standing(postgres, SUTLER_CHANGES_PER_MINUTE="10000", SUTLER_FILE_PROJECT="*") as made:
        yield made


def test_who_loses_machines_to_another_project_hears_how_many_took_them_and_not_who(site: Standing) -> None:
    site.scene.worker()
    low, high = a_project(site, "low"), a_project(site, "high")
    site.offer(a_market(("h100-sxm", 2.0)))
    low.deploy(a_problem(10, LARGE))
    until(lambda: rentals(site) == {low.secret: ["0"]})
    high.deploy(a_problem(10, LARGE), priority=1)
    until(lambda: rentals(site) == {high.secret: ["0"]})
    until(site.is_calm)
    told = low.all_it_reads()
    assert "go to 1 deployment of other projects" in told
    assert (low.secret in told, high.secret in told) == (True, False)
    assert low.secret not in high.all_it_reads()
    held = {"provider": "file", "gpu": "h100-sxm", "gpus": 1, "price_usd_per_hour": 2.0, "offer_id": "acme/0"}
    for project, status in ((high, 200), (low, 409)):
        answer = project.ask("PUT", f"/v1/deployments/{project.secret}/holdings", json={"holdings": [held]})
        assert answer.status_code == status, answer.text
    assert "a deployment of another project reports it as rented" in answer.json()["detail"]
    assert high.secret not in answer.text


def test_ten_projects_that_race_for_machines_see_nothing_of_each_other_whoever_is_killed(site: Standing) -> None:
    projects = [a_project(site, f"p{number}") for number in range(10)]
    site.offer(a_market(*[("h100-sxm", 2.0 + number / 10) for number in range(10)]))
    workers = [site.scene.worker() for _ in range(2)]
    with ThreadPoolExecutor(len(projects)) as at_once:
        [*at_once.map(lambda project: project.deploy(a_problem(10, LARGE)), projects)]
    kill(of(workers[0]))
    site.scene.worker()
    until(lambda: len(rentals(site)) == len(projects))
    until(site.is_calm)
    assert_once(site)
    for project in projects:
        told = project.all_it_reads()
        assert project.secret in told
        assert [other.name for other in projects if other is not project and other.secret in told] == []
        (listed,) = project.ask("GET", "/v1/deployments").json()["items"]
        assert listed["name"] == project.secret
