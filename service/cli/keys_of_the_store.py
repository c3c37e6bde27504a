"""Keys, projects and secrets for the command line: each function opens the store of the settings, then leaves it.

All raise SettingsError and DatabaseError.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Literal, TypeVar

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.auth import projects, repository, service
from sutler.service.auth.projects import Project, RetentionKind
from sutler.service.auth.repository import KeyRecord
from sutler.service.auth.service import NewKey
from sutler.service.db.asynchronous import begun, open_async_engine
from sutler.service.db.projects import enter
from sutler.service.main import opened_database
from sutler.service.settings import service_settings
from sutler.service.web.caller import CLI, Scope
from sutler.service.webhooks.sealing import SealedError, Sealer
from sutler.service.webhooks.service import encrypt_all

T = TypeVar("T")


def any_key() -> bool:
    """Whether anybody could show a key that is accepted."""
    return _in_the_store(None, repository.any_key)


def all_keys(project: str) -> list[KeyRecord]:
    """The oldest first."""
    return _in_the_store(project, repository.all_keys)


def create(name: str, scope: Scope, lifetime: timedelta | None, *, project: str, weight: int = 1) -> NewKey:
    """Makes a key. Raises DocumentError for a name that cannot be shown."""
    return _in_the_store(
        project,
        lambda connection: service.create_key(
            connection, name=name, scope=scope, weight=weight, lifetime=lifetime, caller=CLI
        ),
    )


def revoke(key_id: str, project: str) -> Literal["revoked", "was_revoked", "unknown"]:
    """Makes every API process refuse the key from now on."""
    return _in_the_store(project, lambda connection: service.revoke_key(connection, key_id, caller=CLI))


def all_projects() -> list[Project]:
    """By name."""
    return _in_the_store(None, projects.every)


def create_project(name: str, limits: Mapping[str, int | None]) -> Project:
    """Makes a project. Raises DocumentError for a name that is taken, or that cannot be one."""
    return _in_the_store(None, lambda connection: projects.create(connection, name, limits, caller=CLI))


def limit_project(name: str, limits: Mapping[str, int | None]) -> Project:
    """Sets what is given of a project's limits. Raises DocumentError where there is no such project."""
    return _in_the_store(name, lambda connection: projects.limit(connection, name, limits, caller=CLI))


def encrypt_secrets() -> tuple[int, str]:
    """Has all webhooks' secrets encrypted with the first key of the settings; returns how many webhooks there are,
    and the key's id. Raises SealedError where one cannot be read, or there is no key."""
    sealer = Sealer(service_settings().secrets_keys)
    if sealer.key_id is None:
        raise SealedError("there is no key to encrypt with", "set SUTLER_SECRETS_KEYS (docs/webhooks.md)")
    return _in_the_store(None, lambda connection: encrypt_all(connection, CLI, sealer=sealer)), sealer.key_id


def keep_of_project(name: str, kept: Mapping[RetentionKind, timedelta | None]) -> Project:
    """Says for how long a project's rows are kept. Raises DocumentError for no such project."""
    return _in_the_store(name, lambda connection: projects.keep(connection, name, kept, caller=CLI))


def _in_the_store(project: str | None, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
    """`project`: whose rows it is about; None: across all of them. Raises DocumentError where there is no such."""
    with opened_database() as engine:
        return asyncio.run(_in_one_transaction(engine, project, work))


async def _in_one_transaction(
    engine: Engine, project: str | None, work: Callable[[AsyncConnection], Awaitable[T]]
) -> T:
    opened = open_async_engine(engine)
    try:
        async with begun(opened) as connection:
            if project is not None:
                await projects.check(connection, project)
                await enter(connection, project)
            return await work(connection)
    finally:
        await opened.dispose()
