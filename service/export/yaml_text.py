"""YAML that every parser reads the same way: text is quoted wherever any version of YAML could read it otherwise.

Parsers of Go (Compose, Kubernetes) and PyYAML (SkyPilot) disagree on plain words such as `y`, `on`, `1e3` and `0o7`.
"""

import re
from collections.abc import Iterable
from typing import Any, Final

import yaml

# Letters first, no blank, no colon at the end: neither a number nor an indicator in any version of YAML.
_PLAIN: Final = re.compile(r"[A-Za-z](?:[A-Za-z0-9._/@:-]*[A-Za-z0-9])?")
_WORDS: Final = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null", "nan", "inf"])
_NEVER_FOLDED: Final = 1_000_000_000  # PyYAML has no other way to say so


class LiteralBlock(str):
    """Text of several lines to write as a block, for people to read."""

    __slots__ = ()


def yaml_documents(documents: Iterable[Any], *, heading: Iterable[str]) -> str:
    """The documents, a `---` before each, under comment lines."""
    comments = "".join(f"# {line}".rstrip() + "\n" for line in heading)
    return comments + "".join(f"---\n{_dumped(document)}" for document in documents)


def yaml_document(document: Any, *, heading: Iterable[str]) -> str:
    """A single document under comment lines."""
    return "".join(f"# {line}".rstrip() + "\n" for line in heading) + _dumped(document)


class _Dumper(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    is_plain = _PLAIN.fullmatch(text) and text.lower() not in _WORDS
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if is_plain else '"')


def _block(dumper: yaml.SafeDumper, text: LiteralBlock) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|")


_Dumper.add_representer(str, _text)
_Dumper.add_representer(LiteralBlock, _block)


def _dumped(document: Any) -> str:
    return yaml.dump(
        document, Dumper=_Dumper, sort_keys=False, default_flow_style=False, width=_NEVER_FOLDED, allow_unicode=False
    )
