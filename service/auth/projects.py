"""Projects in the store: who has a key of one sees nothing of another. Only who has the database makes them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.auth import audit
from sutler.service.db.api_tables import ProjectRow
from sutler.service.db.projects import enter
from sutler.service.documents.errors import DocumentError
from sutler.service.web.caller import Caller

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Project:
    """A project, and how much of the service it may use; None: as much as there is."""

    name: str
    created_at: datetime
    most_requests_per_minute: int | None
    most_solves_at_once: int | None
    most_stored_plans: int | None


_COLUMNS: Final = tuple(getattr(ProjectRow, name) for name in Project.__slots__)


async def every(connection: AsyncConnection) -> list[Project]:
    """By name."""
    return [Project(*row) for row in await connection.execute(select(*_COLUMNS).order_by(ProjectRow.name))]


async def check(connection: AsyncConnection, name: str) -> None:
    """Raises DocumentError where there is no such project."""
    if await connection.scalar(select(ProjectRow.name).where(ProjectRow.name == name)) is None:
        raise DocumentError.of("project", "is none: `sutler projects list` shows all", value=name)


async def create(
    connection: AsyncConnection, name: str, limits: Mapping[str, int | None], *, caller: Caller
) -> Project:
    """A new project. Raises DocumentError for a name that is taken, or that cannot be one."""
    if not _NAME.fullmatch(name):
        raise DocumentError.of("NAME", "must be 1 to 63 small letters, digits and, within, hyphens", value=name)
    made = insert(ProjectRow).values(name=name, **limits).returning(*_COLUMNS)
    try:
        async with connection.begin_nested():
            project = Project(*(await connection.execute(made)).one())
    except IntegrityError:
        raise DocumentError.of("NAME", "is a project already: take another", value=name) from None
    await enter(connection, name)
    await audit.note(connection, caller, "project.create", f"project/{name}", dict(limits))
    return project


async def limit(
    connection: AsyncConnection, name: str, limits: Mapping[str, int | None], *, caller: Caller
) -> Project:
    """Sets these limits of the project, and leaves the others as they are."""
    changed = update(ProjectRow).where(ProjectRow.name == name).values(**limits).returning(*_COLUMNS)
    project = Project(*(await connection.execute(changed)).one())
    await audit.note(connection, caller, "project.limit", f"project/{name}", dict(limits))
    return project
