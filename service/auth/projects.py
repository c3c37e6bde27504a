"""Projects in the store: who has a key of one sees nothing of another. Only who has the database makes them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.auth import audit
from sutler.service.auth.service import in_words, lifetime_of
from sutler.service.db.api_tables import ProjectRow, RetentionRow
from sutler.service.db.projects import enter
from sutler.service.documents.errors import DocumentError
from sutler.service.web.caller import Caller

_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")

RetentionKind = Literal["plans", "jobs", "decisions", "observations", "audit"]
"""What is kept for as long as its project's operator says; `jobs`: plans that failed or were cancelled."""
LEAST_KEPT: Final[Mapping[RetentionKind, timedelta]] = {
    **dict.fromkeys(("plans", "jobs", "decisions", "audit"), timedelta(hours=1)),  # whoever waits for it gets it
    "observations": timedelta(days=8),  # replanning looks back over them (traffic/repository.py)
}


@dataclass(frozen=True, slots=True)
class Project:
    """A project, and how much of the service it may use; None: as much as there is.

    `kept_s`: by kind, how long rows are kept, where its operator said so.
    """

    name: str
    created_at: datetime
    most_requests_per_minute: int | None
    most_solves_at_once: int | None
    most_stored_plans: int | None
    kept_s: Mapping[str, int]


_KEPT: Final = (
    select(func.coalesce(func.jsonb_object_agg(RetentionRow.kind, RetentionRow.kept_s), func.jsonb_build_object()))
    .where(RetentionRow.project == ProjectRow.name)
    .scalar_subquery()
    .label("kept_s")
)
_COLUMNS: Final = (*(getattr(ProjectRow, name) for name in Project.__slots__[:-1]), _KEPT)


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


def length_of(kind: RetentionKind, given: str, *, field: str) -> timedelta | None:
    """How long rows of this kind are to be kept: 90d, 2y; None, of 0: as long as where nothing is said.

    Raises DocumentError for what is no time, or too short.
    """
    if given == "0":
        return None
    length, least = lifetime_of(given, field=field), LEAST_KEPT[kind]
    if length < least:
        raise DocumentError.of(field, f"must be at least {in_words(int(least.total_seconds()))}", value=given)
    return length


async def keep(
    connection: AsyncConnection, name: str, kept: Mapping[RetentionKind, timedelta | None], *, caller: Caller
) -> Project:
    """Says how long the project keeps rows of these kinds (`length_of`)."""
    told: dict[str, int | None] = {
        kind: None if length is None else int(length.total_seconds()) for kind, length in kept.items()
    }
    for each, kept_s in told.items():
        if kept_s is None:
            await connection.execute(delete(RetentionRow).where(RetentionRow.kind == each))
            continue
        new = upsert(RetentionRow).values(project=name, kind=each, kept_s=kept_s)
        await connection.execute(
            new.on_conflict_do_update(index_elements=["project", "kind"], set_={"kept_s": kept_s})
        )
    await audit.note(connection, caller, "project.retention", f"project/{name}", told)
    return Project(*(await connection.execute(select(*_COLUMNS).where(ProjectRow.name == name))).one())
