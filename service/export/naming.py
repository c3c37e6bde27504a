"""Names and comments out of text from strangers: what the formats allow, always the same for the same text."""

import re
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

LONGEST_NAME: Final = 40  # leaves room for what Kubernetes appends within its 63 characters
_LONGEST_VALUE: Final = 63  # of a label, by Kubernetes


def dns_labels(texts: Iterable[str]) -> dict[str, str]:
    """A name for each text, unique among them: lower-case letters, digits and inner hyphens, a letter first.

    A text that is such a name keeps it; any other gets its readable part and a digest of the whole.
    RFC 1123 and 1035, https://kubernetes.io/docs/concepts/overview/working-with-objects/names/
    """
    given = list(dict.fromkeys(texts))
    names = {text: text for text in given if _dns_stem(text, LONGEST_NAME) == text}
    for text in given:
        if text not in names:
            names[text] = _digested(text, taken=set(names.values()))
    return {text: names[text] for text in given}


def label_value(text: str) -> str:
    """A Kubernetes label value for people to recognise the text by; not unique.

    https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#syntax-and-character-set
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:_LONGEST_VALUE].strip("-._")


def one_line(text: str) -> str:
    """The text as a comment can hold it: what does not print, line breaks included, is shown and not obeyed."""
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _digested(text: str, *, taken: set[str]) -> str:
    digest = sha256(text.encode()).hexdigest()
    for length in (8, 16, 32):
        name = f"{_dns_stem(text, LONGEST_NAME - length - 1)}-{digest[:length]}"
        if name not in taken:
            return name
    raise AssertionError(f"two texts with the same digest {digest}")


def _dns_stem(text: str, longest: int) -> str:
    cleaned = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
    if not cleaned[:1].isalpha():
        cleaned = f"r-{cleaned}" if cleaned else "r"
    return cleaned[:longest].rstrip("-")
