"""From the spellings of clouds, drivers and people to a canonical GPU slug.

A name is read as a family (`h100`), the forms it states (SXM, PCIe, ...) and a memory size; what remains unread
makes it unknown, so that slices and laptop chips never pass for the full card. Where a name leaves the form or the
memory open, the catalogue's family order decides; without one, several matches are an error.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from sutler.solver.catalog.entries import Gpu
from sutler.solver.catalog.gpus import GpuCatalog, gpu_catalog
from sutler.solver.errors import UnknownNameError

MEMORY_TOLERANCE_FRACTION: Final = 0.08  # drivers, clouds and vendors round capacities differently
_NOISE: Final = re.compile(
    r"nvidia|amd|geforce|tesla|instinct|gpu|generation|gen|edition|blackwell|oam|tensor|core|nvlink|nvl32|nvl72|hbm"
)
_FORMS: Final = {"workstation": "ws", "ws": "ws", "server": "server", "pcie": "pcie", "nvl": "nvl", "sff": "sff"}


@dataclass(frozen=True, slots=True)
class ParsedName:
    """What a GPU name says: `memory_gb` is None and `forms` is empty where it says nothing."""

    family: str
    forms: frozenset[str]
    memory_gb: float | None


def resolve_gpu(name: str, catalog: str = "default", *, field: str = "gpu") -> Gpu:
    """The GPU that this name means.

    Raises UnknownNameError, with `field` as its path, when the name fits no GPU or GPUs that differ.
    """
    entries = gpu_catalog(catalog)
    exact = _spellings(catalog).get(_plain(name))
    if exact is not None:
        return entries.gpus[exact].gpu
    parsed = parse_gpu_name(name)
    matches = _matches(parsed, entries)
    if len(matches) == 1:
        return entries.gpus[matches[0]].gpu
    raise UnknownNameError(field, name, _remedy(parsed, matches, entries))


@lru_cache
def _spellings(catalog: str) -> Mapping[str, str]:
    """Plain spellings of slugs, full names and fixed aliases, to slugs."""
    spellings: dict[str, str] = {}
    for slug, entry in gpu_catalog(catalog).gpus.items():
        aliases = entry.names.aliases
        own = {slug, entry.title, *aliases, *(f"nvidia {alias}" for alias in aliases)}
        spellings.update({_plain(spelling): slug for spelling in own})
    return MappingProxyType(spellings)


def parse_gpu_name(name: str) -> ParsedName:
    """Splits a name into family, forms and memory; tokens that mean nothing here stay in the family."""
    text = _separate(_plain(name))
    sizes = [float(size) for size in re.findall(r"\b(\d+) ?gi?b?\b", text)]
    tokens = [token for token in re.sub(r"\b\d+ ?gi?b?\b", " ", text).split() if not _NOISE.fullmatch(token)]
    forms = frozenset(_FORMS.get(token, token) for token in tokens if _is_form(token))
    rest = [token for token in tokens if not _is_form(token) and token != "rtx"]
    if "pro" in rest and "s" in rest:  # Vast.ai writes "RTX PRO 6000 S" for the server edition
        rest.remove("s")
        forms |= {"server"}
    if "super" in rest and "ti" in rest:  # "4070S Ti" and "4070 Ti SUPER" are one card
        rest.remove("super")
        rest.append("super")
    if len(set(sizes)) > 1:  # "MIG 1g 24gb": no whole card
        rest.append("mig")
    return ParsedName("".join(rest), forms - {"ws"} if "maxq" in forms else forms, sizes[0] if sizes else None)


def _plain(name: str) -> str:
    return " ".join(re.sub(r"[\s_\-/(),+:]+", " ", name.lower()).split())


def _separate(text: str) -> str:
    """Spaces around the words that clouds glue together."""
    text = re.sub(r"^1x ", "", text)
    text = re.sub(r"max ?q", "maxq", text)
    text = re.sub(r"(nvidia|geforce|instinct|tesla|quadro)", r" \1 ", text)
    text = re.sub(r"\b(quadro|q) (?=rtx|\d)", "q", text.replace("  ", " "))
    text = re.sub(r"qrtx ?(?=\d)", "q", text)
    text = re.sub(r"(sxm) ?\d?|(pcie) ?(?:gen)? ?[345]?(?: ?x\d+)?\b", lambda m: f" {m[1] or m[2]} ", text)
    text = re.sub(r"\b(?:hbm|gddr)\d+[ex]?\b", " ", text)
    text = re.sub(r"\brtx(?=[a-z]?\d)", " ", text)
    text = re.sub(r"\b(\d{4})s\b", r"\1 super", text)
    text = re.sub(r"(?<=\d)(ti|super|ada)(super)?\b", r" \1 \2", text)
    return text


def _is_form(token: str) -> bool:
    return token in _FORMS or token in {"sxm", "maxq", "superchip"}


def _matches(parsed: ParsedName, entries: GpuCatalog) -> list[str]:
    """Slugs that the name fits, cut to the family's first choice where the catalogue states an order."""
    if shared := entries.ambiguous.get(parsed.family):
        return [slug for slug in shared if parsed.memory_gb is not None and _fits(parsed, slug, entries)]
    order = entries.families.get(parsed.family)
    members = order or [
        slug
        for slug, entry in entries.gpus.items()
        if parsed.family in {entry.names.family, f"rtx{entry.names.family}"}
    ]
    fitting = [slug for slug in members if _fits(parsed, slug, entries)]
    return fitting[:1] if order else fitting


def _fits(parsed: ParsedName, slug: str, entries: GpuCatalog) -> bool:
    names, gpu = entries.gpus[slug].names, entries.gpus[slug].gpu
    stated = {"form"} if parsed.forms else set()
    if parsed.memory_gb is not None:
        stated.add("memory")
        if abs(parsed.memory_gb - gpu.memory_gb) > MEMORY_TOLERANCE_FRACTION * gpu.memory_gb:
            return False
    return parsed.forms <= names.forms and names.must_say <= stated


def _remedy(parsed: ParsedName, matches: Sequence[str], entries: GpuCatalog) -> str:
    if candidates := matches or entries.ambiguous.get(parsed.family):
        return f"several GPUs go by this name; say which: {', '.join(candidates)}"
    family = [entry.gpu for entry in entries.gpus.values() if entry.names.family == parsed.family]
    if family:
        members = ", ".join(f"{gpu.slug} ({gpu.memory_gb:g} GB)" for gpu in family)
        return f"the catalogue has this family only as: {members}"
    first_of_family: dict[str, str] = {}
    for slug, entry in entries.gpus.items():
        first_of_family.setdefault(entry.names.family, slug)
    near = close_names(parsed.family, first_of_family)
    hint = f"did you mean {', '.join(near)}? " if near else ""
    return f"no such GPU in the catalogue; {hint}`sutler catalog gpus` lists all; or describe it under `gpus`"


def close_names(key: str, targets: Mapping[str, str]) -> list[str]:
    """Returns up to three targets whose keys resemble `key`, best first, in the targets' spelling."""
    return [targets[match] for match in get_close_matches(key, list(targets), n=3, cutoff=0.5)]
