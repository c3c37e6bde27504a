"""The worker's process."""

import asyncio

from sutler.service.main import opened_worker
from sutler.service.processes.ending import signals_to_end


def run() -> None:
    """Works until SIGTERM or SIGINT; solves under way are left to other workers."""
    asyncio.run(_run())


async def _run() -> None:
    stop = asyncio.Event()
    for number in signals_to_end():
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with opened_worker() as worker:
        working = asyncio.ensure_future(worker.run())
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if working.done():
            working.result()
        working.cancel()
        await asyncio.wait({working})
