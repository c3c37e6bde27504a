"""Clouds that are polled directly, by the names that resellers and price lists have for them.

What both say are the same machines: a reseller leaves these clouds out unless its settings ask for them.
"""

from collections.abc import Mapping
from typing import Final

# A reseller's name of a cloud, and ours; the test of the registry asks for every cloud that is polled directly.
OURS: Final[Mapping[str, str]] = {
    "datacrunch": "verda",
    "hyperstack": "hyperstack",
    "lambda": "lambda",
    "lambdalabs": "lambda",
    "lium": "lium",
    "runpod": "runpod",
    "vastai": "vastai",
    "verda": "verda",
    "vultr": "vultr",
}
