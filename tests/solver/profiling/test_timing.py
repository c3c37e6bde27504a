"""Repetitions and medians, with clocks and a torch that follow a script."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from sutler.solver.profiling.timing import Repeats, by_clock, by_events, captured, timed


def script(*values: float) -> Callable[[], float]:
    left = iter(values)
    return lambda: next(left)


def test_the_median_of_what_follows_the_warm_up_is_one_step() -> None:
    effort = Repeats(warm_up=2, least=5, most=5, enough_s=0.0)
    found = timed(script(90.0, 50.0, 4.0, 8.0, 6.0, 5.0, 7.0), steps=2, effort=effort)
    assert (found.seconds, found.repetitions) == (3.0, 5)
    assert found.spread_fraction == pytest.approx((7.0 - 5.0) / 6.0)


@pytest.mark.parametrize(("each_s", "repetitions"), [(0.01, 10), (0.2, 5), (1.0, 3)])
def test_short_steps_are_repeated_more_often(each_s: float, repetitions: int) -> None:
    effort = Repeats(warm_up=0, least=3, most=10, enough_s=0.9)
    assert timed(lambda: each_s, steps=1, effort=effort).repetitions == repetitions


def test_a_clock_is_read_around_the_run() -> None:
    ran: list[str] = []
    repetition_s = by_clock(lambda: ran.append("step"), script(1.0, 3.5))
    assert (repetition_s(), ran) == (2.5, ["step"])


class Event:
    """Remembers what the device had done when it was recorded."""

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def record(self) -> None:
        self._log.append("event")

    def synchronize(self) -> None:
        self._log.append("wait")

    def elapsed_time(self, end: "Event") -> float:
        assert end is not self
        return 12.0  # milliseconds


def played_torch(log: list[str], capture_error: Exception | None = None) -> Any:
    """Just enough of torch.cuda to see the order of calls."""

    @contextmanager
    def aside(_: object) -> Iterator[None]:
        yield

    @contextmanager
    def graph(_: object) -> Iterator[None]:
        log.append("capture")
        yield
        if capture_error is not None:
            raise capture_error

    stream = SimpleNamespace(wait_stream=lambda _: None)
    cuda = SimpleNamespace(
        Event=lambda enable_timing: Event(log),
        Stream=lambda: stream,
        stream=aside,
        current_stream=lambda: stream,
        synchronize=lambda: None,
        CUDAGraph=lambda: SimpleNamespace(replay=lambda: log.append("replay")),
        graph=graph,
        OutOfMemoryError=MemoryError,
    )
    return SimpleNamespace(cuda=cuda)


def test_events_are_waited_for_and_read_in_seconds() -> None:
    log: list[str] = []
    assert by_events(played_torch(log), lambda: log.append("run"))() == 0.012
    assert log == ["event", "run", "event", "wait"]


def test_a_graph_is_captured_after_a_first_run_and_replayed() -> None:
    log: list[str] = []
    replay, note = captured(played_torch(log), lambda: log.append("run"))
    replay()
    assert (log, note) == (["run", "capture", "run", "replay"], "")


def test_what_cannot_be_captured_is_launched_and_said_so() -> None:
    log: list[str] = []
    torch = played_torch(log, RuntimeError("operation not permitted\nlong story"))
    run, note = captured(torch, lambda: log.append("run"))
    run()
    assert log[-1] == "run"
    assert "(operation not permitted): times include the launch of every kernel" in note


def test_a_full_memory_is_no_reason_to_launch() -> None:
    with pytest.raises(MemoryError):
        captured(played_torch([], MemoryError()), lambda: None)
