"""The audit log: who changed what, written in the transaction of the change, so that neither is there alone."""

from collections.abc import Mapping

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.api_tables import AuditRow
from sutler.service.web.caller import Caller


async def note(
    connection: AsyncConnection,
    caller: Caller,
    action: str,
    target: str,
    detail: Mapping[str, object] | None = None,
) -> None:
    """`action` such as `deployment.update`, `target` such as `deployment/chat`; `detail` is JSON without secrets."""
    values = {"actor": caller.principal.actor, "action": action, "target": target, "request_id": caller.request_id}
    await connection.execute(insert(AuditRow).values(detail=dict(detail or {}), **values))
