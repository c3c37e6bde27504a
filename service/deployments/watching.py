"""Who is watched, and what has happened to them: whoever learns of something says so here, and a look follows."""

from uuid import UUID

from sqlalchemy import update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.watch_tables import WatchRow


async def begin(connection: AsyncConnection, deployment_id: UUID) -> None:
    """A deployment is watched from now on; once."""
    new = insert(WatchRow).values(deployment_id=deployment_id)
    await connection.execute(new.on_conflict_do_nothing(index_elements=["deployment_id"]))


async def touch(connection: AsyncConnection, deployment_id: UUID) -> None:
    """Something has happened that calls for a look, in this transaction."""
    touched = update(WatchRow).where(WatchRow.deployment_id == deployment_id)
    await connection.execute(touched.values(touches=WatchRow.touches + 1))
