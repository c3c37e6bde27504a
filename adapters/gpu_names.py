"""From the spellings of clouds to canonical GPU slugs, by table: what is not in gpu_names.toml is `unknown_gpu`.

Names are folded before they are compared: case, blanks, "_", "-" and brackets do not matter, vendor words fall away,
"RTX 6000Ada" is "RTX 6000 Ada", "4080S" is "4080 SUPER", "InstinctMI250X" is "MI250X". Nothing is guessed from a part
of a name, so MIG slices and laptop chips, whose names say more, stay unknown.
"""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any, Final

from sutler.adapters.errors import RowError
from sutler.adapters.values import short

# Chosen: clouds state GB or GiB, 7 % apart, while cards of one name differ in memory by more.
MEMORY_TOLERANCE_FRACTION: Final = 0.08
_VENDOR_WORDS: Final = re.compile(r"\b(nvidia|amd|geforce|tesla|quadro|instinct|generation|graphics|gpu|gen)\b")
_STATED_MEMORY: Final = re.compile(r"\b\d+gb\b")
_GLUED_WORDS: Final = re.compile(r"(nvidia|amd|geforce|tesla|instinct)(?=[a-z0-9])")


@dataclass(frozen=True, slots=True)
class KnownGpu:
    """`watts` and `nvlink` are what tells it from a namesake; `usual`: what the name means when nothing does."""

    slug: str
    memory_gb: float
    watts: float | None = None
    nvlink: bool | None = None
    usual: bool = False
    needs_memory: bool = False

    def has_memory(self, memory_gb: float) -> bool:
        return abs(memory_gb - self.memory_gb) <= MEMORY_TOLERANCE_FRACTION * self.memory_gb


def identify(
    name: str | None,
    *,
    provider: str,
    memory_gb: float | None = None,
    watts: float | None = None,
    nvlink: bool | None = None,
) -> str:
    """The slug of the GPU that a cloud calls `name`; `memory_gb` per GPU and the rest as the cloud states them.

    Raises RowError (unknown_gpu) for names outside the table, memory more than 8 % off, and names left ambiguous.
    """
    folded = fold(name or "")
    known = _by_name(provider).get(folded, ())
    if not known:
        raise RowError("unknown_gpu", f"no GPU is called {short(name)} in the name table")
    fitting = known if memory_gb is None else tuple(gpu for gpu in known if gpu.has_memory(memory_gb))
    if not fitting:
        expected = " or ".join(f"{gpu.memory_gb:g}" for gpu in known)
        raise RowError(
            "unknown_gpu", f"{short(name)} with {memory_gb:.1f} GB is another card than that of {expected} GB"
        )
    if memory_gb is None and not _STATED_MEMORY.search(folded) and any(gpu.needs_memory for gpu in fitting):
        raise RowError("unknown_gpu", f"{short(name)} exists with several memory sizes, and none is stated")
    return _told_apart(fitting, name, watts=watts, nvlink=nvlink).slug


def is_known_name(name: str, *, provider: str) -> bool:
    """Whether the table has a GPU of this name, whatever its memory."""
    return fold(name) in _by_name(provider)


def _told_apart(
    known: tuple[KnownGpu, ...], name: str | None, *, watts: float | None, nvlink: bool | None
) -> KnownGpu:
    left = known
    left = tuple(gpu for gpu in left if nvlink and gpu.nvlink) or left
    left = tuple(gpu for gpu in left if watts and gpu.watts == watts) or left
    left = tuple(gpu for gpu in left if gpu.usual) or left
    if len(left) == 1:
        return left[0]
    raise RowError("unknown_gpu", f"{short(name)} may be {' or '.join(gpu.slug for gpu in known)}")


@lru_cache(maxsize=1024)  # chosen: far more names than clouds have, and bounded whatever they send
def fold(name: str) -> str:
    """The form in which names are compared."""
    folded = re.sub(r"[\s_\-(),]+", " ", name.lower()).strip()
    folded = _GLUED_WORDS.sub(r"\1 ", folded)
    folded = _VENDOR_WORDS.sub(" ", folded)
    folded = re.sub(r"\brtx(?=a?\d)", "rtx ", folded)
    folded = re.sub(r"(?<=\d)(ada|super|ti)\b", r" \1", folded)
    folded = re.sub(r"\b(\d{4})s\b", r"\1 super", folded)
    folded = re.sub(r"\bsuper ti\b", "ti super", folded)
    folded = re.sub(r"\b(\d+) gb\b", r"\1gb", folded)
    return " ".join(folded.split())


@lru_cache
def known_gpus() -> Mapping[str, KnownGpu]:
    """Every GPU of the table, by slug."""
    return {slug: _known(slug, **entry) for slug, entry in _table()["gpus"].items()}


@lru_cache
def _by_name(provider: str) -> Mapping[str, tuple[KnownGpu, ...]]:
    table, gpus = _table(), known_gpus()
    found: dict[str, tuple[KnownGpu, ...]] = {}
    for slug, entry in table["gpus"].items():
        for name in {fold(spelling) for spelling in (slug, *entry["names"])}:
            found[name] = (*found.get(name, ()), gpus[slug])
    own = table.get("provider", {}).get(provider, {})
    found.update({fold(name): tuple(gpus[slug] for slug in slugs) for name, slugs in own.items()})
    return found


def _known(slug: str, *, names: list[str], **stated: Any) -> KnownGpu:
    return KnownGpu(slug, **stated)


@lru_cache
def _table() -> Mapping[str, Any]:
    text = resources.files("sutler.adapters").joinpath("gpu_names.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)
