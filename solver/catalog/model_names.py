"""From the spellings of repositories, engines and people to a catalogue id.

A name is compared without its organisation, case and separators; then without the words that name a fine-tune or a
quantisation of the same architecture (`Instruct`, `FP8`, `AWQ`), and last without release dates and versions.
Sizes and generations always stay, so that no model passes for another.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from solver.catalog.entries import ModelSpec
from solver.catalog.gpu_names import close_names
from solver.catalog.models import model_catalog
from solver.errors import UnknownNameError

_SAME_ARCHITECTURE: Final = re.compile(
    r"meta|instruct|chat|it|pt|hf|base|thinking|turbo"  # fine-tunes that keep the architecture
    r"|fp[48].*|bf16|fp16|nvfp4|mxfp4|int[48]|w\d+a\d+|awq|gptq|gguf|bnb|mlx|exl[23]|[48]bit|quantized(?:\..*)?"
    r"|dynamic|static|kv|per|pertensor|tensor|block|channel|marlin"  # how it was quantised
)
_OLLAMA_QUANTISATION: Final = re.compile(r"[-_:]q\d\w*$")
_RELEASE: Final = re.compile(r"v0\.\d+|\d{4}")


def resolve_model(name: str, *, field: str = "model") -> ModelSpec:
    """The model that this name means.

    Raises UnknownNameError, with `field` as its path, when the catalogue has no such architecture.
    """
    keys = _keys()
    for key in _readings(name):
        if key in keys:
            return model_catalog().models[keys[key]]
    near = dict.fromkeys(close_names(_compact(_tokens(name)), keys))
    hint = f"did you mean {', '.join(near)}? " if near else ""
    remedy = f"no such model in the catalogue; {hint}`sutler catalog models` lists all; or give its architecture"
    raise UnknownNameError(field, name, remedy)


def _readings(name: str) -> tuple[str, ...]:
    """Keys to look up, from the most literal to the most lenient."""
    tokens = _tokens(name)
    plain = [token for token in tokens if not _names_variant(token)]
    return (
        _compact(tokens),
        _compact(plain),
        _compact([token for token in plain if not _RELEASE.fullmatch(token)]),
    )


def _tokens(name: str) -> list[str]:
    text = name.strip().lower().removeprefix("hf:").rstrip("/")
    text = _OLLAMA_QUANTISATION.sub("", text.rsplit("/", 1)[-1])
    text = re.sub(r"\b([48])[-_ ]bit\b", r"\1bit", text)
    text = re.sub(r"v(\d)p(\d)", r"\1.\2", text)  # Fireworks writes llama-v3p1-70b
    return [token for token in re.split(r"[\s_\-:()]+", text) if token]


def _names_variant(token: str) -> bool:
    return _SAME_ARCHITECTURE.fullmatch(token) is not None


def _compact(tokens: list[str]) -> str:
    return "".join(tokens)


@lru_cache(maxsize=1)
def _keys() -> Mapping[str, str]:
    """Compacted ids, repository names and aliases, to ids."""
    catalog = model_catalog()
    keys: dict[str, str] = {}
    for model, spec in catalog.models.items():
        spellings = (model, spec.hf_id or model, *catalog.aliases[model])
        for spelling in spellings:
            tokens = _tokens(spelling)
            keys.setdefault(_compact(tokens), model)
            keys.setdefault(_compact([token for token in tokens if not _names_variant(token)]), model)
    return MappingProxyType(keys)
