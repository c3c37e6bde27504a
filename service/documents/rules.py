"""What rules of several documents share: names that repeat, and the names that there are to choose from."""

from collections.abc import Iterable, Iterator

from sutler.service.errors import FieldProblem, short_repr


def repeated(path: str, names: Iterable[str]) -> Iterator[FieldProblem]:
    """One problem for each name that an earlier entry of the list at `path` has."""
    first: dict[str, int] = {}
    for i, name in enumerate(names):
        earlier = first.setdefault(name, i)
        if earlier != i:
            remedy = f"{path}[{earlier}] has the same name: give each its own"
            yield FieldProblem(f"{path}[{i}].name", short_repr(name), remedy)


def either(names: Iterable[str]) -> str:
    """The first names of a list, to choose from."""
    listed = list(names)
    shown = ", ".join(plain(name) for name in listed[:8])
    return shown if len(listed) <= 8 else f"{shown}, ... ({len(listed)} in all)"


def plain(name: str) -> str:
    """A name as people wrote it, escaped where a terminal could not show it."""
    return name if name.isprintable() else short_repr(name)
