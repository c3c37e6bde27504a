"""Every value of a plan has its declared type, is finite and lies in its range; lists are walked to the leaves.

A plan that passes can be read without guarding: no None where a number belongs, no negative index, no NaN.
"""

import math
import types
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from sutler.solver import plan as plan_module
from sutler.solver.plan import Plan

# A shadow price may have either sign: one more unit can cost as well as help.
_ANY_SIGN = {"shadow_price"}
_HINTS = {kind: get_type_hints(kind) for kind in vars(plan_module).values() if is_dataclass(kind)}
_POSITIVE = {"gpus", "count", "tensor_parallel", "data_parallel", "expert_parallel", "layers", "fraction", "rps"}

_Faults = Sequence[tuple[str, str]]  # where below the value, and what
_Check = Callable[[Any], _Faults]  # of a value; made once for each type, since plans hold thousands of values


def malformed(plan: Plan) -> list[str]:
    """What is not of its declared type or out of range."""
    if not isinstance(plan, Plan):
        return [f"plan: {type(plan).__name__}, expected a Plan"]
    return [f"{path.removeprefix('.')}: {what}" for path, what in _entry_faults(plan)]


def _entry_faults(entry: Any) -> _Faults:
    faults: list[tuple[str, str]] = []
    for name, check in _CHECKS[type(entry)]:
        found = check(getattr(entry, name))
        if found:
            faults += [(f".{name}{path}", what) for path, what in found]
    return faults


def _check_of(hint: Any, name: str) -> _Check:
    if get_origin(hint) is tuple:
        return _check_of_tuple(get_args(hint), name)
    least = -math.inf if name in _ANY_SIGN else 5e-324 if name in _POSITIVE else 0.0
    is_a, expected = _test_of(hint), getattr(hint, "__name__", None) or str(hint)
    number = hint if hint in (int, float) else None
    holds_entries = any(is_dataclass(part) for part in (hint, *get_args(hint)))

    def check(value: Any) -> _Faults:
        if type(value) is number and least <= value < math.inf:  # most values by far
            return ()
        if not is_a(value):
            return (("", f"{value!r}, expected {expected}"),)
        if holds_entries and is_dataclass(value):
            return _entry_faults(value)
        if isinstance(value, int | float) and not isinstance(value, bool):
            return _number_faults(value, name)
        return ()

    return check


def _check_of_tuple(parts: tuple[Any, ...], name: str) -> _Check:
    checks = [_check_of(part, name) for part in parts if part is not Ellipsis]
    is_list = parts[-1] is Ellipsis

    def check(value: Any) -> _Faults:
        if not isinstance(value, tuple):
            return (("", f"{type(value).__name__}, expected a tuple"),)
        if not is_list and len(checks) != len(value):
            return (("", f"{len(value)} entries, expected {len(checks)}"),)
        faults: list[tuple[str, str]] = []
        for index, item in enumerate(value):
            found = checks[0 if is_list else index](item)
            if found:
                faults += [(f"[{index}]{path}", what) for path, what in found]
        return faults

    return check


def _number_faults(value: float, name: str) -> _Faults:
    if not math.isfinite(value):
        return (("", f"{value!r}, expected a finite number"),)
    if value < 0 and name not in _ANY_SIGN:
        return (("", f"{value!r}, expected no negative number"),)
    if value == 0 and name in _POSITIVE:
        return (("", f"{value!r}, expected a positive number"),)
    return ()


def _test_of(hint: Any) -> Callable[[Any], bool]:
    """Whether a value is of a type that is no tuple."""
    if get_origin(hint) in (Union, types.UnionType):
        tests = [_test_of(part) for part in get_args(hint)]
        return lambda value: any(test(value) for test in tests)
    if get_origin(hint) is Literal:
        choices = get_args(hint)
        return lambda value: any(value == choice and type(value) is type(choice) for choice in choices)
    if hint is float:
        return lambda value: isinstance(value, int | float) and not isinstance(value, bool)
    if hint is int:
        return lambda value: isinstance(value, int) and not isinstance(value, bool)
    return lambda value: isinstance(value, hint)


_CHECKS = {
    kind: tuple((name, _check_of(hint, name)) for name, hint in hints.items()) for kind, hints in _HINTS.items()
}
