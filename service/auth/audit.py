"""The audit log: who changed what, written in the transaction of the change, so that neither is there alone."""

from collections.abc import Mapping

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection

from sutler.service.db.api_tables import AuditRow
from sutler.service.web.caller import Caller
from sutler.service.web.principal import Principal


async def record(
    connection: AsyncConnection,
    *,
    principal: Principal,
    action: str,
    target: str,
    request_id: str | None,
    detail: Mapping[str, object] | None = None,
) -> None:
    """`action` such as `deployment.update`, `target` such as `deployment/chat`; `detail` is JSON without secrets."""
    values = {"actor": principal.actor, "action": action, "target": target, "request_id": request_id}
    await connection.execute(insert(AuditRow).values(detail=dict(detail or {}), **values))


async def note(
    connection: AsyncConnection,
    caller: Caller,
    action: str,
    target: str,
    detail: Mapping[str, object] | None = None,
) -> None:
    """Records what a caller has changed."""
    who, request_id = caller.principal, caller.request_id
    await record(connection, principal=who, action=action, target=target, request_id=request_id, detail=detail)
