"""Where replicas answer: a mapping of replicas to host:port, which whoever starts them keeps up to date."""

import re
from pathlib import Path
from typing import Final

from sutler.service.documents.errors import DocumentError
from sutler.service.documents.reading import read_document
from sutler.service.errors import FieldProblem, short_repr

ADDRESS: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})")
Address = tuple[str, int]
"""(host, port)"""


def read_addresses(path: Path) -> dict[str, Address]:
    """Host and port by replica, of a YAML or JSON file. Raises DocumentError."""
    data = read_document(path, field="addresses")
    if not isinstance(data, dict):
        raise DocumentError.of("addresses", "must be a mapping of replicas to host:port", value=data)
    found, problems = {}, []
    for replica, text in data.items():
        match = ADDRESS.fullmatch(text) if isinstance(text, str) else None
        if match is None or not 0 < int(match[3]) < 2**16:
            problems.append(FieldProblem(f"addresses.{replica}", short_repr(text), "must be host:port"))
        else:
            found[str(replica)] = (match[1] or match[2], int(match[3]))
    if problems:
        raise DocumentError(problems)
    return found
