"""Waits for a change: look, wait for a notice, look again. Waiting costs neither a thread nor a connection."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final, TypeVar

from fastapi import Request
from starlette.requests import ClientDisconnect

from sutler.service.db.notices import Notices

T = TypeVar("T")
DEAF_LOOK_S: Final = 0.5  # while notices may be missed; chosen: twice a second costs one caller no noticeable load
SURE_LOOK_S: Final = 15.0  # a notice wakes sooner; chosen: only for what no notice tells of


async def for_caller(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What the work comes to, for as long as its caller is there. Raises ClientDisconnect."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()


async def _gone(request: Request) -> None:
    """Returns when the connection ends; the body was read before, or there is none."""
    while (await request.receive())["type"] != "http.disconnect":
        continue


async def until(notices: Notices, topic: str, look: Callable[[], Awaitable[T | None]], *, wait_s: float) -> T | None:
    """What `look` finds within `wait_s` seconds; None where it finds nothing until then, or this process ends."""
    loop = asyncio.get_running_loop()
    give_up_at = loop.time() + wait_s
    with notices.waiting(topic) as changed:
        while True:
            changed.clear()
            found = await look()
            left_s = give_up_at - loop.time()
            if found is not None or left_s <= 0 or notices.is_closing:
                return found
            look_again_s = SURE_LOOK_S if notices.connected else DEAF_LOOK_S
            try:
                async with asyncio.timeout(min(left_s, look_again_s)):
                    await changed.wait()
            except TimeoutError:
                continue
