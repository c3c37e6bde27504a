"""What rules of several documents share: names that repeat, and the names that there are to choose from."""

from collections.abc import Hashable, Iterable, Iterator, Sequence

from sutler.service.errors import FieldProblem, short_repr


def repeats(keys: Iterable[Hashable]) -> Iterator[tuple[int, int]]:
    """The place of each key that stands before it already, and the first place where it does."""
    first: dict[Hashable, int] = {}
    for i, key in enumerate(keys):
        if (earlier := first.setdefault(key, i)) != i:
            yield i, earlier


def repeated(path: str, names: Sequence[str]) -> Iterator[FieldProblem]:
    """One problem for each name that an earlier entry of the list at `path` has."""
    for i, earlier in repeats(names):
        remedy = f"{path}[{earlier}] has the same name: give each its own"
        yield FieldProblem(f"{path}[{i}].name", short_repr(names[i]), remedy)


def either(names: Iterable[str]) -> str:
    """The first names of a list, to choose from."""
    listed = list(names)
    shown = ", ".join(plain(name) for name in listed[:8])
    return shown if len(listed) <= 8 else f"{shown}, ... ({len(listed)} in all)"


def plain(name: str) -> str:
    """A name as people wrote it, escaped where a terminal could not show it."""
    return name if name.isprintable() else short_repr(name)
