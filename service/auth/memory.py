"""Remembering things for a short while, never more of them than a bound: requests must not be able to fill memory."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class ShortMemory(Generic[K, V]):
    """Keeps at most `most` things, each until its time; where there are more, the oldest go."""

    def __init__(self, *, most: int) -> None:
        self._most = most
        self._kept: OrderedDict[K, tuple[float, V]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: K, *, now_s: float) -> V | None:
        """Returns what is kept, None where nothing is or its time is over."""
        until_s, value = self._kept.get(key, (now_s, None))
        return value if now_s < until_s else None

    def keep(self, key: K, value: V, *, until_s: float) -> None:
        self._kept[key] = until_s, value
        self._kept.move_to_end(key)
        while len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def drop(self, key: K) -> None:
        self._kept.pop(key, None)

    def clear(self) -> None:
        self._kept.clear()
