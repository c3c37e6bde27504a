"""Whose rows a transaction sees: a project's finds views that show its own, whatever is asked; nobody forgets it."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from uuid import UUID, uuid4

import pytest
from sqlalchemy import Engine, delete, insert, select, text, update
from sqlalchemy.exc import DBAPIError

from sutler.service.db import api_tables, profile_tables, watch_tables  # noqa: F401 - they add their tables to Base
from sutler.service.db.api_tables import DeploymentRow, PlanRow, ProjectRow
from sutler.service.db.projects import EVERYWHERE, SCHEMA, across, of_project, undecided
from sutler.service.db.tables import Base
from sutler.service.db.watch_tables import ObservationRow, WatchRow

ROOT: Final = Path(__file__).parents[3]
# What all projects share: the market, and what is of a key or of none.
COMMON: Final = {
    *("provider", "poll", "offer", "rejected_row", "polled_hour", "market_hour"),
    *("project", "idempotency", "key_use"),
}
# Who may look across projects, and why: to let somebody in, to work for all, to share out one market.
LOOKS_ACROSS: Final = {
    "service/main.py",
    "service/operation/health.py",
    "service/workers/worker.py",
    "service/workers/attempts.py",
    "service/workers/replan_job.py",
    "service/plans/claims.py",
    "service/deployments/sharing/repository.py",
    "service/deployments/holdings/lives_repository.py",
}
COLUMNS: Final = text(
    "SELECT table_name, array_agg(column_name::text ORDER BY ordinal_position) FROM information_schema.columns "
    "WHERE table_schema = :schema AND table_name <> 'alembic_version' GROUP BY 1"
)


def columns(engine: Engine, schema: str) -> dict[str, list[str]]:
    with engine.connect() as connection:
        return dict(connection.execute(COLUMNS, {"schema": schema}).all())


def a_deployment(name: str = "chat", **others: Any) -> dict[str, Any]:
    return {"id": uuid4(), "name": name, "problem": {}, "policy": {}, **others}


@pytest.fixture
def projects(engine: Engine) -> tuple[Engine, Engine]:
    """One store as two projects see it."""
    with engine.begin() as connection:
        connection.execute(insert(ProjectRow), [{"name": "a"}, {"name": "b"}])
    return of_project(engine, "a"), of_project(engine, "b")


def put(engine: Engine, row: Any, **values: Any) -> None:
    with engine.begin() as connection:
        connection.execute(insert(row).values(values))


def names(engine: Engine) -> list[str]:
    with engine.connect() as connection:
        return [*connection.scalars(select(DeploymentRow.name).order_by(DeploymentRow.name))]


def test_every_table_is_a_project_s_or_known_to_be_common(engine: Engine) -> None:
    """A view has the columns of its table; who adds one there makes the views anew (service/db/projects.py)."""
    tables, views = columns(engine, "public"), columns(engine, SCHEMA)
    assert set(tables) == set(Base.metadata.tables)
    assert set(views) == set(tables) - COMMON
    assert {name: tables[name] for name in views} == views


def test_a_project_finds_its_own_rows_and_what_it_writes_is_its_own(
    engine: Engine, projects: tuple[Engine, Engine]
) -> None:
    a, b = projects
    put(a, DeploymentRow, **a_deployment("ours"))
    put(b, DeploymentRow, **a_deployment("theirs"))
    put(engine, DeploymentRow, **a_deployment("of nobody in particular"))
    assert (names(a), names(b)) == (["ours"], ["theirs"])
    assert names(of_project(engine, "default")) == ["of nobody in particular"]
    assert names(engine) == names(across(a)) == ["of nobody in particular", "ours", "theirs"]
    with a.connect() as connection:
        assert connection.scalars(text("SELECT name FROM deployment")).all() == ["ours"]
        everywhere = connection.execute(select(DeploymentRow.name), execution_options=EVERYWHERE)
        assert len(everywhere.all()) == 3


def test_what_refers_to_a_project_s_rows_is_the_project_s(projects: tuple[Engine, Engine]) -> None:
    a, b = projects
    mine = a_deployment()
    put(a, DeploymentRow, **mine)
    put(a, WatchRow, deployment_id=mine["id"])
    observed = {"model": "m", "started_at": "2026-11-28", "ended_at": "2026-11-28", "digest": b"", "requests": 1.0}
    with pytest.raises(DBAPIError, match="check option"):
        put(b, ObservationRow, deployment_id=mine["id"], buckets=[], **observed)
    with b.begin() as connection:
        assert connection.execute(select(WatchRow.deployment_id)).all() == []
        assert connection.execute(update(WatchRow).values(touches=7)).rowcount == 0
        assert connection.execute(delete(WatchRow)).rowcount == 0
    with a.connect() as connection:
        assert connection.scalars(select(WatchRow.touches)).all() == [1]


def test_a_project_cannot_write_for_another(projects: tuple[Engine, Engine]) -> None:
    a, b = projects
    put(a, DeploymentRow, **a_deployment())
    with pytest.raises(DBAPIError, match="check option"):
        put(b, DeploymentRow, **a_deployment("smuggled", project="a"))
    with pytest.raises(DBAPIError, match="check option"), a.begin() as connection:
        connection.execute(update(DeploymentRow).values(project="b"))
    with b.begin() as connection:
        assert connection.execute(update(DeploymentRow).values(name="mine now")).rowcount == 0
        assert connection.execute(delete(DeploymentRow)).rowcount == 0
    assert names(a) == ["chat"]


def test_names_are_unique_within_a_project(projects: tuple[Engine, Engine]) -> None:
    for project in projects:
        put(project, DeploymentRow, **a_deployment())
    with pytest.raises(DBAPIError, match="uq_deployment_project_name"):
        put(projects[0], DeploymentRow, **a_deployment())


def test_a_connection_that_served_a_project_serves_the_next_one_as_if_it_were_new(
    engine: Engine, projects: tuple[Engine, Engine]
) -> None:
    """Also where the server has prepared the statement, which it does after five times."""
    put(projects[0], DeploymentRow, **a_deployment("a's"))
    put(projects[1], DeploymentRow, **a_deployment("b's"))
    for _ in range(8):
        assert [names(each) for each in (*projects, engine)] == [["a's"], ["b's"], ["a's", "b's"]]


def test_a_transaction_for_which_nobody_said_whose_it_is_fails(engine: Engine) -> None:
    with pytest.raises(RuntimeError, match="names no project"), undecided(engine).connect() as connection:
        connection.execute(select(PlanRow.id))


def test_a_project_that_is_none_sees_nothing_and_writes_nothing(engine: Engine) -> None:
    put(engine, DeploymentRow, **a_deployment())
    assert names(of_project(engine, "nobody")) == []
    with pytest.raises(DBAPIError, match="foreign key"):
        put(of_project(engine, "nobody"), DeploymentRow, **a_deployment("new"))


def lines_that_look_across() -> Iterator[str]:
    across_all = re.compile(r"\bpublic\.\w|\bEVERYWHERE\b|\bacross\(|\bundecided\(|(?<!def )\bopen_async_engine\(")
    for path in sorted((ROOT / "service").rglob("*.py")):
        if across_all.search(path.read_text("utf-8")):
            yield path.relative_to(ROOT).as_posix()


def test_few_look_across_projects() -> None:
    command_line = {"service/cli/keys_of_the_store.py"}  # the operator's
    mechanism = {"service/db/projects.py", "service/db/asynchronous.py"}
    assert {*lines_that_look_across()} - mechanism - command_line == LOOKS_ACROSS


def test_ids_of_rows_are_no_secrets_to_be_kept(projects: tuple[Engine, Engine]) -> None:
    """Who knows the id of another project's row gets no more of it than who does not."""
    mine = a_deployment()
    put(projects[0], DeploymentRow, **mine)
    with projects[1].connect() as connection:
        wanted = select(DeploymentRow).where(DeploymentRow.id == UUID(str(mine["id"])))
        assert connection.execute(wanted).all() == []
