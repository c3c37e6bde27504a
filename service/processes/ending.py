"""What tells a process to end."""

import signal


def signals_to_end() -> tuple[signal.Signals, ...]:
    """SIGTERM; and SIGINT, where it is not ignored because a parent sees to it (`family`)."""
    is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    return (signal.SIGTERM,) if is_ignored else (signal.SIGTERM, signal.SIGINT)
