"""Why each part of a diff is there, in words for people."""

from collections.abc import Mapping, Sequence
from typing import Final

MOST_NAMED: Final = 3  # chosen: a reason stays one line
PRICE_DIGITS: Final = 6  # prices that differ by less are the same


def kept(
    *,
    goes_on: Sequence[str],
    restart: Sequence[str],
    found: int,
    paid: Sequence[float],
    now: Sequence[float],
    recapped: int,
    bent: Mapping[tuple[str, str], Sequence[str]],
) -> str:
    """Says why machines are kept.

    `goes_on` and `restart` are replicas; `found` machines are held but were in no plan; prices are per machine;
    `recapped` machines get other power caps; `bent`: of those that go on, the replicas in another role, by (role,
    role before)."""
    parts = []
    as_before = [name for name in goes_on if not any(name in names for names in bent.values())]
    if as_before:
        parts.append(f"serves {named(as_before)} as before")
    for (role, before), names in bent.items():
        verb = "takes" if len(names) == 1 else "take"
        parts.append(f"{named(names)} {verb} {role} instead of {before}, by routing")
    if restart:
        parts.append(f"to serve {named(restart)}, started anew")
    if not goes_on and not restart:
        parts.append("stays rented, nothing runs on it")
    if found:
        parts.append(f"{found} held already, in no plan before")
    if recapped:
        parts.append(f"other power caps on {recapped} of them")
    if _rounded(paid) != _rounded(now):
        parts.append(f"now at {_each(now)} instead of {_each(paid)} per machine and hour")
    return "; ".join(parts)


def _rounded(prices: Sequence[float]) -> list[float]:
    return sorted(round(price, PRICE_DIGITS) for price in prices)


def started(replicas: Sequence[str], *, is_gone: bool, capped: int) -> str:
    """Says why machines are started; `capped` of them have power caps."""
    caps = f"; power caps on {capped} of them" if capped else ""
    why = "planned before, but not held" if is_gone else "new in this plan"
    return f"{why}: {f'serves {named(replicas)}' if replicas else 'nothing runs on it'}{caps}"


def stopped(replicas: Sequence[str]) -> str:
    """Says why machines are stopped that ran these `replicas` of the plan before."""
    ran = f"{named(replicas)} of the plan before ran on it" if replicas else "nothing ran on it"
    return f"not needed any more: {ran}"


def gone() -> str:
    return "in the plan before, but not held: there is nothing to stop; send no request to it any more"


def unplanned(*, has_before: bool) -> str:
    return "held, in neither plan" if has_before else "held, not in the plan"


def rerouted(moved_fraction: float, *, is_new: bool, is_over: bool, to: Sequence[str]) -> str:
    if is_over:
        return "no longer served: not in the new plan"
    if is_new:
        return f"new in this plan: goes to {named(to)}"
    return f"{100 * moved_fraction:.3g} % of its requests go to other replicas than before"


def handed_over(moved_fraction: float, *, is_new: bool, is_over: bool, to: Sequence[str]) -> str:
    """Says what becomes of what is handed over; `to` are the replicas that decode."""
    if is_over:
        return "nothing of it is handed over any more"
    if is_new:
        return f"handed over after its prompts: goes on to {named(to)}"
    return f"{100 * moved_fraction:.3g} % of it is handed over to other replicas than before"


def named(names: Sequence[str]) -> str:
    """Lists names: `a`, `a and b`, `a, b, c and 97 more`."""
    if len(names) > MOST_NAMED + 1:
        return f"{', '.join(names[:MOST_NAMED])} and {len(names) - MOST_NAMED} more"
    *most, last = names
    return f"{', '.join(most)} and {last}" if most else last


def _each(prices: Sequence[float]) -> str:
    return " and ".join(f"{price:.6g} $" for price in sorted(set(prices)))
