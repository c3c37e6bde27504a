"""Families of random cases as one test: quick to collect, and a failure names its case."""

import functools
import inspect
from collections.abc import Callable, Iterable
from typing import Any


def for_each(name: str, cases: Iterable[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Runs the test with its parameter `name` set to each of the cases in turn, and notes on a failure which it was.

    Its other parameters are fixtures or `parametrize`d as usual; a fixture is the same for all cases.
    """
    listed = tuple(cases)
    assert listed, f"no {name} to test with"

    def looped(test: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(test)
        def each(**others: Any) -> None:
            for case in listed:
                try:
                    test(**{name: case}, **others)
                except Exception as error:
                    error.add_note(f"with {name}={case!r}, one of {len(listed)}")
                    raise

        signature = inspect.signature(test)
        kept = [parameter for parameter in signature.parameters.values() if parameter.name != name]
        assert len(kept) == len(signature.parameters) - 1, f"{test.__name__} has no parameter {name}"
        each.__signature__ = signature.replace(parameters=kept)  # type: ignore[attr-defined]
        return each

    return looped
