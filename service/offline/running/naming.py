"""Names of models as file names and as parts of ids: the script, the client and the schedule agree on them."""

import re
from collections.abc import Iterable
from typing import Final

from sutler.service.export.naming import dns_labels

_PLAIN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,79}")


def file_names(models: Iterable[str]) -> dict[str, str]:
    """A name for each model, unique among them: letters, digits, dots, hyphens and underscores, no dot first.

    A model with such a name keeps it; any other gets its readable part and a digest of the whole.
    """
    given = list(dict.fromkeys(models))
    names = {model: model for model in given if _PLAIN.fullmatch(model)}
    labels = dns_labels([*names, *(model for model in given if model not in names)])
    return {model: names.get(model, labels[model]) for model in given}


def replica_id(file: str, *, tensor_parallel: int, number: int) -> str:
    """Unique for every replica of every model: read from the right, it says which it is."""
    return f"{file}-tp{tensor_parallel}-{number}"
