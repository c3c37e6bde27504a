"""What can be lost at once: all of a provider, all of it in one region, everything interruptible, or one machine.

Flow: pools.py splits pools by what a problem asks to survive -> polytope/losses.py, for candidates; the plan's own
machines are asked the same by answer/losses.py and by verify/losses.py.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from sutler.solver.problem import Contract, LossKind

UNKNOWN_REGION: Final = "?"
KINDS: Final[tuple[LossKind, ...]] = ("provider", "place", "machine", "interruptible")


class Whereabouts(NamedTuple):
    """Whose a machine is, where it stands and how it is rented; None: not stated."""

    provider: str
    region: str | None
    contract: Contract


def names_of(kind: LossKind, where: Iterable[Whereabouts]) -> tuple[str, ...]:
    """What of this kind can be lost of machines that stand so, in order; () for machines, which have no whereabouts
    in common.

    A place is a provider's region. Machines whose region nobody states may be in any of them.
    """
    known = list(where)
    if kind == "provider":
        names = {one.provider for one in known}
    elif kind == "place":
        with_regions = {one.provider for one in known if one.region is not None}
        names = {
            f"{one.provider}/{one.region or UNKNOWN_REGION}"
            for one in known
            if one.region is not None or one.provider not in with_regions
        }
    else:
        names = {one.contract for one in known if kind == one.contract}
    return tuple(sorted(names))


def falls(kind: LossKind, name: str, where: Whereabouts) -> bool:
    """Whether what stands there is lost with what is called so."""
    if kind == "provider":
        return where.provider == name
    if kind == "place":
        provider, _, region = name.partition("/")
        return where.provider == provider and (where.region is None or region == where.region)
    return where.contract == name


class Machines(Protocol):
    """`count` machines of one offer."""

    @property
    def provider(self) -> str: ...
    @property
    def offer_id(self) -> str: ...
    @property
    def contract(self) -> str: ...
    @property
    def count(self) -> int: ...


def machine_names(rentals: Sequence[Machines], machine_ids: Iterable[str | None]) -> dict[tuple[int, int], str]:
    """What each machine is called, by rental and number: its provider and machine where the offer states that, else
    its offer and a number that counts over all rentals of the offer.

    Slices that state a common machine share its name; others of one host are machines of their own, since nobody says
    where they stand.
    """
    names: dict[tuple[int, int], str] = {}
    seen = Counter[tuple[str, str, str]]()
    for number, (rental, machine_id) in enumerate(zip(rentals, machine_ids, strict=True)):
        key = (rental.provider, rental.offer_id, rental.contract)
        for machine in range(rental.count):
            is_stated = machine_id is not None and rental.count == 1
            own = machine_id if is_stated else f"{rental.offer_id}/{seen[key]}"
            names[number, machine] = f"{rental.provider}/{own}"
            seen[key] += 1
    return names
