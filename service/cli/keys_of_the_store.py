"""Keys for the command line: each function opens the store of this process's settings and leaves it again.

All raise SettingsError and DatabaseError.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Literal, TypeVar

from sqlalchemy import Engine
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.auth import repository, service
from sutler.service.auth.repository import KeyRecord
from sutler.service.auth.service import NewKey
from sutler.service.db.asynchronous import begun, open_async_engine
from sutler.service.main import opened_database
from sutler.service.web.caller import CLI, Scope

T = TypeVar("T")


def any_key() -> bool:
    """Whether anybody could show a key that is accepted."""
    return _in_the_store(repository.any_key)


def all_keys() -> list[KeyRecord]:
    """The oldest first."""
    return _in_the_store(repository.all_keys)


def create(name: str, scope: Scope, lifetime: timedelta | None, *, weight: int = 1) -> NewKey:
    """Makes a key. Raises DocumentError for a name that cannot be shown."""
    return _in_the_store(
        lambda connection: service.create_key(
            connection, name=name, scope=scope, weight=weight, lifetime=lifetime, caller=CLI
        )
    )


def revoke(key_id: str) -> Literal["revoked", "was_revoked", "unknown"]:
    """Makes every API process refuse the key from now on."""
    return _in_the_store(lambda connection: service.revoke_key(connection, key_id, caller=CLI))


def _in_the_store(work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
    with opened_database() as engine:
        return asyncio.run(_in_one_transaction(engine, work))


async def _in_one_transaction(engine: Engine, work: Callable[[AsyncConnection], Awaitable[T]]) -> T:
    opened = open_async_engine(engine)
    try:
        async with begun(opened) as connection:
            return await work(connection)
    finally:
        await opened.dispose()
