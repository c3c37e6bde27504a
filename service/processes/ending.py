"""What tells a process to end, and how the main thread of one without an event loop waits for it.

A handler that sets an Event on which the main thread waits is no way to do so: handlers run in that very thread,
between two of its steps. One that runs inside the wait finds the Event's lock held by itself; one that is due just
before the wait blocks never runs. Here the interpreter's own handler leaves a byte, which nobody can miss.
https://docs.python.org/3/library/signal.html#signal.set_wakeup_fd
"""

import signal
import socket
from collections.abc import Callable, Collection


def signals_to_end() -> tuple[signal.Signals, ...]:
    """SIGTERM; and SIGINT, where it is not ignored because a parent sees to it (`family`)."""
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    return (signal.SIGTERM,) if is_ignored else (signal.SIGTERM, signal.SIGINT)


def noted(numbers: Collection[signal.Signals]) -> Callable[[], None]:
    """Has these signals noted from now on, and do nothing else; returns what waits for one of them.

    The wait returns at once where one has come already. For the main thread, whose wakeup descriptor this takes.
    """
    reading, writing = socket.socketpair()
    writing.setblocking(False)
    signal.set_wakeup_fd(writing.detach(), warn_on_full_buffer=False)
    for number in numbers:
        signal.signal(number, lambda *_: None)

    def wait() -> None:
        while reading.recv(1)[0] not in numbers:
            pass

    return wait
