"""When a replica counts as dead, and as alive again."""

import asyncio
import socket

from sutler.service.routers.health import Health
from tests.service.routers.listeners import listening


def test_it_takes_several_checks_in_a_row_to_turn_what_is_known_around() -> None:
    async def watch() -> None:
        async with listening("a") as engines, Health(every_s=5, checks=3) as health:
            at = engines.address("a")
            assert not health.is_alive(at)  # never asked
            seen = []
            for is_up in (True, False, False, True, False, False, False, True, True, False, True, True, True):
                engines.up = {"a"} if is_up else set()
                await health.look([at])
                seen.append(health.is_alive(at))
            assert seen == [True] * 6 + [False] * 6 + [True]

    asyncio.run(watch())


def test_nobody_there_and_nobody_who_answers_in_time_are_dead() -> None:
    async def watch() -> None:
        with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as gone:
            places = [f"127.0.0.1:{one.getsockname()[1]}" for one in (silent, gone)]
            gone.close()
            async with Health(every_s=0.05) as health:
                await health.look([*places, "no.such.host.invalid:80"])
                assert not any(map(health.is_alive, places))

    asyncio.run(watch())


def test_the_time_of_detection_is_stated_for_the_worst_case() -> None:
    assert Health(every_s=2.0, checks=3).detection_s == 8.0
    assert Health(every_s=0.1, checks=3).detection_s == 4.0  # an answer is waited for a second
