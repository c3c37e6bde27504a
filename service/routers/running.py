"""One follower from its first plan to SIGTERM: what is wanted, put together."""

import asyncio
import re
import shlex
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final

from sutler.service.client.asynchronous import AsyncClient
from sutler.service.documents.errors import DocumentError
from sutler.service.documents.plan import PlanDocument
from sutler.service.export.envoy import envoy_clusters
from sutler.service.export.nginx import nginx_config
from sutler.service.export.router import router_json
from sutler.service.routers.addresses import read_addresses
from sutler.service.routers.configuration import Configuration
from sutler.service.routers.following import Follower, Render, Telling
from sutler.service.routers.health import Health
from sutler.service.routers.plans import Trouble, of_deployment, of_file
from sutler.service.routers.watched import Watched
from sutler.service.wording.words import moment

LISTEN: Final = re.compile(r"(?:(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9.*-]+):)?[0-9]{1,5}")
COMMANDS: Final = {"nginx": ("nginx -t -q", "nginx -s reload"), "envoy": ("", ""), "router": ("", "")}
"""By format: has the router check its file, and load it."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to follow, and how; None: as is usual for the format. Either a deployment's `name` or a `plan`."""

    name: str | None
    plan: Path | None
    read_plan: Callable[[Path], PlanDocument]
    addresses: Path
    out: Path
    format: str
    listen: str
    check: str | None
    reload: str | None
    every_s: float
    checks: int


async def follow_until_ended(wanted: Wanted, tell: Callable[[str], None]) -> None:
    """Follows until SIGTERM, after which the router keeps its weights. Raises DocumentError, ServiceError."""
    if not LISTEN.fullmatch(wanted.listen):
        raise DocumentError.of("--listen", "must be a port, or an address and a port: 8080", value=wanted.listen)
    check, reload = (
        shlex.split(usual if given is None else given)
        for given, usual in zip((wanted.check, wanted.reload), COMMANDS[wanted.format], strict=True)
    )
    telling = Telling(lambda message: tell(f"{moment(datetime.now(UTC))} {wanted.name or wanted.plan} {message}"))
    current = asyncio.current_task()
    if current is not None:
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, current.cancel)
    async with AsyncExitStack() as stack:
        stack.enter_context(suppress(asyncio.CancelledError))
        health = await stack.enter_async_context(Health(wanted.every_s, wanted.checks))
        telling("start", f"a replica that stops answering is out within {health.detection_s:g} s")
        plans = await _plans(wanted, stack, partial(telling, "plans"))
        follower = Follower(
            _render(wanted),
            Configuration(wanted.out, check, reload),
            Watched(wanted.addresses, read_addresses),
            health,
            telling,
            by_id=wanted.plan is not None,
        )
        await follower.follow(plans)


async def _plans(wanted: Wanted, stack: AsyncExitStack, trouble: Trouble) -> AsyncIterator[PlanDocument]:
    if wanted.plan is not None:
        return of_file(Watched(wanted.plan, wanted.read_plan), wanted.every_s, trouble)
    client = await stack.enter_async_context(AsyncClient(retries=0))
    return of_deployment(client, str(wanted.name), trouble)


def _render(wanted: Wanted) -> Render:
    renders: dict[str, Render] = {
        "nginx": partial(nginx_config, listen=wanted.listen),
        "envoy": envoy_clusters,
        "router": router_json,
    }
    return renders[wanted.format]
