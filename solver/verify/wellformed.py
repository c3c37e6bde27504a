"""Every value of a plan has its declared type, is finite and lies in its range; lists are walked to the leaves.

A plan that passes can be read without guarding: no None where a number belongs, no negative index, no NaN.
"""

import math
import types
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from sutler.solver import plan as plan_module
from sutler.solver.plan import Plan

# A shadow price may have either sign: one more unit can cost as well as help.
_ANY_SIGN = {"shadow_price"}
_HINTS = {kind: get_type_hints(kind) for kind in vars(plan_module).values() if is_dataclass(kind)}
_origin_of: Callable[[Any], Any] = cache(get_origin)  # these two are asked for every value of every plan
_parts_of: Callable[[Any], tuple[Any, ...]] = cache(get_args)
_POSITIVE = {"gpus", "count", "tensor_parallel", "data_parallel", "expert_parallel", "layers", "fraction", "rps"}


def malformed(plan: Plan) -> list[str]:
    """What is not of its declared type or out of range."""
    if not isinstance(plan, Plan):
        return [f"plan: {type(plan).__name__}, expected a Plan"]
    return list(_walk(plan, ""))


def _walk(entry: Any, path: str) -> Iterator[str]:
    hints = _HINTS[type(entry)]
    for each in fields(entry):
        yield from _check(getattr(entry, each.name), hints[each.name], f"{path}{each.name}", each.name)


def _check(value: Any, hint: Any, path: str, name: str) -> Iterator[str]:
    if _origin_of(hint) is tuple:
        yield from _check_tuple(value, _parts_of(hint), path, name)
    elif not _is_a(value, hint):
        yield f"{path}: {value!r}, expected {_spelled(hint)}"
    elif is_dataclass(value):
        yield from _walk(value, f"{path}.")
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _check_number(value, path, name)


def _check_tuple(value: Any, parts: tuple[Any, ...], path: str, name: str) -> Iterator[str]:
    if not isinstance(value, tuple):
        yield f"{path}: {type(value).__name__}, expected a tuple"
        return
    if parts[-1] is not Ellipsis and len(parts) != len(value):
        yield f"{path}: {len(value)} entries, expected {len(parts)}"
        return
    each = [parts[0]] * len(value) if parts[-1] is Ellipsis else list(parts)
    for index, (item, hint) in enumerate(zip(value, each, strict=True)):
        yield from _check(item, hint, f"{path}[{index}]", name)


def _check_number(value: float, path: str, name: str) -> Iterator[str]:
    if not math.isfinite(value):
        yield f"{path}: {value!r}, expected a finite number"
    elif value < 0 and name not in _ANY_SIGN:
        yield f"{path}: {value!r}, expected no negative number"
    elif value == 0 and name in _POSITIVE:
        yield f"{path}: {value!r}, expected a positive number"


def _is_a(value: Any, hint: Any) -> bool:
    origin = _origin_of(hint)
    if origin in (Union, types.UnionType):
        return any(_is_a(value, part) for part in _parts_of(hint))
    if origin is Literal:
        return any(value == choice and type(value) is type(choice) for choice in _parts_of(hint))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _spelled(hint: Any) -> str:
    return getattr(hint, "__name__", None) or str(hint)
