"""Threads of the solver."""

import threading

import pytest

from sutler.solver.threads import TwoAtOnce


def test_what_is_asked_for_is_answered_in_order() -> None:
    with TwoAtOnce() as threads:
        assert list(threads.map(lambda number: number * number, range(5))) == [0, 1, 4, 9, 16]


def test_a_thread_without_memory_for_its_stack_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with TwoAtOnce() as threads:
        monkeypatch.setattr(threading.Thread, "start", refused)
        with pytest.raises(MemoryError, match="thread"):
            threads.submit(lambda: None)
