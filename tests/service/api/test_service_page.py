"""docs/service.md tells the truth about calls, problems and limits."""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from sutler.service.errors import Kind, SutlerError
from sutler.service.settings import service_settings
from sutler.service.web import problem
from sutler.service.web.guard import MISDIRECTED
from tests.service.running import Running

PAGE: Final = (Path(__file__).parents[3] / "docs" / "service.md").read_text(encoding="utf-8")


def test_every_call_of_the_api_is_on_the_page(service: Running) -> None:
    paths: dict[str, Any] = service.get("/openapi.json").json()["paths"]
    for path in paths:
        last = path.rsplit("/", 1)[-1] if "{" not in path.rsplit("/", 1)[-1] else path.rsplit("/", 2)[-2]
        assert last in PAGE, path


def every(error: type[SutlerError]) -> set[type[SutlerError]]:
    """It and all below it; the running service has imported them."""
    return {error, *(found for below in error.__subclasses__() for found in every(below))}


def test_every_problem_is_on_the_page_with_its_status() -> None:
    kinds = {error.kind for error in every(SutlerError)} | {v for v in vars(problem).values() if isinstance(v, Kind)}
    rows = [line for line in PAGE.splitlines() if re.match(r"\| [45]\d\d", line)]
    for kind in {*kinds, MISDIRECTED}:
        [row] = [row for row in rows if f"`{kind.slug}`" in row]
        assert str(kind.status) in row.split("|")[1], kind


def test_every_limit_on_the_page_is_a_setting_with_that_default() -> None:
    usual = service_settings({})
    named = {field.name for field in fields(usual)}
    numbers = {match.lower() for match in re.findall(r"`SUTLER_([A-Z_]+)`", PAGE)}
    assert {name for name in numbers if name not in {"hosts"}} <= named
    assert f"| {usual.most_body_bytes // 1_000_000} MB as JSON" in PAGE
    assert f"| {usual.longest_solve_s:g} s |" in PAGE
    assert f"| {usual.most_models}, {usual.most_workloads:,} |" in PAGE
    assert f"| {usual.most_waiting_plans:,} |" in PAGE
    assert f"| {usual.reads_per_second:,.0f}, {usual.changes_per_minute} |" in PAGE


def test_the_pages_of_the_api_load_nothing_from_elsewhere(service: Running) -> None:
    for page in ("/docs", "/redoc"):
        text = service.get(page).text
        assert not re.findall(r"(?:src|href)=[\"'](?:https?:)?//", text)
        assets = re.findall(r"(?:src|href)=[\"'](/[^\"']+)[\"']", text)
        assert assets
        assert all(service.get(asset).status_code == 200 for asset in assets)
