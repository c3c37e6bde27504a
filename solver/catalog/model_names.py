"""From the spellings of repositories, engines and people to a catalogue id.

A name is compared without its organisation, case and separators; then without the words that name a fine-tune or a
quantisation of the same architecture (`Instruct`, `FP8`, `AWQ`), and last without release dates and versions.
Sizes and generations always stay, so that no model passes for another. An alias with an organisation is a repository
of its own, with other weights of the same architecture.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from sutler.solver.catalog.entries import ModelSpec, Precision
from sutler.solver.catalog.gpu_names import close_names
from sutler.solver.catalog.models import model_catalog
from sutler.solver.errors import UnknownNameError

_FINE_TUNE: Final = re.compile(r"meta|instruct|chat|it|pt|hf|base|thinking|turbo")  # they keep the architecture
_QUANTISATION: Final = re.compile(
    r"fp[48].*|bf16|fp16|nvfp4|mxfp4|int[48]|w\d+a\d+|awq|gptq|gguf|bnb|mlx|exl[23]|[48]bit|quantized(?:\..*)?"
    r"|dynamic|static|kv|per|pertensor|tensor|block|channel|marlin"  # how it was quantised
)
_OLLAMA_QUANTISATION: Final = re.compile(r"[-_:]q\d\w*$")
_STATED_PRECISIONS: Final[tuple[tuple[str, Precision], ...]] = (
    (r"fp4", "fp4"),
    (r"fp8", "fp8"),
    (r"awq|gptq|int4|w4a16|4bit", "int4"),
    (r"int8|w8a8|w8a16", "int8"),
)
_RELEASE: Final = re.compile(r"v0\.\d+|\d{4}")


def resolve_model(name: str, *, field: str = "model") -> ModelSpec:
    """The model that this name means.

    Raises UnknownNameError, with `field` as its path, when the catalogue has no such architecture.
    """
    keys = _keys()
    for key in _readings(name):
        if key in keys:
            model, repository = keys[key]
            spec = model_catalog()[model].spec
            return spec if repository is None else _other_weights(spec, repository)
    near = dict.fromkeys(close_names(_compact(_tokens(name)), {key: model for key, (model, _) in keys.items()}))
    hint = f"did you mean {', '.join(near)}? " if near else ""
    remedy = f"no such model in the catalogue; {hint}`sutler catalog models` lists all; or give its architecture"
    raise UnknownNameError(field, name, remedy)


def with_repository(spec: ModelSpec, name: str) -> ModelSpec:
    """`spec` with the weights of the repository `name`, whatever fine-tune of the architecture it holds: at the
    precision that the catalogue or the name states."""
    if name.lower() == spec.repository.lower():
        return spec
    known = next((precision for precision, named in spec.checkpoints if named.lower() == name.lower()), None)
    stated = known or _stated_precision(name)
    schemes = spec.kv_schemes if known is not None else ()
    return replace(spec, hf_id=name, checkpoints=() if stated is None else ((stated, name),), kv_schemes=schemes)


def _other_weights(spec: ModelSpec, repository: str) -> ModelSpec:
    """Those of an alias, which its publisher keeps at the same precision."""
    native = spec.native_precision
    return replace(spec, hf_id=repository, checkpoints=() if native is None else ((native, repository),))


def _stated_precision(name: str) -> Precision | None:
    found = (precision for words, precision in _STATED_PRECISIONS if re.search(words, "-".join(_tokens(name))))
    return next(found, None)


def _readings(name: str) -> tuple[str, ...]:
    """Keys to look up, from the most literal to the most lenient."""
    tokens = _tokens(name)
    whole = [token for token in tokens if not _QUANTISATION.fullmatch(token)]
    plain = [token for token in whole if not _FINE_TUNE.fullmatch(token)]
    return (
        _compact(tokens),
        _compact(whole),
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
    return (_FINE_TUNE.fullmatch(token) or _QUANTISATION.fullmatch(token)) is not None


def _compact(tokens: list[str]) -> str:
    return "".join(tokens)


@lru_cache(maxsize=1)
def _keys() -> Mapping[str, tuple[str, str | None]]:
    """Compacted ids, repository names and aliases, to ids and the repository of an alias that is one."""
    keys: dict[str, tuple[str, str | None]] = {}
    for model, entry in model_catalog().items():
        own = [(model, None), (entry.spec.repository, None)]
        aliases = [(alias, alias if "/" in alias else None) for alias in entry.aliases]
        for spelling, repository in (*own, *aliases):
            tokens = _tokens(spelling)
            keys.setdefault(_compact(tokens), (model, repository))
            keys.setdefault(_compact([token for token in tokens if not _names_variant(token)]), (model, repository))
    return MappingProxyType(keys)
