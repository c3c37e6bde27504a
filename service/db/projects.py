"""Row-level rules, all of them: whose rows a transaction sees and writes.

A project's are the tables with a column `project`, and those that refer to one of these. For each there is a view of
its name in the schema SCHEMA, which shows the rows of the transaction's project and takes no others. A transaction
that is `of_project` finds the views where it names the tables, whatever its statements; one that is `across` all
projects finds the tables. A statement of the former that looks across names the schema `public`, or runs EVERYWHERE.

docs/decisions/views-of-a-project.md says why.
"""

from collections.abc import Iterator
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, Engine, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from sutler.service.db.queue_schema import SEARCH_PATH
from sutler.service.settings import DEFAULT_PROJECT

SCHEMA: Final = "of_project"
EVERYWHERE: Final[dict[str, Any]] = {"schema_translate_map": {None: "public"}}
"""Execution options of a statement."""
_OPTION: Final = "sutler_project"
_ACROSS: Final = object()
_UNDECIDED: Final = object()
_PATH: Final = f"{SCHEMA}, {SEARCH_PATH}"
_ENTER: Final = f"SELECT set_config('search_path', '{_PATH}', true), set_config('sutler.project', %s, true)"
_PROJECT: Final = "current_setting('sutler.project')"
_OWNED: Final = text("""
    SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = 'project'
    WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r' AND NOT a.attisdropped ORDER BY 1
""")
_PARTS: Final = text("""
    SELECT child.relname AS name, own.attname AS refers, parent.relname AS to_table, its.attname AS to_column
    FROM pg_constraint f
    JOIN pg_class child ON child.oid = f.conrelid JOIN pg_class parent ON parent.oid = f.confrelid
    JOIN pg_attribute own ON own.attrelid = f.conrelid AND own.attnum = f.conkey[1]
    JOIN pg_attribute its ON its.attrelid = f.confrelid AND its.attnum = f.confkey[1]
    WHERE f.contype = 'f' AND f.connamespace = 'public'::regnamespace AND parent.relname = ANY(:owned)
      AND child.relname <> ALL(:owned) ORDER BY 1
""")
E = TypeVar("E", Engine, AsyncEngine)


def of_project(engine: E, project: str) -> E:
    """The engine, its transactions all of this project."""
    return engine.execution_options(**{_OPTION: project})


def across(engine: E) -> E:
    """The engine, its transactions across all projects."""
    return engine.execution_options(**{_OPTION: _ACROSS})


def undecided(engine: E) -> E:
    """The engine, to be used `of_project` or `across`: a transaction that says neither is a defect, and fails."""
    return engine.execution_options(**{_OPTION: _UNDECIDED})


def begin(connection: Connection) -> None:
    """What a transaction begins with: a listener of engines. Raises RuntimeError where nobody said whose it is."""
    project = connection.get_execution_options().get(_OPTION, _ACROSS)
    if project is _UNDECIDED:
        raise RuntimeError("this transaction names no project: use of_project or across (service/db/projects.py)")
    if project is not _ACROSS:
        connection.exec_driver_sql(_ENTER, (project,))


def project_of(connection: Connection) -> str:
    """Whose the transaction is; what nobody is named for is the first project's."""
    project = connection.get_execution_options().get(_OPTION)
    return project if isinstance(project, str) else DEFAULT_PROJECT


async def enter(connection: AsyncConnection, project: str) -> None:
    """The rest of a transaction that is across all projects is of this one, or of the next that it enters."""
    await connection.exec_driver_sql(_ENTER, (project,))


def drop_views(connection: Connection) -> None:
    """Before columns go that they show; nothing is lost, since they follow from the tables."""
    connection.execute(text(f"DROP SCHEMA IF EXISTS {SCHEMA} CASCADE"))


def make_views(connection: Connection) -> None:
    """Of the tables as they are now: the last thing that a migration does which has changed any."""
    drop_views(connection)
    for statement in _views(connection):
        connection.execute(text(statement))


def _views(connection: Connection) -> Iterator[str]:
    owned = [*connection.scalars(_OWNED)]
    if not owned:
        return  # the tables are of before there were projects
    yield f"CREATE SCHEMA {SCHEMA}"
    for name in owned:
        yield _view(name, f"project = {_PROJECT}")
        yield f"ALTER VIEW {SCHEMA}.{name} ALTER project SET DEFAULT {_PROJECT}"
    for part in connection.execute(_PARTS, {"owned": owned}):
        mine = f"p.{part.to_column} = c.{part.refers} AND p.project = {_PROJECT}"
        yield _view(part.name, f"EXISTS (SELECT FROM public.{part.to_table} p WHERE {mine})")


def _view(name: str, is_ours: str) -> str:
    return f"CREATE VIEW {SCHEMA}.{name} AS SELECT * FROM public.{name} c WHERE {is_ours} WITH CHECK OPTION"
