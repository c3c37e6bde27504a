"""Threads for what is mostly NumPy or HiGHS, which leave the interpreter to others while they compute."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

Arguments = ParamSpec("Arguments")
Answer = TypeVar("Answer")
_AT_ONCE = 2  # chosen: a service makes other plans meanwhile


class TwoAtOnce(ThreadPoolExecutor):
    """Two threads. What cannot be started for want of memory for its stack raises MemoryError."""

    def __init__(self) -> None:
        super().__init__(_AT_ONCE)

    def submit(
        self, fn: Callable[Arguments, Answer], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Future[Answer]:
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError as error:
            raise MemoryError(str(error)) from error
