"""Reading single fields of a config.json: whole numbers, flags, nested parts; errors that name what is wrong.

First step of config_json.py.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from sutler.solver.errors import InvalidProblemError

MOST: Final = 1_000_000_000
LANGUAGE_PARTS: Final = ("text_config", "llm_config", "language_config", "thinker_config")
FILL_IN: Final = (
    "is missing: add it from the model card, or take the complete config, which "
    "transformers.AutoConfig.from_pretrained(REPOSITORY).to_dict() gives"
)

Entry = TypeVar("Entry", int, str)


class Config:
    """A part of a config.json. Fields of the whole stand in for those that a nested part leaves out."""

    def __init__(self, path: str, content: object, outer: Mapping[str, object] | None = None) -> None:
        if not isinstance(content, Mapping):
            raise InvalidProblemError(path, _short(content), "must be the content of a config.json: a mapping")
        self.path = path
        self._content: Mapping[str, object] = content
        self._outer = outer or {}

    @property
    def kind(self) -> str:
        """model_type, by which transformers picks a class."""
        return str(self._content.get("model_type") or self._outer.get("model_type") or "")

    def language_part(self) -> "Config":
        """What describes the language model: nested in multimodal models, else all of it."""
        for key in LANGUAGE_PARTS:
            if isinstance(self._content.get(key), Mapping):
                nested = Config(f"{self.path}.{key}", self._content[key], self._content)
                return nested.language_part() if key == "thinker_config" else nested
        return self

    def keys(self) -> Iterable[str]:
        return self._content.keys()

    def value(self, key: str) -> object:
        """Returns the field, None where it is absent or null."""
        found = self._content.get(key)
        return self._outer.get(key) if found is None else found

    def part(self, key: str) -> "Config | None":
        found = self.value(key)
        return None if found is None else Config(f"{self.path}.{key}", found)

    def integer(self, key: str, *, default: int | None = None, least: int = 1) -> int:
        found = self.value(key)
        if found is None:
            if default is None:
                raise self.missing(key)
            return default
        if isinstance(found, bool) or not isinstance(found, int) or not least <= found <= MOST:
            raise self.wrong(key, found, f"must be a whole number of at least {least}")
        return found

    def first_integer(self, keys: Sequence[str], *, default: int | None = None, least: int = 1) -> int:
        """Reads the first that is there of fields that mean the same; errors name the first of all."""
        present = next((key for key in keys if self.value(key) is not None), keys[0])
        return self.integer(present, default=default, least=least)

    def flag(self, key: str, *, default: bool) -> bool:
        found = self.value(key)
        if found is not None and not isinstance(found, bool):
            raise self.wrong(key, found, "must be true or false")
        return default if found is None else bool(found)

    def numbers(self, key: str, *, layers: int) -> list[int] | None:
        """A list with one number for each layer; None where it is absent or empty."""
        return self._of_layers(key, layers, int, "numbers")

    def words(self, key: str, *, layers: int) -> list[str] | None:
        """The same of words."""
        return self._of_layers(key, layers, str, "words")

    def _of_layers(self, key: str, layers: int, kind: type[Entry], called: str) -> list[Entry] | None:
        found = self.value(key)
        if found is None or found == []:
            return None
        if not isinstance(found, list) or not all(isinstance(one, kind) for one in found) or len(found) < layers:
            raise self.wrong(key, found, f"must be a list of {layers} {called}, one for each layer")
        return found[:layers]

    def missing(self, key: str) -> InvalidProblemError:
        return InvalidProblemError(f"{self.path}.{key}", None, FILL_IN)

    def wrong(self, key: str, value: object, remedy: str) -> InvalidProblemError:
        return InvalidProblemError(f"{self.path}.{key}", _short(value), remedy)


def _short(value: object) -> object:
    return value if isinstance(value, int | float) else str(value)[:60]
