"""Families of random cases as one test: quick to collect, and a failure names its case."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any

import pytest


def for_each(
    name: str, cases: Iterable[Any], *, quick: int | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Runs the test with its parameter `name` set to each of the cases in turn, and notes on a failure which it was.

    Its other parameters are fixtures or `parametrize`d as usual; a fixture is the same for all cases. Of a family
    that takes long, `make test` runs only the first `quick` cases; the others are a test of their own in
    `make test-all`.
    """
    listed = tuple(cases)
    assert listed, f"no {name} to test with"

    def looped(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def each(part: slice = slice(None), **others: Any) -> None:
            for case in listed[part]:
                try:
                    test(**{name: case}, **others)
                except Exception as error:
                    error.add_note(f"with {name}={case!r}, one of {len(listed)}")
                    raise

        signature = inspect.signature(test)
        kept = [parameter for parameter in signature.parameters.values() if parameter.name != name]
        assert len(kept) == len(signature.parameters) - 1, f"{test.__name__} has no parameter {name}"
        if quick is not None:
            kept.append(inspect.Parameter("part", inspect.Parameter.KEYWORD_ONLY))
        each.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        if quick is None:
            return each
        assert 0 < quick < len(listed), f"quick={quick} of {len(listed)} cases"
        rest = pytest.param(slice(quick, None), id="rest", marks=pytest.mark.slow)
        in_parts: Callable[..., None] = pytest.mark.parametrize(
            "part", [pytest.param(slice(quick), id="quick"), rest]
        )(each)
        return in_parts

    return looped
