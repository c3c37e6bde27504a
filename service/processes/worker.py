"""The worker's process."""

import asyncio
import socket

from sutler.service.fork_server import ForkServer
from sutler.service.main import opened_worker
from sutler.service.processes.ending import signals_to_end
from sutler.service.processes.heart import Tell, beat, ending


def run(tell: Tell, asking: socket.socket | None = None) -> None:
    """Works until SIGTERM or SIGINT; solves under way are left to other workers.

    `tell` gives signs of life. `asking` leads to the fork server that solvers' processes come from; None: to one of
    its own.
    """
    asyncio.run(_run(ForkServer(asking), tell))


async def _run(fork_server: ForkServer, tell: Tell) -> None:
    stop = asyncio.Event()
    for number in signals_to_end():
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    beating = asyncio.ensure_future(beat(tell))
    async with opened_worker(fork_server) as worker:
        working = asyncio.ensure_future(worker.run())
        stopping = asyncio.ensure_future(stop.wait())
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        ending()
        if working.done():
            working.result()
        working.cancel()
        await asyncio.wait({working})
    await fork_server.stop()
    beating.cancel()
